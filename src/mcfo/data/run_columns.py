"""The columns of a run: reading data with the columns, inputs and times that its model learned from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mcfo.data.column_layout import DefaultColumns
from mcfo.data.run_record import RunRecord, number, read_run, text
from mcfo.data.tables import Table, read_series
from mcfo.errors import InputError, nearest
from mcfo.files import nested


class Inputs(NamedTuple):
    """The inputs of a model: named columns, after the time since the previous step, in this `unit`, unless it is None.

    `defaults` are the columns that the model learned from; other files are read by the same names.
    """

    names: list[str]
    unit: float | None
    defaults: DefaultColumns = DefaultColumns()

    @classmethod
    def of(cls, run: RunRecord) -> Inputs:
        """The inputs of the model of a run."""
        unit = number(nested(run.config, "data", "unit"))
        columns = (text(nested(run.config, "data", name)) for name in ("series_column", "time_column"))
        defaults = DefaultColumns(run.names("columns"), *columns)
        return cls(run.names("inputs") or [], unit if unit is not None and unit > 0 else None, defaults)

    @property
    def size(self) -> int:
        """The number of inputs at each step."""
        return len(self.names) + (self.unit is not None)

    def described(self) -> str:
        """List the inputs for people."""
        gap = [] if self.unit is None else ["the time since the previous row"]
        return ", ".join([*gap, *self.names]) or "none"

    def read(
        self,
        path: str | Path,
        *,
        values: Sequence[str] | None = None,
        series: str | None = None,
        time: str | None = None,
    ) -> Table:
        """Read the series of a file with these inputs, by default with the columns that the model learned from.

        The arguments are those of [`read_series`][].
        """
        path = Path(path)
        named = self.names if self.names and path.suffix.lower() != ".npz" else None
        table = read_series(path, values=values, series=series, time=time, inputs=named, defaults=self.defaults)
        return table if self.unit is None else table.with_gaps(self.unit)


NO_INPUTS = Inputs([], None)


def read_future(path: Path | None, run: Path, inputs: Inputs) -> Table | None:
    """Read the table of the coming inputs of a model; the names of its series and times are those of the data."""
    if path is None:
        return None
    if not inputs.names:
        raise InputError(f"--future is for models that read inputs, but the one in {run} reads none. Leave it out.")
    return read_series(path, values=inputs.names, defaults=inputs.defaults)


def coming_inputs(
    inputs: Inputs, steps: int, future: Table | None = None, name: str | None = None
) -> np.ndarray | None:
    """Return the inputs after the end of a series, (steps, inputs), or None for a model without inputs.

    Each coming step takes one unit of time.

    **Arguments:**

    - `future`: a table whose rows are the coming inputs.
    - `name`: the name of the series.
    """
    if not inputs.size:
        return None
    gaps = np.ones((steps, int(inputs.unit is not None)))
    if not inputs.names:
        return gaps
    if future is None:
        raise InputError(
            f"The model reads the inputs {', '.join(inputs.names)}, of which the coming ones must be known. Give a "
            "table of them (on the command line, --future FILE), one row for each step."
        )
    index = future.names.index(name) if name in future.names else 0
    if len(future.names) > 1 and name not in future.names:
        raise InputError(f"The coming inputs have no series {name!r}. {nearest(str(name), future.names)}")
    rows = np.asarray(future.series_list[index].observations, float)
    known = np.all(np.asarray(future.series_list[index].mask()), axis=1)
    if len(rows) < steps or not known[:steps].all():
        have = len(rows) if known.all() else int(np.argmin(known))
        raise InputError(f"Inputs of {steps} coming steps are wanted, but there are those of {have}. Give more rows.")
    return np.concatenate([gaps, rows[:steps]], axis=1)


IRREGULAR = ("auto", "inputs", "rows")
"""The ways to read times that are not evenly spaced."""


def read_for_run(
    folder: str | Path,
    path: str | Path,
    *,
    values: Sequence[str] | None = None,
    series: str | None = None,
    time: str | None = None,
) -> Table:
    """Read the series of a file for the model in a run's folder.

    By default with the columns and inputs that it learned from, and with the time between rows if it reads that. The
    arguments are those of [`read_series`][].
    """
    return Inputs.of(read_run(Path(folder), metrics=False)).read(path, values=values, series=series, time=time)


def timed(table: Table, irregular: str, model: str, *, able: bool) -> tuple[Table, str]:
    """Return the table as a model should read it, and a sentence if the times are not evenly spaced.

    **Arguments:**

    - `irregular`: "inputs": the time since the previous row is the first input; "rows": each row is one step; "auto":
      "inputs" if the times are uneven and the model is `able` to read them, otherwise "rows".
    """
    if irregular not in IRREGULAR:
        raise InputError(f"There is no meaning {irregular!r} of irregular times. {nearest(irregular, IRREGULAR)}")
    if irregular == "inputs":
        table = table.with_gaps()
    spacing = table.spacing
    if irregular == "rows" or spacing is None or (spacing.even and irregular == "auto"):
        return table, ""
    if able or irregular == "inputs":
        return table.with_gaps(), (
            f"The model reads the time since the previous row, in units of {spacing.words}; the longest gap has "
            f"{spacing.longest[0]:.3g} of them."
        )
    return table, (
        f"The times are not evenly spaced (typically {spacing.words}, at most {spacing.longest[0]:.3g} times that), "
        f"but {model} takes each row for one step."
    )
