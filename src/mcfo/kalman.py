"""The exact answers for linear Gaussian models: likelihood, filter, smoother, draws.

They are the truth that estimators are tested against and figures are drawn beside. Missing values are integrated
out, dimension by dimension; padded steps do not exist.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mcfo.linear_algebra import cholesky, gaussian_log_density, solve_positive_definite
from mcfo.models.linear_gaussian import LinearGaussian
from mcfo.series import Frame, Series
from mcfo.types import Key, Scalar


class Gaussians(eqx.Module):
    """A Gaussian law for each step."""

    mean: Float[Array, "*steps latent"]
    covariance: Float[Array, "*steps latent latent"]

    def variance(self) -> Float[Array, "*steps latent"]:
        """The variances of the single dimensions."""
        return jnp.diagonal(self.covariance, axis1=-2, axis2=-1)

    def sample(self, count: int, *, key: Key) -> Float[Array, "steps count latent"]:
        """Independent draws at each step: of the marginal laws, not of paths."""
        factor = jax.vmap(cholesky)(self.covariance)
        noise = jax.random.normal(key, (len(self.mean), count, self.mean.shape[-1]), self.mean.dtype)
        return self.mean[:, None] + jnp.einsum("tij,tnj->tni", factor, noise)


class KalmanFilter(eqx.Module):
    """The laws p(z_t | x_1:t-1) and p(z_t | x_1:t), and log p(x_t | x_1:t-1), for t = 1..T."""

    predicted: Gaussians
    filtered: Gaussians
    log_evidences: Float[Array, "*steps"]

    @property
    def log_evidence(self) -> Float[Array, "*batch"]:
        """log p(x_1:T)."""
        return jnp.sum(self.log_evidences, axis=-1)


def kalman_filter(model: LinearGaussian, series: Series) -> KalmanFilter:
    """The exact filter. Kalman (1960)."""
    _check(model, series)
    return _filter(model, series)


def kalman_smoother(model: LinearGaussian, series: Series) -> Gaussians:
    """The exact smoother, p(z_t | x_1:T) for t = 1..T. Rauch, Tung and Striebel (1965)."""
    _check(model, series)
    return _smoother(model, series)


def log_evidence(model: LinearGaussian, series: Series) -> Scalar:
    """log p(x_1:T), exactly; its derivative by `jax.grad` is the exact score."""
    return kalman_filter(model, series).log_evidence


def _check(model: Any, series: Any) -> None:
    if not isinstance(model, LinearGaussian):
        raise TypeError(
            f"The Kalman filter is exact for a LinearGaussian model only, but got {type(model).__name__}. Use SMC."
        )
    if not isinstance(series, Series) or series.observations.ndim != 2:
        raise TypeError("One Series is wanted: read the values with Series.from_values, and use jax.vmap for a batch.")
    if series.observations.shape[1] != model.observed_size:
        raise ValueError(
            f"The model has {model.observed_size} observed dimensions, but the series has "
            f"{series.observations.shape[1]}. Give them the same number."
        )


@eqx.filter_jit
def _filter(model: LinearGaussian, series: Series) -> KalmanFilter:
    clean = series.sanitized()
    observations = clean.observations.astype(model.initial_mean.dtype)
    frames = eqx.tree_at(lambda s: s.observations, clean, observations).frames(None)

    def step(carry, frame: Frame):
        filtered_mean, filtered_covariance, begun = carry
        predicted_mean = jnp.where(begun, model.transition_mean(filtered_mean, frame.inputs), filtered_mean)
        matrix, noise = model.dynamics(frame.inputs)
        moved = matrix @ filtered_covariance @ matrix.T + noise
        predicted_covariance = jnp.where(begun, moved, filtered_covariance)
        mean, covariance, log_evidence = _update(model, predicted_mean, predicted_covariance, frame)
        if frame.present is not None:
            mean = jnp.where(frame.present, mean, filtered_mean)
            covariance = jnp.where(frame.present, covariance, filtered_covariance)
            predicted_mean = jnp.where(frame.present, predicted_mean, filtered_mean)
            predicted_covariance = jnp.where(frame.present, predicted_covariance, filtered_covariance)
            log_evidence = jnp.where(frame.present, log_evidence, 0.0)
        law = KalmanFilter(Gaussians(predicted_mean, predicted_covariance), Gaussians(mean, covariance), log_evidence)
        return (mean, covariance, True), law

    # Before the first step the "filtered" law is the initial one, and nothing moves it.
    start = (model.initial_mean, model.initial_noise.matrix, False)
    return jax.lax.scan(step, start, frames)[1]


@eqx.filter_jit
def _smoother(model: LinearGaussian, series: Series) -> Gaussians:
    forward = _filter(model, series)
    present = series.present()
    present = jnp.ones(series.steps, bool) if present is None else present

    def step(later, laws):
        filtered, predicted_next, next_present, next_inputs = laws
        gain = _smoothing_gain(model.dynamics(next_inputs).matrix, filtered, predicted_next)
        mean = filtered.mean + gain @ (later.mean - predicted_next.mean)
        covariance = filtered.covariance + gain @ (later.covariance - predicted_next.covariance) @ gain.T
        law = Gaussians(
            jnp.where(next_present, mean, later.mean), jnp.where(next_present, covariance, later.covariance)
        )
        return law, law

    last = jax.tree.map(lambda array: array[-1], forward.filtered)
    laws = (
        jax.tree.map(lambda array: array[:-1], forward.filtered),
        jax.tree.map(lambda array: array[1:], forward.predicted),
        present[1:],
        jax.tree.map(lambda array: array[1:], series.sanitized().inputs),
    )
    _, earlier = jax.lax.scan(step, last, laws, reverse=True)
    return jax.tree.map(lambda array, end: jnp.concatenate([array, end[None]]), earlier, last)


def _update(model: LinearGaussian, mean: Array, covariance: Array, frame: Frame) -> tuple[Array, Array, Array]:
    """Law of the latent given the observed part of x_t, and the log-density of that part."""
    size = model.observed_size
    observed = jnp.ones(size, bool) if frame.observed is None else jnp.broadcast_to(frame.observed, (size,))
    posterior = model.condition(covariance, observed)
    residual = jnp.where(observed, frame.observation - model.emission_mean(mean, frame.inputs), 0.0)
    # A missing dimension has a unit variance and no residual: only its log 2π / 2 is to be taken off again.
    log_density = gaussian_log_density(residual, posterior.innovation_factor)
    log_density = log_density + 0.5 * jnp.log(2 * jnp.pi) * jnp.sum(~observed)
    return mean + posterior.gain @ residual, posterior.covariance, log_density


def _smoothing_gain(matrix: Array, filtered: Gaussians, predicted_next: Gaussians) -> Array:
    return solve_positive_definite(cholesky(predicted_next.covariance), matrix @ filtered.covariance).T
