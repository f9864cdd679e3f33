"""Gradients that are made as the filter runs, so that its densities are computed once.

Each way takes the live parameters, the constant rest, and what a run needs; it returns the gradient and the run.
Densities that networks give are the sampler's own: rules go through its steps without stand-ins for the dead, and the
compiler sees the same numbers twice. Where a particle has died, which networks hardly let happen, the gradient is made
again with them, in a loop: under vmap a loop is skipped where a condition is not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from mcfo.gradients.flow import is_dead
from mcfo.gradients.lanes import Lane, is_deep, terms
from mcfo.gradients.linear import linearised_scan
from mcfo.gradients.moves import Data, Run, Sampler, finish, make_source, read_data
from mcfo.gradients.rules import on_any_device
from mcfo.gradients.wide import batched, in_reverse
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.sequences import Sequence
from mcfo.smc.filter import split_first
from mcfo.smc.trace import Move
from mcfo.types import Key, Scalar

Gradient = Any
Way = Callable[..., tuple[Gradient, Run]]


@eqx.filter_custom_vjp
def early(
    modules: tuple[Model, Proposal], way: Way, sampler: Sampler, lanes: tuple[Lane, ...], batch: Sequence, key: Key
) -> tuple[Scalar, Run]:
    """A surrogate whose gradient is made together with its value, in this way. The value alone costs no gradient."""
    data = read_data(modules[1], batch)
    source = make_source(sampler, *modules, batch, data.frames, key)
    first, rest = split_first(data.frames)
    state, first_record, _ = source.first(first)

    def body(state, now):
        frame, given = now
        state, record, _ = source.next(state, given, frame)
        return state, record

    _, records = jax.lax.scan(body, state, (rest, source.rest))
    run = finish(source, first_record, records)
    return _placeholder(run), run


@early.def_fwd
def _forwards(perturbed: Any, modules: tuple[Model, Proposal], way: Way, *others: Any) -> tuple[Any, Gradient]:
    gradients, run = way(*eqx.partition(modules, perturbed), *others)
    return (_placeholder(run), run), gradients


@early.def_bwd
def _backwards(gradients: Gradient, cotangent: Any, *others: Any) -> Gradient:
    return jax.tree.map(lambda array: array * cotangent[0].astype(array.dtype), gradients)


def _placeholder(run: Run) -> Scalar:
    """For the surrogate, whose value means nothing. It depends on the run, so that `vmap` sees that it varies with what
    the run does: a constant would get the sum of all cotangents."""
    return jax.lax.stop_gradient(jnp.sum(run.log_evidence))


def accumulated(
    live: Any, constant: Any, sampler: Sampler, lanes: tuple[Lane, ...], batch: Sequence, key: Key
) -> tuple[Gradient, Run]:
    """The filter's scan, with the gradient of each step added up as it goes: memory does not grow with T."""
    modules = _whole(live, constant)
    surrogate = _surrogate(constant, lanes, key)
    data = read_data(modules[1], batch)
    source = make_source(sampler, *modules, batch, data.frames, key)
    first, rest = split_first(data)
    state, first_record, first_move = source.first(first.frames)

    def gradient(now: Data, moves: Move, first: bool) -> Gradient:
        arguments = live, _contexts(now)

        def again() -> Gradient:
            return jax.grad(surrogate)(arguments, now, moves, first, stand_in=True)

        if not is_deep(*modules):
            return again()
        once = jax.grad(surrogate)(arguments, now, moves, first, stand_in=False)
        return _repaired(jnp.any(is_dead(moves)), once, again)

    def body(carry, now):
        state, total = carry
        data, given = now
        state, record, move = source.next(state, given, data.frames)
        gradients, contexts = gradient(data, move, False)
        return (state, jax.tree.map(jnp.add, total, gradients)), (record, contexts)

    gradients, first_contexts = gradient(first, first_move, True)
    (_, gradients), (records, contexts) = jax.lax.scan(body, (state, gradients), (rest, source.rest))
    contexts = jax.tree.map(lambda one, rest: jnp.concatenate([one[None], rest]), first_contexts, contexts)
    return _with_encoder(gradients, contexts, live, constant, batch), finish(source, first_record, records)


def kept(
    live: Any, constant: Any, sampler: Sampler, lanes: tuple[Lane, ...], batch: Sequence, key: Key
) -> tuple[Gradient, Run]:
    """The filter's scan keeps what the gradient of each step needs; then all steps go back at once.

    Multiplications of all steps at once are faster than of one step after the other, and half of those for a gradient
    are by weights, whose gradient is then written once.
    """
    modules = _whole(live, constant)
    surrogate = _surrogate(constant, lanes, key)
    data = read_data(modules[1], batch)
    source = make_source(sampler, *modules, batch, data.frames, key)
    first, rest = split_first(data)
    state, first_record, first_move = source.first(first.frames)

    def of_first(arguments: Any) -> Scalar:
        return surrogate(arguments, first, first_move, True, stand_in=False)

    def body(state, now):
        data, given = now
        state, record, move = source.next(state, given, data.frames)

        def of_step(live: Any, contexts: Any) -> Scalar:
            return surrogate((live, contexts), data, move, False, stand_in=False)

        return state, of_step, (record, jnp.any(is_dead(move)))

    gradients, first_contexts = jax.grad(of_first)((live, _contexts(first)))
    transposed, (records, dead) = linearised_scan(body, state, (rest, source.rest), live, _contexts(rest))
    later, contexts = transposed
    gradients = jax.tree.map(jnp.add, gradients, later)
    contexts = jax.tree.map(lambda one, rest: jnp.concatenate([one[None], rest]), first_contexts, contexts)
    gradients = _with_encoder(gradients, contexts, live, constant, batch)

    def again() -> Gradient:
        return jax.grad(lambda live: batched(sampler, lanes, *_whole(live, constant), batch, key)[0])(live)

    anyone = jnp.any(is_dead(first_move)) | jnp.any(dead)
    return _repaired(anyone, gradients, again), finish(source, first_record, records)


def reversed_(
    live: Any, constant: Any, sampler: Sampler, lanes: tuple[Lane, ...], batch: Sequence, key: Key
) -> tuple[Gradient, Run]:
    """Ordinary reverse mode, for gradients that cross time."""

    def surrogate(live: Any, stand_in: bool) -> tuple[Scalar, tuple[Run, Bool[Array, ""]]]:
        total, run, anyone = in_reverse(
            sampler, lanes, *_whole(live, constant), batch, key, frugal=False, stand_in=stand_in
        )
        return total, (run, anyone)

    gradients, (run, anyone) = jax.grad(surrogate, has_aux=True)(live, False)
    # Path rules compare sequences of all devices, so that none may go back alone.
    return _repaired(on_any_device(anyone), gradients, lambda: jax.grad(surrogate, has_aux=True)(live, True)[0]), run


def _repaired(anyone: Bool[Array, ""], once: Gradient, again: Callable[[], Gradient]) -> Gradient:
    """The gradient, made again where any particle has died."""
    return jax.lax.while_loop(lambda state: state[0], lambda state: (jnp.zeros_like(anyone), again()), (anyone, once))[
        1
    ]


def _surrogate(constant: Any, lanes: tuple[Lane, ...], key: Key) -> Callable[..., Scalar]:
    """The surrogate of one step, of the parameters and of the step's contexts."""

    def surrogate(arguments: Any, now: Data, moves: Move, first: bool, stand_in: bool) -> Scalar:
        live, contexts = arguments
        whole = eqx.combine(contexts, eqx.filter(now.frames.context, eqx.is_inexact_array, inverse=True))
        steps = eqx.tree_at(lambda f: f.context, now.frames, whole, is_leaf=lambda leaf: leaf is None)
        modules = _whole(live, constant)
        return terms(lanes, *modules, Data(steps, now.remaining), moves, key, first=first, stand_in=stand_in)

    return surrogate


def _whole(live: Any, constant: Any) -> tuple[Model, Proposal]:
    model, proposal = eqx.combine(live, constant)
    return model, proposal


def _contexts(now: Data) -> Any:
    """What is differentiable of the contexts."""
    return eqx.filter(now.frames.context, eqx.is_inexact_array)


def _with_encoder(gradients: Gradient, contexts: Any, live: Any, constant: Any, batch: Sequence) -> Gradient:
    """The contexts were made once for all steps, outside of the scan; so is their share of the gradient."""
    (encoded,) = jax.vjp(lambda live: _contexts(read_data(_whole(live, constant)[1], batch)), live)[1](contexts)
    return jax.tree.map(jnp.add, gradients, encoded)
