"""Statistics of sets of series, in numpy alone: a page about them needs no JAX."""

from __future__ import annotations

import numpy as np

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
"""Of a set of series, pooled; the last two at lag 1."""
MOST_COLUMNS = 8


def statistics(values: np.ndarray) -> np.ndarray:
    """(..., series, steps, columns) to (..., statistics, columns); NaN stands for what is missing."""
    missing = np.isnan(values)
    with np.errstate(all="ignore"):
        mean = _mean(values)
        centered = values - mean[..., None, None, :]
        deviation = np.sqrt(_mean(centered**2))
        standard = centered / np.where(deviation > 0, deviation, np.nan)[..., None, None, :]
        found = [
            mean,
            deviation,
            _mean(standard**3),
            _mean(standard**4) - 3,
            np.where(missing, np.inf, values).min(axis=(-3, -2)),
            np.where(missing, -np.inf, values).max(axis=(-3, -2)),
            _mean(standard[..., 1:, :] * standard[..., :-1, :]),
            _lag_one(np.abs(standard)),
        ]
    stacked = np.stack(found, axis=-2)
    return np.where(np.isfinite(stacked), stacked, np.nan)


def _mean(values: np.ndarray) -> np.ndarray:
    """Over series and steps; NaN where there is nothing."""
    count = np.sum(~np.isnan(values), axis=(-3, -2))
    return np.nansum(values, axis=(-3, -2)) / np.where(count > 0, count, np.nan)


def _lag_one(values: np.ndarray) -> np.ndarray:
    centered = values - _mean(values)[..., None, None, :]
    return _mean(centered[..., 1:, :] * centered[..., :-1, :]) / _mean(centered**2)
