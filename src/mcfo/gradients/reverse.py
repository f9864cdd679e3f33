"""Ordinary reverse mode through the filter's scan, for gradients that cross time."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from mcfo.gradients.early import Gradient, repaired, whole
from mcfo.gradients.flow import Strand, frozen, go_through, is_dead
from mcfo.gradients.lanes import Lane, is_local, sides, thinned
from mcfo.gradients.moves import Data, Run, Sampler, finish, make_source, read_data
from mcfo.gradients.rules import SEQUENCES, PathRule
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.sequences import Frame, Sequence
from mcfo.smc.filter import split_first
from mcfo.smc.trace import Move
from mcfo.types import Key, Scalar


def in_reverse(
    sampler: Sampler,
    lanes: tuple[Lane, ...],
    model: Model,
    proposal: Proposal,
    batch: Sequence,
    key: Key,
    *,
    frugal: bool = False,
    stand_in: bool = True,
) -> tuple[Scalar, Run, Bool[Array, ""]]:
    """Ordinary reverse mode through the scan; with `frugal` each step is gone through again on the way back.

    **Returns:** also whether any particle has died, which without `stand_in` none may.
    """
    data = read_data(proposal, batch)
    source = make_source(sampler, model, proposal, batch, data.frames, key)

    def along(lane: Lane, strand: Any, carried: Any, now: Data, moves: Move, first: bool):
        def of_one(strand: Strand | None, carried: Any, frame: Frame, move: Move, remaining: Any):
            p, q, own = sides(lane, model, proposal, frame)
            move = thinned(lane, move, frame, key) if is_local(lane.rule, model) else move
            step, after = go_through(lane.rule.flow, p, q, strand, own, move, remaining, first=first, stand_in=stand_in)
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
        return (state, carries, surrogate + terms), (record, jnp.any(is_dead(move)))

    body = jax.checkpoint(body) if frugal else body
    (state, (_, carried), surrogate), (records, dead) = jax.lax.scan(
        body, (state, carries, surrogate), (rest, source.rest)
    )
    for lane, held in zip(lanes, carried, strict=True):
        if isinstance(lane.rule, PathRule):
            surrogate = surrogate + jnp.sum(jax.vmap(lane.rule.finish)(held, source.last_log_weights(state)))
    anyone = jnp.any(is_dead(first_move)) | jnp.any(dead)
    return surrogate, finish(source, first_record, records), anyone


def reversed_(
    live: Any, constant: Any, sampler: Sampler, lanes: tuple[Lane, ...], batch: Sequence, key: Key
) -> tuple[Gradient, Run]:
    """Ordinary reverse mode, for gradients that cross time."""

    def surrogate(live: Any, stand_in: bool) -> tuple[Scalar, tuple[Run, Bool[Array, ""]]]:
        total, run, anyone = in_reverse(
            sampler, lanes, *whole(live, constant), batch, key, frugal=False, stand_in=stand_in
        )
        return total, (run, anyone)

    gradients, (run, anyone) = jax.grad(surrogate, has_aux=True)(live, False)
    return repaired(anyone, gradients, lambda: jax.grad(surrogate, has_aux=True)(live, True)[0]), run
