"""What a model is: p(z, x) for one particle of one series."""

import abc

import equinox as eqx

from mcfo.types import Distribution, Inputs, Latent, Memory, Observation


class Model(eqx.Module):
    """A generative model p_θ(z_1:T, x_1:T) = ∏_t p(z_t | h_t-1) p(x_t | z_t, h_t-1); its arrays are θ.

    The *memory* h_t is all that a particle keeps of z_1:t and x_1:t: the LSTM's state of a VRNN, the last latent of
    a Markov model. Every method speaks of one particle of one series; the samplers add the other axes by `vmap`.
    """

    @abc.abstractmethod
    def start(self, inputs: Inputs) -> Memory:
        """h_0, what a particle remembers before the first step; `inputs` are u_1."""

    @abc.abstractmethod
    def initial(self, memory: Memory, inputs: Inputs) -> Distribution:
        """p(z_1 | h_0, u_1)."""

    @abc.abstractmethod
    def transition(self, memory: Memory, inputs: Inputs) -> Distribution:
        """p(z_t | h_t-1, u_t) for t > 1."""

    @abc.abstractmethod
    def emission(self, memory: Memory, latent: Latent, inputs: Inputs) -> Distribution:
        """p(x_t | z_t, h_t-1, u_t), with event shape (dimensions,)."""

    @abc.abstractmethod
    def advance(self, memory: Memory, latent: Latent, observation: Observation) -> Memory:
        """h_t from h_t-1, z_t and x_t. What is missing in x_t has been drawn from its law given the rest of x_t."""


class MarkovModel(Model):
    """A model whose memory is the last latent; before the first step it is None.

    Write `initial`, `transition` and `emission`.
    """

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        for name in ("start", "advance"):
            if name in vars(cls):
                raise TypeError(
                    f"{cls.__name__} defines {name}(), but a MarkovModel remembers its last latent and nothing else. "
                    "Derive from Model to remember more."
                )

    def start(self, inputs: Inputs) -> Memory:
        return None

    def advance(self, memory: Memory, latent: Latent, observation: Observation) -> Memory:
        return latent
