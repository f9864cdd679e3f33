"""Structural models: a signal that is a sum of trend, seasons, cycle, autoregression and regression, and its emission.

For particles, the latent z_t holds the driven entries of the state alone, whose distribution has a density; the memory
is A s_t-1, the state that would follow without noise. So singular noise of the state is no difficulty.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float

from mcfo.errors import InputError
from mcfo.models.autoregression import Autoregression
from mcfo.models.base import InitialForm, LinearForm, Model
from mcfo.models.components import Component, Regression, Season, Trend, exponential, read_inputs, read_scale
from mcfo.models.emissions import Emission, in_unit
from mcfo.models.stationary_components import AR, Cycle
from mcfo.transforms import Transform
from mcfo.types import Distribution, HostArray, Inputs, Latent, Memory, Numbers, Observation, Scalar

State = Float[Array, " state"]


class ComponentLaw(NamedTuple):
    """Mean and variance of a component at each step."""

    mean: Float[Array, "*steps"]
    variance: Float[Array, "*steps"]


class _Structural(Model):
    """The components, and how they move; what is seen of them is left to the classes below.

    `initial_state` and `initial_scale` are mean and standard deviations of the first state for particles, which cannot
    start diffuse: the entries that are not driven start as parameters.
    """

    trend: Trend | None
    seasons: tuple[Season, ...]
    cycle: Cycle | None
    ar: AR | None
    regression: Regression | None
    input_weights: Float[Array, " inputs"] | None
    initial_state: State
    log_initial_scale: Float[Array, " driven"]

    def __init__(
        self,
        *,
        trend: Trend | None = None,
        seasons: tuple[Season, ...] = (),
        cycle: Cycle | None = None,
        ar: AR | None = None,
        regression: Regression | None = None,
        input_weights: Numbers | None = None,
        initial_state: Numbers | None = None,
        initial_scale: Numbers = 1.0,
    ):
        """**Arguments:**

        - `regression`: weights of the inputs as unknown or moving states.
        - `input_weights`: weights of the inputs as parameters, instead.
        """
        if regression is not None and input_weights is not None:
            raise InputError("The weights of inputs are states or parameters, not both. Leave one of them out.")
        self.trend, self.seasons, self.cycle, self.ar = trend, tuple(seasons), cycle, ar
        self.regression = regression
        self.input_weights = None if input_weights is None else jnp.atleast_1d(jnp.asarray(input_weights, float))
        if not self.components:
            raise InputError("A structural model needs a component: a level, a season, a cycle or an autoregression.")
        periods = [season.period for season in seasons]
        if len(set(periods)) < len(periods):
            raise InputError(f"Two seasons have the same period: {periods}. Leave one of them out.")
        size = len(self.state_names)
        state = jnp.zeros(size) if initial_state is None else jnp.asarray(initial_state, float)
        if state.shape != (size,):
            raise InputError(f"initial_state has shape {state.shape}, but the state has {size} entries.")
        self.initial_state = state
        self.log_initial_scale = jnp.broadcast_to(jnp.log(jnp.asarray(initial_scale, float)), (len(self.driven),))

    @property
    def components(self) -> tuple[Component, ...]:
        """The components in the order of the state."""
        parts = (self.trend, *self.seasons, self.cycle, self.ar, self.regression)
        return tuple(part for part in parts if part is not None)

    @property
    def state_names(self) -> tuple[str, ...]:
        """The names of the entries of the state, which is the latent of the exact filter."""
        return tuple(name for part in self.components for name in part.state_names)

    @property
    def driven(self) -> tuple[int, ...]:
        """The entries of the state that have noise."""
        first, indices = 0, []
        for part in self.components:
            indices.extend(first + index for index in part.driven)
            first += len(part.state_names)
        return tuple(indices)

    @property
    def latent_names(self) -> tuple[str, ...]:
        """The names of the entries of a particle's latent."""
        return tuple(self.state_names[index] for index in self.driven)

    @property
    def initial_scale(self) -> Float[Array, " driven"]:
        return jnp.exp(self.log_initial_scale)

    def scales(self) -> Float[Array, " driven"]:
        """The standard deviations of the noise of the driven entries."""
        return jnp.concatenate([part.scales() for part in self.components])

    def matrix(self) -> Float[Array, "state state"]:
        """A, block by block."""
        return jax.scipy.linalg.block_diag(*(part.matrix() for part in self.components))

    def signal(self, state: State, inputs: Inputs) -> Scalar:
        """c_t · s_t, and what inputs add by weights that are parameters."""
        return self.row(inputs) @ state + self._offset(inputs)

    def row(self, inputs: Inputs) -> State:
        """c_t."""
        return jnp.concatenate([part.row(inputs) for part in self.components])

    def _offset(self, inputs: Inputs) -> Scalar:
        if self.input_weights is None:
            return jnp.zeros(())
        return self.input_weights @ read_inputs(inputs, len(self.input_weights))

    def component_laws(
        self,
        mean: Float[Array, "steps state"],
        covariance: Float[Array, "steps state state"],
        inputs: Float[HostArray, "steps inputs"] | None = None,
    ) -> dict[str, ComponentLaw]:
        """Mean and variance of each component at each step, where the state has these laws."""

        def one(mean: Array, covariance: Array, now: Inputs) -> dict[str, ComponentLaw]:
            laws = {
                name: ComponentLaw(row @ mean[rows], row @ covariance[rows, rows] @ row)
                for name, rows, row in self._parts(now)
            }
            if self.input_weights is not None:
                laws["regression"] = ComponentLaw(self._offset(now), jnp.zeros(()))
            return laws

        return jax.vmap(one, in_axes=(0, 0, None if inputs is None else 0))(mean, covariance, inputs)

    def _parts(self, inputs: Inputs) -> Iterator[tuple[str, slice, Array]]:
        """Yield the name of each component, its rows of the state, and the weights of their sum."""
        first = 0
        for component in self.components:
            rows = slice(first, first + len(component.state_names))
            for name, row in component.parts(inputs):
                yield name, rows, row
            first = rows.stop

    @property
    def component_names(self) -> tuple[str, ...]:
        """The names of what `component_laws` has."""
        zeros = None if self.regression is None else jnp.zeros(self.regression.count)
        names = tuple(name for name, _, _ in self._parts(zeros))
        return names if self.input_weights is None else (*names, "regression")

    def component_values(self, memory: Memory, latent: Latent, inputs: Inputs) -> Float[Array, " components"]:
        state = self.current_state(memory, latent)
        values = [row @ state[rows] for _, rows, row in self._parts(inputs)]
        return jnp.stack(values if self.input_weights is None else [*values, self._offset(inputs)])

    def current_state(self, memory: Memory, latent: Latent) -> State:
        """Return s_t of a particle."""
        return self.state(memory, latent) if self.driven else memory

    def start(self, inputs: Inputs) -> Memory:
        return self.initial_state

    def initial(self, memory: Memory, inputs: Inputs) -> Distribution:
        self._check_moving()
        return dist.Normal(memory[np.array(self.driven)], self.initial_scale).to_event(1)

    def transition(self, memory: Memory, inputs: Inputs) -> Distribution:
        return dist.Normal(memory[np.array(self.driven)], self.scales()).to_event(1)

    def advance(self, memory: Memory, latent: Latent, observation: Observation) -> Memory:
        return self.matrix() @ self.state(memory, latent)

    def state(self, memory: Memory, latent: Latent) -> State:
        """s_t: the driven entries as drawn, the others as they follow from s_t-1."""
        driven = np.array(self.driven)
        is_driven, position = np.zeros(len(memory), bool), np.zeros(len(memory), int)
        is_driven[driven], position[driven] = True, np.arange(len(driven))
        return jnp.where(is_driven, latent[position], memory)

    def _check_moving(self) -> None:
        if not self.driven:
            raise ValueError(
                "No part of the model has noise, so that particles have nothing to draw. Let the level move (level="
                "'walk'), or leave the emission Gaussian, which needs no particles."
            )


class GaussianStructural(_Structural):
    """g(x_t) = c_t · s_t + N(0, σ²): a linear Gaussian model with exact answers, from a diffuse start.

    Without `irregular_scale` there is no observation noise. With `diffuse=False` the start is that of particles.
    """

    log_irregular_scale: Scalar | None
    transform: Transform | None
    diffuse: bool = eqx.field(static=True)
    readable: ClassVar = (
        *("trend", "seasons", "cycle", "ar", "regression", "input_weights"),
        *("irregular_scale", "transform"),
    )

    def __init__(
        self,
        *,
        irregular_scale: Numbers | None = 1.0,
        transform: Transform | None = None,
        diffuse: bool = True,
        **components: Any,
    ):
        super().__init__(**components)
        self.log_irregular_scale = read_scale(irregular_scale, "irregular_scale")
        self.transform = transform
        self.diffuse = diffuse
        if irregular_scale is None and not self.driven:
            raise InputError("The model has no noise at all. Give it an irregular component, or a level that moves.")

    @property
    def irregular_scale(self) -> Scalar | None:
        return exponential(self.log_irregular_scale)

    @property
    def observation_transform(self) -> Transform | None:
        return self.transform

    def emission(self, memory: Memory, latent: Latent, inputs: Inputs) -> Distribution:
        return self.emit(self.signal(self.state(memory, latent), inputs)[None], inputs)

    def emit(self, signal: Float[Array, " one"], inputs: Inputs) -> Distribution:
        """Return p(x_t | c_t · s_t)."""
        scale = 0.0 if self.irregular_scale is None else self.irregular_scale
        return in_unit(dist.Normal(signal, scale), self.transform)

    def linear_form(self, inputs: Inputs) -> LinearForm:
        matrix = self.matrix()
        size = len(matrix)
        variances = jnp.zeros(size).at[np.array(self.driven, int)].set(self.scales() ** 2)
        noise = jnp.zeros(()) if self.irregular_scale is None else self.irregular_scale**2
        return LinearForm(
            matrix,
            jnp.zeros(size),
            jnp.diag(variances),
            self.row(inputs)[None],
            self._offset(inputs)[None],
            noise[None, None],
        )

    def initial_form(self, inputs: Inputs) -> InitialForm:
        size = len(self.state_names)
        if not self.diffuse:
            variances = jnp.zeros(size).at[np.array(self.driven, int)].set(self.initial_scale**2)
            return InitialForm(self.initial_state, jnp.diag(variances), jnp.zeros((size, 0)))
        mean, covariance, diffuse = zip(*(part.initial_form() for part in self.components), strict=True)
        join = jax.scipy.linalg.block_diag
        # A block without columns must keep its rows, which block_diag gives it.
        return InitialForm(jnp.concatenate(mean), join(*covariance), join(*diffuse))


class EmittedStructural(_Structural):
    """x_t ~ p(x | c_t · s_t) with any emission, by particles."""

    observation: Emission
    readable: ClassVar = (
        *("trend", "seasons", "cycle", "ar", "regression", "input_weights"),
        *("observation", "initial_state", "initial_scale"),
    )

    def __init__(self, *, observation: Emission, **components: Any):
        super().__init__(**components)
        self.observation = observation

    def emission(self, memory: Memory, latent: Latent, inputs: Inputs) -> Distribution:
        return self.emit(self.signal(self.state(memory, latent), inputs)[None], inputs)

    def emit(self, signal: Float[Array, " one"], inputs: Inputs) -> Distribution:
        """Return p(x_t | c_t · s_t)."""
        return self.observation.distribution(signal, inputs)


class VolatileStructural(_Structural):
    """g(x_t) = c_t · s_t + exp(v_t / 2) N(0, 1), where the log-variance v_t is a stationary autoregression."""

    log_variance: Autoregression
    transform: Transform | None
    readable: ClassVar = (
        *("trend", "seasons", "cycle", "ar", "regression", "input_weights"),
        *("log_variance", "transform", "initial_state", "initial_scale"),
    )

    def __init__(self, *, log_variance: Autoregression, transform: Transform | None = None, **components: Any):
        super().__init__(**components)
        self.log_variance = log_variance
        self.transform = transform

    @property
    def latent_names(self) -> tuple[str, ...]:
        return (*super().latent_names, "log-variance")

    def start(self, inputs: Inputs) -> Memory:
        return self.initial_state, jnp.zeros(1)

    def initial(self, memory: Memory, inputs: Inputs) -> Distribution:
        first = self.log_variance
        return self._with_variance(memory, self.initial_scale, first.level, first.stationary_scale)

    def transition(self, memory: Memory, inputs: Inputs) -> Distribution:
        return self._with_variance(memory, self.scales(), *self.log_variance.moments(memory[1]))

    def _with_variance(self, memory: Memory, scales: Array, mean: Array, scale: Array) -> Distribution:
        means = jnp.concatenate([memory[0][np.array(self.driven, int)], mean])
        return dist.Normal(means, jnp.concatenate([scales, scale])).to_event(1)

    def emission(self, memory: Memory, latent: Latent, inputs: Inputs) -> Distribution:
        state = self.current_state(memory, latent)
        return in_unit(dist.Normal(self.signal(state, inputs)[None], jnp.exp(latent[-1:] / 2)), self.transform)

    def advance(self, memory: Memory, latent: Latent, observation: Observation) -> Memory:
        return self.matrix() @ self.current_state(memory, latent), latent[-1:]

    def current_state(self, memory: Memory, latent: Latent) -> State:
        return super().current_state(memory[0], latent[:-1])
