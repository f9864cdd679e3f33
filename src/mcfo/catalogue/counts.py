"""Counts: Poisson's law, or a wider one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from mcfo.catalogue.start import Impossible, Start, check_between, exogenous, observed
from mcfo.models.counts import NegativeBinomialCounts, PoissonCounts
from mcfo.proposals.base import Bootstrap
from mcfo.sequences import Sequence


def poisson_counts(
    sequences: list[Sequence], gaps: bool = False, *, persistence: float = 0.9, scale: float = 0.3
) -> Start:
    """Begins at the logarithm of the mean count; in a column of zeros, of half a count in all."""
    return Start(PoissonCounts(**_begin(sequences, gaps, persistence, scale)), Bootstrap(), ())


def negative_binomial_counts(
    sequences: list[Sequence],
    gaps: bool = False,
    *,
    persistence: float = 0.9,
    scale: float = 0.3,
    concentration: float | None = None,
) -> Start:
    """As Poisson's; the concentration r begins where half of what the variance has above the mean is its doing."""
    laws = _begin(sequences, gaps, persistence, scale)
    if concentration is not None:
        check_between("concentration", concentration, 0.0, math.inf)
    values = observed(sequences)
    mean, variance = np.nanmean(values, axis=0), np.nanvar(values, axis=0)
    excess = np.maximum(variance - mean, 1e-3 * np.maximum(mean, 1e-3))
    found = np.clip(2 * mean**2 / excess, 0.5, 200.0)
    model = NegativeBinomialCounts(concentration=found if concentration is None else concentration, **laws)
    return Start(model, Bootstrap(), ())


def _begin(sequences: list[Sequence], gaps: bool, persistence: float, scale: float) -> dict[str, Any]:
    check_between("persistence", persistence, -1.0, 1.0)
    check_between("scale", scale, 0.0, math.inf)
    values = observed(sequences)
    total = np.maximum(np.nansum(values, axis=0), 0.5)
    level = np.log(total / np.sum(~np.isnan(values), axis=0))
    inputs = exogenous(sequences, gaps)
    return {
        "level": level,
        "persistence": persistence,
        "scale": scale,
        "input_weights": np.zeros((len(level), inputs)) if inputs else None,
        "timed": gaps,
    }


def check_counts(name: str, values: np.ndarray, options: Mapping[str, Any]) -> Impossible | None:
    """Objects to whatever is not 0, 1, 2, ..."""
    wrong = ~np.isnan(values) & ((values < 0) | (values != np.floor(values)))
    remedy = f"is not a count. The model {name} wants the whole numbers 0, 1, 2, ...; use another model."
    return Impossible.first(wrong, remedy)
