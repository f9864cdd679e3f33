"""What a model is, p(z, x) for one particle of one series, and the series that it generates."""

from __future__ import annotations

import abc
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped
from jaxtyping import Key as KeyArray

from mcfo.transforms import Transform
from mcfo.types import Distribution, Inputs, Key, Latent, Memory, Observation


class LinearForm(NamedTuple):
    """One step of a linear Gaussian model: z_t = A z_t-1 + a + N(0, Q), y_t = C z_t + c + N(0, R).

    Q and R may be singular. y_t is the observation, or its transform if the model has an `observation_transform`.
    """

    transition_matrix: Float[Array, "latent latent"]
    transition_offset: Float[Array, " latent"]
    transition_covariance: Float[Array, "latent latent"]
    emission_matrix: Float[Array, "dimensions latent"]
    emission_offset: Float[Array, " dimensions"]
    emission_covariance: Float[Array, "dimensions dimensions"]


class InitialForm(NamedTuple):
    """The distribution of z_1: N(m, P + κ B Bᵀ) in the limit κ → ∞. `diffuse` is B; a proper start has no columns."""

    mean: Float[Array, " latent"]
    covariance: Float[Array, "latent latent"]
    diffuse: Float[Array, "latent unknowns"]


class Model(eqx.Module):
    """A generative model p_θ(z_1:T, x_1:T) = ∏_t p(z_t | h_t-1) p(x_t | z_t, h_t-1); its arrays are θ.

    The *memory* h_t is all that a particle stores of z_1:t and x_1:t: the LSTM's state of a VRNN, the last latent of
    a Markov model. Every method is about one particle of one series; the samplers add the other axes by `vmap`.

    `imputes` says whether the memory needs all of x_t: what is missing is then drawn for each particle, which leaves
    the evidence unbiased and adds variance. A model that can remember a part of x_t writes `advance_with` and sets it
    to False.
    """

    imputes: ClassVar[bool] = True

    @abc.abstractmethod
    def start(self, inputs: Inputs) -> Memory:
        """Return h_0, the memory before the first step; `inputs` are u_1."""

    @abc.abstractmethod
    def initial(self, memory: Memory, inputs: Inputs) -> Distribution:
        """Return p(z_1 | h_0, u_1)."""

    @abc.abstractmethod
    def transition(self, memory: Memory, inputs: Inputs) -> Distribution:
        """Return p(z_t | h_t-1, u_t) for t > 1."""

    @abc.abstractmethod
    def emission(self, memory: Memory, latent: Latent, inputs: Inputs) -> Distribution:
        """Return p(x_t | z_t, h_t-1, u_t), with event shape (dimensions,)."""

    @abc.abstractmethod
    def advance(self, memory: Memory, latent: Latent, observation: Observation) -> Memory:
        """Return h_t from h_t-1, z_t and x_t. Missing parts of x_t have been drawn given the rest of x_t."""

    def advance_with(
        self,
        memory: Memory,
        latent: Latent,
        observation: Observation,
        observed: Bool[Array, " #dimensions"] | None,
        inputs: Inputs,
    ) -> Memory:
        """Return h_t as samplers ask for it: by `advance`, unless the memory depends on the mask or on the inputs."""
        return self.advance(memory, latent, observation)

    @property
    def finite_states(self) -> int | None:
        """K where the latent is one of 0, ..., K - 1, the model is Markov and its emission reads z_t alone: its
        distributions are then computed exactly (`mcfo.forward_algorithm`). None otherwise."""
        return None

    @property
    def latent_names(self) -> tuple[str, ...] | None:
        """The names of the numbers in `latent_summary`; None: z1, z2, ..."""
        return None

    @property
    def state_names(self) -> tuple[str, ...] | None:
        """The names of the entries of the linear form's state: by default those of the latent."""
        return self.latent_names

    @property
    def circular_latents(self) -> tuple[int, ...]:
        """The indices of the numbers in `latent_summary` that are angles in radians: their means are circular."""
        return ()

    @property
    def circular_observations(self) -> tuple[int, ...]:
        """The indices of the dimensions of x_t that are angles in radians."""
        return ()

    def latent_summary(self, latent: Latent) -> Float[Array, " size"]:
        """Return the latent as summaries average it: as it is, or a regime as an indicator, whose mean is its
        probability."""
        return jnp.ravel(latent).astype(float)

    @property
    def component_names(self) -> tuple[str, ...]:
        """The names of the components whose sum the signal is; most models have none."""
        return ()

    def component_values(self, memory: Memory, latent: Latent, inputs: Inputs) -> Float[Array, " components"]:
        """Return the components at step t from h_t-1, z_t and u_t."""
        return jnp.zeros(0)

    def component_laws(self, mean: Any, covariance: Any, inputs: Any = None) -> dict[str, Any]:
        """Return mean and variance of each component at each step, where the state of the linear form has these
        moments."""
        return {}

    def canonical(self) -> Model:
        """Return the same distribution p(z, x) with its labels in a fixed order; applied at the end of a fit."""
        return self

    def linear_form(self, inputs: Inputs) -> LinearForm | None:
        """Return the matrices of the step with inputs u_t if the model is linear and Gaussian, otherwise None.

        The class that defines it vouches for it. A subclass that changes a distribution is no longer taken as linear.
        """
        return None

    def initial_form(self, inputs: Inputs) -> InitialForm | None:
        """Return the distribution of z_1 if the model is linear and Gaussian, otherwise None; `inputs` are u_1."""
        return None

    @property
    def observation_transform(self) -> Transform | None:
        """The map from x_t to the y_t of the linear form, or None. Densities are always those of x_t."""
        return None


class MarkovModel(Model):
    """A model whose memory is the last latent; before the first step it is None.

    Write `initial`, `transition` and `emission`.
    """

    imputes: ClassVar[bool] = False

    def __init_subclass__(cls, **options):
        super().__init_subclass__(**options)
        for name in ("start", "advance", "advance_with"):
            if name in vars(cls):
                raise TypeError(
                    f"{cls.__name__} defines {name}(), but a MarkovModel remembers its last latent and nothing else. "
                    "Derive from Model to remember more."
                )

    def start(self, inputs: Inputs) -> Memory:
        return None

    def advance(self, memory: Memory, latent: Latent, observation: Observation) -> Memory:
        return latent


class Path(eqx.Module):
    """A simulated series: z_t, x_t, and E[x_t | z_t] if the emission has a mean, otherwise None."""

    latents: Shaped[Array, "..."]
    observations: Shaped[Array, "*steps dimensions"]
    means: Float[Array, "*steps dimensions"] | None


def simulate(
    model: Model,
    steps: int,
    *,
    key: Key,
    inputs: Float[Array, "steps inputs"] | None = None,
) -> tuple[Shaped[Array, " steps *latent"], Shaped[Array, "steps dimensions"]]:
    """Draw latents and observations of one series from the model."""
    if steps < 1:
        raise ValueError(f"Cannot simulate {steps} steps. Ask for at least one.")
    if inputs is not None and len(inputs) != steps:
        raise ValueError(f"There are {len(inputs)} rows of inputs for {steps} steps. Give one row for each step.")
    path = simulate_from_start(model, inputs, jax.random.split(key, steps))
    return path.latents, path.observations


@eqx.filter_jit
def simulate_from_start(model: Model, inputs: Any, keys: KeyArray[Array, " steps"]) -> Path:
    """Simulate a path from the model's initial distribution, with one key for each step."""
    first, rest = jax.tree.map(lambda a: a[0], inputs), jax.tree.map(lambda a: a[1:], inputs)
    start = model.start(first)
    memory, one = _step(model, start, model.initial(start, first), first, keys[0])
    return jax.tree.map(
        lambda a, b: jnp.concatenate([a[None], b]), one, simulate_from_memory(model, memory, rest, keys[1:])
    )


def simulate_from_memory(model: Model, memory: Memory, inputs: Any, keys: KeyArray[Array, " steps"]) -> Path:
    """Simulate a path that continues a memory, with one key for each step."""

    def step(memory: Memory, now_and_key: Any) -> tuple[Memory, Path]:
        now, key = now_and_key
        return _step(model, memory, model.transition(memory, now), now, key)

    return jax.lax.scan(step, memory, (inputs, keys))[1]


def _step(model: Model, memory: Memory, prior: Any, inputs: Inputs, key: Key) -> tuple[Memory, Path]:
    latent_key, observation_key = jax.random.split(key)
    latent = prior.sample(latent_key)
    distribution = model.emission(memory, latent, inputs)
    observation = distribution.sample(observation_key)
    return model.advance_with(memory, latent, observation, None, inputs), Path(
        latent, observation, emission_mean(distribution, observation)
    )


def emission_mean(distribution: Any, observation: Array) -> Array | None:
    """Return the mean of an emission, or None if it has none of the observation's shape."""
    try:
        mean = distribution.mean
    except (AttributeError, NotImplementedError):
        return None
    return mean if jnp.shape(mean) == jnp.shape(observation) else None
