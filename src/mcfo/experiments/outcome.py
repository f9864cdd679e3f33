"""One number of a method over its evaluations and seeds, and whether two of them differ."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

_CLEAR = 2.0
"""Standard errors by which two means must differ to be called different."""


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
    """What is to be said of a difference of means: nothing where it is beyond their standard errors over the seeds."""
    if min(len(one.by_seed), len(other.by_seed)) < 2:
        return " (one seed)"
    errors = [outcome.by_seed.std(ddof=1) / math.sqrt(len(outcome.by_seed)) for outcome in (one, other)]
    gap = abs(one.by_seed.mean() - other.by_seed.mean())
    beyond = gap > _CLEAR * math.hypot(*errors)
    return "" if beyond else f" (no difference beyond {_CLEAR:.0f} standard errors over {len(one.by_seed)} seeds)"
