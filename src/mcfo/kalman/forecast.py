"""Forecasts from the last law, laws of the observations, and draws of whole paths."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mcfo.kalman.filter import check, form_of, frames_of, initial_law
from mcfo.kalman.smoother import smooth_frames
from mcfo.kalman.update import Gaussians, Law, predict, reach
from mcfo.linear_algebra import semidefinite_factor
from mcfo.models.base import Model
from mcfo.series import Frame, Series
from mcfo.types import Inputs, Key


class KalmanForecast(eqx.Module):
    """The laws of the latent and of the observation, 1..H steps ahead.

    If the model has an `observation_transform`, the observation is the transformed one; the transform's `quantile` and
    `mean` bring its laws back to the data's unit.
    """

    latent: Gaussians
    observation: Gaussians


def kalman_forecast(
    model: Model, law: Gaussians, steps: int, *, inputs: Float[Array, "steps inputs"] | None = None
) -> KalmanForecast:
    """Predict from one law of the latent, such as the last filtered one.

        filtered = mcfo.kalman_filter(model, series).filtered
        last = jax.tree.map(lambda array: array[-1], filtered)
        mcfo.kalman_forecast(model, last, 12)

    **Arguments:**

    - `inputs`: those of the steps ahead, if the model has inputs.
    """
    if steps < 1:
        raise ValueError(f"Cannot forecast {steps} steps. Ask for at least one.")
    if inputs is not None and len(inputs) != steps:
        raise ValueError(f"There are {len(inputs)} rows of inputs for {steps} steps. Give one row for each step.")
    return _forecast(model, law, steps, inputs)


@eqx.filter_jit
def _forecast(model: Model, law: Gaussians, steps: int, inputs: Array | None) -> KalmanForecast:
    unknown = jnp.zeros((len(law.mean), 0), law.mean.dtype) if law.diffuse is None else law.diffuse
    start = Law.first(law.mean, law.covariance, unknown)

    def step(law: Law, now: Inputs) -> tuple[Law, Gaussians]:
        following = predict(law, form_of(model, now))
        return following, following.gaussians()

    latent = jax.lax.scan(step, start, inputs, length=steps)[1]
    return KalmanForecast(latent, observation_laws(model, latent, inputs))


@eqx.filter_jit
def observation_laws(model: Model, laws: Gaussians, inputs: Float[Array, "steps inputs"] | None = None) -> Gaussians:
    """The laws of (transformed) observations with noise, where the latents have these laws."""

    def one(law: Gaussians, now: Inputs) -> Gaussians:
        form = form_of(model, now)
        matrix = form.emission_matrix
        mean = matrix @ law.mean + form.emission_offset
        covariance = matrix @ law.covariance @ matrix.T + form.emission_covariance
        if law.diffuse is None:
            return Gaussians(mean, covariance)
        seen, terms = matrix @ law.diffuse, jnp.abs(matrix) @ jnp.abs(law.diffuse)
        return Gaussians(mean, covariance, jnp.where(jnp.abs(seen) > reach(seen.dtype) * terms, seen, 0.0))

    return jax.vmap(one, in_axes=(0, None if inputs is None else 0))(laws, inputs)


def draw_paths(model: Model, series: Series, count: int, *, key: Key) -> Float[Array, "count steps latent"]:
    """Draw paths z_1:T from p(z_1:T | x_1:T). Durbin and Koopman (2002).

    A path and data are drawn from the model, and the path is moved by what the smoother makes of the difference
    between those data and the real ones. Nothing is inverted, so that singular noise of the state is allowed.
    """
    check(model, series)
    return _draw_paths(model, series, count, key)


@eqx.filter_jit
def _draw_paths(model: Model, series: Series, count: int, key: Key) -> Float[Array, "count steps latent"]:
    frames = frames_of(model, series)
    smoothed = smooth_frames(model, frames).mean

    def draw(key: Key) -> Array:
        path, observations = _simulate(model, frames, key)
        drawn = eqx.tree_at(lambda frame: frame.observation, frames, observations)
        return path + smoothed - smooth_frames(model, drawn).mean

    # Covariances do not depend on the observations: `vmap` computes them once for all draws.
    return jax.vmap(draw)(jax.random.split(key, count))


def _simulate(model: Model, frames: Frame, key: Key) -> tuple[Array, Array]:
    """A path and its data; a diffuse start is at its mean, which the smoother corrects."""
    initial = initial_law(model, frames)
    dtype = frames.observation.dtype

    def step(state: tuple[Array, Array], now: tuple[Frame, Key]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        (latent, begun), (frame, key) = state, now
        form = form_of(model, frame.inputs)
        state_key, noise_key = jax.random.split(key)
        factor = semidefinite_factor(jnp.where(begun, form.transition_covariance, initial.covariance))
        mean = jnp.where(begun, form.transition_matrix @ latent + form.transition_offset, initial.mean)
        latent = mean + factor @ jax.random.normal(state_key, mean.shape, dtype)
        noise = semidefinite_factor(form.emission_covariance)
        seen = form.emission_matrix @ latent + form.emission_offset
        observation = seen + noise @ jax.random.normal(noise_key, seen.shape, dtype)
        return (latent, jnp.ones((), bool)), (latent, observation)

    keys = jax.random.split(key, len(frames.observation))
    return jax.lax.scan(step, (initial.mean, jnp.zeros((), bool)), (frames, keys))[1]
