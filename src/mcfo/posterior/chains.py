"""Random-walk Metropolis-Hastings, several chains side by side: the compiled iterations and their adaptation.

One sampler serves the exact likelihood and an estimate of it. With the exact one it is not as fast a mixer as a sampler
that follows gradients, but an iteration costs one filter without derivatives, the models have few parameters, and the
state that a resumed run needs is one point a chain.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mcfo.posterior.target import Target
from mcfo.precision import in_float64
from mcfo.types import HostArray, Key

CHUNK = 50
"""Iterations between two looks at the host; the same program for all of them."""
_COVARIANCE_AT = (0.1, 0.25, 0.45, 0.7)
"""Shares of the warm-up after which the covariance of the steps is estimated; then only their size adapts."""
_RATES = {1: 0.44, 2: 0.35}
_RATE, _NOISY_RATE = 0.25, 0.15
"""The acceptance rates aimed at: Roberts and Rosenthal (2001); with an estimate of variance one, Sherlock, Thiery,
Roberts and Rosenthal (2015)."""
_PRIOR_DRAWS = 10
"""The weight, in draws, of the former covariance in a new one."""


class Chains(eqx.Module):
    """Where the chains stand: θ, log-prior and log-likelihood of each; and the steps that all of them propose,
    exp(`log_scale`) L N(0, I) with L the `factor`."""

    points: Float[HostArray, "chains size"]
    log_priors: Float[HostArray, " chains"]
    log_likelihoods: Float[HostArray, " chains"]
    log_scale: Float[HostArray, ""]
    factor: Float[HostArray, "size size"]


class Iterations(NamedTuple):
    """What some iterations recorded, (iterations, chains, ...)."""

    points: np.ndarray
    log_priors: np.ndarray
    log_likelihoods: np.ndarray
    accepted: np.ndarray


def usual_log_scale(size: int) -> float:
    """Return the logarithm of 2.38 / √size, with which steps of the posterior's covariance mix best."""
    return math.log(2.38 / math.sqrt(size))


def wanted_rate(target: Target, size: int) -> float:
    """Return the acceptance rate that the size of the steps is adapted to."""
    return _RATES.get(size, _RATE) if target.sampler is None else _NOISY_RATE


def covariance_times(warmup: int) -> list[int]:
    """Return the iterations after which the covariance of the steps is estimated."""
    return [round(share * warmup) for share in _COVARIANCE_AT]


def advance(
    target: Target, chains: Chains, iteration: int, count: int, *, since: int, adapts: bool, key: Key
) -> tuple[Chains, Iterations]:
    """Run `count` iterations, at most `CHUNK`.

    **Arguments:**

    - `iteration`: the number of iterations so far; the random numbers of iteration n come from `fold_in(key, n)`.
    - `since`: those since the covariance of the steps was changed.
    - `adapts`: whether the size of the steps adapts.
    """
    assert 0 < count <= CHUNK
    numbers = tuple(np.asarray(one, np.int32) for one in (iteration, count, since))
    rate = np.asarray(wanted_rate(target, chains.points.shape[1]) if adapts else -1.0)
    run = _exactly if target.sampler is None else _by_particles
    chains, recorded = run(target, chains, *numbers, rate, key)
    return chains, Iterations(*(np.asarray(one)[:count] for one in recorded))


def with_covariance(chains: Chains, points: Float[np.ndarray, "draws size"]) -> Chains:
    """Return the chains with steps of the covariance of these draws, pooled over the chains."""
    size = points.shape[1]
    former = np.asarray(chains.factor, np.float64)
    former = math.exp(2 * (float(chains.log_scale) - usual_log_scale(size))) * former @ former.T
    own = np.cov(points, rowvar=False).reshape(size, size)
    covariance = (len(points) * own + _PRIOR_DRAWS * former) / (len(points) + _PRIOR_DRAWS)
    dtype = np.asarray(chains.factor).dtype
    factor = np.linalg.cholesky(covariance).astype(dtype)
    scale = np.asarray(usual_log_scale(size), dtype)
    return eqx.tree_at(lambda c: (c.factor, c.log_scale), chains, (factor, scale))


def _run(
    target: Target,
    chains: Chains,
    iteration: Int[Array, ""],
    count: Int[Array, ""],
    since: Int[Array, ""],
    rate: Float[Array, ""],
    key: Key,
) -> Any:
    number, size = chains.points.shape
    dtype = chains.points.dtype

    def propose(point: Array, log_prior: Array, log_likelihood: Array, step: Array, key: Key) -> Any:
        of_step, of_likelihood, of_choice = jax.random.split(key, 3)
        other = point + step @ jax.random.normal(of_step, (size,), dtype)
        prior, likelihood = target.log_prior(other), target.log_likelihood(other, of_likelihood)
        difference = prior + likelihood - log_prior - log_likelihood
        # Where there is no density, or a filter collapsed, nothing is accepted.
        difference = jnp.where(jnp.isfinite(prior + likelihood), difference, -jnp.inf).astype(dtype)
        accepted = jnp.log(jax.random.uniform(of_choice, dtype=dtype)) < difference
        new, old = (other, prior, likelihood), (point, log_prior, log_likelihood)
        return jax.tree.map(lambda a, b: jnp.where(accepted, a.astype(b.dtype), b), new, old), accepted, difference

    def body(index: Array, carried: Any) -> Any:
        chains, recorded = carried
        keys = jax.random.split(jax.random.fold_in(key, iteration + index), number)
        step = jnp.exp(chains.log_scale) * chains.factor
        state = chains.points, chains.log_priors, chains.log_likelihoods
        state, accepted, differences = jax.vmap(propose, in_axes=(0, 0, 0, None, 0))(*state, step, keys)
        # Robbins and Monro: gains whose sum is infinite, and that of whose squares is not.
        gain = (since + index + 1.0).astype(dtype) ** -0.6
        gap = jnp.mean(jnp.exp(jnp.minimum(differences, 0.0))) - rate.astype(dtype)
        log_scale = chains.log_scale + jnp.where(rate > 0, gain * gap, 0.0).astype(dtype)
        points, priors, likelihoods = state
        recorded = jax.tree.map(lambda all, one: all.at[index].set(one), recorded, (*state, accepted))
        return Chains(points, priors, likelihoods, log_scale, chains.factor), recorded

    empty = (
        jnp.zeros((CHUNK, number, size), dtype),
        jnp.zeros((CHUNK, number), chains.log_priors.dtype),
        jnp.zeros((CHUNK, number), chains.log_likelihoods.dtype),
        jnp.zeros((CHUNK, number), bool),
    )
    return jax.lax.fori_loop(0, count, body, (chains, empty))


_by_particles: Any = eqx.filter_jit(_run)
_exactly: Any = in_float64(eqx.filter_jit(_run))
