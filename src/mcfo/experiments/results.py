"""Results in long form."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from mcfo.files import write_atomically


class Row(NamedTuple):
    """One number of an experiment. `stderr` is NaN where the value is exact."""

    setting: str
    method: str
    particles: int
    parameter: str
    quantity: str
    value: float
    stderr: float


class LearningRow(NamedTuple):
    """One number of a run, at a step."""

    method: str
    particles: int
    seed: int
    step: int
    metric: str
    value: float


class SummaryRow(NamedTuple):
    """One number of a method: mean and spread over the seeds."""

    method: str
    particles: int
    metric: str
    mean: float
    std: float
    seeds: int


def write_table(path: Path, header: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    """Writes rows as CSV with a header; numbers in full precision, and nothing where a number is NaN."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        writer.writerow([_cell(value) for value in row])
    write_atomically(path, text.getvalue().encode())


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Writes the rows of an experiment; a standard error that is NaN is left empty, a value never is."""
    write_table(path, Row._fields, ((*row[:-2], repr(float(row.value)), float(row.stderr)) for row in rows))


def _cell(value: object) -> object:
    if isinstance(value, float):
        return "" if math.isnan(value) else repr(value)
    return value


def read_rows(path: Path) -> list[Row]:
    """What [`write_rows`][] wrote."""
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Row(
                line["setting"],
                line["method"],
                int(line["particles"]),
                line["parameter"],
                line["quantity"],
                float(line["value"]),
                float(line["stderr"] or "nan"),
            )
            for line in csv.DictReader(file)
        ]
