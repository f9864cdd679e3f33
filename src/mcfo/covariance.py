"""Covariances that stay positive definite under any gradient step, and the Gaussians that use them."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float

from mcfo.linear_algebra import cholesky
from mcfo.types import Distribution, Numbers, is_known


class Covariance(eqx.Module):
    """Σ = L Lᵀ with L lower triangular, stored as log diag(L) and the entries below the diagonal.

    Both are free real numbers, so an optimizer may move them anywhere. `below` is None for a diagonal covariance,
    whose Gaussian is a product of scalar ones: cheaper, and known to factorize.
    """

    log_diagonal: Float[Array, "*regimes size"]
    below: Float[Array, "*regimes entries"] | None
    readable: ClassVar = ("standard_deviation", "correlation")

    @classmethod
    def from_matrix(cls, covariance: Numbers, *, name: str = "covariance") -> Covariance:
        """Reads a covariance matrix, or a vector of variances, or one variance; checked unless it is being traced."""
        if not is_known(covariance):
            return cls._from_tracer(jnp.asarray(covariance, float))
        matrix = np.asarray(covariance, np.float64)
        if matrix.ndim < 2 or matrix.shape == (1, 1):
            variances = np.atleast_1d(matrix.squeeze()) if matrix.ndim != 1 else matrix
            if not (np.isfinite(variances).all() and (variances > 0).all()):
                raise ValueError(f"Every variance of the {name} must be positive and finite, but got {variances}.")
            return cls(jnp.asarray(0.5 * np.log(variances)), None)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(
                f"The {name} has shape {matrix.shape}. Give a square matrix, or a vector of variances for a "
                "diagonal one."
            )
        if not np.allclose(matrix, matrix.T):
            raise ValueError(f"The {name} is not symmetric: {matrix.tolist()}.")
        try:
            factor = np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError as error:
            raise ValueError(f"The {name} is not positive definite: {matrix.tolist()}.") from error
        rows, columns = np.tril_indices(len(matrix), -1)
        return cls(jnp.asarray(np.log(np.diag(factor))), jnp.asarray(factor[rows, columns]))

    @classmethod
    def _from_tracer(cls, covariance: Array) -> Covariance:
        if covariance.ndim < 2 or covariance.shape == (1, 1):
            return cls(0.5 * jnp.log(covariance.reshape(-1)), None)
        factor = cholesky(covariance)
        return cls(jnp.log(jnp.diag(factor)), factor[jnp.tril_indices(len(covariance), -1)])

    @property
    def size(self) -> int:
        return self.log_diagonal.shape[-1]

    @property
    def factor(self) -> Float[Array, "*regimes size size"]:
        """L."""
        # Covariances of several regimes are stacked, with axes in front.
        factor = jnp.eye(self.size) * jnp.exp(self.log_diagonal)[..., None]
        if self.below is None:
            return factor
        rows, columns = jnp.tril_indices(self.size, -1)
        return factor.at[..., rows, columns].set(self.below)

    @property
    def matrix(self) -> Float[Array, "*regimes size size"]:
        """Σ = L Lᵀ."""
        return self.factor @ self.factor.mT

    @property
    def standard_deviation(self) -> Float[Array, "*regimes size"]:
        """The square roots of the diagonal of Σ."""
        return jnp.sqrt(jnp.sum(self.factor**2, axis=-1))

    @property
    def correlation(self) -> Float[Array, "*regimes size size"] | None:
        """Σ_ij / (σ_i σ_j); None for a diagonal covariance."""
        if self.below is None:
            return None
        scaled = self.factor / self.standard_deviation[..., None]
        return scaled @ scaled.mT

    def gaussian(self, mean: Float[Array, " size"]) -> Distribution:
        """N(mean, Σ)."""
        if self.below is None:
            return dist.Normal(mean, jnp.exp(self.log_diagonal)).to_event(1)
        return dist.MultivariateNormal(mean, scale_tril=self.factor)
