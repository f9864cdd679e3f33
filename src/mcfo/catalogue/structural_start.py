"""Where a structural model starts: variances in proportion to the data's changes, the first state by least squares.

Nothing here depends on the unit or the offset of the data.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from mcfo.models.structural_words import Sentence, Values
from mcfo.series import Series

_FIRST_STEPS = 20
"""The least number of steps whose regression gives the first state."""
_SLOW = 0.01
"""The share of slopes, seasons and moving weights in the variance of the changes."""


class _Explained(NamedTuple):
    """What a trend, seasons and weights that never change make of one series."""

    rest: Float[np.ndarray, " steps"]
    first_state: Float[np.ndarray, " known"]
    weights: Float[np.ndarray, " inputs"]
    first_variance: float


def initial_values(sentence: Sentence, series_list: list[Series]) -> Values:
    """Return initial parameters in the unit of the signal."""
    model = _built(dataclasses.replace(sentence, transform=None), sentence.transform)
    # Cycles and autoregressions start at zero, their mean.
    known = np.array([not name.startswith(("cycle", "ar")) for name in model.state_names])
    explained = [_explain(sentence, model, known, series) for series in series_list if not _is_empty(series)]
    rests = [one.rest for one in explained]
    changes, irregular = _variances(rests)
    state = np.zeros(len(known))
    state[known] = np.mean([one.first_state for one in explained], axis=0)
    level = max(changes - 2 * irregular, 0.05 * changes)
    slow = math.sqrt(_SLOW * changes)
    count, spreads = sentence.regressors, np.ones(sentence.regressors)
    if count:
        inputs = np.concatenate([np.asarray(one.inputs, np.float64)[:, :count] for one in series_list])
        spreads = np.where(inputs.std(axis=0) > 0, inputs.std(axis=0), 1.0)
    return Values(
        irregular=math.sqrt(irregular),
        level=math.sqrt(level),
        slope=math.sqrt(0.05 * changes) if sentence.trend == "smooth" else slow,
        season=slow,
        cycle=math.sqrt(0.2 * changes),
        cycle_period=_cycle_period(sentence, rests),
        ar=math.sqrt(0.5 * changes),
        weights=tuple(np.mean([one.weights for one in explained], axis=0).tolist()) or None,
        weight_steps=tuple((slow / spreads).tolist()) or None,
        initial_state=tuple(state.tolist()),
        initial_scale=math.sqrt(max(float(np.mean([one.first_variance for one in explained])), level)),
    )


@eqx.filter_jit
def _built(words: Sentence, transform: Any) -> Any:
    # One function, so that another fit of the same words compiles nothing. A transform has arrays, which are no words.
    return dataclasses.replace(words, transform=transform).build()


def _is_empty(series: Series) -> bool:
    return bool(np.isnan(series.values()).all())


def _linked(sentence: Sentence, series: Series) -> Float[np.ndarray, " steps"]:
    """The values on the scale of the signal."""
    values = series.values()[:, 0]
    if sentence.emission in ("poisson", "negative-binomial"):
        return np.log(values + 0.5)
    if sentence.emission == "binomial":
        trials: Any = sentence.trials
        if trials == "inputs":
            trials = np.asarray(series.inputs, np.float64)[: len(values), -1]
        return np.log(values + 0.5) - np.log(np.maximum(trials - values, 0.0) + 0.5)
    return (
        values
        if sentence.transform is None
        else np.asarray(sentence.transform.forward(jnp.asarray(values)), np.float64)
    )


def _explain(sentence: Sentence, model: Any, known: np.ndarray, series: Series) -> _Explained:
    values = _linked(sentence, series)
    design = _design(model, series, len(values))[:, known]
    parameters = 0
    if sentence.weights == "parameter" and sentence.regressors:
        parameters = sentence.regressors
        design = np.column_stack([design, np.asarray(series.inputs, np.float64)[: len(values), :parameters]])
    there = ~np.isnan(values)
    early = there & (np.arange(len(values)) < max([_FIRST_STEPS, *(3 * period for period in sentence.season)]))
    early = early if early.any() else there
    states = design.shape[1] - parameters

    def solve(rows: np.ndarray) -> np.ndarray:
        return np.linalg.lstsq(design[rows], values[rows], rcond=None)[0]

    whole, first = solve(there), solve(early)
    missed = (values - design @ first)[early]
    return _Explained(values - design @ whole, first[:states], whole[states:], float(np.mean(missed**2)))


def _design(model: Any, series: Series, steps: int) -> Float[np.ndarray, "steps state"]:
    """c_t A^(t-1): what each entry of the first state adds to the signal of each step, if nothing disturbs it."""
    matrix, rows = _matrices(model, series.inputs)
    matrix, rows = np.asarray(matrix, np.float64), np.asarray(rows, np.float64)
    design, power = np.zeros((steps, len(matrix))), np.eye(len(matrix))
    for step in range(steps):
        design[step] = (rows if rows.ndim == 1 else rows[step]) @ power
        power = matrix @ power
    return design


@eqx.filter_jit
def _matrices(model: Any, inputs: Any) -> Any:
    return model.matrix(), model.row(None) if inputs is None else jax.vmap(model.row)(inputs)


def _variances(rests: list[np.ndarray]) -> tuple[float, float]:
    """The variance of the changes, Var Δe = q + 2 r, and of the noise in it: the autocovariance at lag one is -r."""
    differences = np.concatenate([np.append(np.diff(one), np.nan) for one in rests])
    products = [differences[lag:] * differences[: len(differences) - lag] for lag in (0, 1)]
    spread = float(np.nanmean(np.concatenate(rests) ** 2))
    # Without neighbors, or where nothing is left over, only the spread is known, and not even zero may be taken.
    total, first = (float(np.nanmean(one)) if np.isfinite(one).any() else 0.0 for one in products)
    total = max(total, 1e-6 * spread) or 1.0
    return total, float(np.clip(-first, 0.05 * total, 0.45 * total))


def _cycle_period(sentence: Sentence, rests: list[np.ndarray]) -> float | None:
    """The period with the most power in the longest series, inside the bounds."""
    if sentence.cycle == "none":
        return None
    low, high = sentence.cycle_bounds
    rest = np.nan_to_num(max(rests, key=len))
    frequencies = np.linspace(1 / min(high, 2.0 * len(rest)), 1 / low, 4 * len(rest) + 2)[1:-1]
    waves = np.exp(-2j * math.pi * np.outer(frequencies, np.arange(len(rest))))
    return float(1 / frequencies[np.argmax(np.abs(waves @ rest))])
