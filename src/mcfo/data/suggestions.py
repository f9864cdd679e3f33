"""What a series looks like: its season, its cycle, its trend, whether its spread grows with its level. In NumPy alone.

Each statement is a test with a stated error rate, so that noise, random walks and autoregressions give no season.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import fdtrc, stdtr

PERIODS: dict[str, tuple[float, ...]] = {
    "year": (),
    "quarter": (4.0,),
    "month": (12.0,),
    "week": (365.25 / 7,),
    "day": (7.0, 365.25),
    "working day": (5.0, 261.0),
    "hour": (24.0, 168.0),
    "half hour": (48.0, 336.0),
    "minute": (60.0, 1440.0),
}
"""The seasons that a frequency may have, in steps."""
_ALIASES = dict(Y="year", Q="quarter", M="month", W="week", D="day", B="working day", h="hour", min="minute")  # noqa: C408
_UNKNOWN = tuple(map(float, range(2, 61)))
"""The seasons that are tried if the frequency is unknown."""
_LEVEL = 0.01
"""The probability with which a series without season is said to have one, whatever the number of seasons tried."""
_LAGS, _MOST_LAGS = 4, 9
"""The most lags of a regression; more where the frequency is unknown, so that a cycle is not taken for a season."""
_HARMONICS = 3
_DUMMIES = 60
"""Up to this period each step of the season has a mean of its own; beyond, a few harmonics describe it."""


def suggest_period(values: Any, frequency: str | None = None) -> float | None:
    """Return the most significant season of a series in steps, or None.

    In a regression on a line, up to four lags (as many as the BIC wants; nine if the frequency is unknown) and a mean
    for each step of the season, the means are tested by F at 1 % (for all candidates together). Lags and line stand for
    trends, random walks, cycles and autocorrelation, which are no season.

    **Arguments:**

    - `values`: (steps,), NaN where missing.
    - `frequency`: year, quarter, month, week, day, working day, hour, half hour or minute (or pandas' alias), whose
      seasons are tried; None if it is unknown: then 2 to 60 steps are.
    """
    found = suggest_periods(values, frequency)
    return found[0] if found else None


def suggest_periods(values: Any, frequency: str | None = None) -> list[float]:
    """Return every season of a series, the most significant first: each is tested on what the ones before leave."""
    values = np.asarray(values, float)
    known = PERIODS.get(_frequency(frequency))
    candidates = list(_UNKNOWN if known is None else known)
    level = _LEVEL / max(1, len(candidates))
    # A season must be seen twice where one may exist, and four times where it is looked for.
    seen = np.sum(~np.isnan(values)) / (4 if known is None else 2)
    found: list[float] = []
    while candidates := [period for period in candidates if period <= seen and period not in found]:
        results = {period: _test(values, period, _LAGS if known else _MOST_LAGS) for period in candidates}
        significant = {period: one[1] for period, one in results.items() if one is not None and one[0] < level}
        if not significant:
            break
        found.append(min(significant, key=lambda period: significant[period]))
        if known is None:
            break
        values = values - seasonal_effects(values, found[-1])
    return found


def _frequency(name: str | None) -> str:
    """A key of the periods from its name or pandas' alias: month, ME, MS, M."""
    if name is None or name in PERIODS:
        return name or ""
    alias = name.split("-")[0]
    return _ALIASES.get(alias if len(alias) == 1 else alias.rstrip("SE"), "")


def _test(values: np.ndarray, period: float, most: int) -> tuple[float, float] | None:
    """The p-value of a season, and the BIC of the regression with it; None if there are too few values."""
    lagged = lagged_columns(values, most)
    steps = np.arange(most, len(values), dtype=float)
    rows = ~np.isnan(lagged).any(axis=1)  # the same for all orders, which are compared
    extra = round(period) - 1 if _has_means(period) else 2 * _HARMONICS
    phase, count = steps[rows], int(rows.sum())
    columns = np.column_stack([phase, lagged[rows, 1:], lagged[rows, 0]])
    without, with_season = (_nested_sums(columns, one, phase) for one in (None, period))
    best: tuple[float, float] | None = None
    if without[0] == 0:
        return None
    for lags in range(most + 1):
        free = count - lags - 2 - extra
        if free < 5:
            break
        restricted, rest = without[lags + 1], with_season[lags + 1]
        if rest <= 1e-20 * without[0]:
            # A season without noise; with lags, those explain everything.
            return (0.0, -np.inf) if lags == 0 else best
        bic = count * np.log(rest / count) + (extra + lags) * np.log(count)
        p_value = float(fdtrc(extra, free, (restricted - rest) / extra / (rest / free)))
        if best is None or bic < best[1]:
            best = p_value, float(bic)
    return best


def lagged_columns(values: np.ndarray, lags: int) -> np.ndarray:
    """The series beside itself some steps before, (steps - lags, lags + 1)."""
    return np.column_stack([values[lags - lag : len(values) - lag] for lag in range(lags + 1)])


def _has_means(period: float | int) -> bool:
    """Whether each step of a season has a mean of its own."""
    return period <= _DUMMIES and period == int(period)


def _nested_sums(columns: np.ndarray, period: float | None, phase: np.ndarray) -> np.ndarray:
    """The residual sums of squares of the last column on the first n others, for all n, beside a mean or a season."""
    rest = columns - (columns.mean(axis=0) if period is None else _fitted(columns, period, phase))
    scale = np.linalg.norm(rest, axis=0)
    triangle = np.asarray(np.linalg.qr(rest / np.where(scale > 0, scale, 1.0), mode="r"))
    return np.cumsum(triangle[::-1, -1] ** 2)[::-1] * scale[-1] ** 2


def _fitted(columns: np.ndarray, period: float | int, phase: np.ndarray) -> np.ndarray:
    """The least-squares season of each column."""
    if _has_means(period):
        group = phase.astype(int) % int(period)
        counts = np.maximum(np.bincount(group, minlength=int(period)), 1)
        means = [np.bincount(group, column, int(period)) / counts for column in columns.T]
        return np.stack(means, axis=1)[group]
    angles = 2 * np.pi * phase[:, None] * np.arange(1, _HARMONICS + 1) / period
    waves = np.column_stack([np.ones(len(phase)), np.cos(angles), np.sin(angles)])
    return waves @ np.linalg.lstsq(waves, columns, rcond=None)[0]


def seasonal_effects(values: np.ndarray, period: float | int) -> np.ndarray:
    """The season of a series around its slowly moving mean, for every step."""
    known = ~np.isnan(values)
    phase = np.arange(len(values), dtype=float)
    rest = (values - moving_mean(values, round(period)))[known][:, None]
    season = np.zeros(len(values))
    season[known] = _fitted(rest, period, phase[known])[:, 0]
    return season - season[known].mean()


def moving_mean(values: np.ndarray, window: int) -> np.ndarray:
    """The mean of the known values in a window around each step."""
    known = ~np.isnan(values)
    kernel = np.ones(2 * (window // 2) + 1)
    total = np.convolve(np.where(known, values, 0.0), kernel, "same")
    count = np.convolve(known.astype(float), kernel, "same")
    return total / np.where(count > 0, count, np.nan)


class Relation(NamedTuple):
    """How the spread of a series grows with its level: the exponent, its standard error, the number of windows, and the
    ratio of the highest level to the lowest."""

    slope: float
    error: float
    windows: int
    ratio: float


def spread_and_level(values: np.ndarray, window: int) -> Relation | None:
    """Regress the logarithm of the local standard deviation on that of the local mean; None if there is no telling.

    A local one is that of a window, around a line, so that a trend is no spread.
    """
    values = np.asarray(values, float)
    known = values[~np.isnan(values)]
    if len(known) < 24 or known.min() <= 0:
        return None
    levels, spreads = [], []
    for start in range(0, len(values) - window + 1, window):
        part = values[start : start + window]
        there = ~np.isnan(part)
        if there.sum() < 5:
            continue
        steps = np.flatnonzero(there)
        rest = part[there] - np.polyval(np.polyfit(steps, part[there], 1), steps)
        if (spread := float(np.sqrt(np.sum(rest**2) / (len(rest) - 2)))) > 0:
            levels.append(np.log(part[there].mean()))
            spreads.append(np.log(spread))
    if len(levels) < 4 or np.ptp(levels) == 0:
        return None
    level = np.array(levels) - np.mean(levels)
    slope = float(level @ spreads / (level @ level))
    rest = np.array(spreads) - np.mean(spreads) - slope * level
    error = float(np.sqrt(np.sum(rest**2) / (len(levels) - 2) / (level @ level)))
    return Relation(slope, error, len(levels), float(np.exp(np.ptp(levels))))


def suggest_transform(values: Any, period: float | int | None = None) -> str:
    """Return "log" if the spread of a positive series grows about as its level does, otherwise "none".

    The exponent of the growth must lie above 0.5 and above zero by a t-test at 1 %, over a level that changes by half.
    Windows have the length of the season; without one, a twelfth of the series, or six steps, since levels may change
    slowly or fast.
    """
    values = np.asarray(values, float)
    fitting = period is not None and 5 <= period <= len(values) / 6
    windows = (round(period or 0),) if fitting else (max(6, len(values) // 12), 6)
    for window in sorted(set(windows)):
        found = spread_and_level(values, window)
        if found is None or found.ratio < 1.5 or found.slope < 0.5:
            continue
        if stdtr(found.windows - 2, -found.slope / max(found.error, 1e-12)) < _LEVEL / len(windows):
            return "log"
    return "none"


def suggest_cycle(values: Any) -> float | None:
    """Return the period of a stochastic cycle in steps, or None.

    The largest roots of an autoregression around a line, of the order that the BIC wants (up to nine), must be a
    complex pair whose cycle has 3 steps or more, is seen four times and keeps a fifth of its height.
    """
    values = np.asarray(values, float)
    if np.sum(~np.isnan(values)) < 30:
        return None
    coefficients = _autoregression(values, _MOST_LAGS)[0]
    root = max(np.roots([1.0, *-coefficients]), key=abs, default=0.0)
    if abs(np.imag(root)) < 1e-9:
        return None
    period = float(2 * np.pi / abs(np.angle(root)))
    return period if abs(root) ** period > 0.2 and 3 <= period <= len(values) / 4 else None


def innovations(values: Any, period: float | int | None = None) -> np.ndarray:
    """Return what an autoregression around a line and a season does not explain, NaN where it is unknown."""
    values = np.asarray(values, float)
    return _autoregression(values - (0.0 if period is None else seasonal_effects(values, period)), _LAGS)[1]


def _autoregression(values: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """The coefficients by least squares, and the residuals of the steps after the first `most`."""
    lagged = lagged_columns(values, most)
    rows = ~np.isnan(lagged).any(axis=1)
    steps = np.linspace(-1, 1, len(lagged))
    best, chosen = np.inf, np.zeros(0)
    residuals = np.full(len(lagged), np.nan)
    for lags in range(most + 1):
        design = np.column_stack([np.ones(len(lagged)), steps, lagged[:, 1 : lags + 1]])
        if rows.sum() < 3 * design.shape[1]:
            break
        weights = np.linalg.lstsq(design[rows], lagged[rows, 0], rcond=None)[0]
        rest = lagged[:, 0] - design @ weights
        bic = rows.sum() * np.log(max(np.mean(rest[rows] ** 2), 1e-300)) + lags * np.log(rows.sum())
        if bic < best:
            best, chosen, residuals = bic, weights[2:], rest
    return chosen, residuals


def has_trend(values: Any, period: float | int | None = None) -> bool:
    """Whether a series without its season goes up or down for good.

    Either its steps have a mean (a random walk with drift, by a t-test at 1 %), or it follows a line: t above 6, with
    the long-run variance of an autoregression around it, which is no random walk (Dickey and Fuller, n (1 - ρ), at
    1 %).
    """
    values = np.asarray(values, float)
    values = values - (0.0 if period is None else seasonal_effects(values, period))
    steps = np.diff(values)
    steps = steps[~np.isnan(steps)]
    if len(steps) < 10 or np.std(steps) == 0:
        return bool(len(steps) >= 10 and steps[0] != 0)
    if abs(steps.mean()) > 2.6 * steps.std(ddof=1) / np.sqrt(len(steps)):
        return True
    known = ~np.isnan(values)
    time = np.linspace(-1, 1, len(values))
    line = np.polyfit(time[known], values[known], 1)
    memory, noise = _autoregression(values - np.polyval(line, time), _LAGS)
    if len(noise) * (1 - memory.sum()) < 28 or np.isnan(noise).all():
        return False
    long_run = np.nanvar(noise) / (1 - memory.sum()) ** 2
    return bool(line[0] ** 2 > 36 * long_run / np.sum((time[known] - time[known].mean()) ** 2))
