"""What was learned, in numbers: curves, and how the best of each run does on the test split."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mcfo.experiments.music.methods import Job
from mcfo.experiments.outcome import Outcome
from mcfo.inference.evaluation import Evaluation

_FOLLOWED = ("log_evidence_per_step", "ess", "validation_nll_per_step", "validation_ess")


class Row(NamedTuple):
    """One number of a run, at a step; of the step 0 are those of baselines."""

    method: str
    particles: int
    seed: int
    step: int
    metric: str
    value: float
    data: str


class Summary(NamedTuple):
    """One number of a method: its mean, and its spread over the evaluations and the seeds."""

    method: str
    particles: int
    metric: str
    mean: float
    std: float
    seeds: int
    data: str


@dataclass(frozen=True)
class Learned:
    """One run: the lines of its metrics, and the evaluations of its best parameters.

    - `tests`: on the test split, several times; `few`: there with the particles that it learned with.
    - `known`: on pieces that it learned from; `valid`: on the validation split, by which `best_step` was chosen.
    """

    job: Job
    lines: list[dict[str, Any]]
    tests: list[Evaluation]
    few: Evaluation
    known: Evaluation
    valid: Evaluation
    best_step: int
    skipped: int
    seconds: float

    def curve(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Steps, and the values at them."""
        known = [(line["step"], line[metric]) for line in self.lines if line.get(metric) is not None]
        return np.array([step for step, _ in known]), np.array([value for _, value in known])

    @property
    def test_nll(self) -> np.ndarray:
        return np.array([one.nll_per_step for one in self.tests])

    def numbers(self) -> dict[str, np.ndarray]:
        """What tables show, each once or for every evaluation."""
        return {
            "test_nll": self.test_nll,
            "test_nll_few": np.array([self.few.nll_per_step]),
            "valid_nll": np.array([self.valid.nll_per_step]),
            "train_nll": np.array([self.known.nll_per_step]),
            "test_ess": np.array([one.ess for one in self.tests]),
            "best_step": np.array([float(self.best_step)]),
            "skipped": np.array([float(self.skipped)]),
            "minutes": np.array([self.seconds / 60]),
        }

    def sentence(self) -> str:
        """For the terminal."""
        return (
            f"{self.job.data:>10} {self.job.method:>9} K={self.job.particles:<3} seed {self.job.seed}  test NLL "
            f"{self.test_nll.mean():.3f}  best after {self.best_step} steps  {self.seconds / 60:.1f} min"
        )

    def rows(self) -> Iterable[Row]:
        """The curves in long form, and the numbers at the best step."""
        data, method, particles, seed = self.job
        for line in self.lines:
            for metric in _FOLLOWED:
                if line.get(metric) is not None:
                    yield Row(method, particles, seed, line["step"], metric, line[metric], data)
        for metric, values in self.numbers().items():
            for value in values:
                yield Row(method, particles, seed, self.best_step, metric, float(value), data)


class Outcomes:
    """All runs, by data set, method and K."""

    def __init__(self, learned: list[Learned]):
        self.learned = learned
        self.places = list(dict.fromkeys(one.job[:3] for one in learned))
        self.data = list(dict.fromkeys(one.job.data for one in learned))

    def runs(self, data: str, method: str, particles: int) -> list[Learned]:
        """Those of each seed."""
        return [one for one in self.learned if one.job[:3] == (data, method, particles)]

    def of(self, data: str, method: str, particles: int, metric: str) -> Outcome:
        """One metric of a method."""
        return Outcome.of_seeds(one.numbers()[metric] for one in self.runs(data, method, particles))

    def summary(self) -> Iterable[Summary]:
        """Means and spreads."""
        for place in self.places:
            runs = self.runs(*place)
            for metric in runs[0].numbers():
                found = self.of(*place, metric)
                yield Summary(*place[1:], metric, found.mean, found.spread, len(runs), place[0])
