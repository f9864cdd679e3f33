"""Ordinary reverse mode through the filter's scan, for gradients that cross time."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from mcfo.gradients.early import Gradient, contexts_of, repaired, whole, with_contexts, with_encoder
from mcfo.gradients.flow import Guard, Strand, frozen, go_through, is_dead
from mcfo.gradients.lanes import Lane, is_local, sides, thinned
from mcfo.gradients.moves import Data, Run, Sampler, Source, finish, make_source, read_data
from mcfo.gradients.recurrence import linearised_recurrence
from mcfo.gradients.rules import SERIES, PathRule
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.series import Frame, Series
from mcfo.smc.filter import split_first
from mcfo.smc.trace import Move, Record
from mcfo.types import Key, Scalar


class Strands(NamedTuple):
    """Where a pass stands: the sampler's state, what each lane's flow carries, and what its rule does."""

    state: Any
    flows: list[Any]
    rules: list[Any]


class Seen(NamedTuple):
    """What is kept of each step: how it went, and whether a particle was dead in it."""

    record: Record
    dead: Bool[Array, "*steps"]


class Reverse:
    """A pass over a batch that can be differentiated in reverse, step by step or window by window."""

    def __init__(
        self,
        source: Source,
        lanes: tuple[Lane, ...],
        model: Model,
        proposal: Proposal,
        key: Key,
        *,
        guard: Guard,
    ):
        self._source, self._lanes, self._modules, self._key = source, lanes, (model, proposal), key
        self._guard: Guard = guard

    def begin(self, first: Data) -> tuple[Strands, Scalar, Seen]:
        """The first step, its surrogate, and what is kept of it."""
        nothing = [None] * len(self._lanes)
        state, record, move = self._source.first(frozen(first.frames))
        strands, terms = self.along(Strands(state, nothing, nothing), first, move, True)
        return strands, terms, Seen(record, jnp.any(is_dead(move)))

    def follow(self, strands: Strands, rest: Data, given: Any, *, frugal: bool = False) -> tuple[Strands, Scalar, Seen]:
        """Some more steps."""

        def body(carry, now):
            strands, surrogate = carry
            data, given = now
            state, record, move = self._source.next(strands.state, given, frozen(data.frames))
            strands, terms = self.along(strands._replace(state=state), data, move, False)
            return (strands, surrogate + terms), Seen(record, jnp.any(is_dead(move)))

        body = jax.checkpoint(body) if frugal else body
        zero = jnp.zeros((), self._source.last_log_weights(strands.state).dtype)
        (strands, surrogate), seen = jax.lax.scan(body, (strands, zero), (rest, given))
        return strands, surrogate, seen

    def finish(self, strands: Strands) -> Scalar:
        """What path rules say after the last step."""
        last = self._source.last_log_weights(strands.state)
        return sum(
            (
                jnp.sum(jax.vmap(lane.rule.finish)(held, last))
                for lane, held in zip(self._lanes, strands.rules, strict=True)
                if isinstance(lane.rule, PathRule)
            ),
            start=jnp.zeros((), last.dtype),
        )

    def along(self, strands: Strands, now: Data, moves: Move, first: bool) -> tuple[Strands, Scalar]:
        """One step of every lane, and its surrogate."""
        flows, rules, terms = [], [], jnp.zeros((), moves.carried.dtype)
        for lane, flow, held in zip(self._lanes, strands.flows, strands.rules, strict=True):
            flow, held, term = self._along_one(lane, flow, held, now, moves, first)
            flows.append(flow)
            rules.append(held)
            terms = terms + jnp.sum(term)
        return Strands(strands.state, flows, rules), terms

    def _along_one(self, lane: Lane, flow: Any, held: Any, now: Data, moves: Move, first: bool):
        model, proposal = self._modules
        local = is_local(lane.rule, model)

        def of_one(strand: Strand | None, carried: Any, frame: Frame, move: Move, remaining: Any):
            p, q, own = sides(lane, model, proposal, frame)
            move = thinned(lane, move, frame, self._key) if local else move
            step, after = go_through(lane.rule.flow, p, q, strand, own, move, remaining, first=first, guard=self._guard)
            if isinstance(lane.rule, PathRule):
                carried = lane.rule.start(step.log_weights) if first else carried
                later, term = lane.rule.extend(carried, step)
                later = frame.unless_padding(later, carried)
            else:
                later, term = None, lane.rule.term(step)  # pyright: ignore[reportAttributeAccessIssue]
            # A memory through which no gradient passes is the sampler's.
            term = frame.unless_padding(term, jnp.zeros_like(term))
            return None if local else after, later, term

        return jax.vmap(of_one, axis_name=SERIES)(flow, held, now.frames, moves, now.remaining)


def in_reverse(
    sampler: Sampler,
    lanes: tuple[Lane, ...],
    model: Model,
    proposal: Proposal,
    batch: Series,
    key: Key,
    *,
    frugal: bool = False,
    guard: Guard = "stand-ins",
) -> tuple[Scalar, Run, Bool[Array, ""]]:
    """Ordinary reverse mode through the scan; with `frugal` each step is gone through again on the way back.

    **Returns:** also whether any particle has died, which without a `guard` none may.
    """
    data = read_data(proposal, batch)
    source = make_source(sampler, model, proposal, batch, data.frames, key)
    steps = Reverse(source, lanes, model, proposal, key, guard=guard)
    first, rest = split_first(data)
    strands, begun, first_seen = steps.begin(first)
    strands, followed, seen = steps.follow(strands, rest, source.given(source.rest), frugal=frugal)
    run = finish(source, first_seen.record, seen.record)
    return begun + followed + steps.finish(strands), run, first_seen.dead | jnp.any(seen.dead)


def reversed_(
    live: Any, constant: Any, sampler: Sampler, lanes: tuple[Lane, ...], batch: Series, key: Key
) -> tuple[Gradient, Run]:
    """Reverse mode, for gradients that cross time; each step is linearized where the sampler makes it."""
    modules = whole(live, constant)
    data = read_data(modules[1], batch)
    # The sampler's arrays are those by which steps are linearized: what both compute is seen to be the same.
    source = make_source(sampler, *modules, batch, data.frames, key, freeze=False)
    first, rest = split_first(data)
    state, first_record, first_move = source.first(frozen(first.frames))
    nothing = [None] * len(lanes)

    def steps(live: Any) -> Reverse:
        return Reverse(source, lanes, *whole(live, constant), key, guard="none")

    def begin(live: Any, contexts: Any) -> tuple[Any, Scalar]:
        now = with_contexts(first, contexts)
        strands, term = steps(live).along(Strands(state, nothing, nothing), now, first_move, True)
        return strands[1:], term

    def body(state: Any, strand: Any, now: Any) -> tuple[Any, Any, Seen]:
        data, given = now
        state, record, move = source.next(state, given, frozen(data.frames))

        def function(live: Any, contexts: Any, strand: Any) -> tuple[Any, Scalar]:
            strands, term = steps(live).along(Strands(state, *strand), with_contexts(data, contexts), move, False)
            return strands[1:], term

        return state, function, Seen(record, jnp.any(is_dead(move)))

    def again() -> tuple[Gradient, Run]:
        """Ordinary reverse mode through the scan: dead particles have a stand-in in it."""

        def surrogate(live: Any) -> tuple[Scalar, Run]:
            return in_reverse(sampler, lanes, *whole(live, constant), batch, key)[:2]

        return jax.grad(surrogate, has_aux=True)(live)

    (strand, term), pull_first = jax.vjp(begin, live, contexts_of(first))
    if not all(jnp.issubdtype(leaf.dtype, jnp.inexact) for leaf in jax.tree.leaves(strand)):
        return again()  # a memory that counts cannot be linearized
    (state, strand), seen, back = linearised_recurrence(
        body, state, strand, (rest, source.given(source.rest)), live, contexts_of(rest)
    )
    ended = jax.grad(lambda strand: steps(live).finish(Strands(state, *strand)))(strand)
    gradients, contexts, begun = back(ended)
    first_gradients, first_contexts = pull_first((begun, jnp.ones_like(term)))
    gradients = jax.tree.map(jnp.add, gradients, first_gradients)
    contexts = jax.tree.map(lambda one, others: jnp.concatenate([one[None], others]), first_contexts, contexts)
    gradients = with_encoder(gradients, contexts, live, constant, batch)
    anyone = jnp.any(is_dead(first_move)) | jnp.any(seen.dead)
    return repaired(anyone, gradients, lambda: again()[0]), finish(source, first_record, seen.record)
