"""Stochastic volatility: Gaussian or heavy-tailed returns, with leverage or without."""

from __future__ import annotations

import math

import numpy as np

from mcfo.catalogue.start import Start, check_between, exogenous, observed
from mcfo.files import InputError
from mcfo.models.stochastic_volatility import LeveragedVolatility, StochasticVolatility
from mcfo.proposals.base import Bootstrap
from mcfo.sequences import Sequence
from mcfo.suggestions import nearest

TAILS = ("normal", "student")


def stochastic_volatility(
    sequences: list[Sequence],
    gaps: bool = False,
    *,
    persistence: float = 0.95,
    scale: float = 0.3,
    tails: str = "normal",
    degrees: float = 8.0,
    leverage: float | None = None,
) -> Start:
    """Begins at the logarithm of the mean square, since the returns of the model have mean zero."""
    check_between("persistence", persistence, -1.0, 1.0)
    check_between("scale", scale, 0.0, math.inf)
    check_between("degrees", degrees, 2.0, math.inf)
    if tails not in TAILS:
        raise InputError(f"There are no tails {tails!r}. {nearest(tails, TAILS)}")
    values = observed(sequences)
    largest = np.nanmax(np.abs(values), axis=0)
    if not largest.all():
        raise InputError(
            f"Column {int(np.argmin(largest)) + 1} of the values is zero wherever it is known, so it has no "
            "volatility. Leave the column out; if the zeros stand for missing values, leave their cells empty."
        )
    level = np.log(np.nanmean((values / largest) ** 2, axis=0)) + 2 * np.log(largest)
    inputs = exogenous(sequences, gaps)
    laws = {
        "level": level,
        "persistence": persistence,
        "scale": scale,
        "degrees": degrees if tails == "student" else None,
        "timed": gaps,
    }
    if leverage is None:
        weights = np.zeros((len(level), inputs)) if inputs else None
        return Start(StochasticVolatility(input_weights=weights, **laws), Bootstrap(), ())
    check_between("leverage", leverage, -1.0, 1.0)
    if inputs:
        raise InputError(
            "The model stochastic-volatility takes either inputs or leverage, not both: what follows a return would "
            "have to know the inputs of its day. Leave out --inputs, or leverage."
        )
    return Start(LeveragedVolatility(leverage=leverage, **laws), Bootstrap(), ())
