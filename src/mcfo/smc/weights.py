"""Weights: normalized log-weights, the evidence increment, and cumulative sums that serve any number of particles.

A float32 near one has a resolution of 2^-24. Cumulative weights that are stored as shares of the total therefore
distinguish at most 2^24 points, and at K = 10^7 a quarter of the particles would own none. So sums have two levels:
within groups of about a thousand values they are shares of the group's sum, and over the groups they are integers and
fractions of particles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Real

from mcfo.types import LogWeights, Scalar

_RESOLUTION = 14
"""A position is resolved to 2^-14 of a particle within a group of average weight."""
_MOST_GROUPS = 2**14
_FRACTION_BITS = 16
"""Fractions of particles at the ends of groups are multiples of 2^-16, whose sum fits an int32."""
_BLOCKS = (*range(16, 33), *range(15, 7, -1))
"""Sizes of the blocks in which sums are computed. The first that leaves no remainder is used, or else the first."""


def normalize(log_weights: LogWeights) -> tuple[LogWeights, Scalar]:
    """Return normalized log-weights and log R = log sum_i w_i.

    If log R is not finite, weights cannot be divided by R. The particles then get equal weights, so that the filter
    continues and all later numbers are defined, and log R shows the cause: -inf if all weights are zero, +inf if one
    is infinite, NaN if one is NaN.
    """
    # The largest finite log-weight is subtracted, so that exponentials do not overflow. The default is finite, so that
    # the shift always is.
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
    # Not log_weights - increment: if both are huge (an outlier), the rounding error of each is larger than one.
    return jnp.where(jnp.isfinite(increment), shifted - log_total, uniform), increment


def effective_sample_size(log_weights: LogWeights) -> Scalar:
    """Return ESS = 1 / sum_i W_i² for normalized log-weights, between 1 and the number of particles."""
    return 1.0 / _sum(jnp.exp(2.0 * log_weights), log_weights != -jnp.inf)


def _sum(weights: Float[Array, " particles"], positive: Bool[Array, " particles"]) -> Scalar:
    """Return the sum of the weights, of which all but the positive ones are zero."""
    # XLA:CPU fuses `exp` into the reduction and then does not vectorize it (20x slower); the `where` prevents the
    # fusion (jaxlib 0.10).
    return jnp.sum(jnp.where(positive, weights, 0.0))


def uniform_log_weights(particles: int, dtype) -> Float[Array, " particles"]:
    return jnp.full(particles, -jnp.log(jnp.asarray(particles, dtype)), dtype)


class Positions(NamedTuple):
    """Points on a line, each at `whole + within`."""

    whole: Int[Array, " size"]
    within: Float[Array, " size"]

    def split(self) -> tuple[Int[Array, " size"], Float[Array, " size"]]:
        """Return the integer part and the fraction in [0, 1)."""
        floor = jnp.floor(self.within)
        return self.whole + floor.astype(jnp.int32), self.within - floor


class Cumulative(NamedTuple):
    """Cumulative sums of non-negative values, on a line from 0 to n.

    They never decrease, they are constant exactly where a value is zero, and the last one is exactly n, or n - `gap`
    where one is given. The second property prevents rounding from making a zero-weight particle an ancestor. If the
    total is zero or not finite, the sums rise evenly.

    - `shares`: cumulative sums within each group, as shares of the group's sum: the last one is exactly one.
    - `start`, `end`: where each group starts and ends. The end of one group is the start of the next.
    - `length`: the distance between them.
    - `size`: the number of values, without padding.
    """

    shares: Float[Array, "groups group"]
    start: Positions
    end: Positions
    length: Float[Array, " groups"]
    size: int

    @classmethod
    def of(cls, values: Float[Array, " size"], n: int | Int[Array, ""], gap: float | Scalar = 0.0) -> Cumulative:
        """Return the cumulative sums of these values.

        **Arguments:**

        - `gap`: the distance from the last sum to n.
        """
        size, dtype = len(values), values.dtype
        groups, group = _group_shape(size, dtype)
        table = jnp.pad(values, (0, groups * group - size)).reshape(groups, group)
        zero = Positions(jnp.zeros(1, jnp.int32), jnp.zeros(1, dtype))
        if groups == 1:
            shares = _shares(table[0])[0][None]
            start, end = zero, Positions(jnp.full(1, n, jnp.int32), jnp.full(1, -gap, dtype))
        else:
            shares, totals = jax.vmap(_shares)(table)
            total = jnp.sum(totals)
            divisible = (total > 0) & (total < jnp.inf)
            counts = _counts((groups, group), size, dtype)
            shares = jnp.where(divisible, shares, counts / counts[:, -1:])
            end = _group_ends(jnp.where(divisible, totals, counts[:, -1]), n, gap)
            start = Positions(*(jnp.concatenate([first, rest[:-1]]) for first, rest in zip(zero, end, strict=True)))
        length = ((end.whole - start.whole).astype(dtype) - start.within) + end.within
        return cls(shares, start, end, length, size)

    def positions(self) -> Positions:
        """Return the cumulative sum of each value."""
        steps = (self.end.whole - self.start.whole).astype(self.length.dtype)
        # The largest number that is not beyond the group's end, so that rounding does not exceed the end.
        limit = steps + self.end.within
        limit = jnp.where(limit - steps > self.end.within, jnp.nextafter(limit, jnp.zeros_like(limit)), limit)
        inner = jnp.minimum(self.start.within[:, None] + self.length[:, None] * self.shares, limit[:, None])
        at_end = self.shares >= 1
        whole = jnp.where(at_end, self.end.whole[:, None], self.start.whole[:, None])
        within = jnp.where(at_end, self.end.within[:, None], inner)
        return Positions(whole.reshape(-1)[: self.size], within.reshape(-1)[: self.size])

    def find(self, points: Positions) -> Int[Array, " points"]:
        """Return, for each point of the line, the first index whose cumulative sum is beyond it."""
        whole, fraction = points.split()
        group = self.find_group(whole, fraction)
        distance = (whole - self.start.whole[group]).astype(fraction.dtype) + (fraction - self.start.within[group])
        length = self.length[group]
        return self.find_in_group(group, distance / jnp.where(length > 0, length, 1.0))

    def find_group(self, whole: Int[Array, " points"], fraction: Float[Array, " points"] | float) -> Int[Array, "..."]:
        """Return, for each point, the first group that ends beyond it."""
        ends = self.end
        if len(ends.whole) == 1:
            return jnp.zeros((), jnp.int32)

        def beyond(group: Int[Array, " points"]) -> Bool[Array, " points"]:
            return (ends.whole[group] > whole) | ((ends.whole[group] == whole) & (ends.within[group] > fraction))

        return _first(beyond, jnp.zeros_like(whole), len(ends.whole))

    def find_in_group(self, group: Int[Array, "..."], share: Float[Array, " points"]) -> Int[Array, " points"]:
        """Return the first index of each group whose cumulative share of the group's sum is beyond the given share."""
        size = self.shares.shape[1]
        shares = self.shares.reshape(-1)
        share = jnp.minimum(share, 1 - jnp.finfo(share.dtype).epsneg)
        return _first(lambda index: shares[index] > share, jnp.broadcast_to(group * size, share.shape), size)


def _first(
    condition: Callable[[Int[Array, " points"]], Bool[Array, " points"]], low: Int[Array, " points"], size: int
) -> Int[Array, " points"]:
    """Return the first of `size` indices from `low` where the condition holds, by bisection; the last if none does."""

    def halve(_, bounds: tuple[Int[Array, " points"], Int[Array, " points"]]):
        low, high = bounds
        middle = (low + high) // 2
        holds = condition(middle)
        return jnp.where(holds, low, middle + 1), jnp.where(holds, middle, high)

    return jax.lax.fori_loop(0, (size - 1).bit_length(), halve, (low, low + (size - 1)))[1]


def _group_shape(size: int, dtype) -> tuple[int, int]:
    """Return the number of groups, and of values in each."""
    least = -(-size // _MOST_GROUPS)
    most = max(2 ** (jnp.finfo(dtype).nmant + 1 - _RESOLUTION), 2 * least)
    if size <= most:
        return 1, size
    # XLA:CPU does not vectorize padded arrays, and its matrix products are fastest in blocks of 16 (jaxlib 0.10).
    divisors = [group for group in range(most, max(most // 8, least), -1) if size % group == 0]
    whole_blocks = [group for group in divisors if group % _BLOCKS[0] == 0]
    padded = _BLOCKS[0] * -(-size // (-(-size // most) * _BLOCKS[0]))
    group = (whole_blocks or divisors or [padded])[0]
    return -(-size // group), group


def _group_ends(totals: Float[Array, " groups"], n: int | Int[Array, ""], gap: float | Scalar) -> Positions:
    """Return the end of each group on the line from 0 to n - gap. All sums are sums of integers, and exact."""
    unit = jnp.asarray(2.0**-_FRACTION_BITS, totals.dtype)
    expected = totals * (jnp.asarray(n - gap, totals.dtype) / jnp.sum(totals))
    floor = jnp.floor(expected)
    whole = jnp.cumsum(floor.astype(jnp.int32))
    units = jnp.cumsum(jnp.round((expected - floor) / unit).astype(jnp.int32))
    gap_units = jnp.round(gap / unit).astype(jnp.int32)

    def spread(_, ends: tuple[Int[Array, " groups"], Int[Array, " groups"]]):
        """Spread the rounding error in proportion. Equal ends stay equal, and the last becomes n - gap."""
        whole, units = ends
        missing = jnp.left_shift(n - whole[-1], _FRACTION_BITS) - units[-1] - gap_units
        reached = whole + units * unit
        ratio = reached / jnp.where(reached[-1] > 0, reached[-1], 1.0)
        units = units + jnp.round(missing * ratio).astype(jnp.int32)
        carry = jnp.right_shift(units, _FRACTION_BITS)
        return whole + carry, units - jnp.left_shift(carry, _FRACTION_BITS)

    # The second iteration changes nothing. Without a loop, XLA:CPU would compute all of this again for each particle
    # (jaxlib 0.10).
    whole, units = jax.lax.fori_loop(0, 2, spread, (whole, units))
    return Positions(whole, units * unit)


def _shares(values: Float[Array, " size"]) -> tuple[Float[Array, " size"], Float[Array, ""]]:
    """Return cumulative sums of non-negative values divided by their total, and the total.

    The sums never decrease, they are constant exactly where a value is zero, and the last one is one. If the total is
    zero or not finite, they rise evenly.

    Sums within blocks are rounded to multiples of the smallest unit that can be added up without rounding, 2^-24 of the
    total in float32. All further additions are then exact, in any order.
    """
    size = len(values)
    table = _in_blocks(values)
    within = jnp.matmul(table, _triangle(table), precision="highest")
    total = jnp.sum(within[:, -1])
    # The number of units that add up exactly, less those that rounding may add.
    finest = 2.0 ** (jnp.finfo(values.dtype).nmant + 1) - 2 * len(table) - 2
    divisible = (total > 0) & (total < jnp.inf)
    units = jnp.round(within * (finest / jnp.where(divisible, total, 1.0)))
    units = jnp.where(divisible, units, _counts(table.shape, size, table.dtype))
    starts = _starts(units[:, -1])
    return ((starts[:, None] + units) / (starts[-1] + units[-1, -1])).reshape(-1)[:size], total


def count_type(size: int) -> Any:
    """Return the type for sums of counts up to `size`: float32, whose matrix products are faster, if it is exact."""
    return jnp.float32 if size < 2**24 else jnp.int32


def cumulative_count(counts: Real[Array, " size"], total: int | None = None) -> Int[Array, " size"]:
    """Return cumulative sums of counts that add up to at most `total`, by default the number of counts."""
    size = len(counts)
    counts = counts.astype(count_type(size if total is None else total))
    if counts.dtype == jnp.int32:
        return jnp.cumsum(counts)
    table = _in_blocks(counts)
    within = jnp.matmul(table, _triangle(table), precision="highest")
    return (_starts(within[:, -1])[:, None] + within).reshape(-1)[:size].astype(jnp.int32)


def _starts(totals: Float[Array, " blocks"]) -> Float[Array, " blocks"]:
    """Return the sum of all blocks before each block, for totals that add up without rounding."""
    size = len(totals)
    if size == 1:
        return jnp.zeros_like(totals)
    if size <= 4 * _BLOCKS[0]:
        return totals @ jnp.triu(jnp.ones((size, size), totals.dtype), 1)
    table = _in_blocks(totals)
    before = jnp.matmul(table, _triangle(table, 1), precision="highest")
    return (_starts(jnp.sum(table, axis=1))[:, None] + before).reshape(-1)[:size]


def _in_blocks(values: Float[Array, " size"]) -> Float[Array, "blocks block"]:
    # XLA:CPU does not vectorize padded arrays (jaxlib 0.10): prefer a block size that needs no padding.
    block = next((block for block in _BLOCKS if len(values) % block == 0), _BLOCKS[0])
    blocks = -(-len(values) // block)
    return jnp.pad(values, (0, blocks * block - len(values))).reshape(blocks, block)


def _counts(shape: tuple[int, ...], size: int, dtype) -> Float[Array, "blocks block"]:
    """Return how many of `size` values are in each block up to each index."""
    blocks, block = shape
    left = size - block * jnp.arange(blocks)[:, None]
    return jnp.minimum(jnp.arange(1, block + 1), left).astype(dtype)


def _triangle(table: Float[Array, "blocks block"], above: int = 0) -> Float[Array, "block block"]:
    size = table.shape[1]
    return jnp.triu(jnp.ones((size, size), table.dtype), above)
