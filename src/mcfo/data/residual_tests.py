"""Tests of standardized residuals that people know: Ljung-Box, heteroscedasticity, normality. In NumPy alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import chdtrc, fdtr, fdtrc

LAGS = 10
"""Lags of the Ljung-Box test of a series without a season."""
_PARTS = 3
"""The variance of the last third of a series is compared with that of the first."""


class ResidualTest(NamedTuple):
    """A statistic and the probability of one at least as extreme if the model is right; NaN where there is none."""

    statistic: float
    p_value: float


class ResidualTests(NamedTuple):
    """Tests of the standardized residuals of one column, over all series; `size` is the number of residuals.

    - `serial`: Ljung and Box (1978), `lags` lags: large if forecast errors are autocorrelated.
    - `heteroscedasticity`: the sum of squares of the last third over that of the first (Harvey 1989), two-sided.
    - `normality`: Jarque and Bera (1980), from skewness and kurtosis.
    """

    size: int
    lags: int
    serial: ResidualTest
    heteroscedasticity: ResidualTest
    normality: ResidualTest


def residual_tests(residuals: Sequence[np.ndarray], *, season: float | int | None = None) -> ResidualTests:
    """Test the residuals of one column, (steps,) for each series.

    **Arguments:**

    - `season`: the steps in a season; two of them are tested for autocorrelation, otherwise 10 lags, and never more
      than a fifth of the residuals, as in statsmodels.
    """
    series = [_from_first(one) for one in residuals]
    count = sum(int(np.isfinite(one).sum()) for one in series)
    lags = max(1, min(LAGS if season is None else 2 * round(season), count // 5))
    return ResidualTests(count, lags, ljung_box(series, lags), _break_of_variance(series), _jarque_bera(series))


def autocorrelation(series: Sequence[np.ndarray], lags: int) -> tuple[np.ndarray, int]:
    """At lags 1 to `lags`, pooled over series and over the pairs of which both are known; and how many are known."""
    everything = np.concatenate(series)
    known = everything[np.isfinite(everything)]
    correlations = np.full(lags, np.nan)
    if len(known) < 2 or known.std() == 0:
        return correlations, len(known)
    centered = [(one - known.mean()) / known.std() for one in series]
    for lag in range(1, lags + 1):
        products = np.concatenate([one[lag:] * one[:-lag] for one in centered if len(one) > lag] or [np.zeros(0)])
        products = products[np.isfinite(products)]
        if len(products):
            correlations[lag - 1] = products.sum() / len(known)
    return correlations, len(known)


def ljung_box(series: Sequence[np.ndarray], lags: int = LAGS) -> ResidualTest:
    """Test for autocorrelation, pooled over series. Ljung and Box (1978)."""
    correlations, count = autocorrelation(series, lags)
    if count <= lags + 1 or not np.isfinite(correlations).all():
        return ResidualTest(math.nan, math.nan)
    statistic = count * (count + 2) * float(np.sum(correlations**2 / (count - np.arange(1, lags + 1))))
    return ResidualTest(statistic, float(chdtrc(lags, statistic)))


def _from_first(residuals: np.ndarray) -> np.ndarray:
    """The residuals without the steps before the first one, at which a diffuse start was found."""
    known = np.isfinite(residuals)
    return residuals[int(np.argmax(known)) :] if known.any() else residuals[:0]


def _break_of_variance(series: Sequence[np.ndarray]) -> ResidualTest:
    early, late = [], []
    for one in series:
        third = round(len(one) / _PARTS)
        early.append(one[:third])
        late.append(one[len(one) - third :])
    before, after = (np.concatenate(part) ** 2 for part in (early, late))
    before, after = before[np.isfinite(before)], after[np.isfinite(after)]
    if min(len(before), len(after)) < 2 or before.sum() == 0:
        return ResidualTest(math.nan, math.nan)
    statistic = float(after.sum() / before.sum())
    # The ratio of means has an F distribution.
    ratio = statistic * len(before) / len(after)
    tails = (float(tail(len(after), len(before), ratio)) for tail in (fdtr, fdtrc))
    return ResidualTest(statistic, min(1.0, 2 * min(tails)))


def _jarque_bera(series: Sequence[np.ndarray]) -> ResidualTest:
    everything = np.concatenate(series)
    known = everything[np.isfinite(everything)]
    spread = known.std() if len(known) > 2 else 0.0
    if spread == 0:
        return ResidualTest(math.nan, math.nan)
    standard = (known - known.mean()) / spread
    skewness, excess = float(np.mean(standard**3)), float(np.mean(standard**4)) - 3
    statistic = len(known) / 6 * (skewness**2 + excess**2 / 4)
    return ResidualTest(statistic, float(chdtrc(2, statistic)))
