"""Recurrent models, which are not Markov: the paper's VRNN, and a variant whose recurrence reads no latents."""

from __future__ import annotations

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float

from mcfo.models.base import Model
from mcfo.networks import MLP, multiply, xavier
from mcfo.types import Distribution, Inputs, Key, Latent, Memory, Numbers, Observation

_RAISED = 0.25
"""Added to standard deviations before softplus, as in the first configurations of this model."""


class Recurrence(NamedTuple):
    """The memory of a particle: the LSTM's output and its cell, and the last latent if the model reads it."""

    output: Float[Array, " hidden"]
    cell: Float[Array, " hidden"]
    latent: Float[Array, " latent"] | None


class _Recurrent(Model):
    """p(z_t | h_t-1) = N(μ, diag σ²) and p(x_t | z_t, h_t-1) = Bernoulli(f), both by networks that read the memory."""

    observation_encoder: MLP
    latent_encoder: MLP
    cell: eqx.nn.LSTMCell
    prior_network: MLP
    emission_network: MLP
    center: Float[Array, " dimensions"]

    @staticmethod
    @abc.abstractmethod
    def _widths(hidden: int, units: int) -> tuple[int, int]:
        """Return the numbers of inputs of the LSTM and of the prior."""

    @abc.abstractmethod
    def _state(self, memory: Recurrence) -> Float[Array, " state"]:
        """Return the input of the prior."""

    def __init__(
        self,
        dimensions: int,
        *,
        key: Key,
        latent: int = 64,
        hidden: int = 64,
        units: int = 64,
        frequencies: Numbers | None = None,
    ):
        """**Arguments:**

        - `dimensions`, `latent`, `hidden`: the sizes of x_t, of z_t and of h_t.
        - `units`: the width of the one hidden layer of every network, and of the encoders' outputs.
        - `frequencies`: how often each dimension of x is one: the initial mean of the emission, which the encoder
          subtracts from x. By default 0.5, and nothing is subtracted. They are not meant to be learned.
        """
        of_cell, of_prior = self._widths(hidden, units)
        keys = jax.random.split(key, 6)
        networks = (
            MLP(dimensions, units, units, key=keys[0]),
            MLP(latent, units, units, key=keys[1]),
            eqx.nn.LSTMCell(of_cell, hidden, key=keys[2]),
            MLP(of_prior, units, 2 * latent, key=keys[3]),
            MLP(hidden + units, units, dimensions, key=keys[4]),
        )
        # As in the first configurations of this model; with smaller weights it learns more slowly and ends worse.
        networks = xavier(networks, key=keys[5])
        self.observation_encoder, self.latent_encoder, self.cell, self.prior_network, emission = networks
        mean = jnp.full(dimensions, 0.5) if frequencies is None else jnp.asarray(frequencies, float)
        self.center = jnp.zeros(dimensions) if frequencies is None else mean
        self.emission_network = emission.with_bias(jnp.log(mean) - jnp.log1p(-mean))

    def initial(self, memory: Memory, inputs: Inputs) -> Distribution:
        return self.transition(memory, inputs)

    def transition(self, memory: Memory, inputs: Inputs) -> Distribution:
        return shifted_normal(self.prior_network(self._state(memory)))

    def emission(self, memory: Memory, latent: Latent, inputs: Inputs) -> Distribution:
        logits = self.emission_network(memory.output, self._encoded(latent))
        return dist.Bernoulli(logits=logits).to_event(1)

    def _encoded(self, latent: Latent) -> Float[Array, " units"]:
        return jax.nn.relu(self.latent_encoder(latent))

    def _observed(self, observation: Observation) -> Float[Array, " units"]:
        return jax.nn.relu(self.observation_encoder(observation - self.center))

    @property
    def latent_size(self) -> int:
        """The number of dimensions of z_t."""
        return self.latent_encoder.layers[0].weight.shape[1]


class VRNN(_Recurrent):
    """(h_t, c_t) = LSTM(e(x_t), e'(z_t), h_t-1, c_t-1);  z_t ~ N(μ(h_t-1), diag σ²(h_t-1));
    x_t ~ Bernoulli(f(e'(z_t), h_t-1)).

    The memory is the LSTM's state, through which the whole past affects the future. The default sizes are the paper's.
    Chung et al. (2015); Chen et al. (2021), section 4.4.
    """

    __init__ = _Recurrent.__init__  # otherwise type checkers take it for that of a dataclass

    @staticmethod
    def _widths(hidden: int, units: int) -> tuple[int, int]:
        return 2 * units, hidden

    def _state(self, memory: Recurrence) -> Float[Array, " state"]:
        return memory.output

    def start(self, inputs: Inputs) -> Recurrence:
        zeros = jnp.zeros(self.cell.hidden_size)
        return Recurrence(zeros, zeros, None)

    def advance(self, memory: Memory, latent: Latent, observation: Observation) -> Recurrence:
        return Recurrence(*_lstm(self.cell, memory, self._observed(observation), self._encoded(latent)), None)


class SRNN(_Recurrent):
    """(h_t, c_t) = LSTM(e(x_t), h_t-1, c_t-1);  z_t ~ N(μ(h_t-1, e'(z_t-1)), diag σ²(...));
    x_t ~ Bernoulli(f(e'(z_t), h_t-1)).

    The recurrence reads the observations alone; the latents form a separate Markov chain. Fraccaro et al. (2016).
    """

    __init__ = _Recurrent.__init__  # otherwise type checkers take it for that of a dataclass

    @staticmethod
    def _widths(hidden: int, units: int) -> tuple[int, int]:
        return units, hidden + units

    def _state(self, memory: Recurrence) -> Float[Array, " state"]:
        assert memory.latent is not None
        return jnp.concatenate([memory.output, self._encoded(memory.latent)])

    def start(self, inputs: Inputs) -> Recurrence:
        zeros = jnp.zeros(self.cell.hidden_size)
        return Recurrence(zeros, zeros, jnp.zeros(self.latent_size))

    def advance(self, memory: Memory, latent: Latent, observation: Observation) -> Recurrence:
        return Recurrence(*self.cell(self._observed(observation), (memory.output, memory.cell)), latent)


def _lstm(cell: eqx.nn.LSTMCell, memory: Recurrence, *parts: Float[Array, " _"]) -> tuple[Array, Array]:
    """Return the next output and cell, for inputs in several parts."""
    assert cell.bias is not None
    gates = multiply(cell.weight_ih, *parts) + multiply(cell.weight_hh, memory.output) + cell.bias
    enter, stay, new, show = jnp.split(gates, 4)
    state = jax.nn.sigmoid(stay) * memory.cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
    return jax.nn.sigmoid(show) * jnp.tanh(state), state


def shifted_normal(parameters: Float[Array, " twice_size"], around: Any = 0.0) -> Distribution:
    """Return N(around + μ, diag σ²) from the outputs of a network: μ, then σ before softplus."""
    mean, raw = jnp.split(parameters, 2)
    return dist.Normal(around + mean, jax.nn.softplus(raw + _RAISED)).to_event(1)
