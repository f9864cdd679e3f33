"""The filter's scan keeps what gradients need; then all steps go back at once."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from mcfo.gradients.early import Gradient, contexts_of, repaired, whole, with_contexts, with_encoder
from mcfo.gradients.flow import Step, is_dead
from mcfo.gradients.lanes import Lane, gone_through, hindsight
from mcfo.gradients.linear import linearised_scan
from mcfo.gradients.moves import Data, Run, Sampler, finish, make_source, read_data
from mcfo.gradients.reverse import in_reverse
from mcfo.series import Series
from mcfo.smc.filter import split_first
from mcfo.smc.trace import Move
from mcfo.types import Key, Scalar


def kept(
    live: Any, constant: Any, sampler: Sampler, lanes: tuple[Lane, ...], batch: Series, key: Key
) -> tuple[Gradient, Run]:
    """Densities whose gradient stays within their step, and rules that may weigh them by what comes later.

    Multiplications of all steps at once are faster than of one step after the other, and half of those for a gradient
    are by weights, whose gradient is then written once. What the rules make of the densities costs next to nothing: it
    is differentiated by them, which gives the cotangents of the densities.
    """
    modules = whole(live, constant)
    data = read_data(modules[1], batch)
    source = make_source(sampler, *modules, batch, data.frames, key)
    first, rest = split_first(data)
    state, first_record, first_move = source.first(first.frames)

    def densities(now: Data, moves: Move, first: bool) -> Any:
        def function(live: Any, contexts: Any) -> list[Step]:
            own = with_contexts(now, contexts)
            steps = gone_through(lanes, *whole(live, constant), own, moves, key, first=first, guard="none")
            return eqx.filter(steps, eqx.is_inexact_array)

        return function

    def numbers(now: Data, moves: Move, first: bool) -> Any:
        steps = gone_through(lanes, *modules, now, moves, key, first=first, guard="none")
        return eqx.filter(steps, eqx.is_inexact_array, inverse=True)

    def body(state, now):
        data, given = now
        state, record, move = source.next(state, given, data.frames)
        outputs = record, jnp.any(is_dead(move)), numbers(data, move, False)
        return state, densities(data, move, False), outputs

    first_values, pull_first = jax.vjp(densities(first, first_move, True), live, contexts_of(first))
    state, values, (records, dead, rest_numbers), pull = linearised_scan(
        body, state, (rest, source.given(source.rest)), live, contexts_of(rest)
    )

    def surrogate(first_values: Any, values: Any) -> Scalar:
        first_steps = eqx.combine(first_values, numbers(first, first_move, True))
        steps = eqx.combine(values, rest_numbers)
        return hindsight(lanes, data.frames, first_steps, steps, source.last_log_weights(state))

    first_cotangents, cotangents = jax.grad(surrogate, argnums=(0, 1))(first_values, values)
    gradients, first_contexts = pull_first(first_cotangents)
    later, contexts = pull(cotangents)
    gradients = jax.tree.map(jnp.add, gradients, later)
    contexts = jax.tree.map(lambda one, rest: jnp.concatenate([one[None], rest]), first_contexts, contexts)
    gradients = with_encoder(gradients, contexts, live, constant, batch)

    def again() -> Gradient:
        return jax.grad(lambda live: in_reverse(sampler, lanes, *whole(live, constant), batch, key)[0])(live)

    anyone = jnp.any(is_dead(first_move)) | jnp.any(dead)
    return repaired(anyone, gradients, again), finish(source, first_record, records)
