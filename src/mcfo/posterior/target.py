"""The posterior density of the learned numbers of a model, with the exact likelihood or a filter's estimate of it."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mcfo.data.batching import Buckets
from mcfo.errors import InputError
from mcfo.learning.coordinates import Coordinates
from mcfo.learning.priors import Priors
from mcfo.learning.standard_errors import total_log_evidence
from mcfo.precision import in_float64
from mcfo.proposals.base import Proposal
from mcfo.smc.filter import SMC
from mcfo.types import HostArray, Key, Scalar

FEWEST, MOST = 16, 1_000_000
"""The least and the largest number of particles that is chosen."""
_REPLICATES = 48
"""Filters from which the variance of log p̂ is estimated: its relative standard error is then a fifth."""
_TRIED = 128


class Target(eqx.Module):
    """log p(x | θ) + log p(y(θ)) + log |dy/dθ| over the coordinates θ of a model.

    With a `sampler`, the likelihood is its unbiased estimate p̂, whatever the number of particles: a chain that accepts
    by p̂ then has the exact posterior. Andrieu, Doucet and Holenstein (2010). None takes the exact likelihood.
    """

    coordinates: Coordinates
    priors: Priors
    proposal: Proposal
    data: Buckets
    sampler: SMC | None

    def log_prior(self, vector: Float[Array, " size"]) -> Scalar:
        """Return the log-density of the prior of θ; a parameter without a prior has a flat one where people mean it."""
        return self.priors.log_density(self.coordinates.model(vector)) + self.coordinates.log_jacobian(vector)

    def log_likelihood(self, vector: Float[Array, " size"], key: Key) -> Scalar:
        """Return log p(x | θ), or log p̂(x | θ)."""
        model = self.coordinates.model(vector)
        if self.sampler is None:
            return total_log_evidence(model, self.data)
        sampler, proposal, total = self.sampler, self.proposal.following(model), jnp.zeros(())
        for batch in self.data:
            estimates = jax.vmap(lambda one: sampler(model, proposal, one, key=key).log_evidence)(batch)
            total = total + jnp.sum(estimates)
        return total


def choose_particles(target: Target, vector: Float[HostArray, " size"], *, key: Key) -> tuple[int, float]:
    """Return the number of particles with which log p̂ has a variance near one at θ, and the variance that it has there.

    The variance falls as 1 / K. With one, the cost of an effective draw is near its least: Pitt, Silva, Giordani and
    Kohn (2012); Doucet, Pitt, Deligiannidis and Kohn (2015).
    """
    tried = _TRIED
    while True:
        variance = estimate_variance(target, vector, tried, key=key)
        if math.isfinite(variance) and variance < 30:
            break
        if tried >= MOST:
            raise InputError(
                f"log p̂ has a variance of {variance:.3g} with {tried} particles, so that no chain would move. Learn a "
                "better proposal, or use fewer data."
            )
        tried = min(8 * tried, MOST)
    chosen = int(np.clip(math.ceil(tried * variance), FEWEST, MOST))
    return (tried, variance) if chosen == tried else (chosen, estimate_variance(target, vector, chosen, key=key))


def estimate_variance(target: Target, vector: Float[HostArray, " size"], particles: int, *, key: Key) -> float:
    """Return the variance of log p̂ at θ, infinite where a filter collapsed."""
    sampled = eqx.tree_at(lambda t: t.sampler, target, SMC(particles), is_leaf=lambda leaf: leaf is None)
    estimates = np.asarray(_replicates(sampled, jnp.asarray(vector), key))
    return float(np.var(estimates, ddof=1)) if np.all(np.isfinite(estimates)) else math.inf


@eqx.filter_jit
def _replicates(target: Target, vector: Array, key: Key) -> Array:
    return jax.lax.map(lambda one: target.log_likelihood(vector, one), jax.random.split(key, _REPLICATES))


@in_float64
@eqx.filter_jit
def _exact_density(target: Target, points: Array, keys: Any) -> tuple[Array, Array]:
    return jax.vmap(target.log_prior)(points), jax.vmap(target.log_likelihood)(points, keys)


_estimated_density = eqx.filter_jit(_exact_density.__wrapped__.__wrapped__)


def densities(target: Target, points: HostArray, keys: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the log-prior and the log-likelihood of several θ, -inf where they are not numbers."""
    compute = _exact_density if target.sampler is None else _estimated_density
    priors, likelihoods = (np.asarray(each, np.float64) for each in compute(target, points, keys))
    return tuple(np.where(np.isnan(each), -np.inf, each) for each in (priors, likelihoods))  # pyright: ignore[reportReturnType]
