"""What a training run compiles: some updates of all seeds, their series shared by the devices of a mesh."""

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
from mcfo.gradients.rules import DEVICES
from mcfo.learning.parameters import Modules
from mcfo.objectives.objective import Objective
from mcfo.series import Series
from mcfo.types import Key, Scalar

COMPILER_OPTIONS = {"xla_backend_optimization_level": "1"}
"""At this level compiling takes half as long, and the programs are as fast."""
_FEW = 1000
"""Parameters of a model whose seeds are learned side by side."""


class State(eqx.Module):
    """Where a run stands: all that the next update needs, besides data and settings.

    All but `step` have one more axis in front, over the seeds. `average` is the mean of the parameters since the
    average began (before, the parameters themselves); `best` are those with the lowest validation NLL so far, at
    `best_step`, after which there were `stale` evaluations.
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

    @classmethod
    @eqx.filter_jit  # one program, where there would be one for each operation
    def start(cls, learned: Modules, optimizer: optax.GradientTransformation, seeds: int) -> State:
        """The same parameters for every seed."""
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
        )


class Sums(eqx.Module):
    """Sums over the updates of a chunk that were made; the skipped ones are in none of them."""

    updates: Float[Array, "*seeds"]
    loss: Float[Array, "*seeds"]
    log_evidence: Float[Array, "*seeds"]
    steps: Float[Array, "*seeds"]
    ess: Float[Array, "*seeds"]
    norm_theta: Float[Array, "*seeds"]
    norm_phi: Float[Array, "*seeds"]


class Outcome(eqx.Module):
    """Bound and gradients of one batch: means over all its series, whichever device had them."""

    gradients: Modules
    loss: Scalar
    log_evidence: Scalar
    steps: Scalar
    ess: Scalar


def bound_and_gradients(objective: Objective, learned: Modules, rest: Modules, batch: Series, *, key: Key) -> Outcome:
    """Minus the mean bound over a batch, its gradient by what is learned, and how the filter went."""

    def loss(learned: Modules):
        modules: Modules = eqx.combine(learned, rest)
        return objective.loss(modules.model, modules.proposal, batch, key=key)

    (value, run), gradients = eqx.filter_value_and_grad(loss, has_aux=True)(learned)
    present = jax.vmap(Series.present)(batch)
    exists = jnp.ones(batch.observations.shape[:2], bool) if present is None else present
    steps = jnp.sum(exists)
    return Outcome(
        gradients=gradients,
        loss=value,
        log_evidence=jnp.mean(run.log_evidence),
        steps=steps / len(exists),
        ess=jnp.sum(jnp.where(exists, run.record.ess, 0.0)) / len(exists),
    )


def batch_outcome(
    objective: Objective,
    learned: Modules,
    rest: Modules,
    buckets: Buckets,
    bucket: Int[Array, ""],
    indices: Int[Array, "seeds series"],
    keys: KeyArray[Array, " seeds"],
) -> Outcome:
    """The outcome of each seed's batch, which is of one bucket."""

    def of_bucket(data: Series) -> Outcome:
        def one(learned: Modules, indices: Int[Array, " series"], key: Key) -> Outcome:
            batch = jax.tree.map(lambda array: array[indices], data)
            return bound_and_gradients(objective, learned, rest, batch, key=key)

        return map_over_seeds(one, learned, indices, keys)

    if len(buckets) == 1:
        return of_bucket(buckets[0])
    return jax.lax.switch(bucket, [partial(of_bucket, data) for data in buckets])


def mean_over_devices(outcome: Outcome) -> Outcome:
    """The mean over the devices, each of which had its part of the places."""
    # One message between the devices is much cheaper than one for each array.
    flat, restore = ravel_pytree(outcome)
    return restore(jax.lax.pmean(flat, DEVICES))


def map_over_seeds(function: Callable[..., Any], learned: Any, *others: Any) -> Any:
    """The function of every seed's arguments, which have the seeds in front.

    With few parameters all seeds go side by side. With networks one goes after the other: multiplications by the
    weights of several seeds took four times as long as those by one seed's, also where there is only one.
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
    """The function as every device of the mesh runs it, on its part of the arguments; its results are everywhere the
    same."""
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
    """A compiled function of state, fixed arrays, data, buckets (chunk), places in them (chunk, seeds, batch), seeds
    and the number of updates.

    Places beyond that number are not used, so that the last chunk of a run needs no program of its own.
    """

    def update(
        learned: Any, state: Any, average: Modules, outcome: Outcome, step: Int[Array, ""]
    ) -> tuple[Any, Any, Modules, Sums]:
        gradients: Any = outcome.gradients
        changes, new_state = optimizer.update(gradients, state, learned)
        new = optax.apply_updates(learned, changes)
        norms = optax.tree.norm(gradients.model), optax.tree.norm(gradients.proposal)
        # Also the optimizer's state: a moment that has become infinite would make every later update zero.
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
            outcome = batch_outcome(
                objective,
                state.learned,
                rest,
                data,
                buckets[number],
                indices[number],
                jax.vmap(lambda key: jax.random.fold_in(key, step))(keys),
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
            )
            return state, jax.tree.map(jnp.add, sums, now)

        dtype = jnp.zeros(()).dtype
        zero = Sums(*[jnp.zeros(len(seeds), dtype)] * 7)
        return jax.lax.fori_loop(0, count, body, (state, zero))

    replicated, divided = PartitionSpec(), PartitionSpec(None, None, DEVICES)
    specs = replicated, replicated, replicated, replicated, divided, replicated, replicated
    return compiled(chunk, mesh, specs)
