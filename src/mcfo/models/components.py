"""The parts of a structural model: trend, season, cycle, autoregression, regression on inputs.

Each has a state s_t = A s_t-1 + noise of its own and adds c_t · s_t to the signal. Independent noise drives some
entries of the state, the *driven* ones; the others follow from the state before. Durbin and Koopman (2012), chapter 3.
"""

from __future__ import annotations

import abc
import math
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mcfo.errors import InputError
from mcfo.models.base import InitialForm
from mcfo.types import Inputs, Numbers, Scalar, is_known


class Part(NamedTuple):
    """A named sum row · s of a component's state."""

    name: str
    row: Float[Array, " size"]


class Component(eqx.Module):
    """One part of a structural model. Its arrays are parameters, and free real numbers."""

    @property
    @abc.abstractmethod
    def state_names(self) -> tuple[str, ...]:
        """The names of the entries of the state."""

    @property
    @abc.abstractmethod
    def driven(self) -> tuple[int, ...]:
        """The indices of the entries that have noise."""

    @abc.abstractmethod
    def scales(self) -> Float[Array, " driven"]:
        """The standard deviations of that noise."""

    @abc.abstractmethod
    def matrix(self) -> Float[Array, "size size"]:
        """A."""

    @abc.abstractmethod
    def row(self, inputs: Inputs) -> Float[Array, " size"]:
        """c_t, by which the state enters the signal."""

    def parts(self, inputs: Inputs) -> tuple[Part, ...]:
        """What people want to see of the state: the level and the slope of a trend, the sum c_t · s_t of the others."""
        return (Part(self.state_names[0], self.row(inputs)),)

    def initial_form(self) -> InitialForm:
        """The distribution of s_1: diffuse, unless the component is stationary."""
        size = len(self.state_names)
        return InitialForm(jnp.zeros(size), jnp.zeros((size, size)), jnp.eye(size))


def read_scale(scale: Numbers | None, name: str) -> Scalar | None:
    """Read a standard deviation as its logarithm; None is none."""
    if scale is None:
        return None
    if is_known(scale) and not (np.ndim(scale) == 0 and 0 < float(scale) < math.inf):  # pyright: ignore[reportArgumentType]
        raise InputError(f"{name} must be one positive number, or None for no noise, but got {scale!r}.")
    return jnp.log(jnp.asarray(scale, float))


def logit_of(value: Numbers, name: str) -> Scalar:
    """Read a number between 0 and 1 as its logit."""
    if is_known(value) and not 0 < float(value) < 1:  # pyright: ignore[reportArgumentType]
        raise InputError(f"{name} must lie between 0 and 1, but got {value!r}.")
    return jax.scipy.special.logit(jnp.asarray(value, float))


def exponential(log_value: Scalar | None) -> Scalar | None:
    """exp, or None."""
    return None if log_value is None else jnp.exp(log_value)


def stacked_scales(*logs: Scalar | None) -> Float[Array, " driven"]:
    """The standard deviations that are there."""
    given = [one for one in logs if one is not None]
    return jnp.exp(jnp.stack(given)) if given else jnp.zeros(0)


class Trend(Component):
    """level_t = level_t-1 + slope_t-1 + N(0, σ_level²); slope_t = φ slope_t-1 + N(0, σ_slope²).

    Without `level_scale` the level has no noise of its own (a smooth trend), without `slope_scale` the slope is a
    number (a drift). φ = 1 unless there is a `damping`.
    """

    log_level_scale: Scalar | None
    log_slope_scale: Scalar | None
    logit_damping: Scalar | None
    has_slope: bool = eqx.field(static=True)
    readable: ClassVar = ("level_scale", "slope_scale", "damping")

    def __init__(
        self,
        *,
        level_scale: Numbers | None = None,
        slope: bool = False,
        slope_scale: Numbers | None = None,
        damping: Numbers | None = None,
    ):
        if not slope and (slope_scale is not None or damping is not None):
            raise InputError("A trend without a slope has no slope_scale and no damping. Give slope=True.")
        self.log_level_scale = read_scale(level_scale, "level_scale")
        self.log_slope_scale = read_scale(slope_scale, "slope_scale")
        self.logit_damping = None if damping is None else logit_of(damping, "damping")
        self.has_slope = slope

    @property
    def level_scale(self) -> Scalar | None:
        return exponential(self.log_level_scale)

    @property
    def slope_scale(self) -> Scalar | None:
        return exponential(self.log_slope_scale)

    @property
    def damping(self) -> Scalar | None:
        return None if self.logit_damping is None else jax.nn.sigmoid(self.logit_damping)

    @property
    def state_names(self) -> tuple[str, ...]:
        return ("level", "slope") if self.has_slope else ("level",)

    @property
    def driven(self) -> tuple[int, ...]:
        return tuple(i for i, one in enumerate((self.log_level_scale, self.log_slope_scale)) if one is not None)

    def scales(self) -> Float[Array, " driven"]:
        return stacked_scales(self.log_level_scale, self.log_slope_scale)

    def matrix(self) -> Float[Array, "size size"]:
        if not self.has_slope:
            return jnp.ones((1, 1))
        damping = self.damping
        return jnp.array([[1.0, 1.0], [0.0, 1.0]]) if damping is None else jnp.array([[1.0, 1.0], [0.0, damping]])

    def row(self, inputs: Inputs) -> Float[Array, " size"]:
        return jnp.eye(len(self.state_names))[0]

    def parts(self, inputs: Inputs) -> tuple[Part, ...]:
        return tuple(map(Part, self.state_names, jnp.eye(len(self.state_names))))


class Season(Component):
    """A pattern of a given period that may change slowly.

    - *dummy*: the sum of a whole period is N(0, σ²), so that one new effect a step has noise.
    - *trigonometric*: a sum of `harmonics` waves of periods s, s / 2, s / 3, ..., each of which turns and has noise of
      the same σ. The period need not be whole, and a long one needs few harmonics.
    """

    log_scale: Scalar | None
    period: float | int = eqx.field(static=True)
    harmonics: int | None = eqx.field(static=True)
    readable: ClassVar = ("scale",)

    def __init__(
        self,
        period: float | int,
        *,
        scale: Numbers | None = None,
        kind: str = "dummy",
        harmonics: int | None = None,
    ):
        whole = float(period).is_integer()
        if kind not in ("dummy", "trigonometric"):
            raise InputError(f"The kind of a season is dummy or trigonometric, but got {kind!r}.")
        if not 2 <= period < math.inf:
            raise InputError(f"The period of a season must be 2 steps or more, but got {period!r}.")
        if kind == "dummy" and not whole:
            raise InputError(
                f"A season of {period:g} steps has no whole number of effects. Use a trigonometric season with a few "
                "harmonics."
            )
        if kind == "dummy" and harmonics is not None:
            raise InputError(f"A dummy season has no harmonics, but got {harmonics}. Use a trigonometric season.")
        most = int(period // 2)
        if harmonics is not None and not 1 <= harmonics <= most:
            raise InputError(f"A season of {period:g} steps has from 1 to {most} harmonics, but got {harmonics!r}.")
        self.log_scale = read_scale(scale, "scale")
        self.period = int(period) if whole else float(period)
        self.harmonics = None if kind == "dummy" else harmonics or most

    @property
    def scale(self) -> Scalar | None:
        return exponential(self.log_scale)

    @property
    def name(self) -> str:
        return f"season {self.period:.6g}"

    @property
    def state_names(self) -> tuple[str, ...]:
        if self.harmonics is None:
            return (self.name, *(f"{self.name} lag {lag}" for lag in range(1, int(self.period) - 1)))
        names = []
        for harmonic in range(1, self.harmonics + 1):
            names.append(f"{self.name} harmonic {harmonic}")
            if not self._alternates(harmonic):
                names.append(f"{self.name} harmonic {harmonic} quadrature")
        return tuple(names)

    def _alternates(self, harmonic: int) -> bool:
        """Whether the wave changes its sign at every step: its quadrature is then never seen, and left out."""
        return 2 * harmonic == self.period

    @property
    def driven(self) -> tuple[int, ...]:
        if self.log_scale is None:
            return ()
        return (0,) if self.harmonics is None else tuple(range(len(self.state_names)))

    def scales(self) -> Float[Array, " driven"]:
        return jnp.zeros(0) if self.log_scale is None else jnp.full(len(self.driven), jnp.exp(self.log_scale))

    def matrix(self) -> Float[Array, "size size"]:
        size = len(self.state_names)
        if self.harmonics is None:
            return jnp.asarray(np.vstack([-np.ones(size), np.eye(size)[:-1]]), float)
        matrix = np.zeros((size, size))
        for harmonic in range(1, self.harmonics + 1):
            angle, at = 2 * np.pi * harmonic / self.period, 2 * (harmonic - 1)
            turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
            block = turn[:1, :1] if self._alternates(harmonic) else turn
            matrix[at : at + len(block), at : at + len(block)] = block
        return jnp.asarray(matrix, float)

    def row(self, inputs: Inputs) -> Float[Array, " size"]:
        size = len(self.state_names)
        return jnp.eye(size)[0] if self.harmonics is None else jnp.asarray(1 - np.arange(size) % 2, float)

    def parts(self, inputs: Inputs) -> tuple[Part, ...]:
        return (Part(self.name, self.row(inputs)),)


class Regression(Component):
    """w_t · u_t, where the weights are unknown numbers (without `scale`) or walks with steps N(0, σ_i²)."""

    log_scale: Float[Array, " inputs"] | None
    count: int = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    readable: ClassVar = ("scale",)

    def __init__(self, count: int, *, scale: Numbers | None = None, names: tuple[str, ...] | None = None):
        self.log_scale = None if scale is None else jnp.broadcast_to(jnp.log(jnp.asarray(scale, float)), (count,))
        self.count = count
        self.names = tuple(str(one) for one in range(1, count + 1)) if names is None else tuple(names)

    @property
    def scale(self) -> Float[Array, " inputs"] | None:
        return None if self.log_scale is None else jnp.exp(self.log_scale)

    @property
    def state_names(self) -> tuple[str, ...]:
        return tuple(f"weight {name}" for name in self.names)

    @property
    def driven(self) -> tuple[int, ...]:
        return () if self.log_scale is None else tuple(range(self.count))

    def scales(self) -> Float[Array, " driven"]:
        return jnp.zeros(0) if self.log_scale is None else jnp.exp(self.log_scale)

    def matrix(self) -> Float[Array, "size size"]:
        return jnp.eye(self.count)

    def row(self, inputs: Inputs) -> Float[Array, " size"]:
        return read_inputs(inputs, self.count)

    def parts(self, inputs: Inputs) -> tuple[Part, ...]:
        return (Part("regression", self.row(inputs)),)


def read_inputs(inputs: Inputs, count: int) -> Float[Array, " count"]:
    """The first `count` inputs, which must be there."""
    have = 0 if inputs is None else inputs.shape[-1]
    if inputs is None or have < count:
        raise ValueError(
            f"The model has weights for {count} inputs, but the series has {have}. Give Series.from_values(..., "
            "inputs=...)."
        )
    return inputs[:count]
