"""How surrogates are differentiated over a batch: accumulated in the filter's scan, in one batched pass, or in reverse.

| | for | memory | time |
|---|---|---|---|
| accumulated | rules that stay within the step, Markov models | does not grow with T (SMC) | best for large steps |
| batched | the same | T x B x K | best for small steps: one wide pass after a gradient-free filter |
| in reverse | everything else | T x B x K; with `frugal`, less, for a second forward pass | |

The sampler runs on frozen parameters in all three: it decides what is drawn, the rules decide what is differentiated.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from mcfo.gradients.flow import Strand, frozen, go_through, is_dead
from mcfo.gradients.moves import Data, Run, Sampler, finish, make_source, read_data
from mcfo.gradients.rules import SEQUENCES, PathRule, Rule, StepRule
from mcfo.models.base import MarkovModel, Model
from mcfo.proposals.base import Proposal
from mcfo.sequences import Frame, Sequence
from mcfo.smc.filter import split_first
from mcfo.smc.frames import step_key
from mcfo.smc.trace import Move
from mcfo.types import Key, Scalar

_THINNING = 0x7468696E
"""Keeps the draws of rules that go through a few particles apart from the sampler's."""


class Lane(eqx.Module):
    """A rule and the sides that it teaches; the others are frozen in it."""

    rule: Rule
    theta: bool = eqx.field(static=True)
    phi: bool = eqx.field(static=True)


def differentiable_run(
    sampler: Sampler,
    lanes: tuple[Lane, ...],
    model: Model,
    proposal: Proposal,
    batch: Sequence,
    key: Key,
    *,
    frugal: bool | None,
) -> tuple[Scalar, Run]:
    """The sum of the lanes' surrogates over a batch, of which only the gradient means something, and the run itself.

    **Arguments:**

    - `frugal`: spend time to save memory; None chooses by the size of the problem.
    """
    if all(is_local(lane.rule, model) for lane in lanes):
        if _is_large(sampler, lanes, model, proposal, batch) if frugal is None else frugal:
            return _accumulated((model, proposal), sampler, lanes, batch, key)
        return _batched(sampler, lanes, model, proposal, batch, key)
    return _in_reverse(sampler, lanes, model, proposal, batch, key, bool(frugal))


def is_local(rule: Rule, model: Model) -> bool:
    """Whether no gradient of this rule crosses time."""
    return isinstance(model, MarkovModel) and isinstance(rule, StepRule) and rule.flow.latents != "all"


def _is_large(sampler: Sampler, lanes: tuple[Lane, ...], model: Model, proposal: Proposal, batch: Sequence) -> bool:
    """Whether accumulating in the scan is the better way, by measurement (`make bench`).

    With a few parameters the batched pass took 0.66 to 1.19 of the accumulated one's time, and 1.09 at five million
    particles in all; with networks, 0.75 at a thousand and 1.29 at ten thousand. Its memory grows with all three sizes.
    So it serves where that is small.
    """
    sequences, steps, _ = batch.observations.shape
    gone_through = max(lane.rule.thins_to or sampler.particles for lane in lanes)  # pyright: ignore[reportAttributeAccessIssue]
    return sequences * steps * gone_through > (2000 if _is_deep(model, proposal) else 1_000_000)


def _is_deep(model: Model, proposal: Proposal) -> bool:
    """Whether densities cost more than all that a filter does besides."""
    return sum(leaf.size for leaf in jax.tree.leaves((model, proposal)) if eqx.is_inexact_array(leaf)) > 1000


def _terms(
    lanes: tuple[Lane, ...],
    model: Model,
    proposal: Proposal,
    now: Data,
    moves: Move,
    key: Key,
    *,
    first: bool,
    stand_in: bool = True,
) -> Scalar:
    """The surrogate of one step of all sequences, where no gradient crosses time."""

    def of_one(frame: Frame, move: Move, remaining: Any) -> Scalar:
        total = jnp.zeros((), move.carried.dtype)
        for lane in lanes:
            sides = _sides(lane, model, proposal, frame)
            some = _thinned(lane, move, frame, key)
            step, _ = go_through(
                lane.rule.flow, *sides[:2], None, sides[2], some, remaining, first=first, stand_in=stand_in
            )
            term = lane.rule.term(step)  # pyright: ignore[reportAttributeAccessIssue]
            total = total + frame.unless_padding(term, jnp.zeros_like(term))
        return total

    return jnp.sum(jax.vmap(of_one)(now.frames, moves, now.remaining))


def _thinned(lane: Lane, move: Move, frame: Frame, key: Key) -> Move:
    """The particles that a rule which stays within the step goes through."""
    return lane.rule.thinned(  # pyright: ignore[reportAttributeAccessIssue]
        move, key=jax.random.fold_in(step_key(key, frame), _THINNING)
    )


def _sides(lane: Lane, model: Model, proposal: Proposal, frame: Frame) -> tuple[Model, Proposal, Frame]:
    """Model, proposal and frame as one lane may differentiate them: it never leaks into the side of another."""
    return (
        model if lane.theta else frozen(model),
        proposal if lane.phi else frozen(proposal),
        frame if lane.phi else frozen(frame),
    )


def _batched(
    sampler: Sampler, lanes: tuple[Lane, ...], model: Model, proposal: Proposal, batch: Sequence, key: Key
) -> tuple[Scalar, Run]:
    """A gradient-free filter that keeps its moves, then all steps at once."""
    data = read_data(proposal, batch)
    source = make_source(sampler, model, proposal, batch, data.frames, key)
    first, rest = split_first(data)
    state, first_record, first_move = source.first(frozen(first.frames))

    def body(state, now):
        frame, given = now
        state, record, move = source.next(state, given, frame)
        return state, (record, move)

    _, (records, moves) = jax.lax.scan(body, state, (frozen(rest.frames), source.rest))
    surrogate = _terms(lanes, model, proposal, first, first_move, key, first=True)
    later = jax.vmap(lambda now, moves: _terms(lanes, model, proposal, now, moves, key, first=False))(rest, moves)
    return surrogate + jnp.sum(later), finish(source, first_record, records)


@eqx.filter_custom_vjp
def _accumulated(
    modules: tuple[Model, Proposal], sampler: Sampler, lanes: tuple[Lane, ...], batch: Sequence, key: Key
) -> tuple[Scalar, Run]:
    """The value alone costs no gradient."""
    model, proposal = modules
    data = read_data(proposal, batch)
    source = make_source(sampler, model, proposal, batch, data.frames, key)
    first, rest = split_first(data.frames)
    state, first_record, _ = source.first(first)

    def body(state, now):
        frame, given = now
        state, record, _ = source.next(state, given, frame)
        return state, record

    _, records = jax.lax.scan(body, state, (rest, source.rest))
    run = finish(source, first_record, records)
    return _placeholder(run), run


@_accumulated.def_fwd
def _accumulate(
    perturbed: Any,
    modules: tuple[Model, Proposal],
    sampler: Sampler,
    lanes: tuple[Lane, ...],
    batch: Sequence,
    key: Key,
) -> tuple[tuple[Scalar, Run], Any]:
    """The filter's scan, with the gradient of each step added up as it goes."""
    live, constant = eqx.partition(modules, perturbed)
    deep = _is_deep(*modules)
    data = read_data(modules[1], batch)
    source = make_source(sampler, *modules, batch, data.frames, key)
    first, rest = split_first(data)
    state, first_record, first_move = source.first(first.frames)

    def gradient(now: Data, moves: Move, first: bool) -> Any:
        contexts, other = eqx.partition(now.frames.context, eqx.is_inexact_array)

        def surrogate(arguments: Any, stand_in: bool) -> Scalar:
            live, contexts = arguments
            model, proposal = eqx.combine(live, constant)
            steps = eqx.tree_at(
                lambda f: f.context, now.frames, eqx.combine(contexts, other), is_leaf=lambda leaf: leaf is None
            )
            now_live = Data(steps, now.remaining)
            return _terms(lanes, model, proposal, now_live, moves, key, first=first, stand_in=stand_in)

        if not deep:
            return jax.grad(surrogate)((live, contexts), True)
        # Densities are costly: they are the sampler's own, computed once. Where a particle has died, which networks
        # hardly let happen, the step is gone through again; under vmap a loop is skipped where a condition is not.
        anyone = jnp.any(is_dead(moves))
        return jax.lax.while_loop(
            lambda state: state[0],
            lambda state: (jnp.zeros_like(anyone), jax.grad(surrogate)((live, contexts), True)),
            (anyone, jax.grad(surrogate)((live, contexts), False)),
        )[1]

    def body(carry, now):
        state, total = carry
        data, given = now
        state, record, move = source.next(state, given, data.frames)
        gradients, contexts = gradient(data, move, False)
        return (state, jax.tree.map(jnp.add, total, gradients)), (record, contexts)

    gradients, first_contexts = gradient(first, first_move, True)
    (_, gradients), (records, contexts) = jax.lax.scan(body, (state, gradients), (rest, source.rest))
    contexts = jax.tree.map(lambda one, rest: jnp.concatenate([one[None], rest]), first_contexts, contexts)

    def encode(live: Any) -> Any:
        proposal = eqx.combine(live, constant)[1]
        return eqx.filter(read_data(proposal, batch).frames.context, eqx.is_inexact_array)

    # The contexts were made once for all steps, outside of the scan; so is their share of the gradient.
    (encoded,) = jax.vjp(encode, live)[1](contexts)
    gradients = jax.tree.map(jnp.add, gradients, encoded)
    run = finish(source, first_record, records)
    return (_placeholder(run), run), gradients


def _placeholder(run: Run) -> Scalar:
    """For the surrogate, whose value means nothing. It depends on the run, so that `vmap` sees that it varies with what
    the run does: a constant would get the sum of all cotangents."""
    return jax.lax.stop_gradient(jnp.sum(run.log_evidence))


@_accumulated.def_bwd
def _scale(residuals: Any, cotangent: Any, perturbed: Any, modules: Any, *others: Any) -> Any:
    return jax.tree.map(lambda array: array * cotangent[0].astype(array.dtype), residuals)


def _in_reverse(
    sampler: Sampler,
    lanes: tuple[Lane, ...],
    model: Model,
    proposal: Proposal,
    batch: Sequence,
    key: Key,
    frugal: bool,
) -> tuple[Scalar, Run]:
    """Ordinary reverse mode through the scan; with `frugal` each step is gone through again on the way back."""
    data = read_data(proposal, batch)
    source = make_source(sampler, model, proposal, batch, data.frames, key)

    def along(lane: Lane, strand: Any, carried: Any, now: Data, moves: Move, first: bool):
        def of_one(strand: Strand | None, carried: Any, frame: Frame, move: Move, remaining: Any):
            sides = _sides(lane, model, proposal, frame)
            move = _thinned(lane, move, frame, key) if is_local(lane.rule, model) else move
            step, after = go_through(lane.rule.flow, *sides[:2], strand, sides[2], move, remaining, first=first)
            if isinstance(lane.rule, PathRule):
                carried = lane.rule.start(step.log_weights) if first else carried
                later, term = lane.rule.extend(carried, step)
                later = frame.unless_padding(later, carried)
            else:
                later, term = None, lane.rule.term(step)  # pyright: ignore[reportAttributeAccessIssue]
            # A memory through which no gradient passes is the sampler's.
            term = frame.unless_padding(term, jnp.zeros_like(term))
            return None if is_local(lane.rule, model) else after, later, term

        return jax.vmap(of_one, axis_name=SEQUENCES)(strand, carried, now.frames, moves, now.remaining)

    def all_lanes(carries: Any, now: Data, moves: Move, first: bool):
        strands, carried, terms = [], [], jnp.zeros((), moves.carried.dtype)
        for lane, strand, held in zip(lanes, *carries, strict=True):
            strand, held, term = along(lane, strand, held, now, moves, first)
            strands.append(strand)
            carried.append(held)
            terms = terms + jnp.sum(term)
        return (strands, carried), terms

    nothing = [None] * len(lanes)
    first, rest = split_first(data)
    state, first_record, first_move = source.first(frozen(first.frames))
    carries, surrogate = all_lanes((nothing, nothing), first, first_move, True)

    def body(carry, now):
        state, carries, surrogate = carry
        data, given = now
        state, record, move = source.next(state, given, frozen(data.frames))
        carries, terms = all_lanes(carries, data, move, False)
        return (state, carries, surrogate + terms), record

    body = jax.checkpoint(body) if frugal else body
    (state, (_, carried), surrogate), records = jax.lax.scan(body, (state, carries, surrogate), (rest, source.rest))
    for lane, held in zip(lanes, carried, strict=True):
        if isinstance(lane.rule, PathRule):
            surrogate = surrogate + jnp.sum(jax.vmap(lane.rule.finish)(held, source.last_log_weights(state)))
    return surrogate, finish(source, first_record, records)
