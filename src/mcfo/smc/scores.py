"""How a forecast and what came compare: proper scores, and where in the forecast the value fell."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float, Shaped

from mcfo.types import Observation


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
    centred = ordered - value
    spread = jnp.sum((2 * ranks - count - 1) * centred, axis=0) / (count * max(1, count - 1))
    return jnp.mean(jnp.abs(centred), axis=0) - spread


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
