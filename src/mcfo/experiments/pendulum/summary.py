"""What was learned, in numbers: curves, and means over the last part of learning."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mcfo.experiments.outcome import Outcome
from mcfo.experiments.pendulum.prediction import Followed
from mcfo.experiments.results import LearningRow, SummaryRow

EVALUATED = ("prediction", "prediction_by_mean", "nll", "ess_at_test")
"""What is evaluated on the test videos; `nll` is that of a whole video."""
_FOLLOWED = ("log_evidence_per_step", "ess", "grad_norm_theta", "grad_norm_phi")


@dataclass(frozen=True)
class Learned:
    """One run: the lines of its metrics, and how what it ended with follows the test videos.

    - `followed`: of the runs that are drawn alone; of others it would fill the memory.
    - `motion`: the share of the rod's motion that it foresees, by its predictive mean.
    """

    method: str
    particles: int
    seed: int
    lines: list[dict[str, Any]]
    followed: Followed | None
    motion: float
    skipped: int
    seconds: float

    def curve(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Steps, and the values at them."""
        found = [(line["step"], _value(line, metric)) for line in self.lines]
        known = [(step, value) for step, value in found if value is not None]
        return np.array([step for step, _ in known]), np.array([value for _, value in known])

    def late(self, metric: str, share: float) -> np.ndarray:
        """The values of the last part of the run."""
        steps, values = self.curve(metric)
        return values[steps > (1 - share) * self.lines[-1]["step"]]

    def sentence(self) -> str:
        """For the terminal."""
        last = {metric: self.curve(metric)[1] for metric in EVALUATED}
        prediction, ess = (
            f"{last[name][-1]:.2f}" if len(last[name]) else "–" for name in ("prediction", "ess_at_test")
        )
        return (
            f"{self.method:>10} K={self.particles:<4} seed {self.seed}  prediction {prediction}  ESS {ess}  "
            f"{self.seconds / 60:.1f} min"
        )

    def rows(self) -> Iterable[LearningRow]:
        """The curves in long form."""
        for line in self.lines:
            for metric in (*EVALUATED, *_FOLLOWED):
                value = _value(line, metric)
                if value is not None:
                    yield LearningRow(self.method, self.particles, self.seed, line["step"], metric, value)


class Outcomes:
    """All runs, by method and K."""

    def __init__(self, learned: list[Learned], share: float):
        self.learned, self._share = learned, share
        self.places = list(dict.fromkeys((one.method, one.particles) for one in learned))

    def runs(self, method: str, particles: int) -> list[Learned]:
        """Those of each seed."""
        return [one for one in self.learned if (one.method, one.particles) == (method, particles)]

    def of(self, method: str, particles: int, metric: str) -> Outcome:
        """The late values of one metric."""
        return Outcome.of_seeds(one.late(metric, self._share) for one in self.runs(method, particles))

    def motion(self, method: str, particles: int) -> Outcome:
        """What the last model of each seed foresees."""
        return Outcome.of_seeds(np.array([one.motion]) for one in self.runs(method, particles))

    def summary(self) -> Iterable[SummaryRow]:
        """Means and spreads over the last part of learning and the seeds."""
        for method, particles in self.places:
            seeds = len(self.runs(method, particles))
            for metric in EVALUATED:
                found = self.of(method, particles, metric)
                yield SummaryRow(method, particles, metric, found.mean, found.spread, seeds)
            motion = self.motion(method, particles)
            yield SummaryRow(method, particles, "motion", motion.mean, motion.spread, seeds)
            minutes = [one.seconds / 60 for one in self.runs(method, particles)]
            yield SummaryRow(method, particles, "minutes", float(np.mean(minutes)), math.nan, seeds)
            skipped = sum(one.skipped for one in self.runs(method, particles))
            yield SummaryRow(method, particles, "skipped", float(skipped), math.nan, seeds)


def _value(line: dict[str, Any], metric: str) -> float | None:
    return line.get(metric, line.get("watched", {}).get(metric))
