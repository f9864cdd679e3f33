"""The gradient of each step, added up in the filter's scan."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from mcfo.gradients.early import Gradient, contexts_of, repaired, whole, with_contexts, with_encoder
from mcfo.gradients.flow import Guard, is_dead
from mcfo.gradients.lanes import Lane, is_deep, terms
from mcfo.gradients.moves import Data, Run, Sampler, finish, make_source, read_data
from mcfo.sequences import Sequence
from mcfo.smc.filter import split_first
from mcfo.smc.trace import Move
from mcfo.types import Key, Scalar


def accumulated(
    live: Any, constant: Any, sampler: Sampler, lanes: tuple[Lane, ...], batch: Sequence, key: Key
) -> tuple[Gradient, Run]:
    """The filter's scan, with the gradient of each step added up as it goes: memory does not grow with T."""
    modules = whole(live, constant)

    def surrogate(arguments: Any, now: Data, moves: Move, first: bool, guard: Guard) -> Scalar:
        live, contexts = arguments
        modules, now = whole(live, constant), with_contexts(now, contexts)
        return terms(lanes, *modules, now, moves, key, first=first, guard=guard)

    data = read_data(modules[1], batch)
    source = make_source(sampler, *modules, batch, data.frames, key)
    first, rest = split_first(data)
    state, first_record, first_move = source.first(first.frames)

    def gradient(now: Data, moves: Move, first: bool) -> Gradient:
        arguments = live, contexts_of(now)

        def guarded(guard: Guard) -> Gradient:
            return jax.grad(surrogate)(arguments, now, moves, first, guard)

        if not is_deep(*modules):
            return guarded("numbers")
        return repaired(jnp.any(is_dead(moves)), guarded("none"), lambda: guarded("stand-ins"))

    def body(carry, now):
        state, total = carry
        data, given = now
        state, record, move = source.next(state, given, data.frames)
        gradients, contexts = gradient(data, move, False)
        return (state, jax.tree.map(jnp.add, total, gradients)), (record, contexts)

    gradients, first_contexts = gradient(first, first_move, True)
    (_, gradients), (records, contexts) = source.scan(body, (state, gradients), rest)
    contexts = jax.tree.map(lambda one, rest: jnp.concatenate([one[None], rest]), first_contexts, contexts)
    return with_encoder(gradients, contexts, live, constant, batch), finish(source, first_record, records)
