"""A deep state-space model: the paper's model of pendulum videos, for any series of vectors."""

from __future__ import annotations

from collections.abc import Sequence as Listing
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float

from mcfo.models.base import MarkovModel
from mcfo.networks import DEVIATION, MLP, normal, positive, rectified
from mcfo.types import Distribution, Inputs, Key, Latent, Memory, Numbers

EMISSIONS = ("bernoulli", "gaussian")


class DeepMarkov(MarkovModel):
    """z_1 ~ N(m, diag s²);  z_t ~ N(μ(z_t-1), diag σ²(z_t-1));  x_t ~ Bernoulli(f(z_t)) or N(f(z_t), diag r²).

    μ and σ are the outputs of one network, f of another. The sizes by default are the paper's. Chen et al. (2021),
    section 4.3; Krishnan, Shalit and Sontag (2017).
    """

    initial_law: Float[Array, " twice_latent"]
    transition_network: MLP
    emission_network: MLP
    emission_raw_scale: Float[Array, " dimensions"] | None

    def __init__(
        self,
        dimensions: int,
        *,
        key: Key,
        latent: int = 3,
        transition: Listing[int] = (64,),
        emission: Listing[int] = (16, 64, 512, 2048),
        persistent: bool = True,
        unseen: int | None = None,
        kind: str = "bernoulli",
        bias: Numbers | None = None,
        scale: Numbers | None = None,
    ):
        """**Arguments:**

        - `dimensions`, `latent`: the sizes of x_t and of z_t.
        - `transition`, `emission`: hidden units of the two networks, one number for each layer.
        - `persistent`: whether μ begins near the identity, so that what is learned first is how the latent changes; it
          needs hidden layers of twice the latent's size or more.
        - `unseen`: how many latents, the last ones, f does not read at first: one of three by default. They begin as
          random walks that move the others, left for what a single observation does not show, such as a speed; where
          f reads them all, each is soon used up for what it does show.
        - `kind`: the emission, "bernoulli" for zeros and ones, "gaussian" for real numbers.
        - `bias`: with which f begins: the data's mean, or its log-odds; zero by default.
        - `scale`: with which r begins, of a Gaussian emission; one by default.
        """
        if kind not in EMISSIONS:
            raise ValueError(f"The emission is {' or '.join(map(repr, EMISSIONS))}, but got {kind!r}.")
        of_transition, of_emission = jax.random.split(key)
        self.initial_law = jnp.concatenate([jnp.zeros(latent), _raw(jnp.ones(latent))])
        hidden = unseen_latents(unseen, latent)
        network = rectified(latent, *transition, 2 * latent, key=of_transition).with_deviation(DEVIATION, steady=True)
        self.transition_network = network.without_output(hidden).with_identity() if persistent else network
        network = rectified(latent, *emission, dimensions, key=of_emission).without_input(hidden)
        self.emission_network = network if bias is None else network.with_bias(jnp.asarray(bias, float))
        scales = jnp.broadcast_to(jnp.asarray(1.0 if scale is None else scale, float), (dimensions,))
        self.emission_raw_scale = _raw(scales) if kind == "gaussian" else None

    def initial(self, memory: Memory, inputs: Inputs) -> Distribution:
        return normal(self.initial_law)

    def transition(self, memory: Memory, inputs: Inputs) -> Distribution:
        return normal(self.transition_network(memory))

    def emission(self, memory: Memory, latent: Latent, inputs: Inputs) -> Distribution:
        outputs = self.emission_network(latent)
        if self.emission_raw_scale is None:
            return dist.Bernoulli(logits=outputs).to_event(1)
        return dist.Normal(outputs, positive(self.emission_raw_scale)).to_event(1)

    @property
    def latent_size(self) -> int:
        """The number of dimensions of z_t."""
        return self.initial_law.shape[-1] // 2


def unseen_latents(count: int | None, latent: int) -> slice:
    """The places of so many latents at the end, one of three by default."""
    count = latent // 3 if count is None else count
    if not 0 <= count < latent:
        raise ValueError(f"Of {latent} latents 0 to {latent - 1} can be unseen at first, but got {count}.")
    return slice(latent - count, latent)


def _raw(scale: Any) -> Any:
    """What `positive` turns into this deviation."""
    return eqx.error_if(jnp.log(jnp.expm1(scale)), scale <= 0, "A deviation must be positive.")
