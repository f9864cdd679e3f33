"""The posterior density of the learned numbers of a model, with the exact likelihood or a filter's estimate of it."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from mcfo.data.batching import Buckets
from mcfo.learning.coordinates import Coordinates
from mcfo.learning.estimated_likelihood import Estimator
from mcfo.learning.priors import Priors
from mcfo.learning.standard_errors import total_log_evidence
from mcfo.precision import in_float64
from mcfo.proposals.base import Proposal
from mcfo.smc.filter import SMC
from mcfo.types import HostArray, Key, Scalar


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
        if self.sampler is None:
            return total_log_evidence(self.coordinates.model(vector), self.data)
        return Estimator(self.coordinates, self.proposal, self.data, self.sampler)(vector, key)


def _densities(target: Target, points: Array, keys: Any) -> tuple[Array, Array]:
    return jax.vmap(target.log_prior)(points), jax.vmap(target.log_likelihood)(points, keys)


_estimated: Any = eqx.filter_jit(_densities)
_exact: Any = in_float64(eqx.filter_jit(_densities))


def densities(target: Target, points: HostArray, keys: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the log-prior and the log-likelihood of several θ, -inf where they are not numbers."""
    compute = _exact if target.sampler is None else _estimated
    priors, likelihoods = (np.asarray(each, np.float64) for each in compute(target, points, keys))
    return tuple(np.where(np.isnan(each), -np.inf, each) for each in (priors, likelihoods))  # pyright: ignore[reportReturnType]
