"""Means, quantiles and scores of weighted particles and forecasts."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float, Shaped

from mcfo.types import LogWeights, Observation

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The quantiles that are reported unless others are asked for."""


class Summary(eqx.Module):
    """Means and quantiles of every dimension, flat: those of a step, or of all of them with the time in front."""

    mean: Float[Array, "*steps size"]
    quantiles: Float[Array, "*steps levels size"]

    @classmethod
    def of(
        cls,
        values: Shaped[Array, "particles ..."],
        log_weights: LogWeights,
        levels: Float[Array, " levels"],
        means: Shaped[Array, "particles ..."] | None = None,
    ) -> Summary:
        """Of weighted particles.

        **Arguments:**

        - `means`: conditional means of which the values are draws, where they are known: their average is less noisy.
        """
        values = flat(values)
        return cls(
            weighted_mean(values if means is None else flat(means), log_weights),
            weighted_quantiles(values, log_weights, levels),
        )


def flat(values: Shaped[Array, "particles ..."]) -> Float[Array, "particles size"]:
    """Each particle as a vector of real numbers."""
    return values.reshape(len(values), -1).astype(float)


def weighted_mean(values: Float[Array, "particles size"], log_weights: LogWeights) -> Float[Array, " size"]:
    """Σ_i W_i v_i. Particles of weight zero count for nothing, whatever their values are."""
    weights = jnp.exp(log_weights)[:, None]
    return jnp.sum(jnp.where(weights > 0, weights * jnp.where(weights > 0, values, 0.0), 0.0), axis=0)


def weighted_quantiles(
    values: Float[Array, "particles size"], log_weights: LogWeights, levels: Float[Array, " levels"]
) -> Float[Array, "levels size"]:
    """For each level the smallest value at which the weights add up to it: one of the values, so that quantiles of
    counts are counts."""
    weights = jnp.exp(log_weights)

    def of_column(column: Float[Array, " particles"]) -> Float[Array, " levels"]:
        # Particles that wandered off to NaN stand last; those of weight zero are passed over by the sums.
        order = jnp.argsort(column)
        reached = jnp.cumsum(weights[order])
        places = jnp.searchsorted(reached, levels.astype(reached.dtype) * reached[-1])
        return column[order[jnp.minimum(places, len(column) - 1)]]

    return jax.vmap(of_column, in_axes=1, out_axes=1)(values)


def checked_levels(levels: object) -> tuple[float, ...]:
    """Levels of quantiles, increasing; refuses what is none."""
    try:
        found = tuple(float(level) for level in levels)  # pyright: ignore[reportGeneralTypeIssues]
    except (TypeError, ValueError):
        found = ()
    if not found or not all(0.0 < level < 1.0 for level in found) or list(found) != sorted(set(found)):
        raise ValueError(f"Quantiles have increasing levels between 0 and 1, such as {LEVELS}, but got {levels!r}.")
    return found


def crps(ordered: Float[Array, "draws dimensions"], value: Float[Array, " dimensions"]) -> Float[Array, " dimensions"]:
    """E|X - x| - E|X - X'| / 2 for each dimension: the continuous ranked probability score, in units of x.

    The fair estimator: unbiased for the law of independent draws X, whatever their number, where the plain one rewards
    few draws for lying close together. Gneiting and Raftery (2007); Ferro (2014).

    **Arguments:**

    - `ordered`: the draws in ascending order.
    """
    count = len(ordered)
    ranks = jnp.arange(1, count + 1, dtype=ordered.dtype)[:, None]
    # Σ_ij |X_i - X_j| = 2 Σ_i (2 i - n - 1) X_(i); less the value, so that large numbers do not cancel.
    centered = ordered - value
    spread = jnp.sum((2 * ranks - count - 1) * centered, axis=0) / (count * max(1, count - 1))
    return jnp.mean(jnp.abs(centered), axis=0) - spread


def ordered_quantiles(
    ordered: Float[Array, "draws dimensions"], levels: tuple[float, ...]
) -> Float[Array, "levels dimensions"]:
    """Quantiles of draws in ascending order, between two of them by a straight line."""
    places = jnp.asarray(levels, ordered.dtype) * (len(ordered) - 1)
    lower = jnp.floor(places).astype(jnp.int32)
    upper = jnp.minimum(lower + 1, len(ordered) - 1)
    share = (places - lower)[:, None]
    return (1 - share) * ordered[lower] + share * ordered[upper]


def rank_transform(
    draws: Shaped[Array, "draws dimensions"], value: Observation, uniform: Float[Array, " dimensions"]
) -> Float[Array, " dimensions"]:
    """The rank of the value among the draws, between 0 and 1: uniform if it came from the law of the draws.

    Exactly so with any number of draws, also of counts, since ties are broken by the uniform numbers.
    """
    below = jnp.sum(draws < value, axis=0)
    ties = jnp.sum(draws == value, axis=0)
    return (below + uniform * (ties + 1)) / (len(draws) + 1)


def probability_below(
    law: Any, value: Observation, uniform: Float[Array, " dimensions"]
) -> Float[Array, " dimensions"] | None:
    """P(X < x) + u P(X = x) for each dimension, where the law has a distribution function; None elsewhere.

    The mean of it over draws of the latent sees the tails that a finite number of draws of X never reaches.
    """
    base = law.base_dist if isinstance(law, dist.Independent) and law.reinterpreted_batch_ndims == 1 else None
    if base is None or base.batch_shape != value.shape:
        return None
    support: Any = base.support
    discrete = support.is_discrete
    try:
        upper = base.cdf(value)
        if not discrete:
            return upper
        lower = jnp.where(value > 0, base.cdf(jnp.maximum(value - 1, 0)), 0.0)
    except NotImplementedError:
        return None
    return lower + uniform * (upper - lower)
