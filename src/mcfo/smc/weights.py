"""Normalized log-weights, and the evidence increment, which is what normalizing removes."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from mcfo.types import LogWeights, Scalar


def normalize(log_weights: LogWeights) -> tuple[LogWeights, Scalar]:
    """Normalized log-weights and log R = log sum_i w_i.

    If log R is not finite, weights cannot be divided by R. The particles then get equal weights, so that the filter
    continues and all later numbers are defined, and log R says what happened: -inf if all weights are zero, +inf if one
    is infinite, NaN if one is NaN.
    """
    # The largest finite one is taken off, so that exponentials do not overflow. The default is finite too, so that the
    # shift always is.
    lowest = jnp.finfo(log_weights.dtype).min
    shift = jnp.max(jnp.where(jnp.isfinite(log_weights), log_weights, lowest))
    shifted = log_weights - shift
    total = _sum(jnp.exp(shifted), shifted != -jnp.inf)
    # The inner `where` keeps the gradient of a collapsed step from being NaN.
    log_total = jnp.where(
        total > 0, jnp.log(jnp.where(total > 0, total, 1.0)), jnp.where(jnp.isnan(total), total, -jnp.inf)
    )
    increment = log_total + shift
    uniform = -jnp.log(jnp.asarray(len(shifted), shifted.dtype))
    # Not log_weights - increment: where both are huge (an outlier), the rounding of either is larger than one.
    return jnp.where(jnp.isfinite(increment), shifted - log_total, uniform), increment


def effective_sample_size(log_weights: LogWeights) -> Scalar:
    """ESS = 1 / sum_i W_i² for normalized log-weights: between 1 and the number of particles."""
    return 1.0 / _sum(jnp.exp(2.0 * log_weights), log_weights != -jnp.inf)


def _sum(weights: Float[Array, " particles"], positive: Bool[Array, " particles"]) -> Scalar:
    """The sum of the positive weights; the others are zero anyway."""
    # XLA:CPU fuses `exp` into the reduction and then does not vectorize it (20x slower); the `where` prevents the
    # fusion (jaxlib 0.10).
    return jnp.sum(jnp.where(positive, weights, 0.0))


def uniform_log_weights(particles: int, dtype) -> Float[Array, " particles"]:
    return jnp.full(particles, -jnp.log(jnp.asarray(particles, dtype)), dtype)
