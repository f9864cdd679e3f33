"""A deep state-space model: the paper's model of pendulum videos, for any series of vectors."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float

from mcfo.models.base import MarkovModel
from mcfo.networks import MLP, normal, positive, raw_scale, rectified
from mcfo.types import Distribution, Inputs, Key, Latent, Memory, Numbers

EMISSIONS = ("bernoulli", "gaussian")
_INITIAL_SCALE = 0.3
"""The initial standard deviation of a step, for latents of size one. With a larger one a latent forgets its past within
a step or two, and nothing that takes longer to observe, such as a speed, is learned."""
_TRACE_SCALE = 0.05
"""The constant standard deviation of a trace: a larger one would hide its difference from the latent."""
_RETAINED = 0.7
"""The weight of a trace's previous value at a step."""


class DeepMarkov(MarkovModel):
    """z_1 ~ N(m, diag s²);  z_t ~ N(μ(z_t-1, u_t-1), diag σ²(z_t-1, u_t-1));  x_t ~ Bernoulli(f(z_t)), or
    (x_t - center) / scale ~ N(f(z_t), diag r²).

    μ and σ are the outputs of one network, f of another. Beside the latents z there may be *traces* u, which no network
    changes and f does not read: each is the running mean of one latent, u_t ~ N(0.7 u_t-1 + 0.3 z_t-1, 0.05²), and
    starts at zero. The default sizes are the paper's, which has no traces. Chen et al. (2021), section 4.3;
    Krishnan, Shalit and Sontag (2017).
    """

    initial_parameters: Float[Array, " twice_latent"]
    transition_network: MLP
    emission_network: MLP
    emission_raw_scale: Float[Array, " dimensions"] | None
    center: Float[Array, " dimensions"] | None
    scale: Float[Array, " dimensions"] | None
    traces: int = eqx.field(static=True)

    def __init__(
        self,
        dimensions: int,
        *,
        key: Key,
        latent: int = 3,
        transition: Sequence[int] = (64,),
        emission: Sequence[int] = (16, 64, 512, 2048),
        persistent: bool = True,
        traces: int = 0,
        kind: str = "bernoulli",
        bias: Numbers = 0.0,
        center: Numbers = 0.0,
        scale: Numbers = 1.0,
    ):
        """**Arguments:**

        - `dimensions`, `latent`: the sizes of x_t and of z_t, without traces.
        - `transition`, `emission`: hidden units of the two networks, one number for each layer.
        - `persistent`: whether μ is initially near the identity, so that learning starts with how the latent changes;
          it needs hidden layers of twice the latent's size, and one unit more if there are traces.
        - `traces`: how many of the latents, the first ones, have a trace. The difference of a latent and its trace
          shows what a single observation does not, such as a speed. A rule that does not go back through time does not
          learn what is worth remembering: a latent that could remember drifts, or is used for what is visible at the
          step. With traces, z_t of the library is (z_t, u_t).
        - `kind`: the emission, "bernoulli" for zeros and ones, "gaussian" for real numbers.
        - `bias`: the initial bias of the last layer of f: the log-odds of the data's mean, for zeros and ones.
        - `center`, `scale`: location and scale of a Gaussian emission, such as the data's mean and standard deviation;
          r is initially one. They are not meant to be learned.
        """
        if kind not in EMISSIONS:
            raise ValueError(f"The emission is {' or '.join(map(repr, EMISSIONS))}, but got {kind!r}.")
        of_transition, of_emission = jax.random.split(key)
        self.initial_parameters = jnp.concatenate([jnp.zeros(latent), raw_scale(jnp.ones(latent))])
        self.traces = checked_traces(traces, latent)
        network = rectified(latent + self.traces, *transition, 2 * latent, key=of_transition)
        self.transition_network = initialize_step(network, unchanged=latent if persistent else 0)
        bias, center, scale = (
            jnp.broadcast_to(jnp.asarray(one, float), (dimensions,)) for one in (bias, center, scale)
        )
        self.emission_network = rectified(latent, *emission, dimensions, key=of_emission).with_bias(bias)
        gaussian = kind == "gaussian"
        self.emission_raw_scale = raw_scale(jnp.ones(dimensions)) if gaussian else None
        self.center = center if gaussian else None
        self.scale = eqx.error_if(scale, ~(scale > 0), "A scale must be positive.") if gaussian else None

    def initial(self, memory: Memory, inputs: Inputs) -> Distribution:
        return first_distribution(self.initial_parameters, self.traces)

    def transition(self, memory: Memory, inputs: Inputs) -> Distribution:
        return step_distribution(self.transition_network(memory), memory)

    def emission(self, memory: Memory, latent: Latent, inputs: Inputs) -> Distribution:
        outputs = self.emission_network(latent[: self.latent_size])
        if self.emission_raw_scale is None or self.center is None or self.scale is None:
            return dist.Bernoulli(logits=outputs).to_event(1)
        scales = self.scale * positive(self.emission_raw_scale)
        return dist.Normal(self.center + self.scale * outputs, scales).to_event(1)

    @property
    def latent_size(self) -> int:
        """The number of dimensions of z_t, without traces."""
        return self.initial_parameters.shape[-1] // 2


def checked_traces(traces: int, latent: int) -> int:
    """Check the number of latents with a trace."""
    if not 0 <= traces <= latent:
        raise ValueError(f"Of {latent} latents 0 to {latent} can have a trace, but got {traces}.")
    return traces


def initialize_step(network: MLP, *, unchanged: int, index: int = 0, count: int = 0, steady: bool = True) -> MLP:
    """Initialize the network of a step of a model or its proposal such that latents change little.

    If the layers are wide enough, the first `count` means are read from the features at `index` and after it, positive
    parts first, then negative ones, and the next `unchanged` means are near the identity. The standard deviations are
    set in any case.

    **Arguments:**

    - `steady`: whether other inputs initially have little effect.
    """
    if network.carries(count + unchanged):
        network = network.with_parts(index, count, unchanged=unchanged, steady=steady)
    return network.with_scales(jnp.full(len(network.layers[-1].weight) // 2, _INITIAL_SCALE), steady=steady)


def first_distribution(outputs: Float[Array, " twice_latent"], traces: int) -> Distribution:
    """Return p or q of z_1 from parameters or outputs of a network, and of the traces, which start at zero."""
    return _beside(outputs, jnp.zeros(traces, outputs.dtype))


def step_distribution(outputs: Float[Array, " twice_latent"], memory: Float[Array, " all_latents"]) -> Distribution:
    """Return p or q of z_t from the outputs of a network, and of the traces, which follow their latents."""
    latents, traces = jnp.split(memory, [len(outputs) // 2])
    return _beside(outputs, _RETAINED * traces + (1 - _RETAINED) * latents[: len(traces)])


def _beside(outputs: Float[Array, " twice_latent"], traces: Float[Array, " traces"]) -> Distribution:
    if not len(traces):
        return normal(outputs)
    mean, raw = jnp.split(outputs, 2)
    scales = jnp.concatenate([positive(raw), jnp.full(len(traces), _TRACE_SCALE, raw.dtype)])
    return dist.Normal(jnp.concatenate([mean, traces]), scales).to_event(1)
