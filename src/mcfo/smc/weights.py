"""Weights are logarithms, normalized; the evidence increment is what normalizing removed."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Real

from mcfo.types import LogWeights, Scalar

_BLOCKS = (*range(16, 33), *range(15, 7, -1))
"""Sizes of the blocks in which sums are taken: the first that leaves nothing over, or else the first."""


def normalize(log_weights: LogWeights) -> tuple[LogWeights, Scalar]:
    """Normalized log-weights and log R = log sum_i w_i.

    If log R is not finite there is nothing to normalize by. The particles then get equal weights, so that the
    filter goes on and every later number means something, and log R itself says what happened: -inf if all weights
    are zero, +inf if one is infinite, NaN if one is NaN.
    """
    return normalize_relative(*relative(log_weights))


def relative(log_weights: LogWeights) -> tuple[LogWeights, Scalar]:
    """Log-weights less the largest of those that are finite, whose exponentials do not overflow; and that one."""
    # Finite itself, so that it needs no look at what came out.
    lowest = jnp.finfo(log_weights.dtype).min
    shift = jnp.max(jnp.where(jnp.isfinite(log_weights), log_weights, lowest))
    return log_weights - shift, shift


def normalize_relative(shifted: LogWeights, shift: Scalar) -> tuple[LogWeights, Scalar]:
    """`normalize`, of what `relative` gave."""
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
    """ESS = 1 / sum_i W_i² of normalized log-weights: between 1 and the number of particles."""
    return 1.0 / _sum(jnp.exp(2.0 * log_weights), log_weights != -jnp.inf)


def _sum(weights: Float[Array, " particles"], alive: Bool[Array, " particles"]) -> Scalar:
    """The sum over the living; the dead have weight zero anyway. XLA's reductions on a CPU take in what makes their
    numbers, one by one and 20 times more slowly than it is made in a loop of its own, unless there is a choice in it.
    """
    return jnp.sum(jnp.where(alive, weights, 0.0))


def uniform_log_weights(particles: int, dtype) -> Float[Array, " particles"]:
    return jnp.full(particles, -jnp.log(jnp.asarray(particles, dtype)), dtype)


def cumulative_shares(values: Float[Array, " size"]) -> Float[Array, " size"]:
    """Cumulative sums of values that are not negative, divided by their total: never falling, flat exactly where a
    value is zero, and one in the end. They rise evenly where the total is zero or not finite.

    The second property keeps particles of weight zero from becoming ancestors by rounding. Sums within blocks are
    rounded to whole multiples of the smallest number that can be added up without rounding: 2⁻²⁴ of the total in
    float32, which is as fine as numbers just below one are. What is added to them is then exact, in any order.
    """
    size = len(values)
    table = _in_blocks(values)
    within = jnp.matmul(table, _triangle(table), precision="highest")
    total = jnp.sum(within[:, -1])
    # As many units as add up exactly, but for what rounding may add.
    finest = 2.0 ** (jnp.finfo(values.dtype).nmant + 1) - 2 * len(table) - 2
    divisible = (total > 0) & (total < jnp.inf)
    units = jnp.round(within * (finest / jnp.where(divisible, total, 1.0)))
    units = jnp.where(divisible, units, _places(table, size))
    starts = _starts(units[:, -1])
    return ((starts[:, None] + units) / (starts[-1] + units[-1, -1])).reshape(-1)[:size]


def count_type(size: int) -> Any:
    """What counts of up to so many are kept in: float32, which is multiplied faster, as far as it counts."""
    return jnp.float32 if size < 2**24 else jnp.int32


def cumulative_count(counts: Real[Array, " size"]) -> Int[Array, " size"]:
    """Cumulative sums of counts that add up to at most their number."""
    size = len(counts)
    counts = counts.astype(count_type(size))
    if counts.dtype == jnp.int32:
        return jnp.cumsum(counts)
    table = _in_blocks(counts)
    within = jnp.matmul(table, _triangle(table), precision="highest")
    return (_starts(within[:, -1])[:, None] + within).reshape(-1)[:size].astype(jnp.int32)


def _starts(totals: Float[Array, " blocks"]) -> Float[Array, " blocks"]:
    """For each block the sum of those before it, of totals that add up without rounding."""
    size = len(totals)
    if size == 1:
        return jnp.zeros_like(totals)
    if size <= 4 * _BLOCKS[0]:
        return totals @ jnp.triu(jnp.ones((size, size), totals.dtype), 1)
    table = _in_blocks(totals)
    return _added(_starts(jnp.sum(table, axis=1)), table, _triangle(table, 1)).reshape(-1)[:size]


def _added(starts: Array, table: Float[Array, "blocks block"], triangle: Array) -> Float[Array, "blocks block"]:
    """Sums within blocks, each from where it starts, in one multiplication. An addition of its own would be made again
    wherever the sums are used, the starts too, and slow down what the compiler fuses it with."""
    if len(table) == 1:  # XLA does not come to an end where a single row is put together and multiplied
        return jnp.matmul(table, triangle, precision="highest")
    both = jnp.concatenate([starts[:, None], table], axis=1)
    ones = jnp.ones((1, triangle.shape[1]), table.dtype)
    return jnp.matmul(both, jnp.concatenate([ones, triangle]), precision="highest")


def _in_blocks(values: Float[Array, " size"]) -> Float[Array, "blocks block"]:
    # What is padded is not vectorized: so rather blocks of an odd size.
    block = next((block for block in _BLOCKS if len(values) % block == 0), _BLOCKS[0])
    blocks = -(-len(values) // block)
    return jnp.pad(values, (0, blocks * block - len(values))).reshape(blocks, block)


def _places(table: Float[Array, "blocks block"], size: int) -> Float[Array, "blocks block"]:
    """How many of so many values stand in their block up to each place."""
    blocks, block = table.shape
    first = block * jnp.arange(blocks, dtype=table.dtype)[:, None]
    return jnp.minimum(jnp.arange(1, block + 1, dtype=table.dtype), size - first)


def _triangle(table: Float[Array, "blocks block"], above: int = 0) -> Float[Array, "block block"]:
    size = table.shape[1]
    return jnp.triu(jnp.ones((size, size), table.dtype), above)
