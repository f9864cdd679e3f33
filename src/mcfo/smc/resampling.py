"""Resampling schemes, which draw ancestors, and criteria, which decide when.

Every scheme draws A_1 <= ... <= A_K with E[#{i : A_i = j}] = K W_j, which is sufficient for an unbiased evidence.
The order is ascending, so that gathers read memory forwards and distinct ancestors are counted by comparing
neighbors. Schemes consist of array operations alone, without callbacks or loops over particles, and work under `vmap`.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from mcfo.smc.noise import exponential, map_in_rounds, typed, uniform
from mcfo.smc.weights import Cumulative, Positions, count_type, cumulative_count, effective_sample_size
from mcfo.types import Ancestors, Key, LogWeights, Numbers, Scalar, is_known

_MOST_ROUNDING = 2**-10
"""The largest error of an expected number of copies that is taken for rounding."""
_FINEST = 2**30
"""The number of integer points on the line of cumulative weights; it resolves any number of groups."""
_GROUP_TAG = 0x67726F75
"""Separates the keys that choose a group from those that choose within it."""


class Resampling(eqx.Module):
    """A resampling scheme, which draws ancestors."""

    @abc.abstractmethod
    def __call__(self, log_weights: LogWeights, *, key: Key) -> Ancestors:
        """Return ancestors in ascending order, for normalized log-weights."""

    def numbers(self, particles: int, dtype: Any, *, key: Key) -> Any:
        """Return the random numbers of one step, drawn before the weights are known; by default the key itself.

        A filter draws the numbers of many steps together. Do not sum or reduce them here: see `smc/noise`.
        """
        return key

    def ancestors(self, log_weights: LogWeights, numbers: Any) -> Ancestors:
        """Return the ancestors for these numbers."""
        return self(log_weights, key=numbers)


class _ByNumbers(Resampling):
    """A scheme that defines `numbers`."""

    def __call__(self, log_weights: LogWeights, *, key: Key) -> Ancestors:
        particles, dtype = len(log_weights), log_weights.dtype
        numbers = map_in_rounds(lambda key: self.numbers(particles, dtype, key=key), typed(key)[None])[0]
        return self.ancestors(log_weights, numbers)


class Multinomial(_ByNumbers):
    """Independent draws from the weights: the simplest distribution, and the largest variance."""

    def numbers(self, particles: int, dtype: Any, *, key: Key) -> Float[Array, " distances"]:
        return exponential(key, (particles + 1,), dtype)

    def ancestors(self, log_weights: LogWeights, numbers: Float[Array, " distances"]) -> Ancestors:
        particles = len(log_weights)
        return _cumulative(log_weights, particles).find(_ordered_points(numbers, particles))


class Stratified(_ByNumbers):
    """One draw in each of K equal strata of the cumulative weights. Kitagawa (1996)."""

    def numbers(self, particles: int, dtype: Any, *, key: Key) -> LogWeights:
        return uniform(key, (particles,), dtype)

    def ancestors(self, log_weights: LogWeights, numbers: LogWeights) -> Ancestors:
        particles = len(log_weights)
        stratum, fraction = _cumulative(log_weights, particles).positions().split()
        return _from_boundaries(stratum + (numbers[jnp.minimum(stratum, particles - 1)] < fraction))


class Systematic(_ByNumbers):
    """One uniform number shifts an even grid over the cumulative weights: the cheapest, and usually the best."""

    def numbers(self, particles: int, dtype: Any, *, key: Key) -> Scalar:
        return uniform(key, (), dtype)

    def ancestors(self, log_weights: LogWeights, numbers: Scalar) -> Ancestors:
        whole, within = _cumulative(log_weights, len(log_weights)).positions()
        return _from_boundaries(whole + jnp.ceil(within - numbers).astype(jnp.int32))


class Residual(_ByNumbers):
    """floor(K W_i) certain copies of each particle; the others are drawn from the remainders. Liu and Chen (1998)."""

    def numbers(self, particles: int, dtype: Any, *, key: Key) -> Float[Array, " distances"]:
        return exponential(key, (particles + 1,), dtype)

    def ancestors(self, log_weights: LogWeights, numbers: Float[Array, " distances"]) -> Ancestors:
        particles = len(log_weights)
        expected = particles * jnp.exp(log_weights)
        # K exp(-log K) rounds to just below one, so numbers within rounding of an integer count as that integer.
        rounding = jnp.minimum(8 * jnp.finfo(expected.dtype).eps * expected, _MOST_ROUNDING)
        certain = jnp.floor(expected + rounding)
        drawn = jnp.maximum(particles - jnp.sum(certain.astype(jnp.int32)), 0)
        remainder = Cumulative.of(jnp.maximum(expected - certain, 0.0), drawn)
        index = remainder.find(_ordered_points(numbers, drawn))
        extra = jnp.zeros(particles, jnp.int32).at[index].add(jnp.arange(particles) < drawn)
        return _from_boundaries(cumulative_count(certain.astype(jnp.int32) + extra))


class Criterion(eqx.Module):
    """A criterion, which decides when to resample."""

    @abc.abstractmethod
    def __call__(self, log_weights: LogWeights) -> Bool[Array, ""] | bool:
        """Return whether to resample particles with these normalized log-weights."""


class Always(Criterion):
    """Resampling before every step but the first."""

    def __call__(self, log_weights: LogWeights) -> bool:
        return True


class Never(Criterion):
    """No resampling: sequential importance sampling."""

    def __call__(self, log_weights: LogWeights) -> bool:
        return False


class ESSBelow(Criterion):
    """Resampling when the effective sample size falls below a share of the particles, 0.5 by default."""

    threshold: Scalar

    def __init__(self, threshold: Numbers = 0.5):
        self.threshold = jnp.asarray(threshold, float)

    def __check_init__(self):
        if is_known(self.threshold) and not 0.0 <= float(self.threshold) <= 1.0:
            raise ValueError(
                f"The ESS threshold is a share of the particles between 0 and 1, but got {float(self.threshold):g}. "
                "Use ESSBelow(0.5) to resample when fewer than half of them are effective."
            )

    def __call__(self, log_weights: LogWeights) -> Bool[Array, ""]:
        return effective_sample_size(log_weights) < self.threshold * len(log_weights)


def draw_indices(log_weights: LogWeights, count: int, *, key: Key) -> Int[Array, " count"]:
    """Return independent draws from normalized log-weights, in no particular order."""
    cumulative = _cumulative(log_weights, _FINEST)
    # Draw a group by an integer, which resolves any number of groups, and then a particle of that group.
    point = (jax.random.bits(jax.random.fold_in(key, _GROUP_TAG), (count,), "uint32") & (_FINEST - 1)).astype(jnp.int32)
    uniforms = jax.random.uniform(key, (count,), log_weights.dtype)
    return cumulative.find_in_group(cumulative.find_group(point, 0.0), uniforms)


def systematic_indices(log_weights: LogWeights, count: int, *, key: Key) -> Int[Array, " count"]:
    """Return n indices in ascending order by systematic sampling from normalized log-weights.

    One uniform number shifts an even grid, and index i is drawn n · W_i times in the mean.
    """
    # Each particle has about one unit of length, so that few draws from many particles are exact too.
    spacing = -(-len(log_weights) // count)
    whole_offset = jax.random.randint(jax.random.fold_in(key, _GROUP_TAG), (), 0, spacing)
    offset = jax.random.uniform(key, (), log_weights.dtype)
    whole, within = _cumulative(log_weights, spacing * count).positions()
    units = whole - whole_offset + jnp.ceil(within - offset).astype(jnp.int32)
    return _from_boundaries(-(-units // spacing), count)


def _cumulative(log_weights: LogWeights, n: int) -> Cumulative:
    return Cumulative.of(jnp.exp(log_weights), n)


def _ordered_points(distances: Float[Array, " distances"], n: int | Int[Array, ""]) -> Positions:
    """Return n independent uniform points on a line from 0 to n, in ascending order; entries after the nth are unused.

    They need no sorting: the distances between them are n + 1 exponential variables, divided by their sum.
    """
    # The last distance is separate, so that the others are as many as the particles and divide into blocks.
    inner, last = jnp.where(jnp.arange(len(distances) - 1) < n, distances[:-1], 0.0), distances[n]
    return Cumulative.of(inner, n, gap=n * (last / (jnp.sum(inner) + last))).positions()


def _from_boundaries(boundaries: Int[Array, " particles"], count: int | None = None) -> Int[Array, " n"]:
    """Return the ancestors of n indices (K by default); particle i owns boundaries[i-1] to boundaries[i] - 1.

    A_j = #{i : boundaries[i] <= j} is counted by a scatter and a cumulative sum, which is linear in K; a binary search
    for each index would not be. The last boundary must be n.
    """
    particles = len(boundaries)
    count = particles if count is None else count
    ends = jnp.zeros(count, count_type(particles)).at[boundaries].add(1, mode="drop")
    return cumulative_count(ends, particles)
