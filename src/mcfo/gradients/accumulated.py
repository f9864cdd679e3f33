"""The gradient of each step, or of each few, added up in the filter's scan."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from mcfo.gradients.early import Gradient, contexts_of, repaired, whole, with_contexts, with_encoder
from mcfo.gradients.flow import Guard, is_dead
from mcfo.gradients.lanes import Lane, is_deep, terms
from mcfo.gradients.moves import Data, Run, Sampler, finish, make_source, read_data
from mcfo.gradients.wide import run_on
from mcfo.series import Series
from mcfo.smc.blocks import scan_over_blocks
from mcfo.smc.filter import split_first
from mcfo.smc.trace import Move
from mcfo.types import Key, Scalar

_AT_ONCE = 2**17
"""Particles of several steps that go back together: as many as the caches of a core hold."""


def accumulated(
    live: Any, constant: Any, sampler: Sampler, lanes: tuple[Lane, ...], batch: Series, key: Key
) -> tuple[Gradient, Run]:
    """The filter's scan, with the gradients added up as it goes: memory does not grow with T.

    With networks each step goes back at once, so that densities are computed once. With few parameters some steps do
    together, after the filter went through them: what gradients are made of is then read, where in the filter's own
    loop the compiler would compute it again for each parameter.
    """
    modules = whole(live, constant)
    deep = is_deep(*modules)

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

        if not deep:
            return guarded("numbers")
        return repaired(jnp.any(is_dead(moves)), guarded("none"), lambda: guarded("stand-ins"))

    def body(carry, now):
        state, total = carry
        data, given = now
        state, record, move = source.next(state, given, data.frames)
        gradients, contexts = gradient(data, move, False)
        return (state, jax.tree.map(jnp.add, total, gradients)), (record, contexts)

    def of_block(carry, now):
        state, total = carry
        data, rest = now
        state, records, moves = run_on(source, sampler, state, data.frames, rest)

        def of_steps(arguments: Any) -> Scalar:
            live, contexts = arguments

            def of_step(contexts: Any, now: Data, moves: Move) -> Scalar:
                return surrogate((live, contexts), now, moves, False, "numbers")

            return jnp.sum(jax.vmap(of_step)(contexts, data, moves))

        gradients, contexts = jax.grad(of_steps)((live, contexts_of(data)))
        return (state, jax.tree.map(jnp.add, total, gradients)), (records, contexts)

    gradients, first_contexts = gradient(first, first_move, True)
    start = state, gradients
    if deep:
        (_, gradients), (records, contexts) = source.scan(body, start, rest)
    else:
        size = math.prod(first_move.carried.shape)
        (_, gradients), (records, contexts) = scan_over_blocks(
            of_block, start, (rest, source.rest), most=_AT_ONCE // size
        )
    contexts = jax.tree.map(lambda one, rest: jnp.concatenate([one[None], rest]), first_contexts, contexts)
    return with_encoder(gradients, contexts, live, constant, batch), finish(source, first_record, records)
