"""All steps at once, after a filter that needed no gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from mcfo.gradients.flow import frozen
from mcfo.gradients.lanes import Lane, guard_of, terms
from mcfo.gradients.moves import Data, Run, Sampler, Source, finish, make_source, read_data
from mcfo.gradients.programs import lifted_scan, stacked_outputs
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.series import Frame, Series
from mcfo.smc.filter import SMC, split_first
from mcfo.smc.trace import Move, Record, State
from mcfo.smc.weights import normalize_relative, uniform_log_weights
from mcfo.types import Key, Scalar


def batched(
    sampler: Sampler, lanes: tuple[Lane, ...], model: Model, proposal: Proposal, batch: Series, key: Key
) -> tuple[Scalar, Run]:
    """A gradient-free filter that keeps its moves, then all steps at once."""
    data = read_data(proposal, batch)
    source = make_source(sampler, model, proposal, batch, data.frames, key)
    first, rest = split_first(data)
    state, first_record, first_move = source.first(frozen(first.frames))

    _, records, moves = run_on(source, sampler, state, frozen(rest.frames), source.rest)
    guard = guard_of(model, proposal)

    def terms_of(now: Data, moves: Move, first: bool) -> Scalar:
        return terms(lanes, model, proposal, now, moves, key, first=first, guard=guard)

    later = jax.vmap(lambda now, moves: terms_of(now, moves, False))(rest, moves)
    return terms_of(first, first_move, True) + jnp.sum(later), finish(source, first_record, records)


def run_on(source: Source, sampler: Sampler, state: Any, frames: Frame, rest: Any) -> tuple[Any, Record, Move]:
    """The state after some more steps, and the records and moves of them."""
    if source.unnormalized is not None and len(frames.time):
        return _run_on_resampled(source.unnormalized, state, frames, source.given(rest))

    def body(state, now):
        frame, given = now
        after, record, move = source.next(state, given, frame)
        return after, (record, move, source.last_log_weights(state))

    last, (records, moves, before) = jax.lax.scan(body, state, (frames, source.given(rest)))
    if not isinstance(sampler, SMC):
        return last, records, moves
    # A small step takes as long as it has operations, whatever their size. So the loop keeps one set of weights, which
    # it has at hand, and what follows from them is made of all steps at once.
    log_weights = _after(before, source.last_log_weights(last))
    uniform = uniform_log_weights(before.shape[-1], before.dtype)
    carried = jnp.where(records.resampled[..., None], uniform, before)
    return last, *_with_weights(moves, records.log_evidence, log_weights, carried, records.resampled)


def _run_on_resampled(
    following: Callable[[Any, Any, Frame], Any], state: State, frames: Frame, given: Any
) -> tuple[State, Record, Move]:
    """The same where every step is resampled: weights are normalized of all steps at once, after the loop."""

    def body(state, now):
        frame, given = now
        after, largest, move = following(state, given, frame)
        return after, (move, largest, state.log_weights)

    # What needs nothing of the step before, such as a number that resampling draws, is made of all steps at once too.
    last, outputs, stacked = lifted_scan(body, state, (frames, given))
    moves, largest, before = stacked_outputs(outputs, stacked, len(frames.time))
    log_weights, increments = jax.vmap(jax.vmap(normalize_relative))(_after(before, last.log_weights), largest)
    last = eqx.tree_at(lambda s: s.log_weights, last, log_weights[-1])
    return last, *_with_weights(moves, increments, log_weights, moves.carried, moves.resampled)


def _after(
    before: Float[Array, "steps series particles"], last: Float[Array, "series particles"]
) -> Float[Array, "steps series particles"]:
    """What was before each step and after the last, as after each."""
    return jnp.concatenate([before, last[None]])[1:]


def _with_weights(
    moves: Move,
    increments: Float[Array, "steps series"],
    log_weights: Float[Array, "steps series particles"],
    carried: Float[Array, "steps series particles"],
    resampled: Bool[Array, "steps series"],
) -> tuple[Record, Move]:
    """Records of all steps, and the moves with the weights after and before them."""
    records = jax.vmap(jax.vmap(Record.of))(increments, log_weights, moves.ancestors, resampled)
    return records, eqx.tree_at(
        lambda m: (m.resampled, m.carried, m.log_weights),
        moves,
        (resampled, carried, log_weights),
        is_leaf=lambda leaf: leaf is None,
    )
