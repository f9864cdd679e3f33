"""Naive forecasts, beside which every other should be judged: the last value, and the value one season before."""

from __future__ import annotations

import numpy as np

from mcfo.inference.observation_laws import ObservationLaws
from mcfo.inference.quantiles import LEVELS
from mcfo.inference.scoring import Rolling

LEAST_ERRORS = 10
"""Errors before the first forecast from which the variance of naive forecasts is taken; with fewer, all are used."""


def naive_rolling(values: np.ndarray, origins: np.ndarray, horizon: int, season: int = 1) -> Rolling:
    """Forecast x_t+s by the last value seen in the same phase of the season, and score it.

    The forecast is Gaussian. Its variance at s steps ahead is the mean square of the same forecasts' errors before the
    first origin, or over the whole series where those are fewer than ten.

    **Arguments:**

    - `values`: one series, (steps, dimensions), with NaN where values are missing.
    - `origins`: True at index t where a forecast given x_1:t is wanted.
    - `season`: the number of steps in a season; 1 is the naive forecast.
    """
    steps, size = values.shape
    last = _last_of_phase(values, season)
    mean = np.full((steps, horizon, size), np.nan)
    target = np.full((steps, horizon, size), np.nan)
    for ahead in range(1, horizon + 1):
        # x_t+s has the phase of t + s - season * ceil(s / season), which is at most t.
        back = season * -(-ahead // season) - ahead
        rows = np.arange(steps)
        sources = rows - 1 - back
        mean[:, ahead - 1] = np.where((sources >= 0)[:, None], last[np.maximum(sources, 0)], np.nan)
        there = rows + ahead - 1 < steps
        target[there, ahead - 1] = values[rows[there] + ahead - 1]
    errors = target - mean
    first = int(np.argmax(origins)) if origins.any() else steps
    covariance = np.zeros((steps, horizon, size, size))
    for ahead in range(horizon):
        early = errors[: max(first - ahead, 0), ahead]
        enough = np.sum(~np.isnan(early), axis=0) >= LEAST_ERRORS
        variance = np.where(enough, _mean_square(early), _mean_square(errors[:, ahead]))
        covariance[:, ahead][:, range(size), range(size)] = variance
    variance = np.diagonal(covariance, axis1=-2, axis2=-1)
    proper = ~np.isnan(mean) & (variance > 0) & np.isfinite(variance)
    laws = ObservationLaws(np.nan_to_num(mean), np.where(np.isfinite(covariance), covariance, 0.0), proper, None)
    asked = origins[:, None, None]
    target = np.where(asked & laws.proper, target, np.nan)
    log_score = laws.log_density(target)
    return Rolling(
        log_score=log_score,
        log_score_error=np.where(np.isnan(log_score), np.nan, 0.0),
        crps=laws.crps(target),
        pit=laws.below(target),
        mean=np.where(asked, laws.means(), np.nan),
        quantiles=np.where(asked[..., None], laws.quantiles(LEVELS), np.nan),
    )


def _last_of_phase(values: np.ndarray, season: int) -> np.ndarray:
    """Return for each step its value, or where it is missing the last one known in the same phase of the season."""
    last = values.copy()
    for step in range(season, len(last)):
        last[step] = np.where(np.isnan(last[step]), last[step - season], last[step])
    return last


def _mean_square(errors: np.ndarray) -> np.ndarray:
    known = ~np.isnan(errors)
    with np.errstate(over="ignore"):
        return np.sum(np.where(known, errors, 0.0) ** 2, axis=0) / np.maximum(known.sum(axis=0), 1)
