"""Runs of the studies that learn: their curves and how they are drawn, their numbers over the seeds, and the table."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from mcfo.experiments.jobs import Job
from mcfo.experiments.outcomes import Claim, LearningRow, Outcome, SummaryRow, compared
from mcfo.experiments.study import Outcomes, TextTable
from mcfo.learning.fit import fit
from mcfo.learning.progress import Listener
from mcfo.learning.results import Fitted, SeedFit
from mcfo.models.base import Model
from mcfo.objectives.named import aesmc, bootstrap, fivo, iwae, mcfo, nasmc
from mcfo.objectives.objective import Objective
from mcfo.proposals.base import Proposal
from mcfo.reports.figures import Chart, Figure, Line, draw_charts
from mcfo.smc.pimh import PIMH

COLORS = {
    "bootstrap": "#7f7f7f", "elbo": "#bcbd22", "iwae": "#e69f00", "fivo": "#d55e00", "aesmc": "#d62728",
    "fivo-full": "#8c564b", "alternating": "#c49c00", "rws": "#17becf", "nasmc": "#999999", "mcfo": "#0072b2",
    "mcfo-smc": "#0072b2", "mcfo-exact": "#08306b", "mcfo-pimh": "#56b4e9", "mcfo-dreg": "#009e73",
    "mcfo-stl": "#fdae6b", "mcfo-fisher": "#9467bd", "mcfo-fisher-lag": "#a6761d", "mcfo-lag": "#cc79a7",
}  # fmt: skip
"""A method has one color in all experiments."""
_SPARE = ("#56b4e9", "#c49c00", "#7f3b08", "#40004b")
SWEEPS = 5
METHODS: dict[str, Callable[[int], Objective]] = {
    "bootstrap": bootstrap,
    "iwae": iwae,
    "fivo": fivo,
    "aesmc": aesmc,
    "nasmc": nasmc,
    "mcfo-smc": mcfo,
    "mcfo-pimh": lambda particles: mcfo(particles, sweeps=SWEEPS),
    "mcfo-dreg": lambda particles: mcfo(particles, phi="dreg"),
    "mcfo-fisher": lambda particles: mcfo(particles, theta="fisher"),
}
"""A method is the same in all experiments that learn, unless they say otherwise."""

Cell: TypeAlias = tuple[str, str, int]
"""Data set (or nothing), method and K: runs that differ by their seed alone share it."""


@dataclass(frozen=True)
class Run:
    """One seed of a fit: the lines of its metrics, and the numbers that it ended with, one or several for a metric."""

    method: str
    particles: int
    seed: int
    lines: list[dict[str, Any]]
    numbers: dict[str, np.ndarray]
    skipped: int
    seconds: float
    data: str = ""
    details: Any = None

    @property
    def cell(self) -> Cell:
        return self.data, self.method, self.particles

    def curve(self, metric: str) -> tuple[np.ndarray, np.ndarray]:
        """Steps, and the values at them; a value that was not finite is missing."""
        known = [(line["step"], value) for line in self.lines if (value := _value(line, metric)) is not None]
        return np.array([step for step, _ in known], int), np.array([value for _, value in known], float)


def cost(objective: Objective) -> float:
    """How long a step takes, about: passes of all particles through the model."""
    estimators = (objective.theta,) if objective.shares_run else (objective.theta, objective.phi)
    samplers = [estimator.sampler for estimator in estimators if estimator is not None]
    passes = [sampler.particles * (sampler.sweeps + 3 if isinstance(sampler, PIMH) else 3) for sampler in samplers]
    return float(sum(passes))


class Runs(list[Run]):
    """The seeds of one job."""

    @property
    def seconds(self) -> float:
        return sum(run.seconds for run in self)

    def line(self) -> str:
        """The first numbers of each seed, for the terminal."""
        return "; ".join(
            f"seed {run.seed}: {', '.join(numbers)}, {run.seconds / 60:.1f} min"
            for run in self
            if (numbers := [f"{name} {each.mean():.4g}" for name, each in list(run.numbers.items())[:3] if len(each)])
        )


def learning(
    cost: float,
    cell: Cell,
    start: Callable[[], tuple[Model, Proposal, Sequence[str]]],
    data: Any,
    *,
    numbers: Callable[[SeedFit, Fitted], tuple[dict[str, Any], Any]],
    **settings: Any,
) -> Job:
    """A job that learns all seeds of a cell in one program, resumable in its folder.

    **Arguments:**

    - `start`: builds the model, the proposal and the names of what is fixed in them.
    - `numbers`: what each seed is given: its numbers, and details for the figures.
    - `settings`: the other arguments of [`mcfo.fit`][].
    """

    def work(path: Path | None, listener: Listener) -> Runs:
        model, proposal, fixed = start()
        # As in the paper: a fixed number of updates, in the unit of the data.
        paper = {"tolerance": 0, "standardize": False}
        options = paper | {"fixed": fixed, "out": path, "resume": path is not None, "listener": listener}
        fitted = fit(model, proposal, data, **options, **settings)
        runs = Runs()
        for one in fitted.seeds:
            found, details = numbers(one, fitted)
            arrays = {metric: np.atleast_1d(np.array(values, float)) for metric, values in found.items()}
            lines = [line for line in fitted.metrics if line["seed"] == one.seed]
            seconds = fitted.seconds / len(fitted.seeds)
            runs.append(Run(*cell[1:], one.seed, lines, arrays, one.skipped, seconds, cell[0], details))
        return runs

    return Job(cost, work)


def _value(line: Mapping[str, Any], metric: str) -> float | None:
    """A number of a line of the metrics, also one that was watched; None where it has none."""
    return line.get(metric, line.get("watched", {}).get(metric))


def seed_curves(runs: Sequence[Run], metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps, and the values of each seed at them, NaN where one has none: shape (seeds, steps)."""
    curves = [dict(zip(*(part.tolist() for part in run.curve(metric)), strict=True)) for run in runs]
    steps = sorted(set().union(*curves))
    values = [[curve.get(step, np.nan) for step in steps] for curve in curves]
    return np.array(steps), np.array(values, float).reshape(len(runs), len(steps))


def color(method: str) -> str:
    """The color of a method; `mcfo-pimh-3` and its like have one by their number."""
    return COLORS.get(method) or _SPARE[sum(map(ord, method)) % len(_SPARE)]


def seed_lines(runs: Sequence[Run], metric: str, change: Callable[..., Any] | None = None, **look: Any) -> list[Line]:
    """A curve for each cell that has the metric: the mean over the seeds, and around it the range. `change` is applied
    to the steps and the values, (seeds, steps), first."""
    lines = []
    for cell in dict.fromkeys(run.cell for run in runs):
        steps, values = seed_curves([run for run in runs if run.cell == cell], metric)
        if len(steps):
            x, y = (steps, values) if change is None else change(steps, values)
            method = cell[1]
            band = (y.min(0), y.max(0)) if len(y) > 1 else None
            lines.append(Line(x, y.mean(0), color(method), band, look={"label": method, **look}))
    return lines


def draw_learning(
    path: Path,
    runs: Sequence[Run],
    metrics: Mapping[str, str],
    levels: Mapping[tuple[str, str], Mapping[str, float]],
    caption: str,
    *,
    rings: str | None = None,
) -> Figure:
    """Curves of all methods, a row of panels for each data set and K.

    **Arguments:**

    - `metrics`: the title of each metric's panel.
    - `levels`: what needs no learning, by data set and metric.
    - `rings`: the metric in whose panel the `best_step` of each run is marked.
    """
    charts = []
    for data, particles in dict.fromkeys((run.data, run.particles) for run in runs):
        chosen = [run for run in runs if (run.data, run.particles) == (data, particles)]
        for metric, text in metrics.items():
            lines = seed_lines(chosen, metric, marker="o", ms=2)
            for run in chosen if metric == rings else ():
                steps, values = run.curve(metric)
                best = [int(np.argmin(np.abs(steps - run.numbers["best_step"][0])))]
                ring = {"marker": "o", "ms": 5, "mfc": "white", "mew": 1.3}
                lines.append(Line(steps[best], values[best], color(run.method), look=ring))
            title = f"{f'{data}, ' if data else ''}K = {particles}, {text}"
            charts.append(Chart(title, lines, levels=levels.get((data, metric), {})))
    return draw_charts(path, charts, caption, columns=len(metrics), height=2.9)


class Column(NamedTuple):
    """A number in the table of methods. `best`: the sign of what is better, or 0."""

    title: str
    digits: int = 2
    best: int = 0

    def text(self, row: SummaryRow | None) -> str:
        """A cell of the column."""
        if row is None or math.isinf(row.mean):
            return "–" if row is None else "never"
        spread = "" if math.isnan(row.std) else f" ± {row.std:.{self.digits}f}"
        return f"{row.mean:.{self.digits}f}{spread}"


class LearningOutcomes(Outcomes):
    """What came out of a study that learns: runs, by data set, method and K.

    Besides what all outcomes have, a study says which `columns` its table has, which `curves` its results (what a
    metric is called in the lines, by what it is called there), and which `references` stand below its methods: rows of
    the summary of what was not learned.
    """

    columns: ClassVar[dict[str, Column]]
    curves: ClassVar[Mapping[str, str]]

    def __init__(self, size: Any, problem: Any, results: Mapping[str, Sequence[Run]]):
        super().__init__(size, problem, results)
        self.runs = [run for runs in results.values() for run in runs]
        self.cells = list(dict.fromkeys(run.cell for run in self.runs))
        # Where the exact value of a metric is known, the best method is the nearest to it.
        self.targets: dict[str, Any] = {}

    def at(self, cell: Cell) -> list[Run]:
        """The runs of all seeds."""
        return [run for run in self.runs if run.cell == cell]

    def of(self, cell: Cell, metric: str) -> Outcome:
        """One number of a method over its seeds."""
        return Outcome.of_seeds(run.numbers[metric] for run in self.at(cell) if metric in run.numbers)

    def in_paper(self, cell: Cell, metric: str) -> float:
        """The paper's number; NaN where it has none."""
        return math.nan

    def compare(self, claim: str, one: Cell, other: Cell, metric: str, **options: Any) -> Claim:
        """`compared` for a number of two methods, beside the paper's difference."""
        paper = self.in_paper(one, metric) - self.in_paper(other, metric)
        return compared(claim, self.of(one, metric), self.of(other, metric), paper=paper, **options)

    def extras(self, cell: Cell) -> dict[str, float]:
        """Numbers of a cell that have no spread."""
        return {}

    @abc.abstractmethod
    def references(self) -> list[SummaryRow]:
        """What was not learned."""

    def rows(self) -> Iterator[LearningRow]:
        """The curves of each run and, where its best step was chosen, the numbers there; then the references."""
        for run in self.runs:
            yield from self.curve_rows([run])
            for step, (metric, values) in product(run.numbers.get("best_step", ()), run.numbers.items()):
                about = run.method, run.particles, run.seed, int(step), metric
                for value in values:
                    yield LearningRow(*about, float(value), run.data)
        for row in self.references():
            yield LearningRow(row.method, row.particles, 0, 0, row.metric, row.mean, row.data)

    def curve_rows(self, runs: Sequence[Run]) -> Iterator[LearningRow]:
        """The curves of runs of one cell in long form, by step, then seed."""
        data, method, particles = runs[0].cell
        for line in sorted((line for run in runs for line in run.lines), key=lambda line: line["step"]):
            for metric, name in self.curves.items():
                if (value := _value(line, name)) is not None:
                    yield LearningRow(method, particles, line["seed"], line["step"], metric, value, data)

    def summary_rows(self) -> list[SummaryRow]:
        """Mean and spread of each number of each cell, then the references."""
        rows = []
        for cell in self.cells:
            data, method, particles = cell
            runs = self.at(cell)
            found = {metric: self.of(cell, metric) for metric in runs[0].numbers}
            numbers = {metric: (one.mean, one.spread) for metric, one in found.items()}
            numbers |= {metric: (value, math.nan) for metric, value in self.extras(cell).items()}
            rows += [SummaryRow(method, particles, metric, *each, len(runs), data) for metric, each in numbers.items()]
        return [*rows, *self.references()]

    def files(self) -> Any:
        tables = {
            "results.csv": (LearningRow._fields, list(self.rows())),
            "summary.csv": (SummaryRow._fields, self.summary_rows()),
        }
        # The last column says which data set, where there are several.
        end = None if any(data for data, *_ in self.cells) else -1
        return {name: (header[:end], [row[:end] for row in rows]) for name, (header, rows) in tables.items()}

    def method_table(self, caption: str, in_the_paper: Mapping[Cell, str] | None = None) -> TextTable:
        """The summary as a table, one row for each method, with the paper's numbers in the last column."""
        columns = self.columns
        by_cell: dict[Cell, dict[str, SummaryRow]] = {}
        for row in self.summary_rows():
            by_cell.setdefault((row.data, row.method, row.particles), {})[row.metric] = row
        with_data = any(cell[0] for cell in by_cell)
        rows, best = [], {}
        for index, (cell, numbers) in enumerate(by_cell.items()):
            shown = [column.text(numbers.get(metric)) for metric, column in columns.items()]
            beside = [] if in_the_paper is None else [in_the_paper.get(cell, "–")]
            rows.append([*([cell[0]] if with_data else []), cell[1], str(cell[2] or ""), *shown, *beside])
            for place, (metric, column) in enumerate(columns.items(), 2 + with_data):
                row = numbers.get(metric)
                if column.best and row is not None and row.seeds and math.isfinite(row.mean):
                    target = self.targets.get(metric)
                    loss = -column.best * row.mean if target is None else abs(row.mean - target)
                    best.setdefault((cell[0], cell[2], place), []).append((loss, index))
        header = [*(["data"] if with_data else []), "method", "K", *(column.title for column in columns.values())]
        header += [] if in_the_paper is None else ["in the paper"]
        marked = frozenset((min(losses)[1], place) for (_, _, place), losses in best.items())
        return TextTable(header, rows, caption, marked)

    def warnings(self) -> list[str]:
        skipped = [
            f"{' '.join(filter(None, (run.data, run.method)))} K={run.particles} seed {run.seed} {run.skipped}"
            for run in self.runs
            if run.skipped
        ]
        return [f"Updates that were not finite were skipped: {', '.join(skipped)}."] if skipped else []
