"""What was learned, in numbers: long form, the last evaluation, and when the proposal became good."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mcfo.experiments.lgssm.problem import PHI, THETA
from mcfo.experiments.results import LearningRow, SummaryRow
from mcfo.inference.evaluation import Evaluation

LEVELS = (0.95, 0.99)
"""Shares of K that the effective sample size is timed to."""
_FINE = 500
_COARSE = 100
"""Of the curves, every line is kept up to the former step, then those at multiples of the latter, and every line of
the last tenth."""


@dataclass(frozen=True)
class Learned:
    """One method with one K: the lines of its metrics, and for each seed what it ended with.

    - `parameters`: averaged over the last tenth of the steps; `evaluations`: of these, on all test series.
    """

    method: str
    particles: int
    lines: list[dict[str, Any]]
    parameters: list[dict[str, float]]
    evaluations: list[Evaluation]
    skipped: list[int]
    seconds: float

    def curve(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Steps, and the values of each seed at them, NaN where one has none: shape (seeds, steps)."""
        seeds = sorted({line["seed"] for line in self.lines})
        found = {(line["seed"], line["step"]): value(line, metric) for line in self.lines}
        steps = sorted({step for (_, step), number in found.items() if number is not None})
        values = [[_known(found.get((seed, step))) for step in steps] for seed in seeds]
        return np.array(steps), np.array(values).reshape(len(seeds), len(steps))

    def steps_to(self, share: float) -> float:
        """The first evaluation at which the effective sample size, its mean over the seeds, is at least that share of
        the particles; infinite if it never is."""
        steps, ess = self.curve("test_ess")
        if not len(steps):
            return math.inf
        # A seed without an effective sample size (a collapsed filter) keeps the mean from reaching anything.
        reached = np.flatnonzero(ess.mean(0) >= share * self.evaluations[0].particles)
        return float(steps[reached[0]]) if len(reached) else math.inf

    def finals(self) -> dict[str, list[float]]:
        """The last evaluation, by metric, for each seed."""
        found = {name: [one[name] for one in self.parameters] for name in (*THETA, *PHI) if name in self.parameters[0]}
        found["ess"] = [one.ess for one in self.evaluations]
        found["nll_per_step"] = [one.nll_per_step for one in self.evaluations]
        found["exact_nll_per_step"] = [_known(one.exact_nll_per_step) for one in self.evaluations]
        found["skipped"] = [float(count) for count in self.skipped]
        return found

    def mean(self, metric: str) -> float:
        return float(np.mean(self.finals()[metric]))

    def error(self, metric: str) -> float:
        """The standard error of the mean over the seeds."""
        values = self.finals()[metric]
        return float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan

    def worst(self, metric: str, target: float) -> float:
        """The largest distance from a target over the seeds."""
        return float(np.max(np.abs(np.asarray(self.finals()[metric]) - target)))

    def sentence(self, optimum: dict[str, float]) -> str:
        """For the terminal."""
        theta = ", ".join(f"{self.mean(name):.3f}" for name in THETA)
        return (
            f"{self.method:>12} K={self.particles:<4} theta ({theta})  ESS {self.mean('ess'):.1f}  "
            f"NLL/step {self.mean('exact_nll_per_step'):.4f}  {self.seconds:.0f} s"
        )

    def rows(self) -> Iterable[LearningRow]:
        """The curves, thinned in the middle; and, as `averaged_...` at the last step, what the parameters averaged over
        the last tenth give on all test series."""
        metrics = (*THETA, *PHI, *_METRICS)
        last = max(line["step"] for line in self.lines)
        for line in self.lines:
            if _FINE < line["step"] <= 0.9 * last and line["step"] % _COARSE:
                continue
            for metric in metrics:
                number = value(line, metric)
                if number is not None:
                    yield LearningRow(self.method, self.particles, line["seed"], line["step"], metric, number)
        seeds = sorted({line["seed"] for line in self.lines})
        for metric, values in self.finals().items():
            for seed, number in zip(seeds, values, strict=True):
                yield LearningRow(self.method, self.particles, seed, last, f"averaged_{metric}", number)

    def summary(self) -> Iterable[SummaryRow]:
        """The last evaluation, mean and spread over the seeds."""
        for metric, values in self.finals().items():
            spread = float(np.std(values, ddof=1)) if len(values) > 1 else math.nan
            yield SummaryRow(self.method, self.particles, metric, float(np.mean(values)), spread, len(values))
        for share in LEVELS:
            steps = self.steps_to(share)
            yield SummaryRow(
                self.method, self.particles, f"steps_to_ess_{share:.2f}", steps, math.nan, len(self.parameters)
            )
        yield SummaryRow(self.method, self.particles, "seconds", self.seconds, math.nan, len(self.parameters))


_METRICS = {
    "log_evidence_per_step": "log_evidence_per_step",
    "ess": "ess",
    "grad_norm_theta": "grad_norm_theta",
    "grad_norm_phi": "grad_norm_phi",
    "test_nll_per_step": "validation_nll_per_step",
    "test_ess": "validation_ess",
    "exact_nll_per_step": "exact_nll_per_step",
}
"""The metrics of the curves, and what the lines of a run call them."""


def value(line: dict[str, Any], metric: str) -> float | None:
    """A number of a line, also one that was watched; None if it has none."""
    name = _METRICS.get(metric, metric)
    return line.get(name, line.get("watched", {}).get(name))


def _known(number: float | None) -> float:
    return math.nan if number is None else number
