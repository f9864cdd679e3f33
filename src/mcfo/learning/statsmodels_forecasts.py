"""Forecasts of statsmodels' models, beside which ours are compared; only if it is installed."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Any

import numpy as np

from mcfo.inference.observation_laws import ObservationLaws
from mcfo.inference.quantiles import LEVELS
from mcfo.inference.scoring import Rolling
from mcfo.transforms import Log

RIVALS = ("ETS (statsmodels)", "SARIMAX (statsmodels)")
_LONGEST_SEASON = 60
"""Longer seasons have too large a state for these models."""


def installed() -> bool:
    """Whether statsmodels can be imported."""
    return importlib.util.find_spec("statsmodels") is not None


def rival_rolling(
    name: str, values: np.ndarray, origins: np.ndarray, horizon: int, *, season: Any, logarithm: bool
) -> Rolling:
    """Fit a model to what comes before the first origin, and forecast from each origin; Gaussian forecasts.

    ETS: additive errors, damped trend, additive season. SARIMAX: (0,1,1)(0,1,1) with a season, (1,1,1) without.

    **Arguments:**

    - `values`: one series, (steps,), with NaN where values are missing.
    - `origins`: True at index t where a forecast given x_1:t is wanted.
    - `logarithm`: whether the model is one of log x.
    """
    first, steps = int(np.argmax(origins)), len(values)
    logarithm = logarithm and bool(np.nanmin(values) > 0)
    data = np.log(values) if logarithm else values
    period = round(season) if season and 2 <= season <= min(_LONGEST_SEASON, first // 2) else None
    # Imported before its warnings are silenced, because importing it shows them again.
    model = _model(name, data[:first], period)
    with warnings.catch_warnings():
        # Its warnings are about starting values and convergence, of which its forecasts tell.
        warnings.simplefilter("ignore")
        fitted = model.fit(disp=False)
        whole = fitted.apply(data)
        mean, variance = (np.full((steps, horizon, 1), np.nan) for _ in range(2))
        for origin in np.flatnonzero(origins):
            ahead = whole.get_prediction(start=origin, end=origin + horizon - 1, dynamic=True)
            mean[origin, :, 0], variance[origin, :, 0] = ahead.predicted_mean, ahead.var_pred_mean
    padded = np.concatenate([values, np.full(horizon, np.nan)])
    targets = np.stack([padded[ahead : ahead + steps] for ahead in range(horizon)], axis=1)[..., None]
    proper = np.isfinite(mean) & (variance > 0)
    covariance = np.where(proper, variance, 1.0)[..., None]
    laws = ObservationLaws(np.nan_to_num(mean), covariance, proper, Log() if logarithm else None)
    targets = np.where(proper, targets, np.nan)
    log_score = laws.log_density(targets)
    return Rolling(
        log_score=log_score,
        log_score_error=np.where(np.isnan(log_score), np.nan, 0.0),
        crps=laws.crps(targets),
        pit=laws.below(targets),
        mean=laws.means(),
        quantiles=laws.quantiles(LEVELS),
    )


def _model(name: str, values: np.ndarray, period: int | None) -> Any:
    from statsmodels.tsa.statespace.exponential_smoothing import ExponentialSmoothing
    from statsmodels.tsa.statespace.sarimax import SARIMAX

    if name == RIVALS[0]:
        # A concentrated variance would be estimated again from the data that are forecast.
        return ExponentialSmoothing(values, trend=True, damped_trend=True, seasonal=period, concentrate_scale=False)
    if period is None:
        return SARIMAX(values, order=(1, 1, 1))
    return SARIMAX(values, order=(0, 1, 1), seasonal_order=(0, 1, 1, period))
