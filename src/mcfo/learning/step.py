"""The compiled part of a training run: a chunk of updates for all seeds, with the series divided among devices."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int
from jaxtyping import Key as KeyArray

from mcfo.data.batching import Buckets
from mcfo.gradients.rules import DEVICES, is_shared
from mcfo.learning.parameters import Modules
from mcfo.objectives.objective import Objective
from mcfo.series import Series
from mcfo.smc.trajectory import Trajectory
from mcfo.types import Key, Scalar

COMPILER_OPTIONS = {"xla_backend_optimization_level": "1"}
"""At this level, compiling takes half as long and programs are as fast (jaxlib 0.10)."""
_FEW = 1000
"""The largest number of parameters with which seeds are vectorized."""

_TRAJECTORY_TAG = 0x7472616A
"""Separates the random numbers of first trajectories from those of updates."""


class State(eqx.Module):
    """The state of a run: all that the next update needs besides data and settings.

    All fields but `step` have a leading axis over the seeds. `average` is the mean of the parameters since averaging
    started, and before that the parameters themselves; `best` are the parameters with the lowest validation NLL, found
    at `best_step`, and `stale` counts the evaluations since then. `trajectories` are those of score climbing, of every
    series of each bucket; otherwise None.
    """

    step: Int[Array, ""]
    learned: Modules
    optimizer: Any
    average: Modules
    best: Modules
    best_nll: Float[Array, " seeds"]
    best_step: Int[Array, " seeds"]
    stale: Int[Array, " seeds"]
    skipped: Int[Array, " seeds"]
    trajectories: tuple[Trajectory, ...] | None = None

    @classmethod
    @eqx.filter_jit  # or each operation would be compiled by itself
    def start(
        cls, learned: Modules, optimizer: optax.GradientTransformation, seeds: int, trajectories: Any = None
    ) -> State:
        """Return the initial state: the same parameters for every seed."""
        learned = jax.tree.map(lambda array: jnp.repeat(array[None], seeds, axis=0), learned)
        zeros = jnp.zeros(seeds, jnp.int32)
        return cls(
            step=jnp.zeros((), jnp.int32),
            learned=learned,
            optimizer=jax.vmap(optimizer.init)(learned),  # pyright: ignore[reportArgumentType]
            average=learned,
            best=learned,
            best_nll=jnp.full(seeds, jnp.inf),
            best_step=zeros,
            stale=zeros,
            skipped=zeros,
            trajectories=trajectories,
        )


class Sums(eqx.Module):
    """Sums over the updates of a chunk; skipped updates are not counted."""

    updates: Float[Array, "*seeds"]
    loss: Float[Array, "*seeds"]
    log_evidence: Float[Array, "*seeds"]
    steps: Float[Array, "*seeds"]
    ess: Float[Array, "*seeds"]
    norm_theta: Float[Array, "*seeds"]
    norm_phi: Float[Array, "*seeds"]


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
) -> tuple[Outcome, Trajectory | None]:
    """Return minus the mean bound of a batch, its gradient, and the diagnostics of the filter; new trajectories."""

    def loss(learned: Modules):
        modules = eqx.combine(learned, rest).current()
        return objective.loss(modules.model, modules.proposal, batch, key=key, trajectories=trajectories)

    (value, run), gradients = eqx.filter_value_and_grad(loss, has_aux=True)(learned)
    present = jax.vmap(Series.present)(batch)
    exists = jnp.ones(batch.observations.shape[:2], bool) if present is None else present
    # A bound for each step at which something was observed, as in every evaluation; the ESS for each that exists.
    steps = jnp.sum(jnp.any(jax.vmap(Series.mask)(batch), axis=-1))
    ess = jnp.sum(jnp.where(exists, run.record.ess, 0.0)) / jnp.sum(exists)
    outcome = Outcome(
        gradients=gradients,
        loss=value,
        log_evidence=jnp.mean(run.log_evidence),
        steps=steps / len(exists),
        ess=ess * steps / len(exists),
    )
    return outcome, run.trajectories


def batch_outcome(
    objective: Objective,
    learned: Modules,
    rest: Modules,
    buckets: Buckets,
    bucket: Int[Array, ""],
    indices: Int[Array, "seeds series"],
    keys: KeyArray[Array, " seeds"],
    trajectories: tuple[Trajectory, ...] | None = None,
) -> tuple[Outcome, tuple[Trajectory, ...] | None]:
    """Return the outcome of each seed's batch, all of them from one bucket, and all trajectories after it."""

    def of_bucket(number: int) -> tuple[Outcome, tuple[Trajectory, ...] | None]:
        def one(learned: Modules, indices: Int[Array, " series"], key: Key, paths: Trajectory | None) -> Any:
            batch, own = jax.tree.map(lambda array: array[indices], (buckets[number], paths))
            outcome, new = bound_and_gradients(objective, learned, rest, batch, own, key=key)
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
    seeds, size = len(jax.tree.leaves(arguments)[0]), sum(leaf.size for leaf in _numbers(learned))
    if seeds == 1:
        one = function(*jax.tree.map(lambda array: array[0], arguments))
        return jax.tree.map(lambda array: array[None], one)
    if size > seeds * _FEW:
        return jax.lax.map(lambda one: function(*one), arguments)
    return jax.vmap(function)(*arguments)


def compiled(function: Callable[..., Any], mesh: Mesh, specs: tuple[PartitionSpec, ...]) -> Callable[..., Any]:
    """Compile the function for the devices of a mesh: each has its part of the arguments, and all the same results."""
    if mesh.size > 1:
        # JAX cannot infer that the results are replicated; they are, being means over all devices.
        function = jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=PartitionSpec(), check_vma=False)
    return jax.jit(function, compiler_options=COMPILER_OPTIONS)


def _numbers(tree: Any) -> list[Array]:
    return [leaf for leaf in jax.tree.leaves(tree) if eqx.is_inexact_array(leaf)]


def build_chunk(
    objective: Objective,
    optimizer: optax.GradientTransformation,
    static: Modules,
    averaged_from: int,
    mesh: Mesh,
) -> Callable[..., tuple[State, Sums]]:
    """Compile a function of state, fixed arrays, data, buckets (chunk), indices into them (chunk, seeds, batch), seeds
    and the number of updates.

    Indices beyond that number are not used, so that the last, shorter chunk of a run needs no program of its own.
    """

    def update(
        learned: Any, state: Any, average: Modules, outcome: Outcome, step: Int[Array, ""]
    ) -> tuple[Any, Any, Modules, Sums]:
        gradients: Any = outcome.gradients
        changes, new_state = optimizer.update(gradients, state, learned)
        new = optax.apply_updates(learned, changes)
        norms = optax.tree.norm(gradients.model), optax.tree.norm(gradients.proposal)
        # The optimizer's state is checked too: an infinite moment would set every later update to zero.
        good = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in _numbers((outcome, norms, new, new_state))]))
        learned, state = jax.tree.map(lambda new, old: jnp.where(good, new, old), (new, new_state), (learned, state))
        share = 1.0 / jnp.maximum(step - averaged_from + 1, 1)
        average = jax.tree.map(lambda old, new: old + share.astype(old.dtype) * (new - old), average, learned)

        def counted(value: Scalar) -> Scalar:
            return jnp.where(good, value, 0.0)

        sums = Sums(
            updates=good.astype(outcome.loss.dtype),
            loss=counted(outcome.loss),
            log_evidence=counted(outcome.log_evidence),
            steps=counted(outcome.steps),
            ess=counted(outcome.ess),
            norm_theta=counted(norms[0]),
            norm_phi=counted(norms[1]),
        )
        return learned, state, average, sums

    def chunk(
        state: State,
        fixed: Modules,
        data: Buckets,
        buckets: Int[Array, " chunk"],
        indices: Int[Array, "chunk seeds series"],
        seeds: Int[Array, " seeds"],
        count: Int[Array, ""],
    ) -> tuple[State, Sums]:
        keys = jax.vmap(jax.random.key)(seeds)
        rest: Modules = eqx.combine(fixed, static)

        def body(number: Int[Array, ""], carried: tuple[State, Sums]) -> tuple[State, Sums]:
            state, sums = carried
            step = state.step
            outcome, trajectories = batch_outcome(
                objective,
                state.learned,
                rest,
                data,
                buckets[number],
                indices[number],
                jax.vmap(lambda key: jax.random.fold_in(key, step))(keys),
                state.trajectories,
            )
            outcome = mean_over_devices(outcome) if mesh.size > 1 else outcome
            learned, optimizer_state, average, now = jax.vmap(update, in_axes=(0, 0, 0, 0, None))(
                state.learned, state.optimizer, state.average, outcome, step
            )
            state = State(
                step=step + 1,
                learned=learned,
                optimizer=optimizer_state,
                average=average,
                best=state.best,
                best_nll=state.best_nll,
                best_step=state.best_step,
                stale=state.stale,
                skipped=state.skipped + (now.updates == 0),
                trajectories=trajectories,
            )
            return state, jax.tree.map(jnp.add, sums, now)

        dtype = jnp.zeros(()).dtype
        zero = Sums(*[jnp.zeros(len(seeds), dtype)] * 7)
        return jax.lax.fori_loop(0, count, body, (state, zero))

    replicated, divided = PartitionSpec(), PartitionSpec(None, None, DEVICES)
    specs = replicated, replicated, replicated, replicated, divided, replicated, replicated
    return compiled(chunk, mesh, specs)
