"""Counts whose log-intensity is a hidden autoregression."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float

from mcfo.models.autoregression import Autoregression, effect_of, gap_of, read_weights
from mcfo.models.base import MarkovModel
from mcfo.types import Distribution, Inputs, Latent, Memory, Numbers, is_known


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
        - `timed`: whether the first input is the time since the step before.
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
        return self.law(jnp.exp(latent if effect is None else latent + effect))

    def law(self, intensity: Float[Array, " size"]) -> Distribution:
        """Of counts with these means."""
        return dist.Poisson(intensity).to_event(1)


class NegativeBinomialCounts(PoissonCounts):
    """Counts that scatter more than Poisson's: their mean is m_t = exp(z_t + D u_t), their variance m_t + m_t² / r.

    r = exp(`log_concentration`); the smaller, the wider, and r → ∞ is Poisson's law.
    """

    log_concentration: Float[Array, " size"]
    readable: ClassVar = ("log_intensity", "concentration", "input_weights")

    def __init__(self, *, concentration: Numbers = 10.0, **options):
        super().__init__(**options)
        given = jnp.asarray(concentration, float)
        if is_known(given) and not bool(jnp.all(given > 0)):
            raise ValueError(f"concentration must be positive, but got {given}.")
        self.log_concentration = jnp.broadcast_to(jnp.log(given), self.log_intensity.level.shape)

    @property
    def concentration(self) -> Float[Array, " size"]:
        """r."""
        return jnp.exp(self.log_concentration)

    def law(self, intensity: Float[Array, " size"]) -> Distribution:
        return dist.NegativeBinomial2(intensity, self.concentration).to_event(1)
