"""Forecasts from every step of a series, each scored by what came: log score, CRPS, probability integral transform."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float, Shaped

from mcfo.inference.quantiles import LEVELS
from mcfo.missing import log_prob, observed_log_prob
from mcfo.models.base import Model, emission_mean
from mcfo.proposals.base import Proposal
from mcfo.series import Frame, Series
from mcfo.smc.filter import SMC
from mcfo.smc.noise import step_key
from mcfo.smc.resampling import draw_indices
from mcfo.smc.step import Outcome, prior_and_proposed
from mcfo.smc.step_scan import frames, split_first, step_scan
from mcfo.smc.trace import State
from mcfo.types import HostArray, Key, Memory, Observation, Scalar

_ROLLING_TAG = 0x726F6C6C
"""Separates the random numbers of forecasts from those of the filter."""

_CONDITIONAL_TAG = 0x636F6E64
_CONDITIONAL = 16
"""Draws of the last transition for each path, over which the density of what came is averaged; half of them are those
of the proposal, which knows what came."""


Levels = tuple[float, ...]
"""Levels of quantiles, in ascending order."""


class Rolling(eqx.Module):
    """Scored forecasts of one series, (steps, horizon): row t has those of x_t+1 to x_t+h given x_1:t, t = 0..T-1.

    NaN stands at steps that are no origin, and where there is no observation to compare with.

    - `log_score`: log p(x_t+s | x_1:t), jointly over the observed dimensions; higher is better.
    - `log_score_error`: its Monte Carlo standard error, zero where it is exact.
    - `crps`: the continuous ranked probability score; lower is better.
    - `pit`: the probability integral transform, uniform between 0 and 1 if the model is right.
    - `mean`, `quantiles`: those of the forecasts, the quantiles at the levels that were asked for.
    """

    log_score: Float[HostArray, "*forecasts"]
    log_score_error: Float[HostArray, "*forecasts"]
    crps: Float[HostArray, "*forecasts dimensions"]
    pit: Float[HostArray, "*forecasts dimensions"]
    mean: Float[HostArray, "*forecasts dimensions"]
    quantiles: Float[HostArray, "*forecasts levels dimensions"]


class _Target(NamedTuple):
    """A step that is forecast. `scored` is True for the dimensions that have a value to compare with."""

    frame: Frame
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
    levels: Levels = LEVELS,
) -> Rolling:
    """Filter a series once, and forecast `horizon` steps from each origin by `draws` independent paths.

    The log score one step ahead is the filter's own evidence increment, which a good proposal makes precise; further
    ahead it is the logarithm of the mean density over the draws, each with its last transition integrated by importance
    sampling from the transition and the proposal together (the balance heuristic of Veach and Guibas, 1995: unbiased,
    and never far worse than either). Both are biased downwards by half the variance of that logarithm. Apart from the
    results, memory does not grow with the number of origins.

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
            return _rolling_forecast(model, proposal, before, ahead, draws, own, outcome.increment.dtype, levels)

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
        return jnp.pad(array, ((0, horizon - 1), *[(0, 0)] * (jnp.ndim(array) - 1)), **how)

    return _Target(jax.tree.map(lambda array: lengthen(array, mode="edge"), steps), lengthen(series.mask()))


def _rolling_forecast(
    model: Model, proposal: Proposal, state: Any, ahead: _Target, draws: int, key: Key, dtype: Any, levels: Levels
) -> Rolling:
    """Forecast from the state of a filter, or from the model's initial distribution if `state` is None."""
    of_choice, of_paths = jax.random.split(key)
    keys = jax.random.split(of_paths, len(ahead.scored))
    if state is None:
        (first, first_key), rest = split_first((ahead, keys))
        memory = model.start(first.frame.inputs)
        memories, one = _rolling_step(model, proposal, memory, draws, first, first_key, dtype, levels, first=True)
    else:
        rest = ahead, keys
        chosen = draw_indices(state.log_weights, draws, key=of_choice)
        memories, one = jax.tree.map(lambda array: array[chosen], state.memory), None

    def body(memories: Memory, given: tuple[_Target, Key]) -> tuple[Memory, Rolling]:
        return _rolling_step(model, proposal, memories, draws, *given, dtype, levels, first=False)

    _, forecasts = jax.lax.scan(body, memories, rest)
    if one is None:
        return forecasts
    return jax.tree.map(lambda one, many: jnp.concatenate([one[None], many]), one, forecasts)


def _rolling_step(
    model: Model,
    proposal: Proposal,
    memories: Any,
    draws: int,
    target: _Target,
    key: Key,
    dtype: Any,
    levels: Levels,
    *,
    first: bool,
) -> tuple[Memory, Rolling]:
    """Simulate one step of all draws, from one memory at the first step, and compare it with its target."""
    frame = target.frame
    of_draws, of_ties = jax.random.split(key)
    uniform = jax.random.uniform(of_ties, frame.observation.shape, dtype)

    def one(memory: Memory, latent_key: Key, observation_key: Key) -> Any:
        prior, proposed = prior_and_proposed(model, proposal, memory, frame, first=first)
        latent = prior.sample(latent_key)
        emission = model.emission(memory, latent, frame.inputs)
        observation = emission.sample(observation_key)
        own = jax.random.fold_in(latent_key, _CONDITIONAL_TAG)
        log_density = _integrated_density(model, prior, proposed, memory, frame, own)
        below = probability_below(emission, frame.observation, uniform)
        later = model.advance_with(memory, latent, observation, None, frame.inputs)
        return later, observation, emission_mean(emission, observation), log_density, below

    keys = jax.random.split(of_draws, (2, draws))
    memories, observations, means, log_densities, below = jax.vmap(one, in_axes=(None if first else 0, 0, 0))(
        memories, *keys
    )
    values, observation = observations.astype(dtype), frame.observation.astype(dtype)
    pit = rank_transform(values, observation, uniform) if below is None else jnp.mean(below, axis=0).astype(dtype)
    log_score = jax.nn.logsumexp(log_densities.astype(dtype)) - jnp.log(jnp.asarray(draws, dtype))
    # By the delta method; at most one, where a single draw decides.
    shares = jax.nn.softmax(log_densities.astype(dtype))
    error = jnp.sqrt(jnp.maximum(jnp.sum(shares**2) - 1 / draws, 0.0))
    nothing, ordered = jnp.asarray(jnp.nan, dtype), jnp.sort(values, axis=0)
    return memories, Rolling(
        log_score=jnp.where(jnp.any(target.scored), log_score, nothing),
        log_score_error=jnp.where(jnp.any(target.scored), error, nothing),
        crps=jnp.where(target.scored, crps(ordered, observation), nothing),
        pit=jnp.where(target.scored, pit, nothing),
        mean=jnp.mean(values if means is None else means.astype(dtype), axis=0),
        quantiles=ordered_quantiles(ordered, levels),
    )


def _integrated_density(model: Model, prior: Any, proposed: Any, memory: Memory, frame: Frame, key: Key) -> Scalar:
    """Estimate log p(x_t | h_t-1) = log ∫ p(x_t | z) p(z | h_t-1) dz by draws of both p(z | h_t-1) and q(z | h_t-1, x).

    Where the emission is narrow, hardly any draw of the transition comes near x_t, while the proposal does; where the
    proposal is too narrow, the transition bounds the weights.
    """

    def log_emission(latent: Any) -> Scalar:
        return observed_log_prob(model.emission(memory, latent, frame.inputs), frame.observation, frame.observed)

    def log_weight(latent: Any) -> Scalar:
        if proposed is prior:
            return log_emission(latent)
        log_prior = log_prob(prior, latent)
        log_ratio = log_prior - jnp.logaddexp(log_prior, log_prob(proposed, latent)) + jnp.log(2.0)
        # An emission need not exist where the model never goes.
        return jnp.where(log_prior > -jnp.inf, log_emission(latent) + log_ratio, -jnp.inf)

    halves = jax.random.split(key, (2, _CONDITIONAL // 2))
    log_weights = [
        jax.vmap(lambda own, source=source: log_weight(source.sample(own)))(keys)
        for source, keys in zip((prior, proposed), halves, strict=True)
    ]
    return jax.nn.logsumexp(jnp.concatenate(log_weights)) - jnp.log(float(_CONDITIONAL))


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
