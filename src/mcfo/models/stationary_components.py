"""The parts of a structural model that return to zero: cycle and autoregression."""

from __future__ import annotations

import math
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mcfo.errors import InputError
from mcfo.models.base import InitialForm
from mcfo.models.components import Component, exponential, logit_of, read_scale, stacked_scales
from mcfo.types import Inputs, Numbers, Scalar, is_known


class Cycle(Component):
    """ψ_t = ρ (cos λ ψ_t-1 + sin λ ψ*_t-1) + N(0, σ²), ψ*_t = ρ (cos λ ψ*_t-1 - sin λ ψ_t-1) + N(0, σ²).

    The period 2π / λ lies between `bounds`. A damped cycle (ρ < 1) starts from its stationary distribution, or diffuse
    as statsmodels has it; one without damping starts diffuse. If it is `smooth`, ψ has no noise of its own, as the
    level of a smooth trend has none: ψ is then an autoregression of order two, the pendulum of Yule (1927).
    """

    logit_frequency: Scalar
    logit_damping: Scalar | None
    log_scale: Scalar | None
    bounds: tuple[float, float] = eqx.field(static=True)
    diffuse: bool = eqx.field(static=True)
    smooth: bool = eqx.field(static=True)
    readable: ClassVar = ("period", "damping", "scale")

    def __init__(
        self,
        *,
        period: Numbers,
        damping: Numbers | None = 0.9,
        scale: Numbers | None = 1.0,
        bounds: tuple[float | int, float | int] = (2.0, math.inf),
        diffuse: bool = False,
        smooth: bool = False,
    ):
        low, high = bounds
        if not 2 <= low < high:
            raise InputError(f"The bounds of a cycle's period must be 2 or more and increase, but got {bounds!r}.")
        if is_known(period) and not low < float(period) < high:  # pyright: ignore[reportArgumentType]
            raise InputError(f"The period of the cycle must lie between {low:g} and {high:g}, but got {period!r}.")
        if damping is not None and scale is None:
            raise InputError("A damped cycle without noise dies out. Give it a scale, or no damping.")
        self.bounds = (float(low), float(high))
        least, most = 2 * math.pi / high, 2 * math.pi / low
        self.logit_frequency = jax.scipy.special.logit(
            (2 * math.pi / jnp.asarray(period, float) - least) / (most - least)
        )
        self.logit_damping = None if damping is None else logit_of(damping, "damping")
        self.log_scale = read_scale(scale, "scale")
        self.diffuse = diffuse or damping is None
        self.smooth = smooth

    @property
    def frequency(self) -> Scalar:
        least, most = 2 * math.pi / self.bounds[1], 2 * math.pi / self.bounds[0]
        return least + (most - least) * jax.nn.sigmoid(self.logit_frequency)

    @property
    def period(self) -> Scalar:
        return 2 * math.pi / self.frequency

    @property
    def damping(self) -> Scalar | None:
        return None if self.logit_damping is None else jax.nn.sigmoid(self.logit_damping)

    @property
    def scale(self) -> Scalar | None:
        return exponential(self.log_scale)

    @property
    def state_names(self) -> tuple[str, ...]:
        return ("cycle", "cycle quadrature")

    @property
    def driven(self) -> tuple[int, ...]:
        return () if self.log_scale is None else (1,) if self.smooth else (0, 1)

    def scales(self) -> Float[Array, " driven"]:
        return stacked_scales(*(self.log_scale for _ in self.driven))

    def matrix(self) -> Float[Array, "size size"]:
        cosine, sine = jnp.cos(self.frequency), jnp.sin(self.frequency)
        turn = jnp.array([[cosine, sine], [-sine, cosine]])
        return turn if self.damping is None else self.damping * turn

    def row(self, inputs: Inputs) -> Float[Array, " size"]:
        return jnp.array([1.0, 0.0])

    def initial_form(self) -> InitialForm:
        if self.diffuse:
            return super().initial_form()
        assert self.logit_damping is not None
        assert self.log_scale is not None
        # 1 - ρ² = (1 - ρ) (1 + ρ), where 1 - ρ = sigmoid(-logit) does not cancel near one.
        kept = jax.nn.sigmoid(-self.logit_damping) * (1 + jax.nn.sigmoid(self.logit_damping))
        variance = jnp.exp(2 * self.log_scale)
        if not self.smooth:
            return InitialForm(jnp.zeros(2), jnp.eye(2) * variance / kept, jnp.zeros((2, 0)))
        # c = ψ + i ψ* turns and shrinks by ρ exp(-iλ): E|c|² = σ² / (1 - ρ²), E c² = -σ² / (1 - ρ² exp(-2iλ)).
        decay, angle = 1 - kept, 2 * self.frequency
        real, imaginary = 1 - decay * jnp.cos(angle), decay * jnp.sin(angle)
        size = real**2 + imaginary**2
        mean, real, imaginary = variance / kept, -variance * real / size, variance * imaginary / size
        covariance = jnp.stack([mean + real, imaginary, imaginary, mean - real]).reshape(2, 2) / 2
        return InitialForm(jnp.zeros(2), covariance, jnp.zeros((2, 0)))


class AR(Component):
    """y_t = φ_1 y_t-1 + ... + φ_p y_t-p + N(0, σ²), stationary for any parameters.

    The parameters are the partial autocorrelations, tanh(`atanh_partial`). Monahan (1984).
    """

    atanh_partial: Float[Array, " order"]
    log_scale: Scalar
    readable: ClassVar = ("coefficients", "scale")

    def __init__(self, *, coefficients: Numbers, scale: Numbers = 1.0):
        values = np.atleast_1d(np.asarray(coefficients, np.float64))
        partial = partial_autocorrelations(values)
        if not (len(values) and np.all(np.abs(partial) < 1)):
            raise InputError(f"The autoregression with coefficients {values.tolist()} is not stationary. Give others.")
        log_scale = read_scale(scale, "scale")
        assert log_scale is not None
        self.atanh_partial = jnp.asarray(np.arctanh(partial), float)
        self.log_scale = log_scale

    @property
    def scale(self) -> Scalar:
        return jnp.exp(self.log_scale)

    @property
    def coefficients(self) -> Float[Array, " order"]:
        return self._orders()[-1]

    def _orders(self) -> list[Array]:
        """The coefficients of the best predictions from 1, 2, ..., p values. Durbin and Levinson."""
        orders = [jnp.zeros(0)]
        for partial in jnp.tanh(self.atanh_partial):
            last = orders[-1]
            orders.append(jnp.append(last - partial * last[::-1], partial))
        return orders[1:]

    @property
    def state_names(self) -> tuple[str, ...]:
        return ("ar", *(f"ar lag {lag}" for lag in range(1, len(self.atanh_partial))))

    @property
    def driven(self) -> tuple[int, ...]:
        return (0,)

    def scales(self) -> Float[Array, " driven"]:
        return jnp.exp(self.log_scale)[None]

    def matrix(self) -> Float[Array, "size size"]:
        return jnp.concatenate([self.coefficients[None], jnp.eye(len(self.atanh_partial))[:-1]])

    def row(self, inputs: Inputs) -> Float[Array, " size"]:
        return jnp.eye(len(self.atanh_partial))[0]

    def initial_form(self) -> InitialForm:
        # 1 - tanh² a = 1 / cosh² a, which does not cancel near one.
        variance = jnp.exp(2 * self.log_scale) * jnp.prod(jnp.cosh(self.atanh_partial) ** 2)
        correlations = jnp.ones(1)
        for coefficients in self._orders()[:-1]:
            correlations = jnp.append(correlations, coefficients @ correlations[::-1])
        size = len(self.atanh_partial)
        lags = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
        return InitialForm(jnp.zeros(size), variance * correlations[lags], jnp.zeros((size, 0)))


def partial_autocorrelations(coefficients: np.ndarray) -> np.ndarray:
    """The partial autocorrelations of an autoregression; one of size 1 or more means that it is not stationary."""
    partial, rest = [], np.asarray(coefficients, np.float64)
    while len(rest):
        last = rest[-1]
        partial.append(last)
        if not abs(last) < 1:
            break
        rest = (rest[:-1] + last * rest[-2::-1]) / (1 - last**2) if len(rest) > 1 else rest[:0]
    return np.array(partial[::-1])
