"""Gradients that are made as the filter runs, so that its densities are computed once: what all ways of it share.

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

from mcfo.gradients.lanes import Lane
from mcfo.gradients.moves import Data, Run, Sampler, finish, make_source, read_data
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.series import Series
from mcfo.smc.filter import split_first
from mcfo.types import Key, Scalar

Gradient = Any
Way = Callable[..., tuple[Gradient, Run]]


@eqx.filter_custom_vjp
def early(
    modules: tuple[Model, Proposal], way: Way, sampler: Sampler, lanes: tuple[Lane, ...], batch: Series, key: Key
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

    _, records = source.scan(body, state, rest)
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


def repaired(anyone: Bool[Array, ""], once: Gradient, again: Callable[[], Gradient]) -> Gradient:
    """The gradient, made again where any particle has died."""
    return jax.lax.while_loop(lambda state: state[0], lambda state: (jnp.zeros_like(anyone), again()), (anyone, once))[
        1
    ]


def with_contexts(now: Data, contexts: Any) -> Data:
    """The same steps with other contexts."""
    all_of_them = eqx.combine(contexts, eqx.filter(now.frames.context, eqx.is_inexact_array, inverse=True))
    frames = eqx.tree_at(lambda f: f.context, now.frames, all_of_them, is_leaf=lambda leaf: leaf is None)
    return Data(frames, now.remaining)


def whole(live: Any, constant: Any) -> tuple[Model, Proposal]:
    model, proposal = eqx.combine(live, constant)
    return model, proposal


def contexts_of(now: Data) -> Any:
    """What is differentiable of the contexts."""
    return eqx.filter(now.frames.context, eqx.is_inexact_array)


def with_encoder(gradients: Gradient, contexts: Any, live: Any, constant: Any, batch: Series) -> Gradient:
    """The contexts were made once for all steps, outside of the scan; so is their share of the gradient."""
    (encoded,) = jax.vjp(lambda live: contexts_of(read_data(whole(live, constant)[1], batch)), live)[1](contexts)
    return jax.tree.map(jnp.add, gradients, encoded)
