"""The data as the models of the catalogue read them: pooled values, regressions on inputs, checks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from mcfo.errors import InputError
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.series import Series
from mcfo.validation import float_dtype


class Start(NamedTuple):
    """The start of a fit: an initialized model and its proposal.

    - `fixed`: the dotted paths of parameters that are not learned, such as "model.initial_mean".
    - `chosen`: options that the data decided.
    """

    model: Model
    proposal: Proposal
    fixed: tuple[str, ...]
    chosen: Mapping[str, str] = MappingProxyType({})


class Impossible(NamedTuple):
    """A value that a model cannot explain, whatever its parameters are: its position, and what is wrong with it."""

    step: int
    column: int
    text: str

    @classmethod
    def first(cls, wrong: np.ndarray, text: str) -> Impossible | None:
        """Return the first value that is marked as wrong in (steps, columns), or None."""
        if not wrong.any():
            return None
        step, column = np.argwhere(wrong)[0]
        return cls(int(step), int(column), text)


class Widths(tuple[int, ...]):
    """The widths of the layers of a network; on the command line, 64,32."""

    def __new__(cls, given: str | Iterable[int]) -> Widths:
        widths = super().__new__(cls, (int(one) for one in (given.split(",") if isinstance(given, str) else given)))
        if not widths or min(widths) < 1:
            raise ValueError
        return widths


def observed(series_list: list[Series]) -> np.ndarray:
    """Concatenate the values of all series; every column must have an observed value."""
    if not series_list:
        raise InputError("There are no series to build a model for. Give at least one.")
    sizes = sorted({series.observations.shape[1] for series in series_list})
    if len(sizes) > 1:
        raise InputError(
            f"The series have different numbers of observed dimensions: {', '.join(map(str, sizes))}. Give every "
            "series the same columns, with NaN in those that it lacks."
        )
    values = np.concatenate([series.values() for series in series_list])
    unknown = np.isnan(values).all(axis=0)
    if unknown.any():
        raise InputError(
            f"Column {int(np.argmax(unknown)) + 1} of the values is missing at every step. Leave the column out."
        )
    return values


def require_steps(series_list: list[Series]) -> None:
    """Refuse data in which no series has two steps."""
    if all(len(series.values()) < 2 for series in series_list):
        count = len(series_list)
        came = "The series has a single row" if count == 1 else f"Each of the {count} series has a single row"
        raise InputError(
            f"{came}, but a model of time needs two or more. Give more rows; if the rows of one series were taken for "
            "many, name the column that identifies the series."
        )


def exogenous(series_list: list[Series], gaps: bool) -> int:
    """Return the number of inputs besides the time since the previous step."""
    counts = {0 if one.inputs is None else one.inputs.shape[-1] for one in series_list}
    if len(counts) > 1:
        raise InputError(f"The series have different numbers of inputs: {sorted(counts)}. Give all of them the same.")
    return counts.pop() - int(gaps)


def regressed(series_list: list[Series], count: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Regress the pooled values on the last `count` inputs by least squares.

    Return the residuals, and the weights, (dimensions, inputs), or None without inputs.
    """
    values = observed(series_list)
    if not count:
        return values, None
    inputs = np.concatenate([np.asarray(one.inputs, np.float64)[: len(one.values()), -count:] for one in series_list])
    design = np.column_stack([np.ones(len(inputs)), inputs])
    weights = np.zeros((values.shape[1], count))
    for column in range(values.shape[1]):
        there = ~np.isnan(values[:, column])
        if there.sum() > 2 * design.shape[1]:
            weights[column] = np.linalg.lstsq(design[there], values[there, column], rcond=None)[0][1:]
    rest = values - inputs @ weights.T
    # Where inputs explain everything, the residuals would be zero, and no variance may be.
    flat = np.nanstd(rest, axis=0) < 1e-6 * np.nanstd(values, axis=0)
    return np.where(flat, values, rest), np.where(flat[:, None], 0.0, weights)


def check_between(name: str, value: float | None, low: float, high: float) -> None:
    """Refuse the value of an option outside the open interval; None is one that was not chosen."""
    if value is None:
        return
    # Rounded as in the model: 1 - 1e-9 is 1 in float32.
    with np.errstate(over="ignore", under="ignore"):
        rounded = float(np.asarray(value).astype(float_dtype()))
    if not low < rounded < high:
        wanted = f"lie between {low:g} and {high:g}"
        if high == math.inf:
            wanted = {0.0: "be positive and finite", -math.inf: "be finite"}.get(low, f"be finite and above {low:g}")
        raise InputError(f"The option {name} must {wanted}, but got {value!r}.")
