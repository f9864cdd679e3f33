"""Weights are logarithms, normalised; the evidence increment is what normalising removed."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from mcfo.types import LogWeights, Scalar

_BLOCK = 16


def normalise(log_weights: LogWeights) -> tuple[LogWeights, Scalar]:
    """Normalised log-weights and log R = log sum_i w_i.

    If log R is not finite there is nothing to normalise by. The particles then get equal weights, so that the
    filter goes on and every later number means something, and log R itself says what happened: -inf if all weights
    are zero, +inf if one is infinite, NaN if one is NaN.
    """
    largest = jnp.max(log_weights)
    shift = jnp.where(jnp.isfinite(largest), largest, 0.0)
    shifted = log_weights - shift
    total = jnp.sum(jnp.exp(shifted))
    # The inner `where` keeps the gradient of a collapsed step from being NaN.
    log_total = jnp.where(
        total > 0, jnp.log(jnp.where(total > 0, total, 1.0)), jnp.where(jnp.isnan(total), total, -jnp.inf)
    )
    increment = log_total + shift
    uniform = -jnp.log(jnp.asarray(len(log_weights), log_weights.dtype))
    # Not log_weights - increment: where both are huge (an outlier), the rounding of either is larger than one.
    return jnp.where(jnp.isfinite(increment), shifted - log_total, uniform), increment


def effective_sample_size(log_weights: LogWeights) -> Scalar:
    """ESS = 1 / sum_i W_i² of normalised log-weights: between 1 and the number of particles."""
    return 1.0 / jnp.sum(jnp.exp(2.0 * log_weights))


def uniform_log_weights(particles: int, dtype) -> Float[Array, " particles"]:
    return jnp.full(particles, -jnp.log(jnp.asarray(particles, dtype)), dtype)


def cumulative_sum(values: Float[Array, " size"]) -> Float[Array, " size"]:
    """Cumulative sums of values that are not negative: never falling, and flat exactly where a value is zero.

    The second property keeps particles of weight zero from becoming ancestors by rounding. The sums are taken in
    blocks by a triangular matrix multiplication, and over the blocks in the same way: on a CPU as fast as `jnp.cumsum`,
    which promises neither property, at 100 values, and 1.6, 2.5 and 3.9 times faster at 1000, 10 000 and 100 000.
    """
    size = len(values)
    blocks = -(-size // _BLOCK)
    table = jnp.pad(values, (0, blocks * _BLOCK - size)).reshape(blocks, _BLOCK)
    triangle = jnp.triu(jnp.ones((_BLOCK, _BLOCK), values.dtype))
    within = jnp.matmul(table, triangle, precision="highest")
    if blocks == 1:
        return within[0, :size]
    total = within[:, -1:]
    ends = cumulative_sum(total[:, 0])[:, None]
    starts = jnp.concatenate([jnp.zeros((1, 1), values.dtype), ends[:-1]])
    # A block's last living value must reach the next block's start to the bit, and none may pass it.
    sums = jnp.where(within == total, ends, jnp.minimum(starts + within, ends))
    return sums.reshape(-1)[:size]


def cumulative_count(counts: Int[Array, " size"]) -> Int[Array, " size"]:
    """Cumulative sums of counts that add up to at most their number."""
    if len(counts) >= 2**24:  # beyond which float32 does not count
        return jnp.cumsum(counts)
    return cumulative_sum(counts.astype(jnp.float32)).astype(counts.dtype)
