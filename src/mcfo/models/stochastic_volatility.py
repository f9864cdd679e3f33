"""Stochastic volatility: returns whose log-variance is a hidden autoregression, with heavy tails and leverage."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float

from mcfo.models.autoregression import Autoregression, effect_of, gap_of, read_weights
from mcfo.models.base import MarkovModel, Model
from mcfo.types import Distribution, Inputs, Latent, Memory, Numbers, Observation, is_known


class Returns(eqx.Module):
    """x_t = exp(z_t / 2) ε_t, with ε_t of variance one: N(0, 1), or a scaled Student t.

    The degrees of freedom are 2 + exp(`log_excess_degrees`), so that the variance is always finite and z_t stays its
    logarithm whatever the tails are.
    """

    log_excess_degrees: Float[Array, " size"] | None
    readable: ClassVar = ("degrees",)

    def __init__(self, size: int, degrees: Numbers | None):
        if degrees is not None and is_known(degrees) and not bool(jnp.all(jnp.asarray(degrees, float) > 2)):
            raise ValueError(f"degrees must be greater than 2, where the variance is finite, but got {degrees}.")
        excess = None if degrees is None else jnp.log(jnp.asarray(degrees, float) - 2)
        self.log_excess_degrees = None if excess is None else jnp.broadcast_to(excess, (size,))

    @property
    def degrees(self) -> Float[Array, " size"] | None:
        """Of freedom; None where returns are Gaussian."""
        return None if self.log_excess_degrees is None else 2 + jnp.exp(self.log_excess_degrees)

    def law(self, mean: Float[Array, " size"], latent: Latent) -> Distribution:
        deviation = jnp.exp(latent / 2)
        degrees = self.degrees
        if degrees is None:
            return dist.Normal(mean, deviation).to_event(1)
        return dist.StudentT(degrees, mean, deviation * jnp.sqrt((degrees - 2) / degrees)).to_event(1)


class StochasticVolatility(MarkovModel):
    """x_t = D u_t + exp(z_t / 2) ε_t with ε_t ~ N(0, 1), and z_t a stationary autoregression of order one.

    Dimensions do not interact; `level` (the log-variance of a typical day), `persistence` and `scale` may be one
    number or one for each.
    """

    log_variance: Autoregression
    returns: Returns
    input_weights: Float[Array, "size driving"] | None
    timed: bool = eqx.field(static=True)

    def __init__(
        self,
        *,
        level: Numbers = 0.0,
        persistence: Numbers = 0.95,
        scale: Numbers = 0.3,
        degrees: Numbers | None = None,
        input_weights: Numbers | None = None,
        timed: bool = False,
    ):
        """**Arguments:**

        - `degrees`: of freedom of a Student t, more than 2, for heavy tails; Gaussian without.
        - `input_weights`: D, (dimensions, inputs).
        - `timed`: whether the first input is the time since the step before.
        """
        self.log_variance = Autoregression(level=level, persistence=persistence, scale=scale)
        self.returns = Returns(len(self.log_variance.level), degrees)
        self.input_weights = read_weights(input_weights)
        self.timed = timed

    def initial(self, memory: Memory, inputs: Inputs) -> Distribution:
        return self.log_variance.stationary()

    def transition(self, memory: Memory, inputs: Inputs) -> Distribution:
        return self.log_variance.following(memory, gap_of(inputs, self.timed))

    def emission(self, memory: Memory, latent: Latent, inputs: Inputs) -> Distribution:
        effect = effect_of(self.input_weights, inputs, self.timed)
        return self.returns.law(jnp.zeros_like(latent) if effect is None else effect, latent)


class LeveragedVolatility(Model):
    """Stochastic volatility whose shocks to the variance are correlated with the return before: a fall of prices is
    followed by a rise of volatility where λ < 0.

    x_t = exp(z_t / 2) ε_t;  z_t+1 = μ + ρ (z_t - μ) + σ (λ ε_t + sqrt(1 - λ²) η_t), η_t ~ N(0, 1).

    λ = tanh(`atanh_leverage`) is the correlation of ε_t and the shock that follows. The memory holds z_t and ε_t. Yu
    (2005), whose timing is that of the Euler scheme for the process in continuous time.
    """

    log_variance: Autoregression
    returns: Returns
    atanh_leverage: Float[Array, " size"]
    readable: ClassVar = ("log_variance", "returns", "leverage")
    timed: bool = eqx.field(static=True)

    def __init__(
        self,
        *,
        level: Numbers = 0.0,
        persistence: Numbers = 0.95,
        scale: Numbers = 0.3,
        leverage: Numbers = -0.3,
        degrees: Numbers | None = None,
        timed: bool = False,
    ):
        self.log_variance = Autoregression(level=level, persistence=persistence, scale=scale)
        size = len(self.log_variance.level)
        self.returns = Returns(size, degrees)
        leverage = jnp.asarray(leverage, float)
        if is_known(leverage) and not bool(jnp.all(jnp.abs(leverage) < 1)):
            raise ValueError(f"leverage must lie between -1 and 1, but got {leverage}.")
        self.atanh_leverage = jnp.broadcast_to(jnp.arctanh(leverage), (size,))
        self.timed = timed

    @property
    def leverage(self) -> Float[Array, " size"]:
        """λ."""
        return jnp.tanh(self.atanh_leverage)

    def start(self, inputs: Inputs) -> Memory:
        return jnp.zeros_like(self.log_variance.level), jnp.zeros_like(self.log_variance.level)

    def initial(self, memory: Memory, inputs: Inputs) -> Distribution:
        return self.log_variance.stationary()

    def transition(self, memory: Memory, inputs: Inputs) -> Distribution:
        latent, shock = memory
        mean, scale = self.log_variance.moments(latent, gap_of(inputs, self.timed))
        # 1 / cosh(a) = sqrt(1 - tanh(a)²), which does not cancel near one.
        return dist.Normal(mean + scale * self.leverage * shock, scale / jnp.cosh(self.atanh_leverage)).to_event(1)

    def emission(self, memory: Memory, latent: Latent, inputs: Inputs) -> Distribution:
        return self.returns.law(jnp.zeros_like(latent), latent)

    def advance(self, memory: Memory, latent: Latent, observation: Observation) -> Memory:
        return latent, observation.astype(latent.dtype) * jnp.exp(-latent / 2)
