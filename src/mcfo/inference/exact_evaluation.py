"""Evaluation by exact distributions: likelihood, one-step errors, and scores of forecasts from many origins."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mcfo.data.batching import Buckets, count_observed_steps, unstacked
from mcfo.inference.evaluation_results import Evaluation
from mcfo.inference.exact_laws import filtered_laws, rolling_laws
from mcfo.inference.quantiles import LEVELS
from mcfo.inference.scoring import Rolling
from mcfo.models.base import Model
from mcfo.series import Series


def exact_evaluation(model: Model, buckets: Buckets) -> Evaluation:
    """Return the log-likelihood and the one-step error of every series, exactly.

    The error leaves out the values that a diffuse start is found from, because nothing predicts them.
    """
    log_evidence, squared, values, collapsed, count = 0.0, 0.0, 0, 0, 0
    for batch in buckets:
        for series in unstacked(batch):
            laws = filtered_laws(model, series)
            own = float(np.sum(laws.log_evidences))
            log_evidence, count = log_evidence + own, count + 1
            collapsed += not math.isfinite(own)
            errors = laws.predicted.means()[: len(series.values())] - series.values()
            with np.errstate(over="ignore"):
                squared += float(np.nansum(errors**2))
            values += int(np.sum(~np.isnan(errors)))
    steps = sum(map(count_observed_steps, buckets))
    return Evaluation(
        log_evidence=log_evidence,
        nll_per_step=-log_evidence / steps,
        ess=None,
        ess_min=None,
        particles=None,
        prediction_rmse=math.sqrt(squared / values) if values and not collapsed and math.isfinite(squared) else None,
        series=count,
        steps=steps,
        collapsed=collapsed,
        exact_nll_per_step=-log_evidence / steps,
        exact=True,
    )


def exact_rolling(
    model: Model, series: Series, origins: np.ndarray, horizon: int, levels: Sequence[float] = LEVELS
) -> Rolling:
    """Return the scored forecasts of one series, as [`rolling`][mcfo.inference.scoring.rolling] does, exactly.

    What a diffuse start is found from has no forecast, and no score.
    """
    laws, _ = rolling_laws(model, series, horizon)
    steps = series.steps
    values = np.full((steps + horizon, series.observations.shape[1]), np.nan)
    known = series.values()
    values[: len(known)] = known
    targets = np.stack([values[ahead : ahead + steps] for ahead in range(horizon)], axis=1)
    targets = np.where(origins[:, None, None], targets, np.nan)
    log_score = laws.log_density(targets)
    asked = origins[:, None, None]
    return Rolling(
        log_score=log_score,
        log_score_error=np.where(np.isnan(log_score), np.nan, 0.0),
        crps=np.where(asked, laws.crps(targets), np.nan),
        pit=np.where(asked, laws.below(targets), np.nan),
        mean=np.where(asked, laws.means(), np.nan),
        quantiles=np.where(asked[..., None], laws.quantiles(levels), np.nan),
    )
