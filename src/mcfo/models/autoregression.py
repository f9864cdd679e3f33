"""The hidden autoregression that several models share, and how models read times and inputs."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float

from mcfo.types import Distribution, Inputs, Numbers, Scalar, is_known


def gap_of(inputs: Inputs, timed: bool) -> Scalar | None:
    """The time since the step before, δ_t, which is the first input of a timed model."""
    if not timed:
        return None
    if inputs is None:
        raise ValueError(
            "The model takes the time since the step before as its first input, but the series has no inputs. Give "
            "Series.from_values(..., inputs=gaps), or read the file with read_series(...).with_gaps()."
        )
    return inputs[0]


def effect_of(
    weights: Float[Array, "size driving"] | None, inputs: Inputs, timed: bool
) -> Float[Array, " size"] | None:
    """D u_t, where u_t are the inputs without δ_t; None without weights."""
    if weights is None:
        return None
    if inputs is None:
        raise ValueError("The model has weights for inputs but the series has none. Give Series(inputs=...).")
    return weights @ (inputs[1:] if timed else inputs)


def read_weights(weights: Numbers | None) -> Float[Array, "size driving"] | None:
    """A matrix with a row for each dimension, or None."""
    return None if weights is None else jnp.atleast_2d(jnp.asarray(weights, float))


_LEAST_PERSISTENCE = 1e-6
"""Its logarithm is needed between uneven times."""


class Autoregression(eqx.Module):
    """z_t = μ + ρ (z_t-1 - μ) + N(0, σ²), begun in its stationary law N(μ, σ² / (1 - ρ²)).

    ρ = tanh(`atanh_persistence`) and σ = exp(`log_scale`), so that any value of the parameters is a stationary law.
    After a time δ instead of one step, ρ becomes |ρ|^δ and the noise keeps the stationary law: an Ornstein-Uhlenbeck
    process, seen at uneven times. (No process in continuous time alternates, so that the sign of ρ is lost.)
    """

    level: Float[Array, " size"]
    atanh_persistence: Float[Array, " size"]
    log_scale: Float[Array, " size"]
    readable: ClassVar = ("level", "persistence", "scale")

    def __init__(self, *, level: Numbers, persistence: Numbers, scale: Numbers):
        given = (jnp.asarray(value, float) for value in (level, persistence, scale))
        level, persistence, scale = jnp.broadcast_arrays(*map(jnp.atleast_1d, given))
        if is_known(persistence) and not bool(jnp.all(jnp.abs(persistence) < 1)):
            raise ValueError(f"persistence must lie between -1 and 1, but got {persistence}.")
        if is_known(scale) and not bool(jnp.all(scale > 0)):
            raise ValueError(f"scale must be positive, but got {scale}.")
        self.level = level
        self.atanh_persistence = jnp.arctanh(persistence)
        self.log_scale = jnp.log(scale)

    @property
    def persistence(self) -> Float[Array, " size"]:
        return jnp.tanh(self.atanh_persistence)

    @property
    def scale(self) -> Float[Array, " size"]:
        return jnp.exp(self.log_scale)

    @property
    def stationary_scale(self) -> Float[Array, " size"]:
        """σ / sqrt(1 - ρ²), where 1 / sqrt(1 - tanh² a) = cosh a."""
        return self.scale * jnp.cosh(self.atanh_persistence)

    def stationary(self) -> Distribution:
        """N(μ, σ² / (1 - ρ²))."""
        return dist.Normal(self.level, self.stationary_scale).to_event(1)

    def moments(
        self, latent: Float[Array, " size"], gap: Scalar | None = None
    ) -> tuple[Float[Array, " size"], Float[Array, " size"]]:
        """Mean and deviation of z after one step, or after the time `gap`."""
        if gap is None:
            return self.level + self.persistence * (latent - self.level), self.scale
        log_persistence = gap * jnp.log(jnp.maximum(jnp.abs(self.persistence), _LEAST_PERSISTENCE))
        scale = self.stationary_scale * jnp.sqrt(-jnp.expm1(2 * log_persistence))
        return self.level + jnp.exp(log_persistence) * (latent - self.level), scale

    def following(self, latent: Float[Array, " size"], gap: Scalar | None = None) -> Distribution:
        """N(μ + ρ (z - μ), σ²), after the time `gap` if one is given."""
        return dist.Normal(*self.moments(latent, gap)).to_event(1)
