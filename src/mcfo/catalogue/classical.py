"""Models with few parameters: linear Gaussian, stochastic volatility, counts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from mcfo.catalogue.start import Start, check_between, known, observed
from mcfo.files import InputError
from mcfo.models.counts import PoissonCounts
from mcfo.models.linear_gaussian import LinearGaussian
from mcfo.models.stochastic_volatility import StochasticVolatility
from mcfo.proposals.base import Bootstrap
from mcfo.proposals.gaussian import AffineGaussian
from mcfo.reading import float_dtype
from mcfo.sequences import Sequence


def linear_gaussian(sequences: list[Sequence], *, persistence: float = 0.9, signal: float = 0.5) -> Start:
    """A hidden autoregression in each dimension, seen through noise; `signal` is its share of the data's variance."""
    check_between("persistence", persistence, -1.0, 1.0)
    check_between("signal", signal, 0.0, 1.0)
    values = observed(sequences)
    for column, (low, high) in enumerate(zip(np.nanmin(values, axis=0), np.nanmax(values, axis=0), strict=True), 1):
        if low == high:
            raise InputError(
                f"Column {column} of the values is constant: every one that is known is {low:g}. A Gaussian cannot "
                "have variance zero. Leave the column out."
            )
    # Scaled, so that no sum of squares overflows unless the variance does.
    scale = np.nanmax(np.abs(values), axis=0)
    mean = np.nanmean(values / scale, axis=0) * scale
    with np.errstate(over="ignore"):
        variance = np.nanvar(values / scale, axis=0) * scale**2
    transition_variance, emission_variance = (1 - persistence**2) * signal * variance, (1 - signal) * variance
    limits = np.finfo(float_dtype())
    for column, variances in enumerate(zip(variance, transition_variance, emission_variance, strict=True), 1):
        # Sums and products of a few variances must be representable too.
        for wanted in variances:
            if not 1e6 * limits.tiny < wanted < 1e-6 * limits.max:
                raise InputError(
                    f"Column {column} of the values has variance {variances[0]:g}, for which the model needs one of "
                    f"{wanted:g}: too near the limits of {float_dtype()}. Rescale the column."
                )
    size = len(mean)
    model = LinearGaussian(
        initial_mean=mean,
        initial_covariance=variance,
        transition_matrix=persistence * np.eye(size),
        transition_covariance=transition_variance,
        transition_offset=(1 - persistence) * mean,
        emission_matrix=np.eye(size),
        emission_covariance=emission_variance,
    )
    fixed = ("model.initial_mean", "model.initial_noise", "model.emission_matrix")
    return Start(model, AffineGaussian.optimal(model), fixed)


def stochastic_volatility(sequences: list[Sequence], *, persistence: float = 0.95, scale: float = 0.3) -> Start:
    """Begins at the logarithm of the mean square, since the returns of the model have mean zero."""
    check_between("persistence", persistence, -1.0, 1.0)
    check_between("scale", scale, 0.0, math.inf)
    values = observed(sequences)
    largest = np.nanmax(np.abs(values), axis=0)
    if not largest.all():
        raise InputError(
            f"Column {int(np.argmin(largest)) + 1} of the values is zero wherever it is known, so it has no "
            "volatility. Leave the column out; if the zeros stand for missing values, leave their cells empty."
        )
    level = np.log(np.nanmean((values / largest) ** 2, axis=0)) + 2 * np.log(largest)
    return Start(StochasticVolatility(level=level, persistence=persistence, scale=scale), Bootstrap(), ())


def poisson_counts(sequences: list[Sequence], *, persistence: float = 0.9, scale: float = 0.3) -> Start:
    """Begins at the logarithm of the mean count; in a column of zeros, of half a count in all."""
    check_between("persistence", persistence, -1.0, 1.0)
    check_between("scale", scale, 0.0, math.inf)
    values = observed(sequences)
    total = np.maximum(np.nansum(values, axis=0), 0.5)
    level = np.log(total / np.sum(~np.isnan(values), axis=0))
    return Start(PoissonCounts(level=level, persistence=persistence, scale=scale), Bootstrap(), ())


def check_counts(sequences: list[Sequence], options: Mapping[str, Any]) -> None:
    for place, sequence in enumerate(sequences, 1):
        values = known(sequence)
        wrong = np.argwhere(~np.isnan(values) & ((values < 0) | (values != np.floor(values))))
        if len(wrong):
            step, column = wrong[0]
            raise InputError(
                f"Series {place}, step {step + 1}, column {column + 1} of the values: {values[step, column]:g} is not "
                "a count. The model poisson-counts wants the whole numbers 0, 1, 2, ...; use another model."
            )
