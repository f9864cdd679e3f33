"""Angles: circular means, and quantiles around them in an interval that is not cut where the circle is."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtr, ndtri

from mcfo.errors import InputError, nearest
from mcfo.forward_algorithm import is_finite
from mcfo.inference.exact_laws import uses_exact_laws
from mcfo.models.base import Model
from mcfo.series import Series
from mcfo.types import LogWeights

RADIANS = 2 * math.pi
_TURNS = 8
"""Turns on each side over which a normal distribution is wrapped: all but 1e-14 of one as wide as the period."""


class Angle(NamedTuple):
    """One number of a vector that is an angle: its means lie in [lowest, lowest + period)."""

    column: int
    lowest: float
    period: float

    def wrap(self, values: Any) -> Any:
        """The same directions, within [lowest, lowest + period)."""
        return self.lowest + (values - self.lowest) % self.period


class Angles(NamedTuple):
    """The angles among the numbers of a state, and among those of an observation."""

    latents: tuple[Angle, ...] = ()
    observations: tuple[Angle, ...] = ()

    def attributes(self) -> dict[str, str]:
        """The attribute of a data set that says which of its numbers are angles; see `angles_of`."""
        sides = {"latent": self.latents, "observation": self.observations}
        return {"circular": json.dumps(sides)} if any(sides.values()) else {}


NO_ANGLES = Angles()


def angles_of(dataset: Any, kind: str) -> dict[int, Angle]:
    """Return the angles of a data set by index; `kind` is "latent" or "observation"."""
    sides = json.loads(dataset.attrs.get("circular", "{}"))
    return {one[0]: Angle(*one) for one in sides.get(kind, ())}


Circular = Iterable[str] | Mapping[str, float]
"""Names of columns and of states that are angles, in radians; or with their period, such as 360."""


def find_angles(model: Model, series_list: Sequence[Series], columns: Sequence[str], circular: Circular) -> Angles:
    """Return the angles that the model knows of and those that a user names.

    The means of a column without negative values lie between zero and the period, all others around zero.
    """
    periods = dict(circular) if isinstance(circular, Mapping) else dict.fromkeys(circular, RADIANS)
    latents = dict.fromkeys(model.circular_latents, RADIANS)
    observations = dict.fromkeys(model.circular_observations, RADIANS)
    names = model.latent_names
    for name, period in periods.items():
        period = float(period)
        if not (math.isfinite(period) and period > 0):
            raise InputError(f"The period of the angle {name} is {period:g}. Give a positive number, such as 360.")
        if name in columns:
            observations[columns.index(name)] = period
        elif names is not None and name in names:
            latents[names.index(name)] = period
        elif names is None and name[:1] == "z" and name[1:].isdecimal() and int(name[1:]) > 0:
            latents[int(name[1:]) - 1] = period
        else:
            known = [*columns, *(names or ("z1",))]
            raise InputError(f"There is no column or state {name!r} that could be an angle. {nearest(name, known)}")
    values = [series.values() for series in series_list] if observations else []

    def lowest(index: int, period: float) -> float:
        positive = all(np.nanmin(one[:, index], initial=0.0) >= 0 for one in values)
        return 0.0 if positive else -period / 2

    return Angles(
        tuple(Angle(index, -period / 2, period) for index, period in sorted(latents.items())),
        tuple(Angle(index, lowest(index, period), period) for index, period in sorted(observations.items())),
    )


def answers_exactly(model: Model, method: str | None, particles: int | None, angles: Angles) -> bool:
    """Whether exact distributions answer. Those of models with finitely many states and of transformed observations
    have no circular means in closed form."""
    exact = uses_exact_laws(model, method, particles)
    if not exact or not angles.observations:
        return exact
    if not is_finite(model) and model.observation_transform is None:
        return True
    if method == "exact":
        raise InputError(
            f"The circular means of a {type(model).__name__} are not known exactly. Leave out the method, or use "
            "'particles'."
        )
    return False


def centered(
    values: Float[Array, "particles size"], log_weights: LogWeights, angles: Sequence[Angle]
) -> tuple[Float[Array, "particles size"], dict[int, Array]]:
    """Return weighted particles with their angles within half a turn of the circular mean, and these means by index.

    The mean is the direction of Σ_i W_i exp(i v_i). Mardia and Jupp (2000).
    """
    weights = jnp.exp(log_weights)
    means = {}
    for angle in angles:
        _check(angle, values.shape[-1])
        radians = jnp.where(weights > 0, values[:, angle.column], 0.0) * (RADIANS / angle.period)
        direction = jnp.arctan2(weights @ jnp.sin(radians), weights @ jnp.cos(radians))
        mean = angle.wrap(direction * (angle.period / RADIANS))
        beside = (values[:, angle.column] - mean + angle.period / 2) % angle.period - angle.period / 2
        values = values.at[:, angle.column].set(mean + beside)
        means[angle.column] = mean
    return values, means


def wrapped(arrays: dict[str, Any], angles: Angles, levels: Sequence[float]) -> dict[str, Any]:
    """Return exact Gaussian summaries, by the names of a data set, with those of angles wrapped around the circle."""
    changed = dict(arrays)
    for kind, chosen in (("latent", angles.latents), ("observation", angles.observations)):
        if not chosen:
            continue
        means, quantiles = (np.array(arrays[f"{kind}_{what}"], np.float64) for what in ("mean", "quantiles"))
        for angle in chosen:
            _check(angle, means.shape[-1])
            mean = angle.wrap(means[:, angle.column])
            scale = _scale(means[:, angle.column], quantiles[:, :, angle.column], levels)
            quantiles[:, :, angle.column] = mean[:, None] + _wrapped_quantiles(scale, angle.period, levels)
            means[:, angle.column] = mean
        changed |= {f"{kind}_mean": means, f"{kind}_quantiles": quantiles}
    if "filled" in arrays:
        changed["filled"] = np.where(
            arrays["filled"] == arrays["observation_mean"], changed["observation_mean"], arrays["filled"]
        )
    return changed


def _scale(mean: np.ndarray, quantiles: np.ndarray, levels: Sequence[float]) -> np.ndarray:
    """The standard deviation of a Gaussian from the quantile that is furthest from the median."""
    furthest = max(range(len(levels)), key=lambda index: abs(levels[index] - 0.5))
    at = float(ndtri(levels[furthest]))
    # The median of a wrapped normal is its mean, however wide it is.
    return np.ones_like(mean) if at == 0 else (quantiles[:, furthest] - mean) / at


def _wrapped_quantiles(scale: np.ndarray, period: float, levels: Sequence[float]) -> np.ndarray:
    """The quantiles, (steps, levels), of N(0, scale²) wrapped into half a period on each side, by bisection."""
    turns = period * np.arange(-_TURNS, _TURNS + 1)
    # One that is wider is uniform up to 1e-8.
    scale = np.minimum(scale, period)[:, None, None]

    def below(x: np.ndarray) -> np.ndarray:
        upper, lower = (x[..., None] + turns) / scale, (turns - period / 2) / scale
        return np.sum(ndtr(upper) - ndtr(lower), axis=-1)

    low = np.full((len(scale), len(levels)), -period / 2)
    high = -low
    for _ in range(60):
        middle = (low + high) / 2
        less = below(middle) < np.asarray(levels)
        low, high = np.where(less, middle, low), np.where(less, high, middle)
    return np.where(np.isfinite(scale[..., 0]), (low + high) / 2, np.nan)


def _check(angle: Angle, size: int) -> None:
    if not 0 <= angle.column < size:
        raise InputError(f"There is no state z{angle.column + 1} that could be an angle: the model has {size}.")
