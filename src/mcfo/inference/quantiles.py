"""Means, quantiles and scores of weighted particles and forecasts."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from mcfo.types import LogWeights

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
        indices = jnp.searchsorted(reached, levels.astype(reached.dtype) * reached[-1])
        return column[order[jnp.minimum(indices, len(column) - 1)]]

    return jax.vmap(of_column, in_axes=1, out_axes=1)(values)


def check_levels(levels: object) -> tuple[float, ...]:
    """Levels of quantiles, increasing; refuses what is none."""
    try:
        numbers = tuple(float(level) for level in levels)  # pyright: ignore[reportGeneralTypeIssues]
    except (TypeError, ValueError):
        numbers = ()
    if not numbers or not all(0.0 < level < 1.0 for level in numbers) or list(numbers) != sorted(set(numbers)):
        raise ValueError(f"Quantiles have increasing levels between 0 and 1, such as {LEVELS}, but got {levels!r}.")
    return numbers
