"""Forecasts after the last observation, and from every step of a series, each scored by what came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from mcfo.inference.summaries import crps, ordered_quantiles, probability_below, rank_transform
from mcfo.missing import observed_log_prob
from mcfo.models.base import Model
from mcfo.models.simulation import Path, continued
from mcfo.proposals.base import Proposal
from mcfo.series import Frame, Series
from mcfo.smc.filter import SMC
from mcfo.smc.noise import step_key
from mcfo.smc.resampling import draw_indices, systematic_indices
from mcfo.smc.step import Outcome
from mcfo.smc.step_scan import frames, split_first, step_scan
from mcfo.smc.trace import State
from mcfo.types import Key, Memory, Scalar

_TAG = 0x666F7265
"""Keeps the future's random numbers apart from the filter's."""


class Forecast(eqx.Module):
    """Draws from p(z_T+1:T+h, x_T+1:T+h | x_1:T), one path for each.

    `finite` says whether the filter reached the last observation; without it the draws mean nothing.
    """

    paths: Path
    finite: Bool[Array, "*batch"]

    @property
    def mean(self) -> Float[Array, "*batch steps dimensions"]:
        """E[x_T+s | x_1:T]: the average of E[x | z] where emissions have a mean, of the draws of x elsewhere."""
        values = self.paths.observations if self.paths.means is None else self.paths.means
        return jnp.mean(values, axis=-3)

    def quantiles(self, levels: Sequence[float]) -> Float[Array, "levels *batch steps dimensions"]:
        """Of each x_T+s given x_1:T."""
        return jnp.quantile(self.paths.observations.astype(float), jnp.asarray(levels, float), axis=-3)


def forecast_series(
    model: Model,
    proposal: Proposal,
    series: Series,
    *,
    steps: int,
    key: Key,
    sampler: SMC | None = None,
    draws: int = 200,
    inputs: Any = None,
) -> Forecast:
    """Filters a series and lets the model go on from where it ends.

    **Arguments:**

    - `steps`: how many steps after the last observation.
    - `sampler`: the filter; 1000 particles unless given.
    - `draws`: paths, each from a particle that was drawn from the last weights.
    - `inputs`: (steps, inputs), of the future, for a model that takes them.
    """
    if steps < 1 or draws < 1:
        raise ValueError(f"A forecast needs a step and a draw, one or more of each, but got {steps} and {draws}.")
    if (inputs is None) != (series.inputs is None) or (inputs is not None and len(inputs) != steps):
        raise ValueError(
            f"The forecast of {steps} steps needs as many rows of inputs if the series has inputs, and none if not."
        )
    inputs = None if inputs is None else jnp.asarray(inputs, float)
    return _forecast(model, proposal, series, sampler or SMC(1000), steps, draws, inputs, key)


@eqx.filter_jit
def _forecast(
    model: Model,
    proposal: Proposal,
    series: Series,
    sampler: SMC,
    steps: int,
    draws: int,
    inputs: Any,
    key: Key,
) -> Forecast:
    trace = sampler(model, proposal, series, key=key)
    of_choice, of_paths = jax.random.split(jax.random.fold_in(jax.random.fold_in(key, series.series_id), _TAG))
    chosen = systematic_indices(trace.state.log_weights, draws, key=of_choice)
    memories = jax.tree.map(lambda array: array[chosen], trace.state.memory)
    keys = jax.random.split(of_paths, (draws, steps))
    paths = jax.vmap(lambda memory, keys: continued(model, memory, inputs, keys))(memories, keys)
    return Forecast(paths, jnp.isfinite(trace.log_evidence))


LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The quantiles that are kept of each forecast."""

_ROLLING_TAG = 0x726F6C6C
"""Keeps the forecasts' random numbers apart from the filter's."""


class Rolling(eqx.Module):
    """Forecasts of one series, (steps, horizon): those at place t are of x_t+1 to x_t+h given x_1:t, t = 0..T-1.

    NaN stands where no forecast began, and where there is nothing to compare it with.

    - `log_score`: log p(x_t+s | x_1:t), of all dimensions that were observed together; higher is better.
    - `crps`: the continuous ranked probability score; lower is better.
    - `pit`: where in the forecast the value fell, uniform between 0 and 1 if the model is right.
    - `mean`, `quantiles`: of the forecasts, the latter at `LEVELS`.
    """

    log_score: Float[Array, "*forecasts"]
    crps: Float[Array, "*forecasts dimensions"]
    pit: Float[Array, "*forecasts dimensions"]
    mean: Float[Array, "*forecasts dimensions"]
    quantiles: Float[Array, "*forecasts levels dimensions"]


class _Target(NamedTuple):
    """A step that is forecast. `scored` says of each dimension whether there is a value to compare with."""

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
) -> Rolling:
    """Filters a series once; from each origin so many draws go on for `horizon` steps, independent given the particles.

    The log score one step ahead is the filter's own evidence increment, which a good proposal makes precise; further
    ahead it is the logarithm of the mean density over the draws. Either is a little low in mean, by half the variance
    of that logarithm. Memory does not grow with the number of origins beyond what is kept of each.

    **Arguments:**

    - `origins`: True at place t where a forecast given x_1:t is wanted.
    """
    targets = _padded(series, frames(proposal, series), horizon)

    def visit(before: State | None, outcome: Outcome, frame: Frame, extra: Any) -> tuple[Rolling, Scalar]:
        index, wanted = extra

        def scores() -> Rolling:
            ahead = jax.tree.map(lambda array: jax.lax.dynamic_slice_in_dim(array, index, horizon), targets)
            own = jax.random.fold_in(step_key(key, frame), _ROLLING_TAG)
            return _rolling_forecast(model, before, ahead, draws, own, outcome.increment.dtype)

        def nothing() -> Rolling:
            return jax.tree.map(lambda leaf: jnp.full(leaf.shape, jnp.nan, leaf.dtype), jax.eval_shape(scores))

        return jax.lax.cond(wanted, scores, nothing), outcome.increment

    extras = jnp.arange(series.steps), origins
    _, (forecasts, increments) = step_scan(sampler, model, proposal, series, visit, key=key, extras=extras)
    # One step ahead, the filter knows the predictive density better than the draws do.
    one_ahead = jnp.where(jnp.isnan(forecasts.log_score[:, 0]), jnp.nan, increments)
    return eqx.tree_at(lambda r: r.log_score, forecasts, forecasts.log_score.at[:, 0].set(one_ahead))


def _padded(series: Series, steps: Frame, horizon: int) -> _Target:
    """Every step, and after the last as many without values as a forecast from it would reach."""

    def lengthen(array: Any, **how: Any) -> Any:
        return None if array is None else jnp.pad(array, ((0, horizon - 1), (0, 0)), **how)

    return _Target(
        lengthen(steps.observation, mode="edge"),
        lengthen(steps.observed, mode="edge"),
        lengthen(steps.inputs, mode="edge"),
        lengthen(series.mask()),
    )


def _rolling_forecast(model: Model, begin: Any, ahead: _Target, draws: int, key: Key, dtype: Any) -> Rolling:
    """Draws from where a filter stands, or from the model's beginning if `begin` is None."""
    of_choice, of_paths = jax.random.split(key)
    keys = jax.random.split(of_paths, len(ahead.scored))
    if begin is None:
        (first, first_key), rest = split_first((ahead, keys))
        memory = model.start(first.inputs)
        memories, one = _rolling_step(
            model, lambda _: (memory, model.initial(memory, first.inputs)), jnp.arange(draws), first, first_key, dtype
        )
    else:
        rest = ahead, keys
        chosen = draw_indices(begin.log_weights, draws, key=of_choice)
        memories, one = jax.tree.map(lambda array: array[chosen], begin.memory), None

    def body(memories: Memory, given: tuple[_Target, Key]) -> tuple[Memory, Rolling]:
        target, own = given
        return _rolling_step(
            model, lambda memory: (memory, model.transition(memory, target.inputs)), memories, target, own, dtype
        )

    _, found = jax.lax.scan(body, memories, rest)
    if one is None:
        return found
    return jax.tree.map(lambda one, many: jnp.concatenate([one[None], many]), one, found)


def _rolling_step(
    model: Model, law: Any, sources: Any, target: _Target, key: Key, dtype: Any
) -> tuple[Memory, Rolling]:
    """One step of all draws, compared with its target."""
    of_draws, of_ties = jax.random.split(key)
    uniform = jax.random.uniform(of_ties, target.observation.shape, dtype)

    def one(source: Any, latent_key: Key, observation_key: Key) -> Any:
        memory, prior = law(source)
        latent = prior.sample(latent_key)
        emission = model.emission(memory, latent, target.inputs)
        observation = emission.sample(observation_key)
        log_density = observed_log_prob(emission, target.observation, target.observed)
        below = probability_below(emission, target.observation, uniform)
        return model.advance(memory, latent, observation), observation, log_density, below

    count = len(jax.tree.leaves(sources)[0])
    memories, observations, log_densities, below = jax.vmap(one)(sources, *jax.random.split(of_draws, (2, count)))
    values, observation = observations.astype(dtype), target.observation.astype(dtype)
    pit = rank_transform(values, observation, uniform) if below is None else jnp.mean(below, axis=0).astype(dtype)
    log_score = jax.nn.logsumexp(log_densities.astype(dtype)) - jnp.log(jnp.asarray(count, dtype))
    nothing, ordered = jnp.asarray(jnp.nan, dtype), jnp.sort(values, axis=0)
    return memories, Rolling(
        log_score=jnp.where(jnp.any(target.scored), log_score, nothing),
        crps=jnp.where(target.scored, crps(ordered, observation), nothing),
        pit=jnp.where(target.scored, pit, nothing),
        mean=jnp.mean(values, axis=0),
        quantiles=ordered_quantiles(ordered, LEVELS),
    )
