"""One number of a method over its evaluations and seeds, and whether two of them differ."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from scipy.special import stdtr

_CLEAR = 0.05
"""The largest chance, were there no difference, of one like that between two means that are called different."""


class Outcome(NamedTuple):
    """All values of a metric, of all seeds, and the mean of each seed."""

    values: np.ndarray
    by_seed: np.ndarray

    @classmethod
    def of_seeds(cls, values: Iterable[np.ndarray]) -> Outcome:
        """From the values of each seed; of a seed that has none, nothing."""
        known = [each for each in values if len(each)]
        if not known:
            return cls(np.array([]), np.array([]))
        return cls(np.concatenate(known), np.array([each.mean() for each in known]))

    @property
    def mean(self) -> float:
        return float(np.mean(self.values)) if len(self.values) else math.nan

    @property
    def spread(self) -> float:
        """The standard deviation over all values."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else math.nan

    def words(self, digits: int = 2) -> str:
        """Mean ± spread."""
        spread = "" if math.isnan(self.spread) else f" ± {self.spread:.{digits}f}"
        return f"{self.mean:.{digits}f}{spread}"


def clearly(one: Outcome, other: Outcome) -> str:
    """What is to be said of a difference of means: nothing where Welch's t-test over the seeds finds it clear."""
    if not min(len(one.by_seed), len(other.by_seed)):
        return " (nothing finite to compare)"
    if min(len(one.by_seed), len(other.by_seed)) < 2:
        return " (one seed)"
    chance = _chance(one.by_seed, other.by_seed)
    return "" if chance < _CLEAR else f" (not clear over {len(one.by_seed)} seeds: p = {chance:.2f})"


def _chance(one: np.ndarray, other: np.ndarray) -> float:
    """The two-sided p-value of Welch's t-test."""
    gap = abs(one.mean() - other.mean())
    squares = np.array([values.var(ddof=1) / len(values) for values in (one, other)])
    total = float(squares.sum())
    if total == 0:
        return 0.0 if gap else 1.0
    freedom = total**2 / float((squares**2 / (len(one) - 1, len(other) - 1)).sum())
    return 2 * float(stdtr(freedom, -gap / math.sqrt(total)))
