"""The likelihood as a filter estimates it: at many parameters, and with as many particles as it takes."""

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
from mcfo.proposals.base import Proposal
from mcfo.smc.filter import SMC
from mcfo.types import HostArray, Key, Scalar

FEWEST, MOST = 16, 1_000_000
"""The least and the largest number of particles that is chosen."""
TRIED = 128
"""The number of particles that is tried first."""
BLOCK = 64
"""Evaluations of one call, so that one program serves any number; and those from which a variance is estimated."""
_AT_ONCE = 2000


class Estimator(eqx.Module):
    """log p̂(x | θ) of all series, by a filter with the proposal that belongs to θ. p̂ is unbiased for p(x | θ)."""

    coordinates: Coordinates
    proposal: Proposal
    data: Buckets
    sampler: SMC

    def __call__(self, vector: Float[Array, " size"], key: Key) -> Scalar:
        """Return log p̂(x | θ)."""
        model = self.coordinates.model(vector)
        sampler, proposal, total = self.sampler, self.proposal.following(model), jnp.zeros(())
        for batch in self.data:
            estimates = jax.vmap(lambda one: sampler(model, proposal, one, key=key).log_evidence)(batch)
            total = total + jnp.sum(estimates)
        return total

    def at(self, points: Float[HostArray, "points size"], *, key: Key) -> Float[np.ndarray, " points"]:
        """Return log p̂ at each of several θ, by independent filters."""
        count = len(points)
        padded = np.concatenate([points, np.repeat(points[-1:], -count % BLOCK, axis=0)])
        keys = jax.random.split(key, len(padded))
        blocks = [
            np.asarray(_block(self, padded[first : first + BLOCK], keys[first : first + BLOCK]), np.float64)
            for first in range(0, count, BLOCK)
        ]
        return np.concatenate(blocks)[:count]

    def variance(self, vector: Float[HostArray, " size"], *, key: Key) -> float:
        """Return the variance of log p̂ at θ, infinite where a filter collapsed; its relative error is a sixth."""
        estimates = self.at(np.repeat(np.asarray(vector)[None], BLOCK, axis=0), key=key)
        return float(np.var(estimates, ddof=1)) if np.all(np.isfinite(estimates)) else math.inf


@eqx.filter_jit
def _block(estimator: Estimator, points: Any, keys: Any) -> Array:
    at_once = max(1, _AT_ONCE // estimator.sampler.particles)
    return jax.lax.map(lambda one: estimator(*one), (jnp.asarray(points), keys), batch_size=min(at_once, BLOCK))


def with_particles(estimator: Estimator, particles: int) -> Estimator:
    """Return the estimator with another number of particles."""
    return Estimator(estimator.coordinates, estimator.proposal, estimator.data, SMC(particles))


def choose_particles(
    estimator: Estimator, vector: Float[HostArray, " size"], *, key: Key, wanted: float = 1.0, lowers: bool = True
) -> tuple[int, float]:
    """Return the number of particles with which log p̂ has a variance near `wanted` at θ, and the variance it then has.

    The variance falls as 1 / K. With one, the cost of an effective draw of a chain is near its least: Pitt, Silva,
    Giordani and Kohn (2012); Doucet, Pitt, Deligiannidis and Kohn (2015).

    **Arguments:**

    - `lowers`: whether to take fewer than `TRIED` particles where they do.
    """
    tried = TRIED
    while True:
        variance = with_particles(estimator, tried).variance(vector, key=key)
        if variance < 30 * wanted:
            break
        if tried >= MOST:
            raise InputError(
                f"log p̂ has a variance of {variance:.3g} with {tried} particles: nothing can be said by particles. "
                "Learn a better proposal, or use fewer data."
            )
        tried = min(8 * tried, MOST)
    chosen = int(np.clip(math.ceil(tried * variance / wanted), FEWEST, MOST))
    if chosen == tried or (chosen < tried and not lowers):
        return tried, variance
    return chosen, with_particles(estimator, chosen).variance(vector, key=key)
