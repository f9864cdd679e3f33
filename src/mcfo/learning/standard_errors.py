"""Standard errors of a fitted model: observed information, the delta method, and intervals that stay in their range.

    I = -∇² log p(x | θ̂),   Cov(θ̂) = I⁻¹,   Var(y(θ̂)) = ∇y Cov(θ̂) ∇yᵀ.

The intervals are those of h(y) ± 1.96 s, mapped back, where h takes the range of y to the real line: the logarithm of a
standard deviation, the logit of a probability. Efron and Hinkley (1978) prefer the observed information to the expected
one; White (1982) has the sandwich A⁻¹ B A⁻ᵀ for the root of an estimating equation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtri

from mcfo import exact
from mcfo.data.batching import Buckets
from mcfo.learning.coordinates import Coordinates
from mcfo.learning.parameters import finite_or_none
from mcfo.precision import in_float64
from mcfo.types import HostArray, Scalar

LEVEL = 0.95
"""The probability of the intervals."""
_SINGULAR = 1e-8
"""The least eigenvalue of an exact information with unit diagonal that is not taken for zero."""
_INVOLVED = 0.2
"""The share of a direction, relative to its largest entry, from which a coordinate belongs to it."""


class ParameterRow(NamedTuple):
    """A parameter as people mean it, its standard error and its interval; None where the data do not tell."""

    name: str
    estimate: float
    stderr: float | None
    low: float | None
    high: float | None


class Uncertainty(NamedTuple):
    """What the data say about each learned number of a model.

    - `rows`: one for each number.
    - `method`: what the covariance is made from.
    - `notes`: what went wrong, in sentences: parameters that cannot be told apart, directions without a maximum.
    - `covariance`: that of the stored numbers (`Coordinates.names`); those at a bound, or without information, have
      zeros there.
    """

    rows: tuple[ParameterRow, ...]
    method: str
    notes: tuple[str, ...]
    covariance: Float[np.ndarray, "size size"]

    def as_data(self) -> dict[str, Any]:
        """Return what results.json holds."""
        rows = [row._asdict() for row in self.rows]
        return {"method": self.method, "level": LEVEL, "parameters": rows, "notes": list(self.notes)}


def total_log_evidence(model: Any, data: Buckets) -> Scalar:
    """log p of all series, exactly."""
    return sum((jnp.sum(jax.vmap(lambda one: exact.log_evidence(model, one))(batch)) for batch in data), jnp.zeros(()))


def observed_information(coordinates: Coordinates, data: Buckets, priors: Any = None) -> Float[Array, "size size"]:
    """Return -∇² log p(x | θ), and of the prior's density of the parameters if there is one: the derivative of the
    exact score."""

    def objective(vector: Float[Array, " size"]) -> Scalar:
        total = total_log_evidence(coordinates.model(vector), data)
        return total if priors is None else total + priors.log_density(coordinates.model(vector))

    return -derivatives(jax.grad(objective), coordinates.vector())


def derivatives(score: Any, vector: Float[HostArray, " size"]) -> Float[Array, "size size"]:
    """Return the Jacobian of a score, one column after the other: a program of the size of one."""
    vector = jnp.asarray(vector)
    return jax.lax.map(lambda way: jax.jvp(score, (vector,), (way,))[1], jnp.eye(len(vector), dtype=vector.dtype)).T


@in_float64
@eqx.filter_jit
def _information(coordinates: Coordinates, data: Buckets, priors: Any) -> Any:
    return observed_information(coordinates, data, priors)


@in_float64
@eqx.filter_jit
def _readable(coordinates: Coordinates, vector: Any) -> Any:
    return coordinates.values(vector), jax.jacfwd(coordinates.values)(vector)


def exact_uncertainty(
    model: Any, data: Buckets, fixed: Sequence[str] = (), *, priors: Any = None, at_bounds: Sequence[str] = ()
) -> Uncertainty:
    """Return the uncertainty of a model at the maximum of its exact likelihood, or of its posterior density.

    **Arguments:**

    - `at_bounds`: the stored numbers that the likelihood wants at minus infinity; they count as known.
    """
    coordinates = Coordinates.build(model, fixed)
    information = np.asarray(_information(coordinates, data, priors))
    return describe_uncertainty(
        coordinates, information, method="observed information, exact", at_bounds=at_bounds, least=_SINGULAR
    )


def describe_uncertainty(
    coordinates: Coordinates,
    information: Float[np.ndarray, "size size"],
    *,
    method: str,
    at_bounds: Sequence[str] = (),
    least: float = _SINGULAR,
    noise: Float[np.ndarray, "size size"] | None = None,
) -> Uncertainty:
    """Return standard errors and intervals of the parameters from an information.

    **Arguments:**

    - `information`: A, minus the Jacobian of the score or of another estimating equation.
    - `at_bounds`: the stored numbers that the likelihood wants at minus infinity; they count as known.
    - `least`: the size of eigenvalues, of the information with unit diagonal, that are taken for zero.
    - `noise`: B, the covariance of the estimating equation, for A⁻¹ B A⁻ᵀ; None where A is the information itself.
    """
    values, slopes = map(np.asarray, _readable(coordinates, coordinates.vector()))
    labels = _labels(coordinates, slopes)
    known = {name.removeprefix("model.") for name in at_bounds}
    used = np.array([name not in known for name in coordinates.names])
    notes = []
    if known:
        at_zero = [label for label, uses in zip(labels, used, strict=True) if not uses]
        notes.append(f"At a bound, zero, and taken as known: {_listed(at_zero)}.")
    # With unit diagonal, neither eigenvalues nor directions depend on the units of the parameters.
    lengths = np.sqrt(np.maximum(np.abs(np.diag(information)), np.finfo(float).tiny))
    scaled = (information / np.outer(lengths, lengths))[np.ix_(used, used)]
    if not np.all(np.isfinite(scaled)):
        pairs = zip(coordinates.entries, values.tolist(), strict=True)
        rows = [ParameterRow(entry.label, value, None, None, None) for entry, value in pairs]
        text = "The information is not finite, so that there are no standard errors."
        return Uncertainty(tuple(rows), method, (*notes, text), np.zeros_like(information))
    inverse = np.zeros_like(information)
    own, ways, curvatures = _inverted(scaled, least, symmetric=noise is None)
    inverse[np.ix_(used, used)] = own
    lost = np.zeros((len(lengths), ways.shape[1]))
    lost[used] = ways
    inverse = inverse / np.outer(lengths, lengths)
    notes += [
        _direction_text(_involved(way, labels), rises=c < -least)
        for way, c in zip(lost.T, curvatures.tolist(), strict=True)
    ]
    covariance = inverse if noise is None else inverse @ noise @ inverse.T
    quantile, rows = float(ndtri((1 + LEVEL) / 2)), []
    for entry, value, slope in zip(coordinates.entries, values.tolist(), slopes, strict=True):
        slope = np.where(used, slope, 0.0)
        scaled_slope, variance = slope / lengths, float(slope @ covariance @ slope)
        # An entry that moves along a direction about which nothing is known has no standard error.
        blurred = np.linalg.norm(lost.T @ scaled_slope) > 0.1 * np.linalg.norm(scaled_slope)
        if blurred or not 0 < variance < math.inf or not math.isfinite(value):
            rows.append(ParameterRow(entry.label, value, None, None, None))
            continue
        ends = entry.interval(value, quantile * math.sqrt(variance))
        rows.append(ParameterRow(entry.label, value, math.sqrt(variance), *map(finite_or_none, ends)))
    return Uncertainty(tuple(rows), method, tuple(notes), covariance)


def _inverted(scaled: np.ndarray, least: float, *, symmetric: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the inverse on the directions that have one, a basis of the others, and the curvatures along these."""
    if symmetric:
        curvatures, right = np.linalg.eigh((scaled + scaled.T) / 2)
        left = right
        good = curvatures > least
    else:
        left, curvatures, transposed = np.linalg.svd(scaled)
        right = transposed.T
        good = curvatures > least
    inverse = (right[:, good] / curvatures[good]) @ left[:, good].T
    return inverse, right[:, ~good], curvatures[~good]


def _labels(coordinates: Coordinates, slopes: np.ndarray) -> list[str]:
    """Return what people call each coordinate: the parameter that depends on it alone, where there is one."""
    alone = {
        int(np.flatnonzero(row)[0]): entry.label
        for entry, row in zip(coordinates.entries, slopes, strict=True)
        if np.sum(row != 0) == 1
    }
    return [alone.get(index, name) for index, name in enumerate(coordinates.names)]


def _involved(way: np.ndarray, labels: Sequence[str]) -> list[str]:
    return [labels[index] for index in np.flatnonzero(np.abs(way) > _INVOLVED * np.abs(way).max()).tolist()]


def _direction_text(names: list[str], *, rises: bool) -> str:
    if rises:
        return (
            f"The information is indefinite: the likelihood still rises along {_listed(names)}, so that this is no "
            "maximum, and they have no standard errors. Let the fit take more steps."
        )
    if len(names) == 1:
        return (
            f"The information is singular: the data say nothing about {names[0]}, which has no standard error. Fix it, "
            "or give it a prior."
        )
    return (
        f"The information is singular: the data cannot tell {_listed(names)} apart, so that they have no standard "
        "errors. Fix one of them, or give it a prior."
    )


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
