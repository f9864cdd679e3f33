"""What is in a data set: its columns, its series, its statistics. In numpy alone: a page about them needs no JAX."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from mcfo.data.tables import Table


class Column(NamedTuple):
    """One column of values over all series; `notes` are facts to know before learning from it."""

    name: str
    known: int
    missing: int
    least: float
    mean: float
    deviation: float
    greatest: float
    notes: tuple[str, ...]


class SeriesSummary(NamedTuple):
    """One series: its steps, the incomplete ones, and the longest run of entirely missing steps."""

    name: str
    steps: int
    incomplete: int
    longest_missing: int
    first: str
    last: str


def describe_columns(table: Table) -> list[Column]:
    """Summarize each column of values over all series."""
    values = np.concatenate([series.values() for series in table.series_list])
    summaries = []
    for name, column in zip(table.columns, values.T, strict=True):
        known = column[~np.isnan(column)]
        if not len(known):
            nothing = np.nan
            summaries.append(Column(name, 0, len(column), nothing, nothing, nothing, nothing, ("always missing",)))
            continue
        numbers = float(known.min()), float(known.mean()), float(known.std()), float(known.max())
        summaries.append(Column(name, len(known), len(column) - len(known), *numbers, _notes(known)))
    return summaries


def _notes(known: np.ndarray) -> tuple[str, ...]:
    if known.min() == known.max():
        return ("constant",)
    if np.isin(known, (0, 1)).all():
        return ("zeros and ones",)
    notes = []
    if (known == np.floor(known)).all():
        notes.append("counts" if known.min() >= 0 else "whole numbers")
    spread = known.std()
    far = np.abs(known - np.median(known)) > 20 * max(float(np.median(np.abs(known - np.median(known)))), 0.05 * spread)
    if far.any() and far.sum() <= 0.01 * len(known) + 1:
        notes.append(f"{int(far.sum())} far from the rest")
    return tuple(notes)


def describe_series(table: Table) -> list[SeriesSummary]:
    """Summarize each series."""
    summaries = []
    for index, (name, series) in enumerate(zip(table.names, table.series_list, strict=True)):
        missing = np.isnan(series.values())
        span = ("", "") if table.spans is None else table.spans[index][:2]
        summaries.append(
            SeriesSummary(name, len(missing), int(missing.any(axis=1).sum()), _longest(np.all(missing, axis=1)), *span)
        )
    return summaries


def _longest(flags: np.ndarray) -> int:
    """Return the length of the longest run of True."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(int), [0]])))
    return int((edges[1::2] - edges[::2]).max(initial=0))


STATISTICS = (
    "mean",
    "standard deviation",
    "skewness",
    "excess kurtosis",
    "smallest",
    "largest",
    "autocorrelation",
    "autocorrelation of |x − mean|",
)
"""Statistics of a set of series, pooled; the last two at lag 1."""
MOST_COLUMNS = 8


def statistics(values: np.ndarray) -> np.ndarray:
    """Compute the statistics of (..., series, steps, columns) as (..., statistics, columns); NaN is missing."""
    missing = np.isnan(values)
    with np.errstate(all="ignore"):
        mean = _mean(values)
        centered = values - mean[..., None, None, :]
        deviation = np.sqrt(_mean(centered**2))
        standard = centered / np.where(deviation > 0, deviation, np.nan)[..., None, None, :]
        rows = [
            mean,
            deviation,
            _mean(standard**3),
            _mean(standard**4) - 3,
            np.where(missing, np.inf, values).min(axis=(-3, -2)),
            np.where(missing, -np.inf, values).max(axis=(-3, -2)),
            _mean(standard[..., 1:, :] * standard[..., :-1, :]),
            _lag_one(np.abs(standard)),
        ]
    stacked = np.stack(rows, axis=-2)
    return np.where(np.isfinite(stacked), stacked, np.nan)


def _mean(values: np.ndarray) -> np.ndarray:
    """Average over series and steps; NaN where there is no value."""
    count = np.sum(~np.isnan(values), axis=(-3, -2))
    return np.nansum(values, axis=(-3, -2)) / np.where(count > 0, count, np.nan)


def _lag_one(values: np.ndarray) -> np.ndarray:
    centered = values - _mean(values)[..., None, None, :]
    return _mean(centered[..., 1:, :] * centered[..., :-1, :]) / _mean(centered**2)
