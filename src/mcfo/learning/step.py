"""The compiled part of a training run: a chunk of updates for all seeds, with the series divided among devices."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
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
from mcfo.types import HostArray, Key, Scalar

COMPILER_OPTIONS = {"xla_backend_optimization_level": "1"}
"""At this level, compiling takes half as long and programs are as fast (jaxlib 0.10)."""
_FEW = 1000
"""The largest number of parameters with which seeds are vectorized."""
LogPrior = Callable[[Any], Scalar]
"""The log-density of the prior at a model, divided by the number of series, because the bound is a mean over them."""


PARTS = 8
"""Parts of the updates between two looks, whose mean gradients say how noisy they are."""


class Looking(eqx.Module):
    """What a look at the improvement needs, with all parameters in one vector.

    `gradients` are sums over the updates since the average started anew, in parts; `before` are their means up to the
    last look, and `average` the parameters that were averaged then.
    """

    gradients: Float[Array, "seeds parts size"]
    before: Float[Array, "seeds parts size"]
    average: Float[Array, "seeds size"]

    @classmethod
    def start(cls, seeds: int, parameters: Float[Array, " size"]) -> Looking:
        """Return it before the first update."""
        parts = jnp.zeros((seeds, PARTS, len(parameters)), parameters.dtype)
        return cls(parts, parts, jnp.zeros_like(parts[:, 0]))


def part_of(step: Any, since: Any, until: Any) -> Any:
    """Return the part of the updates from `since` up to `until` to which an update belongs."""
    return (step - since) * PARTS // (until - since)


class State(eqx.Module):
    """The state of a run: all that the next update needs besides data and settings.

    All fields but `step` have a leading axis over the seeds. `average` is the mean of the parameters since averaging
    started anew, and before that the parameters themselves; `best` are the parameters with the lowest validation NLL,
    found at `best_step`, and `stale` counts the evaluations since then. `looking` is what looks need, if there are any.
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
    looking: Looking | None = None

    @classmethod
    @eqx.filter_jit  # or each operation would be compiled by itself
    def start(
        cls, learned: Modules, optimizer: optax.GradientTransformation, seeds: int, *, looks: bool = False
    ) -> State:
        """Return the initial state: the same parameters for every seed."""
        looking = Looking.start(seeds, ravel_pytree(learned)[0]) if looks else None
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
            looking=looking,
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
    *,
    key: Key,
    scale: HostArray | None = None,
    prior: LogPrior | None = None,
) -> Outcome:
    """Return minus the mean bound of a batch, its gradient, and the diagnostics of the filter.

    **Arguments:**

    - `prior`: subtracted from the loss, for each series.
    - `scale`: what the unit of each column was divided by; the bound is that of the data before.
    """

    def loss(learned: Modules):
        modules = eqx.combine(learned, rest).current()
        value, run = objective.loss(modules.model, modules.proposal, batch, key=key)
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
    return Outcome(
        gradients=gradients,
        loss=value,
        log_evidence=log_evidence,
        steps=steps / len(exists),
        ess=ess * steps / len(exists),
    )


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
) -> Outcome:
    """Return the outcome of each seed's batch; all of them come from one bucket."""

    def of_bucket(data: Series) -> Outcome:
        def one(learned: Modules, indices: Int[Array, " series"], key: Key) -> Outcome:
            batch = jax.tree.map(lambda array: array[indices], data)
            return bound_and_gradients(objective, learned, rest, batch, key=key, scale=scale, prior=prior)

        return map_over_seeds(one, learned, indices, keys)

    if len(buckets) == 1:
        return of_bucket(buckets[0])
    return jax.lax.switch(bucket, [partial(of_bucket, data) for data in buckets])


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


def apply_update(
    optimizer: optax.GradientTransformation,
    learned: Any,
    state: Any,
    average: Modules,
    outcome: Outcome,
    share: Scalar,
) -> tuple[Any, Any, Modules, Sums]:
    """Return parameters, the optimizer's state and the average after an update, unless it is not finite.

    **Arguments:**

    - `share`: that of the new parameters in the average.
    """
    gradients: Any = outcome.gradients
    changes, new_state = optimizer.update(gradients, state, learned)
    new = optax.apply_updates(learned, changes)
    norms = optax.tree.norm(gradients.model), optax.tree.norm(gradients.proposal)
    # The optimizer's state is checked too: an infinite moment would set every later update to zero.
    good = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in _numbers((outcome, norms, new, new_state))]))
    learned, state = jax.tree.map(lambda new, old: jnp.where(good, new, old), (new, new_state), (learned, state))
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


def build_chunk(
    objective: Objective,
    optimizer: optax.GradientTransformation,
    static: Modules,
    averaged_from: tuple[int, ...],
    mesh: Mesh,
    scale: HostArray | None = None,
    looks: tuple[int, ...] = (),
    prior: LogPrior | None = None,
) -> Callable[..., tuple[State, Sums]]:
    """Compile a function of state, fixed arrays, data, buckets (chunk), indices into them (chunk, seeds, batch), seeds
    and the number of updates.

    Indices beyond that number are not used, so that the last, shorter chunk of a run needs no program of its own.

    **Arguments:**

    - `averaged_from`: the updates at which the average of the parameters starts anew.
    - `scale`: the unit of each column in the data before they were standardized.
    - `looks`: the numbers of updates after which the gradients are looked at.
    """
    restarts = np.array(averaged_from, np.int32)
    ends = np.array(looks, np.int32)

    def add_gradients(looking: Looking, gradients: Modules, step: Int[Array, ""]) -> Looking:
        """Add the gradients of an update to the sum of its part; sums start anew with the average."""
        since = jnp.max(jnp.where(restarts <= step, restarts, -1))
        # The updates before the first average and after the last look are of no use.
        until = jnp.min(jnp.where(ends > step, ends, jnp.iinfo(jnp.int32).max // PARTS))
        used = (since >= 0) & (step < ends[-1])
        sums = jnp.where(step == since, 0.0, looking.gradients)
        flat = jax.vmap(lambda one: ravel_pytree(one)[0])(gradients)
        flat = jnp.where(used & jnp.all(jnp.isfinite(flat), axis=1, keepdims=True), flat, 0.0)
        part = jnp.where(used, part_of(step, since, until), 0)
        return Looking(sums.at[:, part].add(flat), looking.before, looking.average)

    def update(
        learned: Any, state: Any, average: Modules, outcome: Outcome, step: Int[Array, ""]
    ) -> tuple[Any, Any, Modules, Sums]:
        since = jnp.max(jnp.where(restarts <= step, restarts, -1))
        share = 1.0 / jnp.where(since < 0, 1, step - since + 1)
        return apply_update(optimizer, learned, state, average, outcome, share)

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
                scale,
                prior,
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
                looking=None if state.looking is None else add_gradients(state.looking, outcome.gradients, step),
            )
            return state, jax.tree.map(jnp.add, sums, now)

        dtype = jnp.zeros(()).dtype
        zero = Sums(*[jnp.zeros(len(seeds), dtype)] * 7)
        return jax.lax.fori_loop(0, count, body, (state, zero))

    replicated, divided = PartitionSpec(), PartitionSpec(None, None, DEVICES)
    specs = replicated, replicated, replicated, replicated, divided, replicated, replicated
    return compiled(chunk, mesh, specs)
