"""A proposal for recurrent models: it reads their memory and the observation."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mcfo.models.recurrent import raised_normal
from mcfo.networks import MLP, xavier
from mcfo.proposals.amortized import unless_blind
from mcfo.proposals.base import Proposal
from mcfo.series import Series
from mcfo.types import Context, Distribution, Key, Memory, Numbers


class RecurrentProposal(Proposal):
    """q(z_t | h_t-1, x_t) = N(m + μ(h_t-1, e(x_t)), diag σ²(h_t-1, e(x_t))), m the prior's mean.

    A *residual* proposal begins near the prior and learns to correct it; without, m is zero. The encoder e runs once
    for all steps, outside of the filter, and reads zero for what is missing. Where all of x_t is missing, q is the
    prior. Chen et al. (2021), section 4.4; Fraccaro et al. (2016).
    """

    encoder: MLP
    network: MLP
    center: Float[Array, " dimensions"]
    residual: bool = eqx.field(static=True)

    def __init__(
        self,
        dimensions: int,
        latent: int,
        hidden: int,
        *,
        key: Key,
        units: int = 64,
        center: Numbers = 0.0,
        residual: bool = True,
    ):
        """**Arguments:**

        - `dimensions`, `latent`, `hidden`: the sizes of x_t, of z_t and of the model's h_t.
        - `units`: of the one hidden layer of each network, and of what the encoder gives.
        - `center`: what the encoder takes off the observations; not meant to be learned.
        """
        of_encoder, of_network, of_weights = jax.random.split(key, 3)
        networks = (
            MLP(dimensions, units, units, key=of_encoder),
            MLP(hidden + units, units, 2 * latent, key=of_network),
        )
        self.encoder, self.network = xavier(networks, key=of_weights)
        self.center = jnp.broadcast_to(jnp.asarray(center, float), (dimensions,))
        self.residual = residual

    def encode(self, series: Series) -> Context:
        mask = series.mask()
        values = jnp.where(mask, series.observations - self.center, 0.0)
        features = self.encoder.activation(jax.vmap(self.encoder)(values))
        return features, None if series.observed is None else jnp.any(mask, axis=-1)

    def initial(self, prior: Any, context: Context) -> Distribution:
        hidden = self.network.layers[0].weight.shape[1] - context[0].shape[-1]
        return self._law(prior, jnp.zeros(hidden), context)

    def step(self, prior: Any, memory: Memory, context: Context) -> Distribution:
        return self._law(prior, memory.output, context)

    def _law(self, prior: Any, output: Float[Array, " hidden"], context: Context) -> Distribution:
        features, seen = context
        around = prior.mean if self.residual else 0.0
        law: Any = raised_normal(self.network(output, features), around)
        return unless_blind(law, prior, seen)
