"""Filtering, smoothing, forecasting and evaluation by exact distributions, for models with a linear form; those with
finitely many states are handed on to `finite_laws`.

The programs run in float64 whatever the session's precision is. Quantiles are those of Gaussians, mapped back to the
data's unit; nothing is estimated, and there is no effective sample size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from scipy.special import ndtri

from mcfo.errors import InputError, nearest
from mcfo.forward_algorithm import is_finite
from mcfo.inference import finite_laws
from mcfo.inference.finite_laws import MixtureLaws
from mcfo.inference.observation_laws import ObservationLaws, applied
from mcfo.kalman.filter import form_of, is_linear_gaussian, jitted_filter
from mcfo.kalman.forecast import draw_paths
from mcfo.kalman.smoother import jitted_smoother
from mcfo.kalman.update import Gaussians, Law, predict, reach
from mcfo.linear_algebra import semidefinite_factor
from mcfo.models.base import LinearForm, Model
from mcfo.precision import in_float64
from mcfo.series import Series
from mcfo.types import Key

METHODS = ("exact", "particles")


def uses_exact_laws(model: Model, method: str | None, particles: int | None, *others: str) -> bool:
    """Whether exact distributions answer: where they are known, unless particles are asked for.

    **Arguments:**

    - `method`: "exact", "particles", or None, which means exact where that is possible and no number of particles is
      given.
    - `others`: further methods by particles.
    """
    methods = *METHODS, *others
    if method not in (None, *methods):
        raise InputError(f"There is no method {method!r}. {nearest(str(method), methods)}")
    known = is_linear_gaussian(model) or is_finite(model)
    if method == "exact" and not known:
        raise InputError(
            f"The distributions of a {type(model).__name__} are not known exactly. Leave out the method, or use "
            "'particles'."
        )
    if method == "exact" and particles is not None:
        raise InputError("Exact distributions need no particles. Leave out the number of them, or the method.")
    return known and (method == "exact" or (method is None and particles is None))


class FilteredLaws(NamedTuple):
    """p(z_t | x_1:t), p(x_t | x_1:t-1) and log p(x_t | x_1:t-1) for every step; the Kalman filter's `innovations`."""

    latent_mean: Float[np.ndarray, "steps latent"]
    latent_variance: Float[np.ndarray, "steps latent"]
    predicted: ObservationLaws | MixtureLaws
    log_evidences: Float[np.ndarray, " steps"]
    innovations: Float[np.ndarray, "steps dimensions"] | None = None


def filtered_laws(model: Model, series: Series) -> FilteredLaws:
    """Filter a series exactly."""
    if is_finite(model):
        probabilities, predicted, log_evidences = finite_laws.filtered(model, series)
        return FilteredLaws(probabilities, probabilities * (1 - probabilities), predicted, log_evidences)
    mean, variance, predicted, log_evidences, innovations = _filtered(model, series)
    laws = ObservationLaws(*predicted, transform=model.observation_transform)
    return FilteredLaws(mean, variance, laws, log_evidences, innovations)


def filter_arrays(
    model: Model, series: Series, levels: Sequence[float], draws: int, *, key: Key
) -> dict[str, np.ndarray]:
    """Return what is known of the steps of one series, by the names of a data set."""
    if is_finite(model):
        return finite_laws.filter_arrays(model, series, levels, draws, key=key)
    laws = filtered_laws(model, series)
    assert isinstance(laws.predicted, ObservationLaws)
    arrays = _state_arrays(laws.latent_mean, laws.latent_variance, laws.predicted, laws.log_evidences, levels)
    if draws:
        # The draws of different steps are not connected, as those of a particle filter are not.
        latent, observation = _filter_draws(model, series, laws.predicted, draws, key)
        arrays |= {"latent_draws": latent, "observation_draws": observation}
    return arrays


def smooth_arrays(
    model: Model, series: Series, levels: Sequence[float], draws: int, *, key: Key
) -> dict[str, np.ndarray]:
    """Return p(z_t | x_1:T) and the distribution of x_t given x_1:T, by the names of a data set."""
    if is_finite(model):
        return finite_laws.smooth_arrays(model, series, levels, draws, key=key)
    mean, covariance, form, log_evidences, components = _smoothed(model, series)
    laws = _observed_again(model, series, mean, covariance, form)
    variance = np.maximum(np.diagonal(covariance, axis1=-2, axis2=-1), 0.0)
    arrays = _state_arrays(mean, variance, laws, log_evidences, levels)
    values = np.where(np.asarray(series.mask()), np.asarray(series.observations, np.float64), np.nan)
    arrays["filled"] = np.where(np.isnan(values), arrays["observation_mean"], values)
    if components:
        laws_by_name = [components[name] for name in model.component_names]  # a compiled program sorts its names
        means, variances = (np.stack(each, axis=-1) for each in zip(*laws_by_name, strict=True))
        arrays |= {"component_mean": means, "component_quantiles": _gaussian_quantiles(means, variances, levels)}
    if draws:
        latent, observation = _smooth_draws(model, series, draws, key)
        observation = _in_unit(model, observation)
        arrays |= {"latent_draws": latent, "observation_draws": observation}
    return arrays


class ForecastLaws(NamedTuple):
    """p(z_T+s | x_1:T) and p(x_T+s | x_1:T) for s = 1, 2, ..., and paths of both, (steps, draws, ...)."""

    latent_mean: Float[np.ndarray, "steps latent"]
    latent_variance: Float[np.ndarray, "steps latent"]
    observation: ObservationLaws
    latent_draws: Float[np.ndarray, "steps draws latent"]
    observation_draws: Float[np.ndarray, "steps draws dimensions"]


def forecast_laws(model: Model, series: Series, steps: int, inputs: Any, draws: int, *, key: Key) -> ForecastLaws:
    """Forecast a series exactly; `inputs` are the coming ones, (steps, inputs), or None."""
    coming = None if inputs is None else np.asarray(inputs, np.float64)
    mean, variance, observation, latents, observations = _forecast(model, series, coming, steps, draws, key)
    laws = ObservationLaws(*observation, transform=model.observation_transform)
    return ForecastLaws(mean, variance, laws, latents, _in_unit(model, observations))


def forecast_arrays(
    model: Model, series: Series, steps: int, inputs: Any, levels: Sequence[float], draws: int, *, key: Key
) -> dict[str, np.ndarray]:
    """Return a forecast by the names of a data set."""
    if is_finite(model):
        return finite_laws.forecast_arrays(model, series, steps, inputs, levels, draws, key=key)
    laws = forecast_laws(model, series, steps, inputs, draws, key=key)
    return {
        "latent_mean": laws.latent_mean,
        "latent_quantiles": _gaussian_quantiles(laws.latent_mean, laws.latent_variance, levels),
        "observation_mean": laws.observation.means(),
        "observation_quantiles": laws.observation.quantiles(levels),
        "finite": np.asarray(bool(np.all(np.isfinite(laws.latent_mean)))),
        "latent_draws": laws.latent_draws,
        "observation_draws": laws.observation_draws,
    }


def rolling_laws(model: Model, series: Series, horizon: int) -> tuple[ObservationLaws | MixtureLaws, np.ndarray]:
    """Return p(x_t+s | x_1:t) for t = 0..T-1 and s = 1..`horizon`, (steps, horizon), and log p(x_t | x_1:t-1)."""
    if is_finite(model):
        return finite_laws.rolling(model, series, horizon)
    laws, log_evidences = _rolling(model, series, horizon)
    return ObservationLaws(*laws, transform=model.observation_transform), log_evidences


def _state_arrays(
    mean: np.ndarray, variance: np.ndarray, laws: ObservationLaws, log_evidences: np.ndarray, levels: Sequence[float]
) -> dict[str, np.ndarray]:
    return {
        "latent_mean": mean,
        "latent_quantiles": _gaussian_quantiles(mean, variance, levels),
        "observation_mean": laws.means(),
        "observation_quantiles": laws.quantiles(levels),
        "ess": np.full(len(mean), np.nan),
        "log_predictive": log_evidences,
        "log_evidence": np.asarray(np.sum(log_evidences)),
    }


def _gaussian_quantiles(mean: np.ndarray, variance: np.ndarray, levels: Sequence[float]) -> np.ndarray:
    scale = np.sqrt(np.where(np.isfinite(variance), np.maximum(variance, 0.0), np.nan))
    return mean[:, None] + scale[:, None] * ndtri(np.asarray(levels, np.float64))[:, None]


def _in_unit(model: Model, values: np.ndarray) -> np.ndarray:
    transform = model.observation_transform
    return values if transform is None else applied(transform.inverse, values)


_Laws = tuple[Float[Array, "*steps dimensions"], Float[Array, "*steps dimensions dimensions"], Bool[Array, "..."]]


def _observation(laws: Gaussians, form: LinearForm) -> _Laws:
    """The distribution of one y_t: mean, covariance, and whether each dimension has a proper one."""
    matrix = form.emission_matrix
    mean = matrix @ laws.mean + form.emission_offset
    covariance = matrix @ laws.covariance @ matrix.T + form.emission_covariance
    if laws.diffuse is None:
        return mean, covariance, jnp.ones(len(mean), bool)
    seen, terms = jnp.abs(matrix @ laws.diffuse), jnp.abs(matrix) @ jnp.abs(laws.diffuse)
    return mean, covariance, ~jnp.any(seen > reach(seen.dtype) * terms, axis=-1)


def _forms(model: Model, series: Series) -> LinearForm:
    """The linear form of every step."""
    inputs = series.sanitized().inputs
    if inputs is not None:
        return jax.vmap(lambda now: form_of(model, now))(inputs)
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (series.steps, *leaf.shape)), form_of(model, None))


@in_float64
@eqx.filter_jit
def _filtered(model: Model, series: Series) -> Any:
    result = jitted_filter(model, series)
    predicted = jax.vmap(_observation)(result.predicted, _forms(model, series))
    return result.filtered.mean, result.filtered.variance(), predicted, result.log_evidences, result.innovations


@in_float64
@eqx.filter_jit
def _filter_draws(model: Model, series: Series, predicted: ObservationLaws, draws: int, key: Key) -> Any:
    of_latents, of_observations = jax.random.split(jax.random.fold_in(key, series.series_id))
    latents = jitted_filter(model, series).filtered.sample(draws, key=of_latents)
    laws = Gaussians(jnp.asarray(predicted.mean), jnp.asarray(predicted.covariance))
    observations = laws.sample(draws, key=of_observations)
    if predicted.transform is not None:
        observations = predicted.transform.inverse(observations)
    return latents, jnp.where(predicted.proper[:, None], observations, jnp.nan)


@in_float64
@eqx.filter_jit
def _smoothed(model: Model, series: Series) -> Any:
    smoothed = jitted_smoother(model, series)
    components = model.component_laws(smoothed.mean, smoothed.covariance, series.sanitized().inputs)
    log_evidences = jitted_filter(model, series).log_evidences
    return smoothed.mean, smoothed.covariance, _forms(model, series), log_evidences, components


def _observed_again(
    model: Model, series: Series, mean: np.ndarray, covariance: np.ndarray, form: LinearForm
) -> ObservationLaws:
    """The distribution of a new x_t given x_1:T; of the missing part of x_t where some of it was observed."""
    matrix, offset, noise = form.emission_matrix, form.emission_offset, form.emission_covariance
    means = np.einsum("tij,tj->ti", matrix, mean) + offset
    covariances = np.einsum("tij,tjk,tlk->til", matrix, covariance, matrix) + noise
    known = np.asarray(series.mask())
    values = np.asarray(series.observations, np.float64)
    if model.observation_transform is not None:
        values = applied(model.observation_transform.forward, np.where(known, values, 1.0))
    for step in np.flatnonzero(known.any(axis=-1) & ~known.all(axis=-1)):
        # The noise of what was observed tells something about the noise of what was not.
        there, lost = known[step], ~known[step]
        gain = np.linalg.solve(noise[step][np.ix_(there, there)], noise[step][np.ix_(there, lost)]).T
        residual = values[step, there] - means[step, there]
        rows = matrix[step, lost] - gain @ matrix[step, there]
        means[step, lost] += gain @ residual
        left = noise[step][np.ix_(lost, lost)] - gain @ noise[step][np.ix_(there, lost)]
        covariances[step][np.ix_(lost, lost)] = rows @ covariance[step] @ rows.T + left
    return ObservationLaws(means, covariances, np.ones(means.shape, bool), model.observation_transform)


@in_float64
@eqx.filter_jit
def _smooth_draws(model: Model, series: Series, draws: int, key: Key) -> Any:
    """Draw paths given the series, and new (transformed) observations along them."""
    of_paths, of_noise = jax.random.split(jax.random.fold_in(key, series.series_id))
    paths, forms = draw_paths(model, series, draws, key=of_paths), _forms(model, series)

    def observe(path: Array, key: Key) -> Array:
        noise = _noise(forms.emission_covariance, jax.random.split(key, series.steps))
        return jnp.einsum("tij,tj->ti", forms.emission_matrix, path) + forms.emission_offset + noise

    observations = jax.vmap(observe)(paths, jax.random.split(of_noise, draws))
    return jnp.swapaxes(paths, 0, 1), jnp.swapaxes(observations, 0, 1)


def _noise(covariances: Array, keys: Any) -> Array:
    def one(covariance: Array, key: Key) -> Array:
        return semidefinite_factor(covariance) @ jax.random.normal(key, (len(covariance),), covariance.dtype)

    return jax.vmap(one)(covariances, keys)


def _simulate(law: Law, forms: LinearForm, key: Key) -> tuple[Array, Array]:
    """Draw z and y of all steps, the first z from the law itself; a diffuse part of it stays at its mean."""
    steps = len(forms.emission_offset)
    of_first, of_states, of_noise = jax.random.split(key, 3)
    first = law.mean + _noise(law.covariance[None], jax.random.split(of_first, 1))[0]
    moves = _noise(forms.transition_covariance, jax.random.split(of_states, steps))

    def step(latent: Array, now: Any) -> tuple[Array, Array]:
        matrix, offset, move = now
        latent = matrix @ latent + offset + move
        return latent, latent

    rest = jax.tree.map(lambda leaf: leaf[1:], (forms.transition_matrix, forms.transition_offset, moves))
    latents = jnp.concatenate([first[None], jax.lax.scan(step, first, rest)[1]])
    noise = _noise(forms.emission_covariance, jax.random.split(of_noise, steps))
    return latents, jnp.einsum("tij,tj->ti", forms.emission_matrix, latents) + forms.emission_offset + noise


@in_float64
@eqx.filter_jit
def _forecast(model: Model, series: Series, inputs: Any, steps: int, draws: int, key: Key) -> Any:
    filtered = jitted_filter(model, series).filtered
    last = jax.tree.map(lambda leaf: leaf[-1], filtered)
    forms = jax.vmap(lambda now: form_of(model, now))(inputs) if inputs is not None else None
    if forms is None:
        forms = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (steps, *leaf.shape)), form_of(model, None))

    def step(law: Law, form: LinearForm) -> tuple[Law, Any]:
        law = predict(law, form)
        return law, (law.gaussians(), _observation(law.gaussians(), form))

    law = _law(last)
    _, (laws, observations) = jax.lax.scan(step, law, forms)
    first = predict(law, jax.tree.map(lambda leaf: leaf[0], forms))
    keys = jax.random.split(jax.random.fold_in(key, series.series_id), draws)
    latents, drawn = jax.vmap(lambda key: _simulate(first, forms, key), out_axes=1)(keys)
    return laws.mean, laws.variance(), observations, latents, drawn


def _law(laws: Gaussians) -> Law:
    unknown = jnp.zeros((len(laws.mean), 0), laws.mean.dtype) if laws.diffuse is None else laws.diffuse
    return Law.first(laws.mean, laws.covariance, unknown)


@in_float64
@eqx.filter_jit
def _rolling(model: Model, series: Series, horizon: int) -> Any:
    result, forms = jitted_filter(model, series), _forms(model, series)
    # Beyond the end there are no inputs; what is forecast there is not scored.
    padded = jax.tree.map(lambda leaf: jnp.concatenate([leaf, jnp.repeat(leaf[-1:], horizon - 1, axis=0)]), forms)

    def from_origin(start: Gaussians, index: Array) -> _Laws:
        ahead = jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, index, horizon), padded)
        now = _law(start)
        one = _observation(start, jax.tree.map(lambda leaf: leaf[0], ahead))

        def step(law: Law, form: LinearForm) -> tuple[Law, _Laws]:
            law = predict(law, form)
            return law, _observation(law.gaussians(), form)

        more = jax.lax.scan(step, now, jax.tree.map(lambda leaf: leaf[1:], ahead))[1]
        return jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), one, more)

    return jax.vmap(from_origin)(result.predicted, jnp.arange(series.steps)), result.log_evidences
