"""All steps at once, after a filter that needed no gradient."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mcfo.gradients.flow import frozen
from mcfo.gradients.lanes import Lane, guard_of, terms
from mcfo.gradients.moves import Data, Run, Sampler, Source, finish, make_source, read_data
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.sequences import Frame, Sequence
from mcfo.smc.filter import SMC, split_first
from mcfo.smc.trace import Move, Record
from mcfo.smc.weights import uniform_log_weights
from mcfo.types import Key, Scalar


def batched(
    sampler: Sampler, lanes: tuple[Lane, ...], model: Model, proposal: Proposal, batch: Sequence, key: Key
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

    def body(state, now):
        frame, given = now
        after, record, move = source.next(state, given, frame)
        return after, (record, move, source.last_log_weights(state))

    last, (records, moves, before) = jax.lax.scan(body, state, (frames, source.given(rest)))
    if isinstance(sampler, SMC):
        always = sampler.criterion(source.last_log_weights(last)[0]) is True and frames.present is None
        records, moves = _with_weights(records, moves, before, source.last_log_weights(last), always)
    return last, records, moves


def _with_weights(
    records: Record,
    moves: Move,
    before: Float[Array, "steps sequences particles"],
    last: Float[Array, "sequences particles"],
    always: bool,
) -> tuple[Record, Move]:
    """The same records and moves, made of the log-weights before each step and after the last.

    A small step takes as long as it has operations, whatever their size. So the loop keeps one set of weights, which it
    has at hand, and what follows from them, or is known (`always`: every step was resampled), is made of all steps at
    once.
    """
    resampled = jnp.ones_like(records.resampled) if always else records.resampled
    log_weights = jnp.concatenate([before, last[None]])[1:]
    uniform = uniform_log_weights(before.shape[-1], before.dtype)
    carried = jnp.where(resampled[..., None], uniform, before)
    records = jax.vmap(jax.vmap(Record.of))(records.log_evidence, log_weights, moves.ancestors, resampled)
    return records, eqx.tree_at(
        lambda m: (m.resampled, m.carried, m.log_weights), moves, (resampled, carried, log_weights)
    )
