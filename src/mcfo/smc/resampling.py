"""How ancestors are drawn, and when.

Every scheme draws A_1 <= ... <= A_K with E[#{i : A_i = j}] = K W_j, which is all that an unbiased evidence needs.
The order is ascending, so that gathers read memory forwards and distinct ancestors are counted by comparing
neighbors. All of it is arithmetic inside XLA: no callback, no loop over particles, correct under `vmap`.
"""

import abc
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from mcfo import random
from mcfo.smc.weights import count_type, cumulative_count, cumulative_shares, effective_sample_size
from mcfo.types import Ancestors, Key, LogWeights, Numbers, Scalar, is_known


class Resampling(eqx.Module):
    """A way to draw ancestors.

    `scale_free`: whether it divides by the sum of the weights itself, so that log-weights may differ from normalized
    ones by a constant, and need not be finite.
    """

    scale_free: ClassVar[bool] = False

    @abc.abstractmethod
    def __call__(self, log_weights: LogWeights, *, key: Key) -> Ancestors:
        """Ancestors in ascending order, for normalized log-weights."""


class Multinomial(Resampling):
    """Independent draws from the weights: the largest variance, and the simplest law."""

    scale_free: ClassVar[bool] = True

    def __call__(self, log_weights: LogWeights, *, key: Key) -> Ancestors:
        return _invert(_cumulative(log_weights), _ordered_uniforms(len(log_weights), log_weights.dtype, key=key))


class Stratified(Resampling):
    """One draw in each of K equal strata of the cumulative weights. Kitagawa (1996)."""

    scale_free: ClassVar[bool] = True

    def __call__(self, log_weights: LogWeights, *, key: Key) -> Ancestors:
        particles = len(log_weights)
        offsets = random.uniform(key, (particles,), log_weights.dtype)
        reach = particles * _cumulative(log_weights)
        stratum = jnp.floor(reach).astype(jnp.int32)
        within = offsets[jnp.minimum(stratum, particles - 1)] < reach - stratum
        return _from_boundaries(stratum + within)


class Systematic(Resampling):
    """One uniform number shifts an even grid over the cumulative weights: the cheapest, and usually the best."""

    scale_free: ClassVar[bool] = True

    def __call__(self, log_weights: LogWeights, *, key: Key) -> Ancestors:
        offset = random.uniform(key, (), log_weights.dtype)
        particles = len(log_weights)
        reach = particles * _cumulative(log_weights)
        boundaries = jnp.ceil(reach - offset).astype(jnp.int32)
        # K - offset can round down to K - 1: the last place is still the last living particle's.
        return _from_boundaries(jnp.where(reach >= particles, particles, boundaries))


class Residual(Resampling):
    """floor(K W_i) copies of each particle for certain, the rest drawn from what remains. Liu and Chen (1998)."""

    def __call__(self, log_weights: LogWeights, *, key: Key) -> Ancestors:
        particles = len(log_weights)
        expected = particles * jnp.exp(log_weights)
        # K exp(-log K) rounds to just below one: a whole copy is one up to rounding.
        certain = jnp.floor(expected * (1 + 8 * jnp.finfo(expected.dtype).eps))
        open_places = particles - jnp.sum(certain).astype(jnp.int32)
        remainder = cumulative_shares(jnp.maximum(expected - certain, 0.0))
        ordered = _ordered_uniforms(particles, log_weights.dtype, key=key)
        # Those before another one, as shares of it, are the order statistics of so many uniforms.
        next_one = jnp.where(open_places < particles, ordered[jnp.minimum(open_places, particles - 1)], 1.0)
        uniforms = jnp.minimum(ordered / next_one, _below_one(log_weights.dtype))
        drawn = _invert(remainder, uniforms)
        extra = jnp.zeros(particles, jnp.int32).at[drawn].add(jnp.arange(particles) < open_places)
        return _from_boundaries(cumulative_count(certain.astype(jnp.int32) + extra))


class Criterion(eqx.Module):
    """When to resample."""

    @abc.abstractmethod
    def __call__(self, log_weights: LogWeights) -> Bool[Array, ""] | bool:
        """Whether to resample particles with these normalized log-weights."""


class Always(Criterion):
    """Resamples before every step but the first."""

    def __call__(self, log_weights: LogWeights) -> bool:
        return True


class Never(Criterion):
    """Does not resample: sequential importance sampling."""

    def __call__(self, log_weights: LogWeights) -> bool:
        return False


class ESSBelow(Criterion):
    """Resamples when the effective sample size falls below a share of the particles, 0.5 by default."""

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
    """Independent draws from a set of normalized log-weights, in no order."""
    uniforms = random.uniform(key, (count,), log_weights.dtype)
    return jnp.searchsorted(_cumulative(log_weights), uniforms, side="right").astype(jnp.int32)


def systematic_indices(log_weights: LogWeights, count: int, *, key: Key) -> Int[Array, " count"]:
    """So many draws from a set of normalized log-weights, ascending, from an even grid that one uniform number shifts:
    index i comes count · W_i times in mean."""
    offset = random.uniform(key, (), log_weights.dtype)
    grid = jnp.minimum((jnp.arange(count) + offset) / count, _below_one(log_weights.dtype))
    return jnp.searchsorted(_cumulative(log_weights), grid, side="right").astype(jnp.int32)


def _ordered_uniforms(count: int, dtype, *, key: Key) -> Float[Array, " count"]:
    """Uniform numbers in ascending order, without sorting: cumulative sums of exponentials, as shares of one more."""
    spacings = random.exponential(key, (count + 1,), dtype)
    # The last one apart: the others have the particles' number, which falls into blocks.
    inner, last = spacings[:-1], spacings[-1]
    total = jnp.sum(inner)
    return cumulative_shares(inner) * (total / (total + last))


def _cumulative(log_weights: LogWeights) -> Float[Array, " particles"]:
    """Cumulative weights that end in exactly one, whatever rounding did."""
    return cumulative_shares(jnp.exp(log_weights))


def _from_boundaries(boundaries: Int[Array, " particles"]) -> Ancestors:
    """Ancestors of places 0..K-1 where particle i owns the places from boundaries[i-1] up to boundaries[i].

    A_j = #{i : boundaries[i] <= j}, counted by a scatter and a cumulative sum: linear in K, where a binary search
    for each place is not. The last boundary must be K.
    """
    particles = len(boundaries)
    ends = jnp.zeros(particles, count_type(particles)).at[boundaries].add(1, mode="drop")
    return cumulative_count(ends)


def _invert(cumulative: Float[Array, " particles"], uniforms: Float[Array, " particles"]) -> Ancestors:
    uniforms = jnp.minimum(uniforms, _below_one(uniforms.dtype))
    return jnp.searchsorted(cumulative, uniforms, side="right").astype(jnp.int32)


def _below_one(dtype) -> float:
    return float(1 - jnp.finfo(dtype).epsneg)
