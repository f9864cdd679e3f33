"""Counts whose log-intensity is a hidden autoregression."""

import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import ArrayLike

from mcfo.models.autoregression import Autoregression
from mcfo.models.base import MarkovModel
from mcfo.types import Distribution, Inputs, Latent, Memory


class PoissonCounts(MarkovModel):
    """x_t ~ Poisson(exp z_t), z_t a stationary autoregression of order one around the log of the typical count."""

    log_intensity: Autoregression

    def __init__(self, *, level: ArrayLike = 0.0, persistence: ArrayLike = 0.9, scale: ArrayLike = 0.3):
        self.log_intensity = Autoregression(level=level, persistence=persistence, scale=scale)

    def initial(self, memory: Memory, inputs: Inputs) -> Distribution:  # noqa: ARG002
        return self.log_intensity.stationary()

    def transition(self, memory: Memory, inputs: Inputs) -> Distribution:  # noqa: ARG002
        return self.log_intensity.following(memory)

    def emission(self, memory: Memory, latent: Latent, inputs: Inputs) -> Distribution:  # noqa: ARG002
        return dist.Poisson(jnp.exp(latent)).to_event(1)
