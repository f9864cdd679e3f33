"""Monotone maps from the data's unit to one in which a model is linear and Gaussian, and back.

If y = g(x) has the density p(y), then x has the density p(g(x)) g'(x). Quantiles of x are those of y mapped back; means
are not.
"""

from __future__ import annotations

import abc
import math
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float

from mcfo.errors import InputError, nearest
from mcfo.types import Numbers, Scalar

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(40)
_NEAR_ZERO = 1e-4


class Transform(eqx.Module):
    """An increasing function y = g(x) of one number, applied to each entry of an array."""

    remedy: ClassVar[str] = "Leave the transform out, or shift the values."

    @abc.abstractmethod
    def forward(self, values: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return g(x)."""

    @abc.abstractmethod
    def inverse(self, values: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return the x with g(x) = y."""

    @abc.abstractmethod
    def log_jacobian(self, values: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return log g'(x), which turns a density of y into one of x."""

    @property
    @abc.abstractmethod
    def range(self) -> tuple[float, float]:
        """The open interval of the x that have a g(x)."""

    def mean(self, mean: Float[Array, "..."], variance: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return E[x] for y ~ N(mean, variance), by Gauss-Hermite quadrature."""
        nodes, weights = jnp.asarray(_NODES, mean.dtype), jnp.asarray(_WEIGHTS / _WEIGHTS.sum(), mean.dtype)
        return jnp.sum(weights * self.inverse(mean[..., None] + jnp.sqrt(variance)[..., None] * nodes), axis=-1)

    def quantile(self, level: Numbers, mean: Float[Array, "..."], variance: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return the quantile of x for y ~ N(mean, variance)."""
        return self.inverse(mean + jnp.sqrt(variance) * jax.scipy.special.ndtri(jnp.asarray(level, mean.dtype)))

    def check(self, values: Any) -> None:
        """Refuse values outside the range; NaN is missing."""
        values = np.asarray(values, np.float64)
        low, high = self.range
        wrong = (values <= low) | (values >= high)
        if wrong.any():
            raise InputError(
                f"{values[wrong].flat[0]:g} has no {self}: values must lie {self.range_text()}. {self.remedy}"
            )

    def range_text(self) -> str:
        low, high = self.range
        return f"above {low:g}" if high == math.inf else f"between {low:g} and {high:g}"


class Log(Transform):
    """y = log x."""

    def forward(self, values: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.log(values)

    def inverse(self, values: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.exp(values)

    def log_jacobian(self, values: Float[Array, "..."]) -> Float[Array, "..."]:
        return -jnp.log(values)

    def mean(self, mean: Float[Array, "..."], variance: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return exp(mean + variance / 2), the mean of a log-normal distribution."""
        return jnp.exp(mean + variance / 2)

    @property
    def range(self) -> tuple[float, float]:
        return 0.0, math.inf

    def __str__(self) -> str:
        return "logarithm"


class BoxCox(Transform):
    """y = G ((x / G)^λ - 1) / λ, and G log(x / G) for λ = 0.

    With the geometric mean of the data as `center` G, y has the unit and the scale of x whatever λ is, so that
    likelihoods compare between powers, those with a diffuse start too. Box and Cox (1964), section 3. λ is an array of
    the model and learned with it, unless it is fixed.
    """

    power: Scalar
    center: float = eqx.field(static=True)

    def __init__(self, power: Numbers = 0.0, center: float | int = 1.0):
        if not 0 < center < math.inf:
            raise InputError(f"The center of a Box-Cox transform must be positive, but got {center!r}.")
        self.power = jnp.asarray(power, float)
        self.center = float(center)

    def forward(self, values: Float[Array, "..."]) -> Float[Array, "..."]:
        logarithm = jnp.log(values / self.center)
        return self.center * logarithm * _expm1_ratio(self.power * logarithm)

    def inverse(self, values: Float[Array, "..."]) -> Float[Array, "..."]:
        scaled = values / self.center
        # Gaussians reach beyond the image of g, whose end stands for all that is beyond it.
        least = -1 + jnp.finfo(scaled.dtype).eps
        return self.center * jnp.exp(scaled * _log1p_ratio(jnp.maximum(self.power * scaled, least)))

    def log_jacobian(self, values: Float[Array, "..."]) -> Float[Array, "..."]:
        return (self.power - 1) * jnp.log(values / self.center)

    @property
    def range(self) -> tuple[float, float]:
        return 0.0, math.inf

    def __str__(self) -> str:
        return "Box-Cox transform"


class Logit(Transform):
    """y = log((x - a) / (b - x)) for x between a and b."""

    remedy: ClassVar[str] = "Give a wider range, or leave the transform out."
    low: float = eqx.field(static=True)
    high: float = eqx.field(static=True)

    def __init__(self, low: float | int = 0.0, high: float | int = 1.0):
        if not -math.inf < low < high < math.inf:
            raise InputError(f"The range of a logit must be two increasing numbers, but got {low!r} and {high!r}.")
        self.low, self.high = float(low), float(high)

    def forward(self, values: Float[Array, "..."]) -> Float[Array, "..."]:
        return jnp.log(values - self.low) - jnp.log(self.high - values)

    def inverse(self, values: Float[Array, "..."]) -> Float[Array, "..."]:
        return self.low + (self.high - self.low) * jax.nn.sigmoid(values)

    def log_jacobian(self, values: Float[Array, "..."]) -> Float[Array, "..."]:
        return math.log(self.high - self.low) - jnp.log(values - self.low) - jnp.log(self.high - values)

    @property
    def range(self) -> tuple[float, float]:
        return self.low, self.high

    def __str__(self) -> str:
        return "logit"


TRANSFORMS = ("none", "log", "box-cox", "logit")


def read_transform(
    name: str | Transform | None,
    *,
    power: float | int | None = None,
    center: float | int = 1.0,
    bounds: tuple[float | int, float | int] | None = None,
) -> Transform | None:
    """Return the transform of this name; an unknown name is refused with the nearest one."""
    if name is None or isinstance(name, Transform):
        return name
    if name not in TRANSFORMS:
        raise InputError(f"There is no transform {name!r}. {nearest(name, TRANSFORMS)}")
    if power is not None and name != "box-cox":
        raise InputError(f"The transform {name} has no power. Use box-cox, or leave the power out.")
    if bounds is not None and name != "logit":
        raise InputError(f"The transform {name} has no range. Use logit, or leave the range out.")
    if name == "none":
        return None
    if name == "logit":
        return Logit(*(bounds or (0.0, 1.0)))
    return Log() if name == "log" else BoxCox(0.0 if power is None else power, center)


class Transformed(dist.Distribution):
    """The distribution of x where y = g(x) has the given one."""

    def __init__(self, base: Any, transform: Transform):
        self.base, self.transform = base, transform
        super().__init__(batch_shape=base.batch_shape)

    @property
    def support(self) -> Any:
        return dist.constraints.real

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Array:
        return self.transform.inverse(self.base.sample(key, sample_shape))

    def log_prob(self, value: Any, intermediates: Any = None) -> Array:
        value = jnp.asarray(value, float)
        return self.base.log_prob(self.transform.forward(value)) + self.transform.log_jacobian(value)

    @property
    def mean(self) -> Array:
        if not isinstance(self.base, dist.Normal):
            raise NotImplementedError(f"The mean of a transformed {type(self.base).__name__} has no simple form.")
        return self.transform.mean(self.base.mean, self.base.variance)


def _expm1_ratio(value: Array) -> Array:
    """(exp(u) - 1) / u, by its series near zero, where the quotient would be 0 / 0."""
    near = jnp.abs(value) < _NEAR_ZERO
    away = jnp.where(near, 1.0, value)
    return jnp.where(near, 1 + value / 2 + value**2 / 6 + value**3 / 24, jnp.expm1(away) / away)


def _log1p_ratio(value: Array) -> Array:
    """log(1 + u) / u, by its series near zero."""
    near = jnp.abs(value) < _NEAR_ZERO
    away = jnp.where(near, 1.0, value)
    return jnp.where(near, 1 - value / 2 + value**2 / 3 - value**3 / 4, jnp.log1p(away) / away)
