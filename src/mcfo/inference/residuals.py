"""Standardized one-step residuals."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtri

from mcfo.data.batching import as_buckets, unstacked
from mcfo.inference.exact_laws import filtered_laws, uses_exact_laws
from mcfo.inference.rolling_evaluation import evaluate_rolling
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.types import Key

PARTICLES, DRAWS = 500, 500
"""Particles of the filter and draws of its forecasts, where forecasts are not known exactly."""


def standardized_residuals(
    model: Model, proposal: Proposal, data: Any, *, particles: int | None = None, key: Key
) -> list[np.ndarray]:
    """Return the residuals of each series, (steps, columns): independent N(0, 1) if the model is right.

    Of a linear Gaussian model they are the innovations of the Kalman filter, without the values that a diffuse start is
    found from. Elsewhere they are Φ⁻¹ of the probability integral transform, randomized for counts: exact for models
    with finitely many states, otherwise by particles. Rosenblatt (1952); Dunn and Smyth (1996).
    """
    if not uses_exact_laws(model, None, particles):
        rolled = evaluate_rolling(model, proposal, data, particles=particles or PARTICLES, draws=DRAWS, key=key)
        return [normal_scores(one.pit[:, 0]) for one in rolled.series]
    found, each = [], [one for batch in as_buckets(data) for one in unstacked(batch)]
    for series in sorted(each, key=lambda one: int(one.series_id)):
        laws, values = filtered_laws(model, series), series.values()
        residuals = laws.innovations
        if residuals is None:
            padding = np.full((series.steps - len(values), values.shape[1]), np.nan)
            residuals = normal_scores(laws.predicted.below(np.concatenate([values, padding])))
        found.append(residuals[: len(values)])
    return found


def normal_scores(pit: np.ndarray) -> np.ndarray:
    """Return Φ⁻¹, finite where a value lies beyond all draws of its forecast."""
    return ndtri(np.clip(np.asarray(pit, float), 1e-9, 1 - 1e-7))
