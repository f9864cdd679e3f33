"""Means and quantiles of weighted particles."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped

from mcfo.inference.angles import Angle, centered
from mcfo.types import LogWeights

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The levels of the quantiles that are reported by default."""


class Summary(eqx.Module):
    """Means and quantiles of every dimension, flattened: of one step, or of all steps with a leading time axis."""

    mean: Float[Array, "*steps size"]
    quantiles: Float[Array, "*steps levels size"]

    @classmethod
    def of(
        cls,
        values: Shaped[Array, "particles ..."],
        log_weights: LogWeights,
        levels: Float[Array, " levels"],
        means: Shaped[Array, "particles ..."] | None = None,
        angles: Sequence[Angle] = (),
    ) -> Summary:
        """Summarize weighted particles.

        **Arguments:**

        - `means`: the means of the distributions that the values were drawn from, if known: averaging them is less
          noisy.
        - `angles`: the numbers that are angles; their means are those of the values.
        """
        values, circular = centered(flat(values), log_weights, angles)
        mean = weighted_mean(values if means is None else flat(means), log_weights)
        for index, direction in circular.items():
            mean = mean.at[index].set(direction)
        return cls(mean, weighted_quantiles(values, log_weights, levels))


def flat(values: Shaped[Array, "particles ..."]) -> Float[Array, "particles size"]:
    """Return each particle as a vector of real numbers."""
    return values.reshape(len(values), -1).astype(float)


def weighted_mean(values: Float[Array, "particles size"], log_weights: LogWeights) -> Float[Array, " size"]:
    """Return Σ_i W_i v_i. Zero-weight particles do not count, whatever their values are."""
    weights = jnp.exp(log_weights)[:, None]
    return jnp.sum(jnp.where(weights > 0, weights * jnp.where(weights > 0, values, 0.0), 0.0), axis=0)


def weighted_quantiles(
    values: Float[Array, "particles size"], log_weights: LogWeights, levels: Float[Array, " levels"]
) -> Float[Array, "levels size"]:
    """Return for each level the smallest value at which the cumulative weight reaches it.

    It is one of the values, so that quantiles of counts are counts.
    """
    weights = jnp.exp(log_weights)

    def of_column(column: Float[Array, " particles"]) -> Float[Array, " levels"]:
        # NaN sorts last, and zero-weight particles do not raise the cumulative weight.
        order = jnp.argsort(column)
        reached = jnp.cumsum(weights[order])
        indices = jnp.searchsorted(reached, levels.astype(reached.dtype) * reached[-1])
        return column[order[jnp.minimum(indices, len(column) - 1)]]

    return jax.vmap(of_column, in_axes=1, out_axes=1)(values)


def check_levels(levels: object) -> tuple[float, ...]:
    """Check that the levels of quantiles increase between 0 and 1."""
    try:
        numbers = tuple(float(level) for level in levels)  # pyright: ignore[reportGeneralTypeIssues]
    except (TypeError, ValueError):
        numbers = ()
    if not numbers or not all(0.0 < level < 1.0 for level in numbers) or list(numbers) != sorted(set(numbers)):
        raise ValueError(f"Quantiles have increasing levels between 0 and 1, such as {LEVELS}, but got {levels!r}.")
    return numbers
