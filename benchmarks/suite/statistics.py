"""The numbers that the tables show, from seconds and values as they came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

SIGMAS = 5.0
"""Standard errors beyond which two numbers are not the same."""

ROUNDING = 2e-5
"""Share of a log-evidence that float32 may lose by adding it up."""


def summary(seconds: Sequence[float]) -> dict[str, float]:
    """Median, quartiles and number of the repeats."""
    low, middle, high = np.percentile(seconds, [25, 50, 75])
    return {"median": float(middle), "low": float(low), "high": float(high), "repeats": len(seconds)}


def exponent(sizes: Sequence[float], numbers: Sequence[float], upper: int = 3) -> float:
    """b of numbers ≈ a · sizes^b, by least squares of the logarithms over the largest sizes."""
    order = np.argsort(sizes)[-upper:]
    if len(order) < 2:
        raise ValueError(f"An exponent needs two sizes, but got {len(order)}. Measure more.")
    slope, _ = np.polyfit(np.log(np.asarray(sizes, float)[order]), np.log(np.asarray(numbers, float)[order]), 1)
    return float(slope)


def slope(sizes: Sequence[float], numbers: Sequence[float]) -> float:
    """By how much the numbers grow with each unit of size, by least squares."""
    return float(np.polyfit(np.asarray(sizes, float), np.asarray(numbers, float), 1)[0])


class Spread(NamedTuple):
    """The variance of one call's value, and how many degrees of freedom it was estimated with."""

    variance: float
    freedom: int


def spread(groups: Sequence[Sequence[float]]) -> Spread:
    """Of contenders that run the same algorithm: their variances pooled, without those of ten times the median, so that
    a wrong one cannot widen it."""
    several = [np.asarray(group, float) for group in groups if len(group) > 1]
    if not several:
        return Spread(float("nan"), 0)
    variances = np.array([group.var(ddof=1) for group in several])
    freedom = np.array([len(group) - 1 for group in several])
    usual = variances <= 10 * np.median(variances)
    return Spread(float(np.average(variances[usual], weights=freedom[usual])), int(freedom[usual].sum()))


def truth_gap(values: Sequence[float], exact: float, of_one: Spread, averaged: int = 1) -> dict[str, Any]:
    """How far the mean of log-evidences is from the truth, in standard errors.

    E[log p̂] = log p - variance / 2 where log p̂ is Gaussian, and `averaged` times that where a value is the mean of so
    many. The variance is itself estimated, which widens the error.
    """
    variance, freedom = of_one
    if not freedom:
        return {"sigmas": None, "agrees": None}
    correction = averaged * variance / 2
    error = np.sqrt(variance / len(values) + correction**2 * 2 / freedom) + ROUNDING * abs(exact)
    gap = (float(np.mean(values)) + correction - exact) / error
    return {"sigmas": float(gap), "agrees": bool(abs(gap) < SIGMAS)}


def mean_gap(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, Any]:
    """How far two means are apart, in standard errors; nothing where there are too few values to say."""
    if min(len(ours), len(theirs)) < 4:
        return {"sigmas": None, "agrees": None}
    error = np.sqrt(np.var(ours, ddof=1) / len(ours) + np.var(theirs, ddof=1) / len(theirs))
    gap = float((np.mean(theirs) - np.mean(ours)) / error)
    return {"sigmas": gap, "agrees": bool(abs(gap) < SIGMAS)}
