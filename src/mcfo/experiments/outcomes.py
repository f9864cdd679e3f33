"""Numbers of an experiment: rows in long form, means with their spread, and claims with the test that decides them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import sem, ttest_ind

from mcfo.files import write_atomically

HOLDS, FAILS, OPEN = "holds", "does not hold", "not decided"
SIGMAS = 4.0
"""Standard errors beyond which a gap counts: a right estimator is accused once in 16000 comparisons."""
ROUNDING = 1e-9
"""A gap below this is rounding, whatever its standard error."""
_CHANCE = 0.05
"""The p-value below which two means over seeds are called different."""


class Row(NamedTuple):
    """One number of an experiment that samples. `stderr` is NaN where the value is exact."""

    setting: str
    method: str
    particles: int
    parameter: str
    quantity: str
    value: float
    stderr: float = math.nan


class LearningRow(NamedTuple):
    """One number of a run, at a step; `data` is empty where there is one data set."""

    method: str
    particles: int
    seed: int
    step: int
    metric: str
    value: float
    data: str = ""


class SummaryRow(NamedTuple):
    """One number of a method: mean and spread over the seeds; none where it was not learned, but is a reference."""

    method: str
    particles: int
    metric: str
    mean: float
    std: float = math.nan
    seeds: int = 0
    data: str = ""


class Claim(NamedTuple):
    """A statement, and whether it holds here.

    - `source`: `paper`; `erratum`, where the paper's statement is known to be wrong; `theorem`, what must hold, so that
      a failure is a fault of ours; `ours`, what the paper does not say.
    - `paper`: the paper's number, NaN where it has none; `ours`: the same number here; `spread`: its standard error, or
      its standard deviation where the test does not need one.
    - `verdict`: `holds`, `does not hold` or `not decided`.
    """

    claim: str
    source: str
    setting: str
    paper: float
    ours: float
    spread: float
    test: str
    verdict: str


class Estimate(NamedTuple):
    """A mean and its standard error."""

    value: float
    stderr: float = math.nan

    @property
    def sigmas(self) -> float:
        """The value in standard errors, with its sign; zero where it is rounding."""
        if abs(self.value) < ROUNDING:
            return 0.0
        return self.value / self.stderr if self.stderr > 0 else math.copysign(math.inf, self.value)

    def text(self) -> str:
        """The value with as many digits as its standard error allows: two of the error's."""
        if not self.stderr > 0:
            return f"{self.value:.4g}"
        digits = max(0, 1 - math.floor(math.log10(self.stderr)))
        return f"{self.value:.{digits}f} ± {self.stderr:.{digits}f}" if digits < 6 else f"{self.value:.2g}"


class Outcome(NamedTuple):
    """All values of a metric, of all seeds, and the mean of each seed."""

    values: np.ndarray
    by_seed: np.ndarray

    @classmethod
    def of_seeds(cls, values: Iterable[np.ndarray]) -> Outcome:
        """From the values of each seed; a seed without values adds nothing."""
        known = [each for each in values if len(each)]
        return cls(np.concatenate([[], *known]), np.array([each.mean() for each in known]))

    @property
    def mean(self) -> float:
        return float(np.mean(self.values)) if len(self.values) else math.nan

    @property
    def spread(self) -> float:
        """The standard deviation over all values."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else math.nan

    @property
    def error(self) -> float:
        """The standard error of the mean over the seeds."""
        return float(sem(self.by_seed)) if len(self.by_seed) > 1 else math.nan


def welch(one: Outcome, other: Outcome) -> float:
    """The two-sided p-value of Welch's t-test over the seeds; NaN where one of them has fewer than two."""
    seeds = one.by_seed, other.by_seed
    if min(map(len, seeds)) < 2:
        return math.nan
    if not any(np.ptp(each) for each in seeds):
        return float(seeds[0][0] == seeds[1][0])
    return float(np.asarray(ttest_ind(*seeds, equal_var=False))[1])


def stated(claim: str, holds: bool | None, ours: float, test: str, **options: Any) -> Claim:
    """A claim that a test decides, or cannot decide (None). `options`: the other fields of the claim; by default it is
    the paper's."""
    verdict = OPEN if holds is None else HOLDS if holds else FAILS
    options = {"source": "paper", "setting": "", "paper": math.nan, "spread": math.nan} | options
    return Claim(claim=claim, ours=ours, test=test, verdict=verdict, **options)


def compared(claim: str, one: Outcome, other: Outcome, *, wanted: int = 1, **options: Any) -> Claim:
    """The claim that one mean over seeds is above another, or, with `wanted` -1, below it, by Welch's test. Its numbers
    are their difference."""
    gap, chance = one.mean - other.mean, welch(one, other)
    seeds = f"{len(one.by_seed)} and {len(other.by_seed)} seeds"
    if math.isnan(gap):
        test, holds = "nothing finite to compare", None
    elif math.isnan(chance):
        test, holds = f"none with {seeds}", None
    else:
        test, holds = f"Welch, {seeds}: p = {chance:.2g}", wanted * gap > 0 if chance < _CHANCE else None
    return stated(claim, holds, gap, test, spread=math.hypot(one.error, other.error), **options)


def positive(claim: str, estimate: Estimate, *, source: str = "theorem", **options: Any) -> Claim:
    """The claim that a number is positive, by `SIGMAS` standard errors."""
    sigmas = estimate.sigmas
    holds = sigmas > 0 if abs(sigmas) >= SIGMAS else None
    options |= {"source": source, "spread": estimate.stderr}
    return stated(claim, holds, estimate.value, f"{sigmas:.1f} s.e. from 0", **options)


def unbiased(claim: str, gap: Estimate, *, wanted: bool = True, **options: Any) -> Claim:
    """The claim that a gap is zero, or, where that is not `wanted`, that it is not, by `SIGMAS` standard errors."""
    seen = not abs(gap.sigmas) <= SIGMAS
    test = f"{gap.sigmas:.1f} s.e., a bias beyond {SIGMAS:g}"
    return stated(claim, seen != wanted, gap.value, test, spread=gap.stderr, **options)


def at_most(claim: str, value: float, limit: float, **options: Any) -> Claim:
    """The claim that a number is at most a limit; a NaN decides nothing."""
    return stated(claim, None if math.isnan(value) else value <= limit, value, f"at most {limit:.3g}", **options)


def write_table(path: Path, header: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Writes rows as CSV with a header; numbers in full precision, and nothing where a number is NaN."""
    # As objects: a whole number stays one also in a column with others.
    table = pd.DataFrame(list(rows), columns=list(header), dtype=object)
    write_atomically(path, table.to_csv(index=False, lineterminator="\n").encode())
