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
from mcfo.networks import MLP, normal, positive, rectified
from mcfo.types import Distribution, Inputs, Key, Latent, Memory, Numbers

EMISSIONS = ("bernoulli", "gaussian")
_DEVIATION = 0.3
"""With which deviations of a step begin. Latents are of size one; with larger ones a latent forgets within a step or
two what it was, and nothing that takes longer to tell, such as a speed, is learned."""
_TRACE_DEVIATION = 0.05
"""That of a running mean: with a larger one it hides by how much the latest differs from it."""
_KEPT = 0.7
"""What a running mean keeps of itself at a step."""


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
          running means of the others, so that a latent tells where the series came from, and with it what a single
          observation does not show, such as a speed. Where f reads them all, each is soon used up for what it does
          show; and a rule that does not go back through time would not find out what is worth remembering.
        - `kind`: the emission, "bernoulli" for zeros and ones, "gaussian" for real numbers.
        - `bias`: with which f begins: the data's mean, or its log-odds; zero by default.
        - `scale`: with which r begins, of a Gaussian emission; one by default.
        """
        if kind not in EMISSIONS:
            raise ValueError(f"The emission is {' or '.join(map(repr, EMISSIONS))}, but got {kind!r}.")
        of_transition, of_emission = jax.random.split(key)
        self.initial_law = jnp.concatenate([jnp.zeros(latent), _raw(jnp.ones(latent))])
        network = rectified(latent, *transition, 2 * latent, key=of_transition)
        self.transition_network = begun(network, latent, unseen, persistent=persistent, steady=True)
        network = rectified(latent, *emission, dimensions, key=of_emission)
        network = network.without_input(unseen_latents(unseen, latent))
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


def begun(network: MLP, latent: int, unseen: int | None, *, persistent: bool, steady: bool = False) -> MLP:
    """The network of a step's law as it begins, of a model and of its proposal alike: latents stay about where they
    are, those that are unseen keep running means of the others, each of its share of them.

    **Arguments:**

    - `persistent`: without it, or where layers are too narrow, the deviations alone are set.
    - `steady`: what the network reads changes the deviations little at first.
    """
    hidden = unseen_latents(unseen, latent)
    deviations = jnp.full(latent, _DEVIATION)
    if not (persistent and network.carries(latent)):
        return network.with_deviations(deviations, steady=steady)
    seen = hidden.start
    shares = max(1, min(latent - seen, seen))
    followed = jnp.arange(latent - seen)[:, None] % shares == jnp.arange(seen) % shares
    directions = followed / jnp.sqrt(followed.sum(1, keepdims=True))
    matrix = jnp.eye(latent).at[hidden].multiply(_KEPT).at[hidden, :seen].set((1 - _KEPT) * directions)
    for outputs in (hidden, slice(latent + seen, 2 * latent)):
        network = network.without_output(outputs)
    deviations = deviations.at[hidden].set(_TRACE_DEVIATION)
    return network.with_linear_part(matrix).with_deviations(deviations, steady=steady)


def _raw(scale: Any) -> Any:
    """What `positive` turns into this deviation."""
    return eqx.error_if(jnp.log(jnp.expm1(scale)), scale <= 0, "A deviation must be positive.")
