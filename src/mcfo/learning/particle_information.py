"""Information from particles, where the likelihood has no exact form.

The observed information is the curvature of log p̂ around θ̂: a quadratic function is fitted to noisy values of it over
about two standard errors (Ionides, Bretó, Park, Smith and King 2017). Louis' identity (1982), complete information less
what is missing, is a small difference of large numbers wherever a filter is needed: on the paper's model (T = 200) its
information about θ_2 was 1.5 times the exact one with 300 particles and 2000 paths, and this one's 1.1 times.

The filter score ψ = Σ_t ψ_t, ψ_t = E[s_t | x_1:t], s_t the score of step t, is no likelihood score. Its root has
the covariance J⁻¹ V J⁻ᵀ (White 1982), with

    J = -Σ_t E[∇s_t | x_1:t] + Cov(s_t, S_t | x_1:t),   S_t = s_1 + ... + s_t,   V = Σ_t ψ_t ψ_tᵀ.

V needs no lags, because at the truth the ψ_t are martingale differences.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mcfo.data.batching import Buckets
from mcfo.learning.coordinates import Coordinates
from mcfo.learning.estimated_likelihood import TRIED, Estimator, choose_particles, with_particles
from mcfo.learning.standard_errors import derivatives
from mcfo.missing import log_prob, observed_log_prob
from mcfo.models.base import Model
from mcfo.precision import in_float64
from mcfo.proposals.base import Proposal
from mcfo.series import Frame, Series
from mcfo.smc.filter import SMC
from mcfo.types import Key, Latent, Memory, Scalar

PARTICLES = 500
"""Particles of a filter whose score is differentiated."""
REPEATS = 4
"""Independent estimates, whose differences are the Monte Carlo error."""
LAG = 50
"""Steps over which the scores of the past are remembered in S_t: the model has forgotten what was before."""
_VARIANCE = 0.5
"""The variance of log p̂ that is wanted: a fraction of what the likelihood changes by within a standard error."""
_LADDER = 1e-3 * 3.0 ** np.arange(11)
"""Distances from θ̂, relative to its size, among which the scale of each coordinate is found."""
_DEEPEST = 6.0
"""Nats below the highest value, and two more for each coordinate, from which on a value is left out."""
_ROUNDS = 4
_WIDEST = 30.0
"""Conditional standard errors beyond which no point of a design lies: the likelihood is flat there."""


class Informations(NamedTuple):
    """A and B of A⁻¹ B A⁻ᵀ from each repetition; B is None for the observed information."""

    information: Float[np.ndarray, "repeats size size"]
    noise: Float[np.ndarray, "repeats size size"] | None


def curvature_information(
    coordinates: Coordinates, proposal: Proposal, data: Buckets, *, key: Key, priors: Any = None
) -> Informations:
    """Return the curvature of log p̂, and of the prior's density of the parameters, around θ̂.

    The points of each design have the covariance that the design before it found, so that the curvature is that over
    the likelihood's own width whatever the units. Bias: where the variance of log p̂ curves with θ, half of that; and
    the fourth derivative of the likelihood. Variance: falls with the number of points.
    """
    of_particles, of_scales, of_designs = jax.random.split(key, 3)
    vector = np.asarray(coordinates.vector(), np.float64)
    estimator = Estimator(coordinates, proposal, data, SMC(TRIED))
    particles, _ = choose_particles(estimator, vector, key=of_particles, wanted=_VARIANCE, lowers=False)
    estimator = with_particles(estimator, particles)

    def values(points: np.ndarray, key: Key) -> np.ndarray:
        found = estimator.at(points, key=key)
        return found if priors is None else found + np.asarray(_log_priors(coordinates, priors, points))

    size = len(vector)
    factor = np.diag(_scales(values, vector, of_scales))
    width = min(1.5, np.sqrt(6 / size))
    count = max(40, 5 * (1 + size + size * (size + 1) // 2))
    information = np.zeros((REPEATS, size, size))
    for index in range(_ROUNDS):
        of_points, of_values = jax.random.split(jax.random.fold_in(of_designs, index))
        half = np.asarray(jax.random.normal(of_points, (REPEATS, count // 2, size)), np.float64) * width
        points = np.concatenate([half, -half], axis=1)  # so that odd derivatives cancel
        found = values((vector + points @ factor.T).reshape(-1, size), of_values).reshape(REPEATS, -1)
        scaled = np.stack([_quadratic(one, own) for one, own in zip(points, found, strict=True)])
        inverse = np.linalg.inv(factor)
        information = inverse.T @ scaled @ inverse
        curvatures, ways = np.linalg.eigh(scaled.mean(axis=0))
        if index and np.all((curvatures > 0.5) & (curvatures < 2)):
            break
        factor = factor @ (ways / np.sqrt(np.maximum(curvatures, _WIDEST**-2)))
    return Informations(information, None)


def _scales(values: Any, vector: np.ndarray, key: Key) -> np.ndarray:
    """Return the standard error of each coordinate with the others known, roughly: from where log p̂ falls by a nat."""
    steps = np.maximum(np.abs(vector), 1.0)[:, None] * _LADDER
    moves = np.eye(len(vector))[:, None] * steps[..., None]
    points = vector + np.concatenate([np.zeros((1, *moves.shape[1:])), moves, -moves])
    found = values(points.reshape(-1, len(vector)), key).reshape(points.shape[:-1])
    falls = found[0].mean() - (found[1 : len(vector) + 1] + found[len(vector) + 1 :]) / 2
    falls = np.where(np.isfinite(falls), falls, np.inf)
    scales = []
    for own, distances in zip(falls, steps, strict=True):
        far = np.flatnonzero(own > 2.0)
        first = far[0] if len(far) else len(own) - 1
        fall = own[first] if np.isfinite(own[first]) else 50.0
        scales.append(distances[first] / np.sqrt(2 * max(fall, 1e-2)))
    return np.array(scales)


def _quadratic(points: Float[np.ndarray, "points size"], values: Float[np.ndarray, " points"]) -> np.ndarray:
    """Return minus the second derivatives of the quadratic function that fits the values best."""
    size = points.shape[1]
    # Far down, as where an autoregression explodes, the likelihood is not quadratic, and rules a fit by least squares.
    usable = values > np.max(values[np.isfinite(values)], initial=-np.inf) - _DEEPEST - 2 * size
    rows, columns = np.tril_indices(size)
    products = points[:, rows] * points[:, columns] * np.where(rows == columns, 0.5, 1.0)
    regressors = np.concatenate([np.ones((len(points), 1)), points, products], axis=1)[usable]
    if len(regressors) < regressors.shape[1]:
        return np.full((size, size), np.nan)
    fitted = np.linalg.lstsq(regressors, values[usable], rcond=None)[0][1 + size :]
    curvature = np.zeros((size, size))
    curvature[rows, columns] = curvature[columns, rows] = -fitted
    return curvature


@eqx.filter_jit
def _log_priors(coordinates: Coordinates, priors: Any, points: Any) -> Array:
    return jax.vmap(lambda theta: priors.log_density(coordinates.model(theta)))(jnp.asarray(points))


def filter_score_information(
    coordinates: Coordinates, proposal: Proposal, data: Buckets, *, key: Key, lag: int = LAG
) -> Informations:
    """Return J and V of the filter score, for a Markov model. Consistent in K, up to what the model remembers beyond
    `lag` steps."""
    keys = jax.random.split(key, REPEATS)
    both = [_filter_score(coordinates, proposal, data, one, lag) for one in keys]
    information, noise = (np.stack(parts) for parts in zip(*both, strict=True))
    return Informations(information, noise)


def _step_density(model: Model, memory: Memory, latent: Latent, frame: Frame, *, first: bool) -> Scalar:
    """log p(z_t | h_t-1) + log p(x_t | z_t, h_t-1)."""
    prior = (model.initial if first else model.transition)(memory, frame.inputs)
    emission = model.emission(memory, latent, frame.inputs)
    density = log_prob(prior, latent) + observed_log_prob(emission, frame.observation, frame.observed)
    return frame.unless_padding(density, jnp.zeros_like(density))


@in_float64
@eqx.filter_jit
def _filter_score(coordinates: Coordinates, proposal: Proposal, data: Buckets, key: Key, lag: int) -> Any:
    vector = coordinates.vector()
    model = coordinates.model(vector)
    size = len(vector)

    def of_series(series: Series) -> tuple[Array, Array]:
        trace = SMC(PARTICLES)(model, proposal, series, key=key, history=True)
        history, frames = trace.require_history(), series.sanitized().frames(None)

        def terms(memory: Memory, latents: Array, log_weights: Array, frame: Frame, *, first: bool) -> Any:
            """Scores of the particles, (particles, size), and the mean of their derivatives."""

            def scores(theta: Array) -> Array:
                def one(memory: Memory, latent: Latent) -> Array:
                    def density(theta: Array) -> Scalar:
                        return _step_density(coordinates.model(theta), memory, latent, frame, first=first)

                    return jax.grad(density)(theta)

                return jax.vmap(one, in_axes=(None if first else 0, 0))(memory, latents)

            weights = jnp.exp(log_weights)
            return scores(vector), derivatives(lambda theta: weights @ scores(theta), vector)

        def step(carried: Any, now: Any) -> Any:
            window, before = carried
            latents, log_weights, ancestors, frame = now
            own, slope = terms(before[ancestors], latents, log_weights, frame, first=False)
            # Descendants inherit the scores of their ancestors; those older than the lag are forgotten.
            window = jnp.concatenate([window[ancestors][:, 1:], own[:, None]], axis=1)
            return (window, latents), _products(window, own, slope, log_weights)

        rows = history.latents, history.log_weights, history.ancestors, frames
        (latents, log_weights, _, frame), rest = (
            jax.tree.map(lambda a, cut=cut: a[cut], rows) for cut in (0, slice(1, None))
        )
        own, slope = terms(model.start(frame.inputs), latents, log_weights, frame, first=True)
        window = jnp.zeros((PARTICLES, lag, size)).at[:, -1].set(own)
        first = _products(window, own, slope, log_weights)
        _, others = jax.lax.scan(step, (window, latents), rest)
        jacobian, noise = jax.tree.map(lambda one, many: one + jnp.sum(many, axis=0), first, others)
        return jacobian, noise

    parts = [jax.lax.map(of_series, batch) for batch in data]
    return tuple(sum(jnp.sum(part[index], axis=0) for part in parts) for index in (0, 1))


def _products(window: Array, own: Array, slope: Array, log_weights: Array) -> tuple[Array, Array]:
    """Return the parts of J and V of one step."""
    weights, past = jnp.exp(log_weights)[:, None], jnp.sum(window, axis=1)
    mean = jnp.sum(weights * own, axis=0)
    covariance = (weights * (own - mean)).T @ (past - jnp.sum(weights * past, axis=0))
    return -(slope + covariance), jnp.outer(mean, mean)
