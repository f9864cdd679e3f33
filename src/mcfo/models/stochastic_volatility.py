"""Stochastic volatility: returns whose log-variance is a hidden autoregression."""

import jax.numpy as jnp
import numpyro.distributions as dist

from mcfo.models.autoregression import Autoregression
from mcfo.models.base import MarkovModel
from mcfo.types import Distribution, Inputs, Latent, Memory, Numbers


class StochasticVolatility(MarkovModel):
    """x_t = exp(z_t / 2) ε_t with ε_t ~ N(0, 1), and z_t a stationary autoregression of order one.

    Dimensions do not interact; `level` (the log-variance of a typical day), `persistence` and `scale` may be one
    number or one for each.
    """

    log_variance: Autoregression

    def __init__(self, *, level: Numbers = 0.0, persistence: Numbers = 0.95, scale: Numbers = 0.3):
        self.log_variance = Autoregression(level=level, persistence=persistence, scale=scale)

    def initial(self, memory: Memory, inputs: Inputs) -> Distribution:
        return self.log_variance.stationary()

    def transition(self, memory: Memory, inputs: Inputs) -> Distribution:
        return self.log_variance.following(memory)

    def emission(self, memory: Memory, latent: Latent, inputs: Inputs) -> Distribution:
        return dist.Normal(jnp.zeros_like(latent), jnp.exp(latent / 2)).to_event(1)
