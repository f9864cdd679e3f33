"""Information from particles, where the likelihood has no exact form.

Louis' identity (1982) has the observed information as what complete data would tell less what is missing,

    -∇² log p(x) = E[-∇² log p(z, x) | x] - Var(∇ log p(z, x) | x),

over paths z_1:T from the smoothing distribution. The filter score ψ = Σ_t ψ_t, ψ_t = E[s_t | x_1:t] and s_t the
score of step t, is no likelihood score: its root has the covariance J⁻¹ V J⁻ᵀ (White 1982), with

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
from mcfo.learning.standard_errors import derivatives
from mcfo.missing import log_prob, observed_log_prob
from mcfo.models.base import MarkovModel, Model
from mcfo.precision import in_float64
from mcfo.proposals.base import Proposal
from mcfo.series import Frame, Series
from mcfo.smc.filter import SMC
from mcfo.smc.smoothing import backward_simulation, draw_trajectories
from mcfo.types import Key, Latent, Memory, Scalar

PARTICLES = 500
"""Particles of a filter, and paths that are drawn from it."""
REPEATS = 4
"""Independent filters, whose differences are the Monte Carlo error."""
LAG = 50
"""Steps over which the scores of the past are remembered in S_t: the model has forgotten what was before."""


class Informations(NamedTuple):
    """A and B of A⁻¹ B A⁻ᵀ from each repetition; B is None for the observed information."""

    information: Float[np.ndarray, "repeats size size"]
    noise: Float[np.ndarray, "repeats size size"] | None


def louis_information(
    coordinates: Coordinates, proposal: Proposal, data: Buckets, *, key: Key, priors: Any = None
) -> Informations:
    """Return the observed information by Louis' identity. Consistent in the number of particles and paths.

    Paths of a Markov model are drawn backwards. Those of other models come from the genealogy, whose early steps
    descend from few particles: the information that is missing there is then underestimated.
    """
    keys = jax.random.split(key, REPEATS)
    return Informations(np.stack([_louis(coordinates, proposal, data, one, priors) for one in keys]), None)


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


def complete_log_density(model: Model, latents: Any, frames: Frame) -> Scalar:
    """log p(z_1:T, x_1:T) of one path."""

    def advance(memory: Memory, latent: Latent, frame: Frame) -> Memory:
        return model.advance_with(memory, latent, frame.observation.astype(float), frame.observed, frame.inputs)

    def step(memory: Memory, now: tuple[Latent, Frame]) -> tuple[Memory, Scalar]:
        latent, frame = now
        return advance(memory, latent, frame), _step_density(model, memory, latent, frame, first=False)

    (latent, frame), rest = (jax.tree.map(lambda a, cut=cut: a[cut], (latents, frames)) for cut in (0, slice(1, None)))
    start = model.start(frame.inputs)
    own = _step_density(model, start, latent, frame, first=True)
    return own + jnp.sum(jax.lax.scan(step, advance(start, latent, frame), rest)[1])


@in_float64
@eqx.filter_jit
def _louis(coordinates: Coordinates, proposal: Proposal, data: Buckets, key: Key, priors: Any) -> Array:
    vector = coordinates.vector()
    model = coordinates.model(vector)

    def of_series(series: Series) -> Array:
        trace = SMC(PARTICLES)(model, proposal, series, key=key, history=True)
        if isinstance(model, MarkovModel):
            latents = backward_simulation(model, trace, series, PARTICLES, key=key).latents
        else:
            latents = draw_trajectories(trace, PARTICLES, key=key).latents
        latents, frames = jnp.swapaxes(latents, 0, 1), series.sanitized().frames(None)

        def scores(vector: Array) -> Float[Array, "paths size"]:
            return jax.vmap(
                jax.grad(lambda theta, path: complete_log_density(coordinates.model(theta), path, frames)), (None, 0)
            )(vector, latents)

        own = scores(vector)
        centered = own - jnp.mean(own, axis=0)
        complete = -derivatives(lambda theta: jnp.mean(scores(theta), axis=0), vector)
        return complete - centered.T @ centered / (PARTICLES - 1)

    total = sum((jnp.sum(jax.lax.map(of_series, batch), axis=0) for batch in data), jnp.zeros((len(vector),) * 2))
    if priors is not None:
        total = total - jax.hessian(lambda theta: priors.log_density(coordinates.model(theta)))(vector)
    return (total + total.T) / 2


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
