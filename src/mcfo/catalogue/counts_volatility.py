"""Counts, Poisson or wider, and stochastic volatility, initialized near the data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from mcfo.catalogue.from_data import Impossible, Start, check_between, exogenous, observed
from mcfo.errors import InputError, nearest
from mcfo.models.autoregression import LeveragedVolatility, NegativeBinomialCounts, PoissonCounts, StochasticVolatility
from mcfo.proposals.base import Bootstrap
from mcfo.series import Series


def poisson_counts(
    series_list: list[Series], gaps: bool = False, *, persistence: float = 0.9, scale: float = 0.3
) -> Start:
    """Build Poisson counts at the logarithm of the mean count; a column of zeros counts as half a count in all."""
    return Start(PoissonCounts(**_count_arguments(series_list, gaps, persistence, scale)), Bootstrap(), ())


def negative_binomial_counts(
    series_list: list[Series],
    gaps: bool = False,
    *,
    persistence: float = 0.9,
    scale: float = 0.3,
    concentration: float | None = None,
) -> Start:
    """Build negative binomial counts; r initially explains half of the excess of the variance over the mean."""
    arguments = _count_arguments(series_list, gaps, persistence, scale)
    check_between("concentration", concentration, 0.0, math.inf)
    values = observed(series_list)
    mean, variance = np.nanmean(values, axis=0), np.nanvar(values, axis=0)
    excess = np.maximum(variance - mean, 1e-3 * np.maximum(mean, 1e-3))
    estimate = np.clip(2 * mean**2 / excess, 0.5, 200.0)
    model = NegativeBinomialCounts(concentration=estimate if concentration is None else concentration, **arguments)
    return Start(model, Bootstrap(), ())


def _count_arguments(series_list: list[Series], gaps: bool, persistence: float, scale: float) -> dict[str, Any]:
    check_between("persistence", persistence, -1.0, 1.0)
    check_between("scale", scale, 0.0, math.inf)
    values = observed(series_list)
    total = np.maximum(np.nansum(values, axis=0), 0.5)
    level = np.log(total / np.sum(~np.isnan(values), axis=0))
    inputs = exogenous(series_list, gaps)
    return {
        "level": level,
        "persistence": persistence,
        "scale": scale,
        "input_weights": np.zeros((len(level), inputs)) if inputs else None,
        "timed": gaps,
    }


def check_counts(name: str, values: np.ndarray, options: Mapping[str, Any]) -> Impossible | None:
    """Return the first value that is not 0, 1, 2, ..."""
    wrong = ~np.isnan(values) & ((values < 0) | (values != np.floor(values)))
    remedy = f"is not a count. The model {name} wants the whole numbers 0, 1, 2, ...; use another model."
    return Impossible.first(wrong, remedy)


TAILS = ("normal", "student")


def stochastic_volatility(
    series_list: list[Series],
    gaps: bool = False,
    *,
    persistence: float = 0.95,
    scale: float = 0.3,
    tails: str = "normal",
    degrees: float = 8.0,
    leverage: float | None = None,
) -> Start:
    """Build stochastic volatility at the logarithm of the mean square, since returns have mean zero."""
    check_between("persistence", persistence, -1.0, 1.0)
    check_between("scale", scale, 0.0, math.inf)
    check_between("degrees", degrees, 2.0, math.inf)
    if tails not in TAILS:
        raise InputError(f"There are no tails {tails!r}. {nearest(tails, TAILS)}")
    values = observed(series_list)
    largest = np.nanmax(np.abs(values), axis=0)
    if not largest.all():
        raise InputError(
            f"Column {int(np.argmin(largest)) + 1} of the values is zero wherever it is known, so it has no "
            "volatility. Leave the column out; if the zeros stand for missing values, leave their cells empty."
        )
    level = np.log(np.nanmean((values / largest) ** 2, axis=0)) + 2 * np.log(largest)
    inputs = exogenous(series_list, gaps)
    arguments = {
        "level": level,
        "persistence": persistence,
        "scale": scale,
        "degrees": degrees if tails == "student" else None,
        "timed": gaps,
    }
    check_between("leverage", leverage, -1.0, 1.0)
    if leverage is None:
        weights = np.zeros((len(level), inputs)) if inputs else None
        return Start(StochasticVolatility(input_weights=weights, **arguments), Bootstrap(), ())
    if inputs:
        raise InputError(
            "The model stochastic-volatility takes either inputs or leverage, not both: the step after a return "
            "does not know its inputs. Leave out --inputs, or leverage."
        )
    return Start(LeveragedVolatility(leverage=leverage, **arguments), Bootstrap(), ())
