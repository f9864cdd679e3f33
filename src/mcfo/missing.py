"""Missing values: the density of what was observed, and draws of the rest given it."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Bool

from mcfo.errors import PartlyMissingError
from mcfo.linear_algebra import cholesky, gaussian_log_density, solve_positive_definite
from mcfo.types import Distribution, Key, Observation, Scalar


def log_prob(distribution: Distribution, value: Array) -> Scalar:
    """`distribution.log_prob(value)`, but without LAPACK where the distribution is a MultivariateNormal.

    numpyro's density of that one calls LAPACK for all particles at once, which can stop a run for ever: see
    `mcfo.linear_algebra`.
    """
    if type(distribution) is dist.MultivariateNormal:
        normal: Any = distribution
        return gaussian_log_density(value - normal.loc, normal.scale_tril)
    return distribution.log_prob(value)


def observed_log_prob(
    distribution: Distribution, value: Observation, observed: Bool[Array, " #dimensions"] | None
) -> Scalar:
    """log p of the observed dimensions of a value, the others integrated out.

    The value must be one that the distribution accepts in the masked places too (`Series.sanitized`).
    """
    if observed is None:
        return log_prob(distribution, value)
    if observed.shape != value.shape:
        return jnp.where(observed[0], log_prob(distribution, value), 0.0)
    if isinstance(distribution, dist.Independent) and distribution.reinterpreted_batch_ndims == 1:
        return jnp.sum(jnp.where(observed, distribution.base_dist.log_prob(value), 0.0))
    if isinstance(distribution, dist.MultivariateNormal):
        return _marginal_normal_log_prob(distribution, value, observed)
    if value.shape == (1,):
        return jnp.where(observed[0], distribution.log_prob(value), 0.0)
    raise PartlyMissingError(
        f"Some dimensions of some observations are missing, and {type(distribution).__name__} cannot leave them out. "
        "Return an emission that factorizes, `Distribution(...).to_event(1)`, or a MultivariateNormal; or mask whole "
        "steps."
    )


def impute(distribution: Any, value: Observation, observed: Bool[Array, " #dimensions"], *, key: Key) -> Array:
    """The value with its missing dimensions drawn from their law given the observed ones."""
    return fill(distribution, distribution.sample(key), value, observed)


def fill(distribution: Any, drawn: Array, value: Observation, observed: Bool[Array, " #dimensions"]) -> Array:
    """The value with its missing dimensions taken from a draw of everything, or from the mean, that is corrected for
    what is known: a draw from their law given the observed ones, or its mean."""
    if observed.shape == value.shape and isinstance(distribution, dist.MultivariateNormal):
        # Kriging: corrected by how far it missed what is known.
        covariance = _covariance(distribution)
        both = observed[:, None] & observed[None, :]
        factor = cholesky(jnp.where(both, covariance, jnp.eye(len(value))))
        missed = jnp.where(observed, value - drawn, 0.0)
        drawn = drawn + covariance @ solve_positive_definite(factor, missed)
    return jnp.where(observed, value, drawn)


def _covariance(normal: Any) -> Array:
    return normal.scale_tril @ normal.scale_tril.T


def _marginal_normal_log_prob(normal: Any, value: Observation, observed: Bool[Array, " dimensions"]) -> Scalar:
    # A missing dimension becomes an independent standard normal at its mean, whose log 2π / 2 is taken off again.
    covariance = _covariance(normal)
    both = observed[:, None] & observed[None, :]
    factor = cholesky(jnp.where(both, covariance, jnp.eye(len(value))))
    residual = jnp.where(observed, value - normal.loc, 0.0)
    return gaussian_log_density(residual, factor) + 0.5 * jnp.log(2 * jnp.pi) * jnp.sum(~observed)
