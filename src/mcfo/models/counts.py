"""Counts whose log-intensity is a hidden autoregression."""

import jax.numpy as jnp
import numpyro.distributions as dist

from mcfo.models.autoregression import Autoregression
from mcfo.models.base import MarkovModel
from mcfo.types import Distribution, Inputs, Latent, Memory, Numbers


class PoissonCounts(MarkovModel):
    """x_t ~ Poisson(exp z_t), z_t a stationary autoregression of order one around the log of the typical count."""

    log_intensity: Autoregression

    def __init__(self, *, level: Numbers = 0.0, persistence: Numbers = 0.9, scale: Numbers = 0.3):
        self.log_intensity = Autoregression(level=level, persistence=persistence, scale=scale)

    def initial(self, memory: Memory, inputs: Inputs) -> Distribution:
        return self.log_intensity.stationary()

    def transition(self, memory: Memory, inputs: Inputs) -> Distribution:
        return self.log_intensity.following(memory)

    def emission(self, memory: Memory, latent: Latent, inputs: Inputs) -> Distribution:
        return dist.Poisson(jnp.exp(latent)).to_event(1)
