"""All steps at once, after a filter that needed no gradient."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from mcfo.gradients.flow import frozen
from mcfo.gradients.lanes import Lane, guard_of, terms
from mcfo.gradients.moves import Data, Run, Sampler, finish, make_source, read_data
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.sequences import Sequence
from mcfo.smc.filter import split_first
from mcfo.smc.trace import Move
from mcfo.types import Key, Scalar


def batched(
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

    _, (records, moves) = jax.lax.scan(body, state, (frozen(rest.frames), source.given()))
    guard = guard_of(model, proposal)

    def terms_of(now: Data, moves: Move, first: bool) -> Scalar:
        return terms(lanes, model, proposal, now, moves, key, first=first, guard=guard)

    later = jax.vmap(lambda now, moves: terms_of(now, moves, False))(rest, moves)
    return terms_of(first, first_move, True) + jnp.sum(later), finish(source, first_record, records)
