"""The columns of a run: reading data with the columns, inputs and times that its model learned from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mcfo.data.calendar import Calendar
from mcfo.data.column_layout import DefaultColumns
from mcfo.data.frame_forms import FrameForm, local_times
from mcfo.data.frequencies import Frequency
from mcfo.data.run_record import EACH, RunRecord, number, read_run, text
from mcfo.data.tables import Table, read_series
from mcfo.errors import InputError, nearest
from mcfo.files import nested


class Inputs(NamedTuple):
    """The inputs of a model: named columns, after the time since the previous step, in this `unit`, unless it is None,
    and before those of the `calendar`.

    - `defaults`: the columns that the model learned from; other files are read by the same names.
    - `rows`: each row is one step, whatever its date.
    """

    names: list[str]
    unit: float | None
    defaults: DefaultColumns = DefaultColumns()
    calendar: Calendar | None = None
    rows: bool = False

    @classmethod
    def of(cls, run: RunRecord) -> Inputs:
        """The inputs of the model of a run."""
        unit = number(nested(run.config, "data", "unit"))
        columns = (text(nested(run.config, "data", name)) for name in ("series_column", "time_column"))
        defaults = DefaultColumns(run.names("columns"), *columns)
        calendar = Calendar.from_data(nested(run.config, "data", "calendar"))
        rows = text(nested(run.config, "data", "irregular")) == "rows"
        known = unit if unit is not None and unit > 0 else None
        return cls(run.names("inputs") or [], known, defaults, calendar, rows)

    @classmethod
    def from_table(cls, table: Table) -> Inputs:
        """Return the inputs of a table."""
        return cls(table.inputs, table.unit, calendar=table.calendar)

    @property
    def size(self) -> int:
        """The number of inputs at each step."""
        made = 0 if self.calendar is None else len(self.calendar.names)
        return len(self.names) + (self.unit is not None) + made

    def described(self) -> str:
        """List the inputs for people."""
        gap = [] if self.unit is None else ["the time since the previous row"]
        return ", ".join([*gap, *self.names, *([] if self.calendar is None else self.calendar.names)]) or "none"

    def read(
        self,
        path: Any,
        *,
        values: Sequence[str] | None = None,
        series: str | None = None,
        time: str | None = None,
    ) -> Table:
        """Read the series of a file or a data frame with these inputs.

        By default with the columns that the model learned from. The arguments are those of [`read_series`][].
        """
        unnamed = isinstance(path, str | Path) and Path(path).suffix.lower() == ".npz"
        named = self.names if self.names and not unnamed else None
        table = read_series(path, values=values, series=series, time=time, inputs=named, defaults=self.defaults)
        table = table if self.unit is not None or self.rows else table.on_grid()
        table = table if self.calendar is None else table.with_calendar(self.calendar)
        return table if self.unit is None else table.with_gaps(self.unit)


NO_INPUTS = Inputs([], None)


class Coming(NamedTuple):
    """The times of the steps after the end of a series, and the frequency by which they follow it."""

    moments: np.ndarray
    frequency: Frequency
    form: FrameForm | None = None


def read_future(path: Path | None, run: Path, inputs: Inputs) -> Table | None:
    """Read the table of the coming inputs of a model; the names of its series and times are those of the data."""
    if path is None:
        return None
    if not inputs.names:
        raise InputError(f"--future is for models that read inputs, but the one in {run} reads none. Leave it out.")
    return read_series(path, values=inputs.names, defaults=inputs.defaults)


def coming_inputs(
    inputs: Inputs,
    steps: int,
    future: Table | None = None,
    name: str | None = None,
    coming: Coming | None = None,
) -> np.ndarray | None:
    """Return the inputs after the end of a series, (steps, inputs), or None for a model without inputs.

    Each coming step takes one unit of time. Those of the calendar are made from the coming dates.

    **Arguments:**

    - `future`: a table whose rows are the coming inputs.
    - `name`: the name of the series.
    - `coming`: the coming dates.
    """
    if not inputs.size:
        return None
    if not inputs.names or future is None:
        return complete_inputs(inputs, None, steps, coming)
    index = future.names.index(name) if name in future.names else 0
    if len(future.names) > 1 and name not in future.names:
        raise InputError(f"The coming inputs have no series {name!r}. {nearest(str(name), future.names)}")
    rows = np.asarray(future.series_list[index].observations, float)
    known = np.all(np.asarray(future.series_list[index].mask()), axis=1)
    if len(rows) < steps or not known[:steps].all():
        have = len(rows) if known.all() else int(np.argmin(known))
        raise InputError(f"Inputs of {steps} coming steps are wanted, but there are those of {have}. Give more rows.")
    return complete_inputs(inputs, rows[:steps], steps, coming)


def complete_inputs(inputs: Inputs, rows: np.ndarray | None, steps: int, coming: Coming | None) -> np.ndarray:
    """Return all inputs of the coming steps.

    **Arguments:**

    - `rows`: the named ones, (steps, names), which nobody but the user knows; None if there are none.
    - `coming`: the coming dates.
    """
    if inputs.names and rows is None:
        raise InputError(
            f"The model reads the inputs {', '.join(inputs.names)}, of which the coming ones must be known. Give a "
            "table of them (on the command line, --future FILE), one row for each step."
        )
    parts = [np.ones((steps, int(inputs.unit is not None))), np.ones((steps, 0)) if rows is None else rows]
    if inputs.calendar is not None:
        if coming is None or coming.moments.dtype.kind != "M":
            raise InputError(
                f"The model reads the calendar ({', '.join(inputs.calendar.names)}), for which the dates of the steps "
                "must be known. Give it series with dates; forecasts continue them."
            )
        parts.append(inputs.calendar.inputs(local_times(coming.moments, coming.form), coming.frequency))
    return np.concatenate(parts, axis=1)


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
    record = read_run(Path(folder), metrics=False, kinds=("fit", EACH))
    return Inputs.of(record).read(path, values=values, series=series, time=time)


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
    elif irregular == "auto":
        table = table.on_grid()
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
