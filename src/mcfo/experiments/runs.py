"""Runs of the studies that learn: their curves, their numbers over the seeds, and the table of both."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from mcfo.experiments.outcomes import LearningRow, Outcome, SummaryRow
from mcfo.experiments.study import Outcomes, TextTable

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

    def line(self) -> str:
        """Its first numbers, for the terminal."""
        numbers = [f"{metric} {values.mean():.4g}" for metric, values in list(self.numbers.items())[:3] if len(values)]
        return f"seed {self.seed}: {', '.join(numbers)}, {self.seconds / 60:.1f} min"


def _value(line: Mapping[str, Any], metric: str) -> float | None:
    """A number of a line of the metrics, also one that was watched; None where it has none."""
    return line.get(metric, line.get("watched", {}).get(metric))


def seed_curves(runs: Sequence[Run], metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps, and the values of each seed at them, NaN where one has none: shape (seeds, steps)."""
    curves = [dict(zip(*(part.tolist() for part in run.curve(metric)), strict=True)) for run in runs]
    steps = sorted(set().union(*curves))
    values = [[curve.get(step, np.nan) for step in steps] for curve in curves]
    return np.array(steps), np.array(values, float).reshape(len(runs), len(steps))


def curve_rows(runs: Sequence[Run], names: Mapping[str, str]) -> Iterator[LearningRow]:
    """The curves of runs of one cell in long form, by step, then seed. `names`: what a metric is called in the lines,
    by what it is called in the table."""
    lines = sorted((line for run in runs for line in run.lines), key=lambda line: line["step"])
    for line in lines:
        for metric, name in names.items():
            if (value := _value(line, name)) is not None:
                yield LearningRow(runs[0].method, runs[0].particles, line["seed"], line["step"], metric, value)


class Column(NamedTuple):
    """A number in the table of methods. `best`: the sign of what is better, or 0."""

    title: str
    digits: int = 2
    best: int = 0


class LearningOutcomes(Outcomes):
    """What came out of a study that learns: runs, by data set, method and K.

    Besides what all outcomes have, a study says which `columns` its table has, and which `references` stand below its
    methods: rows of the summary of what was not learned.
    """

    columns: ClassVar[dict[str, Column]]

    def __init__(self, runs: list[Run]):
        self.runs = runs
        self.cells = list(dict.fromkeys(run.cell for run in runs))
        self.seconds = sum(run.seconds for run in runs)
        # Where the exact value of a metric is known, the best method is the nearest to it.
        self.targets: Mapping[str, float] = {}

    def at(self, cell: Cell) -> list[Run]:
        """The runs of all seeds."""
        return [run for run in self.runs if run.cell == cell]

    def of(self, cell: Cell, metric: str) -> Outcome:
        """One number of a method over its seeds."""
        return Outcome.of_seeds(run.numbers[metric] for run in self.at(cell) if metric in run.numbers)

    def extras(self, cell: Cell) -> dict[str, float]:
        """Numbers of a cell that have no spread."""
        return {}

    def references(self) -> list[tuple[str, SummaryRow]]:
        """Data set and row of what was not learned."""
        return []

    def summary_rows(self) -> list[tuple[str, SummaryRow]]:
        """Mean and spread of each number of each cell, then the references; each with its data set."""
        rows = []
        for cell in self.cells:
            runs = self.at(cell)
            for metric in runs[0].numbers:
                outcome = self.of(cell, metric)
                rows.append((cell[0], SummaryRow(*cell[1:], metric, outcome.mean, outcome.spread, len(runs))))
            for metric, value in self.extras(cell).items():
                rows.append((cell[0], SummaryRow(*cell[1:], metric, value, math.nan, len(runs))))
        return [*rows, *self.references()]

    def method_table(self, caption: str, **beside: Mapping[Cell, str]) -> TextTable:
        """The summary as a table, one row for each method. `beside`: further columns of text, by cell."""
        columns = self.columns
        by_cell: dict[Cell, dict[str, SummaryRow]] = {}
        for data, row in self.summary_rows():
            by_cell.setdefault((data, row.method, row.particles), {})[row.metric] = row
        with_data = any(cell[0] for cell in by_cell)
        rows, best = [], {}
        for index, (cell, numbers) in enumerate(by_cell.items()):
            shown = [_text(numbers.get(metric), column) for metric, column in columns.items()]
            beside_it = [texts.get(cell, "–") for texts in beside.values()]
            rows.append([*([cell[0]] if with_data else []), cell[1], str(cell[2] or ""), *shown, *beside_it])
            for place, (metric, column) in enumerate(columns.items(), 2 + with_data):
                row = numbers.get(metric)
                if column.best and row is not None and row.seeds and math.isfinite(row.mean):
                    target = self.targets.get(metric)
                    loss = -column.best * row.mean if target is None else abs(row.mean - target)
                    best.setdefault((cell[0], cell[2], place), []).append((loss, index))
        titles = [column.title for column in columns.values()]
        header = [
            *(["data"] if with_data else []),
            "method",
            "K",
            *titles,
            *(name.replace("_", " ") for name in beside),
        ]
        marked = frozenset((min(losses)[1], place) for (_, _, place), losses in best.items())
        return TextTable(header, rows, caption, marked)

    def warnings(self) -> list[str]:
        skipped = [
            f"{' '.join(filter(None, (run.data, run.method)))} K={run.particles} seed {run.seed} {run.skipped}"
            for run in self.runs
            if run.skipped
        ]
        return [f"Updates that were not finite were skipped: {', '.join(skipped)}."] if skipped else []


def _text(row: SummaryRow | None, column: Column) -> str:
    if row is None:
        return "–"
    if math.isinf(row.mean):
        return "never"
    spread = "" if math.isnan(row.std) else f" ± {row.std:.{column.digits}f}"
    return f"{row.mean:.{column.digits}f}{spread}"
