"""Means, spreads and verdicts of gradient samples."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from mcfo.experiments.gradients.samples import PARAMETERS
from mcfo.experiments.results import Row

SIGMAS = 4.0
"""A gap is called a bias beyond so many standard errors: a right estimator is accused once in 16000 comparisons."""
ROUNDING = 1e-9
"""A gap below this is rounding, whatever its standard error."""


def rows_of(
    setting: str,
    method: str,
    particles: int,
    samples: Float[np.ndarray, "replicates parameters"],
    exact: Float[np.ndarray, " parameters"],
) -> list[Row]:
    """Mean and standard deviation of each parameter's samples with their standard errors, and the exact value."""
    count = len(samples)
    rows = []
    for place, parameter in enumerate(PARAMETERS):
        values = samples[:, place]
        if np.isnan(values).all():
            continue
        std = float(values.std(ddof=1))
        about = (setting, method, particles, parameter)
        rows.append(Row(*about, "mean", float(values.mean()), std / math.sqrt(count)))
        rows.append(Row(*about, "std", std, std / math.sqrt(2 * (count - 1))))
        rows.append(Row(*about, "exact", float(exact[place]), math.nan))
    return rows


class Estimate(NamedTuple):
    """One parameter's gradient by one method: what was found, and what is exact."""

    mean: float
    stderr: float
    std: float
    exact: float

    @property
    def bias(self) -> float:
        return self.mean - self.exact

    @property
    def sigmas(self) -> float:
        """The gap in standard errors, with its sign; zero where it is rounding."""
        if abs(self.bias) < ROUNDING:
            return 0.0
        return self.bias / self.stderr if self.stderr > 0 else math.copysign(math.inf, self.bias)

    @property
    def biased(self) -> bool:
        return not abs(self.sigmas) <= SIGMAS


class Summary:
    """All estimates of a run, by setting, method, number of particles and parameter."""

    def __init__(self, rows: Iterable[Row]):
        found: dict[tuple[str, str, int, str], dict[str, Row]] = {}
        for row in rows:
            found.setdefault(row[:4], {})[row.quantity] = row
        self._estimates = {
            place: Estimate(by_name["mean"].value, by_name["mean"].stderr, by_name["std"].value, by_name["exact"].value)
            for place, by_name in found.items()
            if "mean" in by_name and "std" in by_name and "exact" in by_name
        }

    def at(self, setting: str, method: str, particles: int, parameter: str) -> Estimate:
        """One estimate."""
        return self._estimates[setting, method, particles, parameter]

    def has(self, setting: str, method: str, particles: int, parameter: str) -> bool:
        """Whether the method was run there and learns the parameter."""
        return (setting, method, particles, parameter) in self._estimates

    def particles(self, setting: str, method: str, parameter: str) -> list[int]:
        """The numbers of particles with which a method was run, ascending."""
        return sorted(
            place[2] for place in self._estimates if (place[0], place[1], place[3]) == (setting, method, parameter)
        )

    def worst(self, setting: str, method: str, particles: int, parameters: Iterable[str]) -> str | None:
        """The parameter that is most standard errors away from its exact value; None if none is learned."""
        learned = [name for name in parameters if self.has(setting, method, particles, name)]
        return max(learned, key=lambda name: abs(self.at(setting, method, particles, name).sigmas), default=None)

    def verdict(self, setting: str, method: str, parameter: str) -> str:
        """Whether the mean misses the exact value at the largest K, and whether the gap shrinks as K grows."""
        counts = self.particles(setting, method, parameter)
        last = self.at(setting, method, counts[-1], parameter)
        if not last.biased:
            return "zero up to rounding" if abs(last.bias) < ROUNDING else "no bias seen"
        before = self.at(setting, method, counts[-2], parameter) if len(counts) > 1 else None
        if before is None or not before.biased:
            return "biased, trend unknown"
        return "biased, shrinks" if abs(last.bias) < 0.5 * abs(before.bias) else "biased, does not shrink"

    def slope(self, setting: str, method: str, parameter: str) -> float:
        """The exponent of K in the spread, by least squares on logarithms over K >= 10; NaN if it has none."""
        counts = [count for count in self.particles(setting, method, parameter) if count >= 10]
        spreads = [self.at(setting, method, count, parameter).std for count in counts]
        if len(counts) < 2 or min(spreads) < ROUNDING:
            return math.nan
        return float(np.polyfit(np.log(counts), np.log(spreads), 1)[0])
