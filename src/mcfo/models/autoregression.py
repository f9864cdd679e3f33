"""Models whose latent is a stationary autoregression: counts, and stochastic volatility with heavy tails and leverage.

How models read times and inputs is here too.
"""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float

from mcfo.models.base import MarkovModel, Model
from mcfo.types import Distribution, Inputs, Latent, Memory, Numbers, Observation, Scalar, is_known


def gap_of(inputs: Inputs, timed: bool) -> Scalar | None:
    """Return δ_t, the time since the previous step: the first input of a timed model, or None."""
    if not timed:
        return None
    if inputs is None:
        raise ValueError(
            "The model takes the time since the previous step as its first input, but the series has no inputs. Give "
            "Series.from_values(..., inputs=gaps), or read the file with read_series(...).with_gaps()."
        )
    return inputs[0]


def effect_of(
    weights: Float[Array, "size driving"] | None, inputs: Inputs, timed: bool
) -> Float[Array, " size"] | None:
    """Return D u_t, where u_t are the inputs without δ_t; None without weights."""
    if weights is None:
        return None
    if inputs is None:
        raise ValueError(
            "The model has weights for inputs, but the series has no inputs. Give Series.from_values(..., inputs=...)."
        )
    return weights @ (inputs[1:] if timed else inputs)


def read_weights(weights: Numbers | None) -> Float[Array, "size driving"] | None:
    """Read a matrix with a row for each dimension, or None."""
    return None if weights is None else jnp.atleast_2d(jnp.asarray(weights, float))


_LEAST_PERSISTENCE = 1e-6
"""The least persistence at uneven times, where its logarithm is needed."""


class Autoregression(eqx.Module):
    """z_t = μ + ρ (z_t-1 - μ) + N(0, σ²), with the stationary initial distribution N(μ, σ² / (1 - ρ²)).

    ρ = tanh(`atanh_persistence`) and σ = exp(`log_scale`), so that the process is stationary for any parameters. After
    a time δ instead of one step, ρ becomes |ρ|^δ and the noise preserves the stationary distribution: an
    Ornstein-Uhlenbeck process at uneven times. (No process in continuous time alternates, so that the sign of ρ is
    lost.)
    """

    level: Float[Array, " size"]
    atanh_persistence: Float[Array, " size"]
    log_scale: Float[Array, " size"]
    readable: ClassVar = ("level", "persistence", "scale")

    def __init__(self, *, level: Numbers, persistence: Numbers, scale: Numbers):
        arrays = (jnp.asarray(value, float) for value in (level, persistence, scale))
        level, persistence, scale = jnp.broadcast_arrays(*map(jnp.atleast_1d, arrays))
        if is_known(persistence) and not bool(jnp.all(jnp.abs(persistence) < 1)):
            raise ValueError(f"persistence must lie between -1 and 1, but got {persistence}.")
        if is_known(scale) and not bool(jnp.all(scale > 0)):
            raise ValueError(f"scale must be positive, but got {scale}.")
        self.level = level
        self.atanh_persistence = jnp.arctanh(persistence)
        self.log_scale = jnp.log(scale)

    @property
    def persistence(self) -> Float[Array, " size"]:
        """ρ."""
        return jnp.tanh(self.atanh_persistence)

    @property
    def scale(self) -> Float[Array, " size"]:
        """σ."""
        return jnp.exp(self.log_scale)

    @property
    def stationary_scale(self) -> Float[Array, " size"]:
        """σ / sqrt(1 - ρ²), where 1 / sqrt(1 - tanh² a) = cosh a."""
        return self.scale * jnp.cosh(self.atanh_persistence)

    def stationary(self) -> Distribution:
        """Return N(μ, σ² / (1 - ρ²))."""
        return dist.Normal(self.level, self.stationary_scale).to_event(1)

    def moments(
        self, latent: Float[Array, " size"], gap: Scalar | None = None
    ) -> tuple[Float[Array, " size"], Float[Array, " size"]]:
        """Return mean and standard deviation of z after one step, or after the time `gap`."""
        if gap is None:
            return self.level + self.persistence * (latent - self.level), self.scale
        log_persistence = gap * jnp.log(jnp.maximum(jnp.abs(self.persistence), _LEAST_PERSISTENCE))
        scale = self.stationary_scale * jnp.sqrt(-jnp.expm1(2 * log_persistence))
        return self.level + jnp.exp(log_persistence) * (latent - self.level), scale

    def following(self, latent: Float[Array, " size"], gap: Scalar | None = None) -> Distribution:
        """Return N(μ + ρ (z - μ), σ²), or the distribution after the time `gap`."""
        return dist.Normal(*self.moments(latent, gap)).to_event(1)


class PoissonCounts(MarkovModel):
    """x_t ~ Poisson(exp(z_t + D u_t)), z_t a stationary autoregression around the log of the typical count."""

    log_intensity: Autoregression
    input_weights: Float[Array, "size driving"] | None
    timed: bool = eqx.field(static=True)

    def __init__(
        self,
        *,
        level: Numbers = 0.0,
        persistence: Numbers = 0.9,
        scale: Numbers = 0.3,
        input_weights: Numbers | None = None,
        timed: bool = False,
    ):
        """**Arguments:**

        - `input_weights`: D, (dimensions, inputs).
        - `timed`: whether the first input is the time since the previous step.
        """
        self.log_intensity = Autoregression(level=level, persistence=persistence, scale=scale)
        self.input_weights = read_weights(input_weights)
        self.timed = timed

    def initial(self, memory: Memory, inputs: Inputs) -> Distribution:
        return self.log_intensity.stationary()

    def transition(self, memory: Memory, inputs: Inputs) -> Distribution:
        return self.log_intensity.following(memory, gap_of(inputs, self.timed))

    def emission(self, memory: Memory, latent: Latent, inputs: Inputs) -> Distribution:
        effect = effect_of(self.input_weights, inputs, self.timed)
        return self.distribution(jnp.exp(latent if effect is None else latent + effect))

    def distribution(self, intensity: Float[Array, " size"]) -> Distribution:
        """Return the distribution of counts with these means."""
        return dist.Poisson(intensity).to_event(1)


class NegativeBinomialCounts(PoissonCounts):
    """Counts with more variance than Poisson's: their mean is m_t = exp(z_t + D u_t), their variance m_t + m_t² / r.

    r = exp(`log_concentration`); the smaller, the wider, and r → ∞ is the Poisson distribution.
    """

    log_concentration: Float[Array, " size"]
    readable: ClassVar = ("log_intensity", "concentration", "input_weights")

    def __init__(self, *, concentration: Numbers = 10.0, **options):
        super().__init__(**options)
        concentration = jnp.asarray(concentration, float)
        if is_known(concentration) and not bool(jnp.all(concentration > 0)):
            raise ValueError(f"concentration must be positive, but got {concentration}.")
        self.log_concentration = jnp.broadcast_to(jnp.log(concentration), self.log_intensity.level.shape)

    @property
    def concentration(self) -> Float[Array, " size"]:
        """r."""
        return jnp.exp(self.log_concentration)

    def distribution(self, intensity: Float[Array, " size"]) -> Distribution:
        return dist.NegativeBinomial2(intensity, self.concentration).to_event(1)


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
        """The degrees of freedom; None if returns are Gaussian."""
        return None if self.log_excess_degrees is None else 2 + jnp.exp(self.log_excess_degrees)

    def distribution(self, mean: Float[Array, " size"], latent: Latent) -> Distribution:
        """Return the distribution of a return with this mean and log-variance."""
        scale = jnp.exp(latent / 2)
        degrees = self.degrees
        if degrees is None:
            return dist.Normal(mean, scale).to_event(1)
        return dist.StudentT(degrees, mean, scale * jnp.sqrt((degrees - 2) / degrees)).to_event(1)


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

        - `degrees`: the degrees of freedom of a Student t, more than 2, for heavy tails; None is Gaussian.
        - `input_weights`: D, (dimensions, inputs).
        - `timed`: whether the first input is the time since the previous step.
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
        return self.returns.distribution(jnp.zeros_like(latent) if effect is None else effect, latent)


class LeveragedVolatility(Model):
    """Stochastic volatility whose shocks to the variance are correlated with the previous return: with λ < 0, a fall of
    prices is followed by a rise of volatility.

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
        return self.returns.distribution(jnp.zeros_like(latent), latent)

    def advance(self, memory: Memory, latent: Latent, observation: Observation) -> Memory:
        return latent, observation.astype(latent.dtype) * jnp.exp(-latent / 2)
