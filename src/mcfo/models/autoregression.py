"""The hidden autoregression that several models share."""

import equinox as eqx
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float

from mcfo.types import Distribution, Numbers, is_known


class Autoregression(eqx.Module):
    """z_t = μ + ρ (z_t-1 - μ) + N(0, σ²), begun in its stationary law N(μ, σ² / (1 - ρ²)).

    ρ = tanh(`atanh_persistence`) and σ = exp(`log_scale`), so that any value of the parameters is a stationary law.
    """

    level: Float[Array, " size"]
    atanh_persistence: Float[Array, " size"]
    log_scale: Float[Array, " size"]

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

    def stationary(self) -> Distribution:
        """N(μ, σ² / (1 - ρ²)), where 1 / sqrt(1 - tanh² a) = cosh a."""
        return dist.Normal(self.level, self.scale * jnp.cosh(self.atanh_persistence)).to_event(1)

    def following(self, latent: Float[Array, " size"]) -> Distribution:
        return dist.Normal(self.level + self.persistence * (latent - self.level), self.scale).to_event(1)
