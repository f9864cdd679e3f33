"""`mcfo reproduce music`: the paper's table 3, recurrent models of polyphonic music."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from mcfo.catalogue.registry import build
from mcfo.data.music_files import find_music, read_music
from mcfo.data.piano_rolls import Splits, transpose
from mcfo.experiments.jobs import WORKERS, Job
from mcfo.experiments.outcomes import Claim, SummaryRow, at_most
from mcfo.experiments.runs import METHODS, SWEEPS, Cell, Column, LearningOutcomes, Run, cost, draw_learning, learning
from mcfo.experiments.study import Study, TextTable
from mcfo.inference.evaluation import Evaluation, evaluate
from mcfo.learning.devices import cores, use_every_core
from mcfo.reports.figures import Figure
from mcfo.series import Series

PAPER = {
    ("mcfo-smc", 10): {"nottingham": 2.23, "jsb": 3.87, "musedata": 3.79, "piano-midi": 6.24},
    ("mcfo-smc", 20): {"nottingham": 2.14, "jsb": 3.69, "musedata": 3.65, "piano-midi": 6.11},
    ("mcfo-pimh", 10): {"nottingham": 2.12, "jsb": 3.63, "musedata": 3.59, "piano-midi": 6.08},
    ("mcfo-pimh", 20): {"nottingham": 2.06, "jsb": 3.54, "musedata": 3.48, "piano-midi": 6.03},
    ("fivo", 10): {"nottingham": 2.60, "jsb": 3.90, "musedata": 5.85, "piano-midi": 6.37},
    ("iwae", 10): {"nottingham": 2.50, "jsb": 5.43, "musedata": 6.28, "piano-midi": 6.54},
}
"""NLL per step in the paper's table 3; FIVO and IWAE as their authors trained them."""
_FOLDERS = (Path("data/polyphonic"), Path("../shared/data/polyphonic"))
"""Where the data sets are looked for."""
_LOG_EVERY = 20
_TRAINING_PIECES = 50
"""Pieces of the training split on which a run is evaluated in the end, to see what it has by heart."""


class Problem(NamedTuple):
    """Piano-rolls of one data set."""

    train: list[Series]
    valid: list[Series]
    test: list[Series]
    rolls: Splits

    def baselines(self) -> dict[str, float]:
        """The NLL per step on the test split without latents: each key as often as in the training split, and each
        key given whether it sounded a step before."""
        train, test = self.rolls["train"], self.rolls["test"]
        total = sum(map(len, test))
        frequency = _share(np.sum([roll.sum(0) for roll in train], axis=0), sum(map(len, train)))
        static = -sum(_log_mass(roll, frequency).sum() for roll in test) / total
        before = np.concatenate([roll[:-1] for roll in train])
        after = np.concatenate([roll[1:] for roll in train])
        held = [_share((after * (before == value)).sum(0), (before == value).sum(0)) for value in (0, 1)]
        chained = 0.0
        for roll in test:
            chained -= _log_mass(roll[:1], frequency).sum()
            chained -= _log_mass(roll[1:], np.where(roll[:-1], held[1], held[0])).sum()
        return {"note frequencies": float(static), "each key a Markov chain": float(chained / total)}


def build_problem(file: Path, *, transposed: int) -> Problem:
    """A data set; transpositions that leave the piano are left out."""
    rolls = read_music(file)
    shifts = range(-transposed, transposed + 1)
    train = [shifted for roll in rolls["train"] for shift in shifts if (shifted := transpose(roll, shift)) is not None]
    train, valid, test = (
        [Series.from_values(roll, series_id=number) for number, roll in enumerate(split)]
        for split in (train, rolls["valid"], rolls["test"])
    )
    return Problem(train, valid, test, rolls)


def _share(count: np.ndarray, of: np.ndarray | int) -> np.ndarray:
    """Counts begin with half an observation of either kind."""
    return (count + 0.5) / (of + 1.0)


def _log_mass(roll: np.ndarray, probability: np.ndarray) -> np.ndarray:
    return np.where(roll, np.log(probability), np.log1p(-probability))


class Course(NamedTuple):
    """How one data set is learned, by every method alike.

    - `steps`, `batch`, `rate`: updates of Adam, pieces in each, and the learning rate, which falls to zero by a cosine.
    - `window`: how many steps a gradient goes back.
    - `transposed`: pieces are learned in all keys up to this many semitones up and down.
    - `decay`: weights shrink by this times the learning rate at each update, as in AdamW.
    - `evaluations`: how often a run is evaluated on the validation split; the best of them is what is saved of it.
    """

    steps: int
    batch: int
    rate: float
    window: int | None = None
    transposed: int = 0
    decay: float = 0.0
    evaluations: int = 20


@dataclass(frozen=True)
class Preset:
    """The size of the experiment.

    - `courses`: how each data set is learned; `methods`: some of `METHODS`; `particles`: each K.
    - `validation_particles`: of the filter that evaluates a run on the validation split.
    - `test_particles`, `test_runs`: of the filter that evaluates the best of each run, and how often it does.
    """

    courses: tuple[tuple[str, Course], ...]
    methods: tuple[str, ...] = ("mcfo-smc", "fivo", "iwae", "mcfo-dreg")
    particles: tuple[int, ...] = (10,)
    seeds: tuple[int, ...] = (0,)
    validation_particles: int = 50
    test_particles: int = 500
    test_runs: int = 5

    def learners(self) -> list[tuple[str, int, int, str]]:
        """Data set, seed, K and method of each run."""
        return list(product(dict(self.courses), self.seeds, self.particles, self.methods))


_JSB = Course(steps=1200, batch=16, rate=2e-3)
_JSB_DECAYED = Course(steps=1600, batch=16, rate=2e-3, decay=0.3)
_NOTTINGHAM = Course(steps=800, batch=16, rate=3e-3, evaluations=8)
_MUSEDATA = Course(steps=2000, batch=16, rate=1e-3, window=200, evaluations=8)
_PIANO_MIDI = Course(steps=1000, batch=8, rate=1e-3, window=200)
PRESETS = {
    "quick": Preset((("jsb", _JSB),)),
    "long": Preset(
        (("jsb", _JSB_DECAYED), ("nottingham", _NOTTINGHAM)),
        methods=("mcfo-smc", "mcfo-pimh", "fivo", "iwae", "mcfo-dreg"),
        test_runs=3,
    ),
    "paper": Preset(
        (("jsb", _JSB_DECAYED), ("nottingham", _NOTTINGHAM), ("musedata", _MUSEDATA), ("piano-midi", _PIANO_MIDI)),
        methods=("mcfo-smc", "mcfo-pimh", "mcfo-dreg", "fivo", "iwae", "nasmc"),
        particles=(10, 20),
        test_runs=10,
    ),
}


class MusicOutcomes(LearningOutcomes):
    """The NLL of each method on each data set, beside models without latents."""

    shown = ("data", "method", "K", "test NLL", "validation", "training", "ESS", "minutes")

    columns: ClassVar[dict[str, Column]] = {
        "test_nll": Column("test NLL", 3, -1),
        "valid_nll": Column("validation", 3),
        "train_nll": Column("training", 3),
        "test_nll_few": Column("test, K", 3),
        "test_ess": Column("ESS", 1),
        "best_step": Column("best step", 0),
        "minutes": Column("minutes", 1),
    }
    curves: ClassVar = {
        name: name for name in ("log_evidence_per_step", "ess", "validation_nll_per_step", "validation_ess")
    }

    def __init__(self, size: Preset, problem: Mapping[str, Problem], results: Mapping[str, Sequence[Run]]):
        super().__init__(size, problem, results)
        self.baselines = {name: one.baselines() for name, one in problem.items()}

    def references(self) -> list[SummaryRow]:
        return [
            SummaryRow(name, 0, "test_nll", value, data=data)
            for data, known in self.baselines.items()
            for name, value in known.items()
        ]

    def claims(self) -> list[Claim]:
        found = []
        for data, method, particles in self.cells:
            ours = (data, "mcfo-smc", particles)
            if method != "mcfo-smc" and ours in self.cells:
                found.append(self._below(ours, (data, method, particles), f"mcfo-smc below {method}'s"))
        for data, method in dict.fromkeys(cell[:2] for cell in self.cells):
            sizes = sorted(cell[2] for cell in self.cells if cell[:2] == (data, method))
            if len(sizes) > 1:
                last, first = ((data, method, size) for size in (sizes[-1], sizes[0]))
                found.append(self._below(last, first, f"{method} falls from K = {sizes[0]} to {sizes[-1]}"))
        for data in self.baselines:
            found += self._best(data)
        return found

    def in_paper(self, cell: Cell, metric: str) -> float:
        return PAPER.get(cell[1:], {}).get(cell[0], math.nan)

    def _below(self, one: Cell, other: Cell, text: str) -> Claim:
        in_paper = {one[1], other[1]} <= {method for method, _ in PAPER}
        options = {"setting": f"{one[0]}, K = {one[2]}", "source": "paper" if in_paper else "ours"}
        return self.compare(f"test NLL of {text}", one, other, "test_nll", wanted=-1, **options)

    def _best(self, data: str) -> list[Claim]:
        """The level itself: the best method beside the paper's best and beside a model without latents."""
        means = {cell: self.of(cell, "test_nll").mean for cell in self.cells if cell[0] == data}
        best = min(means, key=means.__getitem__)
        paper = min((table[data] for table in PAPER.values() if data in table), default=math.nan)
        options = {"setting": f"{data}, {best[1]}, K = {best[2]}", "spread": self.of(best, "test_nll").spread}
        found = [at_most("the best test NLL is the paper's", means[best], paper, paper=paper, **options)]
        for name, value in self.baselines[data].items():
            found.append(at_most(f"the best test NLL below {name}", means[best], value, source="ours", **options))
        return found

    def figures(self, folder: Path) -> list[Figure]:
        metrics = {
            "log_evidence_per_step": "training: the bound",
            "validation_nll_per_step": "validation: NLL",
            "validation_ess": "validation: ESS",
        }
        levels = {(data, "validation_nll_per_step"): known for data, known in self.baselines.items()}
        caption = (
            "Learning. Rings: the best of each run, by the validation split. Where the left panel rises on while the "
            "NLL of the middle one rises too, pieces are learned by heart."
        )
        path = folder / "curves.png"
        return [draw_learning(path, self.runs, metrics, levels, caption, rings="validation_nll_per_step")]

    def text(self) -> list[str]:
        size = self.size
        return [
            f"Piano-rolls of {', '.join(self.baselines)} are learned by a VRNN (LSTM, latents and networks of 64 "
            f"units), by {len(size.methods)} methods, K = {', '.join(map(str, size.particles))}, {len(size.seeds)} "
            "seeds.",
            "The settings say how each data set is learned (courses): updates of Adam, pieces in each, the rate, which "
            "falls to zero by a cosine, how many steps a gradient goes back (window), in how many semitones up and "
            "down pieces are transposed, by how many times the rate weights decay.",
            "All methods start from the same networks: emission at the note frequencies of the training split, a "
            "proposal that corrects the prior's mean, scales by softplus with 0.25 added before it, inputs centered. "
            "Baselines have no latents: each key as often as in the training split; each key given whether it sounded "
            "a step before.",
        ]

    def tables(self) -> list[TextTable]:
        size = self.size
        caption = (
            f"The paper's table 3, NLL per step. Test: by SMC with {size.test_particles} particles, {size.test_runs} "
            "evaluations of each run, mean ± standard deviation over them and the seeds, of the parameters with the "
            "lowest NLL on the validation split; test, K: with the particles of learning; training: pieces that were "
            "learned from. ESS: on the test split. Bold: the best of each data set and K."
        )
        paper = {cell: f"{PAPER[cell[1:]][cell[0]]:.2f}" for cell in self.cells if cell[0] in PAPER.get(cell[1:], {})}
        return [self.method_table(caption, paper)]


class Music(Study):
    """Variational recurrent networks of piano-rolls."""

    name = "music"
    title = "Polyphonic music: variational recurrent networks"
    presets: ClassVar = PRESETS
    outcomes = MusicOutcomes
    reads_files = True

    @property
    def devices(self) -> int:
        """One run is shared by all cores; of several, each core has one."""
        return cores() if len(self.size.learners()) == 1 else 1

    @property
    def workers(self) -> int:
        return 1 if self.devices > 1 else WORKERS

    def settings(self) -> dict[str, Any]:
        courses = {name: course._asdict() for name, course in self.size.courses}
        optimizer = "adam, or adamw where weights decay"
        return {"courses": courses, "sweeps": SWEEPS, "optimizer": optimizer, "devices": self.devices}

    def prepare(self) -> dict[str, Problem]:
        courses = dict(self.size.courses)
        files = find_music(_FOLDERS if self.data is None else (self.data,), list(courses))
        if self.devices > 1:
            use_every_core(self.devices)
        return {name: build_problem(files[name], transposed=course.transposed) for name, course in courses.items()}

    def jobs(self, problem: dict[str, Problem]) -> dict[str, Job]:
        return {
            f"{data}-{method}-{particles}-{seed}": self._job((data, method, particles), seed, problem[data])
            for data, seed, particles, method in self.size.learners()
        }

    def _job(self, cell: Cell, seed: int, problem: Problem) -> Job:
        """One run, and its best parameters by the validation split on the test split, with the same keys as others."""
        data, method, particles = cell
        size, course, objective = self.size, dict(self.size.courses)[data], METHODS[method](particles)
        key = jax.random.fold_in(jax.random.key(self.seed), 1)

        def numbers(one: Any, fitted: Any) -> tuple[dict[str, Any], None]:
            def on(pieces: list[Series], particles: int, key: Any) -> Evaluation:
                return evaluate(one.model, one.proposal, pieces, particles=particles, predictions=False, key=key)

            keys = [jax.random.fold_in(key, number) for number in range(size.test_runs)]
            tests = [on(problem.test, size.test_particles, each) for each in keys]
            known = problem.train[:: max(1, len(problem.train) // _TRAINING_PIECES)]
            found = {
                "test_nll": [test.nll_per_step for test in tests],
                "test_nll_few": on(problem.test, particles, key).nll_per_step,
                "valid_nll": one.evaluation.nll_per_step,
                "train_nll": on(known, size.test_particles, key).nll_per_step,
                "test_ess": [test.ess for test in tests],
                "best_step": one.best_step or course.steps,
                "skipped": one.skipped,
                "minutes": fitted.seconds / 60,
            }
            return found, None

        def start() -> tuple[Any, Any, Any]:
            built = build("vrnn", problem.train, {"network_seed": seed})
            return built.model, built.proposal, built.fixed

        log_every, length = min(_LOG_EVERY, course.steps), float(np.mean([one.steps for one in problem.train]))
        return learning(
            course.steps * course.batch * length * cost(objective), cell, start, problem.train,
            numbers=numbers, objective=objective, validation=problem.valid, checkpoint_seconds=60.0,
            steps=course.steps, batch=course.batch, seeds=(seed,), optimizer="adamw" if course.decay else "adam",
            optimizer_options={"weight_decay": course.decay} if course.decay else {}, learning_rate=course.rate,
            schedule="cosine", log_every=log_every, evaluate_every=max(log_every, course.steps // course.evaluations),
            evaluation_particles=size.validation_particles, window=course.window, devices=self.devices,
        )  # fmt: skip


STUDY = Music
