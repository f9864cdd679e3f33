"""The bound and the gradients of a batch, for every seed; with score climbing, the trajectories after it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Int
from jaxtyping import Key as KeyArray

from mcfo.data.batching import Buckets
from mcfo.gradients.rules import DEVICES, is_shared
from mcfo.learning.parameters import Modules
from mcfo.objectives.objective import Objective
from mcfo.series import Series
from mcfo.smc.trajectory import Trajectory
from mcfo.types import HostArray, Key, Scalar

_FEW = 1000
"""The largest number of parameters with which seeds are vectorized."""

LogPrior = Callable[[Any], Scalar]
"""The log-density of the prior at a model, divided by the number of series, because the bound is a mean over them."""

_TRAJECTORY_TAG = 0x7472616A
"""Separates the random numbers of first trajectories from those of updates."""


class Outcome(eqx.Module):
    """The bound and the gradients of one batch, averaged over its series on all devices."""

    gradients: Modules
    loss: Scalar
    log_evidence: Scalar
    steps: Scalar
    ess: Scalar


def bound_and_gradients(
    objective: Objective,
    learned: Modules,
    rest: Modules,
    batch: Series,
    trajectories: Trajectory | None = None,
    *,
    key: Key,
    scale: HostArray | None = None,
    prior: LogPrior | None = None,
) -> tuple[Outcome, Trajectory | None]:
    """Return minus the mean bound of a batch, its gradient, and the diagnostics of the filter; new trajectories.

    **Arguments:**

    - `scale`: what the unit of each column was divided by; the bound is that of the data before.
    - `prior`: subtracted from the loss, for each series.
    """

    def loss(learned: Modules):
        modules = eqx.combine(learned, rest).current()
        value, run = objective.loss(modules.model, modules.proposal, batch, key=key, trajectories=trajectories)
        return value if prior is None else value - prior(modules.model), run

    (value, run), gradients = eqx.filter_value_and_grad(loss, has_aux=True)(learned)
    present = jax.vmap(Series.present)(batch)
    exists = jnp.ones(batch.observations.shape[:2], bool) if present is None else present
    # A bound for each step at which something was observed, as in every evaluation; the ESS for each that exists.
    steps = jnp.sum(jnp.any(jax.vmap(Series.mask)(batch), axis=-1))
    ess = jnp.sum(jnp.where(exists, run.record.ess, 0.0)) / jnp.sum(exists)
    log_evidence = jnp.mean(run.log_evidence)
    if scale is not None:
        log_jacobian = log_jacobian_of(batch, scale) / len(exists)
        value, log_evidence = value - log_jacobian, log_evidence + log_jacobian
    outcome = Outcome(
        gradients=gradients,
        loss=value,
        log_evidence=log_evidence,
        steps=steps / len(exists),
        ess=ess * steps / len(exists),
    )
    return outcome, run.trajectories


def log_jacobian_of(batch: Series, scale: HostArray) -> Scalar:
    """Return log |dx' / dx| of the observed values of a batch, x' = x / scale."""
    values = jnp.sum(jax.vmap(Series.mask)(batch), axis=(0, 1))
    return -jnp.sum(values * jnp.log(jnp.asarray(scale, float)))


def batch_outcome(
    objective: Objective,
    learned: Modules,
    rest: Modules,
    buckets: Buckets,
    bucket: Int[Array, ""],
    indices: Int[Array, "seeds series"],
    keys: KeyArray[Array, " seeds"],
    scale: HostArray | None = None,
    prior: LogPrior | None = None,
    trajectories: tuple[Trajectory, ...] | None = None,
) -> tuple[Outcome, tuple[Trajectory, ...] | None]:
    """Return the outcome of each seed's batch, all of them from one bucket, and all trajectories after it."""

    def of_bucket(number: int) -> tuple[Outcome, tuple[Trajectory, ...] | None]:
        def one(learned: Modules, indices: Int[Array, " series"], key: Key, paths: Trajectory | None) -> Any:
            batch, own = jax.tree.map(lambda array: array[indices], (buckets[number], paths))
            outcome, new = bound_and_gradients(objective, learned, rest, batch, own, key=key, scale=scale, prior=prior)
            if paths is None:
                return outcome, None
            if is_shared():
                # Each device has its part of the batch, and all have all trajectories.
                indices, new = jax.lax.all_gather((indices, new), DEVICES, tiled=True)
            return outcome, jax.tree.map(lambda array, rows: array.at[indices].set(rows), paths, new)

        if trajectories is None:
            return map_over_seeds(one, learned, indices, keys, None)
        outcome, new = map_over_seeds(one, learned, indices, keys, trajectories[number])
        return outcome, (*trajectories[:number], new, *trajectories[number + 1 :])

    if len(buckets) == 1:
        return of_bucket(0)
    return jax.lax.switch(bucket, [partial(of_bucket, number) for number in range(len(buckets))])


@eqx.filter_jit
def first_trajectories(objective: Objective, modules: Modules, data: Buckets, keys: Any) -> tuple[Trajectory, ...]:
    """Return the trajectories that score climbing starts from, for every seed and every series of each bucket."""

    def of_seed(key: Any) -> tuple[Trajectory, ...]:
        own = jax.random.fold_in(key, _TRAJECTORY_TAG)
        return tuple(objective.first_trajectories(modules.model, modules.proposal, batch, key=own) for batch in data)

    return jax.lax.map(of_seed, keys)


def mean_over_devices(outcome: Outcome) -> Outcome:
    """Average over the devices, each of which has its part of the batch."""
    # One all-reduce of the concatenated arrays is much cheaper than one for each array.
    flat, restore = ravel_pytree(outcome)
    return restore(jax.lax.pmean(flat, DEVICES))


def map_over_seeds(function: Callable[..., Any], learned: Any, *others: Any) -> Any:
    """Apply the function to each seed; the arguments have a leading axis over the seeds.

    With few parameters the seeds are vectorized. With networks they run one after the other: batched products with the
    weights of several seeds take four times as long as those with the weights of one.
    """
    arguments = (learned, *others)
    seeds, size = len(jax.tree.leaves(arguments)[0]), sum(leaf.size for leaf in real_arrays(learned))
    if seeds == 1:
        one = function(*jax.tree.map(lambda array: array[0], arguments))
        return jax.tree.map(lambda array: array[None], one)
    if size > seeds * _FEW:
        return jax.lax.map(lambda one: function(*one), arguments)
    return jax.vmap(function)(*arguments)


def real_arrays(tree: Any) -> list[Array]:
    """Return the arrays of floating-point numbers."""
    return [leaf for leaf in jax.tree.leaves(tree) if eqx.is_inexact_array(leaf)]
