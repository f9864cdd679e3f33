"""Forecasts from every step of a series, each scored by what came: log score, CRPS, probability integral transform."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float, Shaped

from mcfo.inference.quantiles import LEVELS
from mcfo.missing import observed_log_prob
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.series import Frame, Series
from mcfo.smc.filter import SMC
from mcfo.smc.noise import step_key
from mcfo.smc.resampling import draw_indices
from mcfo.smc.step import Outcome
from mcfo.smc.step_scan import frames, split_first, step_scan
from mcfo.smc.trace import State
from mcfo.types import HostArray, Key, Memory, Observation, Scalar

_ROLLING_TAG = 0x726F6C6C
"""Separates the random numbers of forecasts from those of the filter."""

_CONDITIONAL_TAG = 0x636F6E64
_CONDITIONAL = 16
"""Draws of the last transition for each path, over which the density of what came is averaged."""


class Rolling(eqx.Module):
    """Scored forecasts of one series, (steps, horizon): row t has those of x_t+1 to x_t+h given x_1:t, t = 0..T-1.

    NaN stands at steps that are no origin, and where there is no observation to compare with.

    - `log_score`: log p(x_t+s | x_1:t), jointly over the observed dimensions; higher is better.
    - `log_score_error`: its Monte Carlo standard error, zero where it is exact.
    - `crps`: the continuous ranked probability score; lower is better.
    - `pit`: the probability integral transform, uniform between 0 and 1 if the model is right.
    - `mean`, `quantiles`: those of the forecasts, the quantiles at `LEVELS`.
    """

    log_score: Float[HostArray, "*forecasts"]
    log_score_error: Float[HostArray, "*forecasts"]
    crps: Float[HostArray, "*forecasts dimensions"]
    pit: Float[HostArray, "*forecasts dimensions"]
    mean: Float[HostArray, "*forecasts dimensions"]
    quantiles: Float[HostArray, "*forecasts levels dimensions"]


class _Target(NamedTuple):
    """A step that is forecast. `scored` is True for the dimensions that have a value to compare with."""

    observation: Any
    observed: Any
    inputs: Any
    scored: Any


def rolling(
    sampler: SMC,
    model: Model,
    proposal: Proposal,
    series: Series,
    origins: Bool[Array, " steps"],
    *,
    horizon: int,
    draws: int,
    key: Key,
    levels: tuple[float, ...] = LEVELS,
) -> Rolling:
    """Filter a series once, and forecast `horizon` steps from each origin by `draws` independent paths.

    The log score one step ahead is the filter's own evidence increment, which a good proposal makes precise; further
    ahead it is the logarithm of the mean density over the draws, each averaged over some draws of its last transition.
    Both are biased downwards by half the variance of that logarithm. Apart from the results, memory does not grow with
    the number of origins.

    **Arguments:**

    - `origins`: True at index t where a forecast given x_1:t is wanted.
    - `levels`: those of the quantiles.
    """
    targets = _padded(series, frames(proposal, series), horizon)

    def visit(
        before: State | None, outcome: Outcome, frame: Frame, extra: Any
    ) -> tuple[Rolling, tuple[Scalar, Scalar]]:
        index, wanted = extra

        def scores() -> Rolling:
            ahead = jax.tree.map(lambda array: jax.lax.dynamic_slice_in_dim(array, index, horizon), targets)
            own = jax.random.fold_in(step_key(key, frame), _ROLLING_TAG)
            return _rolling_forecast(model, before, ahead, draws, own, outcome.increment.dtype, levels)

        def nothing() -> Rolling:
            return jax.tree.map(lambda leaf: jnp.full(leaf.shape, jnp.nan, leaf.dtype), jax.eval_shape(scores))

        # The relative variance of a mean of weights is 1 / ESS - 1 / K.
        variance = 1 / jnp.maximum(outcome.record.ess, 1.0) - 1 / sampler.particles
        return jax.lax.cond(wanted, scores, nothing), (outcome.increment, jnp.sqrt(jnp.maximum(variance, 0.0)))

    extras = jnp.arange(series.steps), origins
    _, (forecasts, filtered) = step_scan(sampler, model, proposal, series, visit, key=key, extras=extras)
    # One step ahead, the filter estimates the predictive density more precisely than the draws.
    scored = ~jnp.isnan(forecasts.log_score[:, 0])
    increments, errors = (jnp.where(scored, each, jnp.nan) for each in filtered)
    return eqx.tree_at(
        lambda r: (r.log_score, r.log_score_error),
        forecasts,
        (forecasts.log_score.at[:, 0].set(increments), forecasts.log_score_error.at[:, 0].set(errors)),
    )


def _padded(series: Series, steps: Frame, horizon: int) -> _Target:
    """Return every step, followed by steps without values for forecasts beyond the end."""

    def lengthen(array: Any, **how: Any) -> Any:
        return None if array is None else jnp.pad(array, ((0, horizon - 1), (0, 0)), **how)

    return _Target(
        lengthen(steps.observation, mode="edge"),
        lengthen(steps.observed, mode="edge"),
        lengthen(steps.inputs, mode="edge"),
        lengthen(series.mask()),
    )


def _rolling_forecast(
    model: Model, state: Any, ahead: _Target, draws: int, key: Key, dtype: Any, levels: tuple[float, ...]
) -> Rolling:
    """Forecast from the state of a filter, or from the model's initial distribution if `state` is None."""
    of_choice, of_paths = jax.random.split(key)
    keys = jax.random.split(of_paths, len(ahead.scored))
    if state is None:
        (first, first_key), rest = split_first((ahead, keys))
        memory = model.start(first.inputs)
        memories, one = _rolling_step(
            model,
            lambda _: (memory, model.initial(memory, first.inputs)),
            jnp.arange(draws),
            first,
            first_key,
            dtype,
            levels,
        )
    else:
        rest = ahead, keys
        chosen = draw_indices(state.log_weights, draws, key=of_choice)
        memories, one = jax.tree.map(lambda array: array[chosen], state.memory), None

    def body(memories: Memory, given: tuple[_Target, Key]) -> tuple[Memory, Rolling]:
        target, own = given
        return _rolling_step(
            model,
            lambda memory: (memory, model.transition(memory, target.inputs)),
            memories,
            target,
            own,
            dtype,
            levels,
        )

    _, forecasts = jax.lax.scan(body, memories, rest)
    if one is None:
        return forecasts
    return jax.tree.map(lambda one, many: jnp.concatenate([one[None], many]), one, forecasts)


def _rolling_step(
    model: Model,
    distribution: Any,
    sources: Any,
    target: _Target,
    key: Key,
    dtype: Any,
    levels: tuple[float, ...],
) -> tuple[Memory, Rolling]:
    """Simulate one step of all draws, and compare it with its target."""
    of_draws, of_ties = jax.random.split(key)
    uniform = jax.random.uniform(of_ties, target.observation.shape, dtype)

    def density(memory: Memory, latent: Any) -> Scalar:
        return observed_log_prob(model.emission(memory, latent, target.inputs), target.observation, target.observed)

    def one(source: Any, latent_key: Key, observation_key: Key) -> Any:
        memory, prior = distribution(source)
        latent = prior.sample(latent_key)
        emission = model.emission(memory, latent, target.inputs)
        observation = emission.sample(observation_key)
        more_keys = jax.random.split(jax.random.fold_in(latent_key, _CONDITIONAL_TAG), _CONDITIONAL)
        others = jax.vmap(lambda own: prior.sample(own))(more_keys)
        log_densities = jax.vmap(lambda latent: density(memory, latent))(others)
        log_density = jax.nn.logsumexp(log_densities) - jnp.log(float(_CONDITIONAL))
        below = probability_below(emission, target.observation, uniform)
        later = model.advance_with(memory, latent, observation, None, target.inputs)
        return later, observation, log_density, below

    count = len(jax.tree.leaves(sources)[0])
    memories, observations, log_densities, below = jax.vmap(one)(sources, *jax.random.split(of_draws, (2, count)))
    values, observation = observations.astype(dtype), target.observation.astype(dtype)
    pit = rank_transform(values, observation, uniform) if below is None else jnp.mean(below, axis=0).astype(dtype)
    log_score = jax.nn.logsumexp(log_densities.astype(dtype)) - jnp.log(jnp.asarray(count, dtype))
    # By the delta method; at most one, where a single draw decides.
    shares = jax.nn.softmax(log_densities.astype(dtype))
    error = jnp.sqrt(jnp.maximum(jnp.sum(shares**2) - 1 / count, 0.0))
    nothing, ordered = jnp.asarray(jnp.nan, dtype), jnp.sort(values, axis=0)
    return memories, Rolling(
        log_score=jnp.where(jnp.any(target.scored), log_score, nothing),
        log_score_error=jnp.where(jnp.any(target.scored), error, nothing),
        crps=jnp.where(target.scored, crps(ordered, observation), nothing),
        pit=jnp.where(target.scored, pit, nothing),
        mean=jnp.mean(values, axis=0),
        quantiles=ordered_quantiles(ordered, levels),
    )


def crps(ordered: Float[Array, "draws dimensions"], value: Float[Array, " dimensions"]) -> Float[Array, " dimensions"]:
    """Return E|X - x| - E|X - X'| / 2 for each dimension: the continuous ranked probability score, in units of x.

    This is the fair estimator: unbiased for the distribution of independent draws X, whatever their number, while the
    plain one rewards few draws for being close together. Gneiting and Raftery (2007); Ferro (2014).

    **Arguments:**

    - `ordered`: the draws in ascending order.
    """
    count = len(ordered)
    ranks = jnp.arange(1, count + 1, dtype=ordered.dtype)[:, None]
    # Σ_ij |X_i - X_j| = 2 Σ_i (2 i - n - 1) X_(i); less the value, so that large numbers do not cancel.
    centered = ordered - value
    spread = jnp.sum((2 * ranks - count - 1) * centered, axis=0) / (count * max(1, count - 1))
    return jnp.mean(jnp.abs(centered), axis=0) - spread


def ordered_quantiles(
    ordered: Float[Array, "draws dimensions"], levels: tuple[float, ...]
) -> Float[Array, "levels dimensions"]:
    """Return quantiles of draws in ascending order, interpolated linearly."""
    indices = jnp.asarray(levels, ordered.dtype) * (len(ordered) - 1)
    lower = jnp.floor(indices).astype(jnp.int32)
    upper = jnp.minimum(lower + 1, len(ordered) - 1)
    share = (indices - lower)[:, None]
    return (1 - share) * ordered[lower] + share * ordered[upper]


def rank_transform(
    draws: Shaped[Array, "draws dimensions"], value: Observation, uniform: Float[Array, " dimensions"]
) -> Float[Array, " dimensions"]:
    """Return the rank of the value among the draws, between 0 and 1.

    It is uniform if the value has the distribution of the draws, for any number of draws and also for counts, since
    ties are broken by the uniform numbers.
    """
    below = jnp.sum(draws < value, axis=0)
    ties = jnp.sum(draws == value, axis=0)
    return (below + uniform * (ties + 1)) / (len(draws) + 1)


def probability_below(
    distribution: Any, value: Observation, uniform: Float[Array, " dimensions"]
) -> Float[Array, " dimensions"] | None:
    """Return P(X < x) + u P(X = x) for each dimension, or None if the cumulative distribution function is unknown.

    Its mean over draws of the latent resolves tails that a finite number of draws of X never reaches.
    """
    base = (
        distribution.base_dist
        if isinstance(distribution, dist.Independent) and distribution.reinterpreted_batch_ndims == 1
        else None
    )
    if base is None or base.batch_shape != value.shape:
        return None
    support: Any = base.support
    discrete = support.is_discrete
    try:
        upper = base.cdf(value)
        if not discrete:
            return upper
        lower = jnp.where(value > 0, base.cdf(jnp.maximum(value - 1, 0)), 0.0)
    except NotImplementedError:
        return None
    return lower + uniform * (upper - lower)
