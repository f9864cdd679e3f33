"""The table and the page about the runs of a sweep."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from mcfo.data.run_record import SeedRecord, number, read_run
from mcfo.errors import InputError
from mcfo.files import nested, write_atomically
from mcfo.reports.formatting import MISSING, counted, fixed
from mcfo.reports.html import Report

HEADER = {
    "seed": "seed", "nll_per_step": "NLL per step", "log_evidence": "log-likelihood", "log_evidence_error": "± error",
    "ess": "ESS", "steps": "updates", "seconds": "seconds",
}  # fmt: skip
_DECIMALS = {"nll_per_step": 4, "log_evidence": 2, "log_evidence_error": 2, "ess": 1, "seconds": 1}


class Row(NamedTuple):
    """One seed of one run: its place in the grid, and its numbers; a run that did not finish has none."""

    run: str
    values: Mapping[str, str]
    numbers: Mapping[str, float | None]

    def texts(self, axes: Sequence[str]) -> list[str]:
        """The cells after the axes as people read them."""
        cells = [fixed(self.numbers.get(name), _DECIMALS.get(name, 0)) for name in HEADER]
        return [self.values.get(axis, "") for axis in axes] + cells


def read_rows(runs: Sequence[tuple[str, Mapping[str, str]]], out: Path) -> list[Row]:
    """Read the results of all runs of a sweep, a row for each seed."""
    rows = []
    for name, values in runs:
        try:
            record = read_run(out / "runs" / name, metrics=False)
        except InputError:
            rows.append(Row(name, values, {}))  # it never started; the table shows it without numbers
            continue
        shared = {name: number(nested(record.ended, name)) for name in ("steps", "seconds")}
        rows += [Row(name, values, {**_numbers(one), **shared}) for one in record.results] or [Row(name, values, {})]
    return rows


def _numbers(result: SeedRecord) -> dict[str, float | None]:
    names = ("nll_per_step", "log_evidence", "log_evidence_error", "ess")
    return {"seed": float(result.seed), **{name: result.value(name) for name in names}}


def write_sweep(rows: Sequence[Row], axes: Sequence[str], out: Path) -> Path:
    """Write `sweep.csv` and `sweep.html`; return the path of the page."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["run", *axes, "finished", *HEADER])
    for row in rows:
        numbers = ["" if (value := row.numbers.get(name)) is None else f"{value:.17g}" for name in HEADER]
        writer.writerow([row.run, *(row.values.get(axis, "") for axis in axes), bool(row.numbers), *numbers])
    write_atomically(out / "sweep.csv", table.getvalue().encode())
    finished = [row for row in rows if row.numbers]
    unfinished = len({row.run for row in rows}) - len({row.run for row in finished})
    summary = f"{counted(len({row.run for row in finished}), 'run')} finished"
    report = Report(f"Sweep: {out.name}", summary=f"{summary}, {unfinished or 'none'} did not.", command=None)
    best = _best(finished)
    for place in best:
        row = finished[place]
        values = ", ".join(f"{axis} = {row.values[axis]}" for axis in axes if axis in row.values) or row.run
        report.text(f"Lowest NLL per step: {fixed(row.numbers['nll_per_step'], 4)}, with {values}.")
    order = [row for row in rows if row.numbers] + [row for row in rows if not row.numbers]
    cells = [row.texts(axes) for row in order]
    column = len(axes) + list(HEADER).index("nll_per_step")
    report.table(
        [*axes, *HEADER.values()],
        [[cell or MISSING for cell in row] for row in cells],
        "The runs. Bold: the lowest NLL per step for each data set. An NLL compares models on the same data alone.",
        marked={(place, column) for place in best},
        words=set(range(len(axes))),
    )
    report.write(out / "sweep.html")
    return out / "sweep.html"


def _best(rows: Sequence[Row]) -> list[int]:
    """The index of the row with the lowest NLL for each data set."""
    found: dict[str, int] = {}
    for index, row in enumerate(rows):
        value, data = row.numbers.get("nll_per_step"), row.values.get("data", "")
        if value is not None and (data not in found or value < (rows[found[data]].numbers["nll_per_step"] or 0.0)):
            found[data] = index
    return list(found.values())
