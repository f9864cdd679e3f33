"""Tables of series: reading CSV, Parquet, NetCDF and NPZ files and data frames, and writing CSV."""

import csv
import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import numpy as np

from mcfo.data.calendar import Calendar
from mcfo.data.column_layout import DefaultColumns, RequestedColumns
from mcfo.data.csv_reader import DELIMITERS, name_cell
from mcfo.data.frame_forms import FrameForm, local_times, restore_frame
from mcfo.data.frames import SOURCE, is_frame, read_frame
from mcfo.data.frequencies import Frequency, fill_grid
from mcfo.data.table_files import read_file
from mcfo.data.times import RawSeries, Spacing, Span, moments_of, spacing
from mcfo.errors import InputError
from mcfo.files import write_atomically
from mcfo.series import Series

if TYPE_CHECKING:
    import pandas

_MOST_ABSENT = 0.5
"""The share of absent rows up to which the others lie on a grid."""


class Table(NamedTuple):
    """The series of a file, each with its name, and the names of the observed dimensions.

    - `image`: (height, width) if the dimensions are the pixels of images, row by row.
    - `inputs`: the names of the inputs.
    - `times`: for each series the time since its first row, in seconds if times are dates; None if it is unknown.
      `spans` has the first and the last time as written in the file.
    - `unit`: the unit of time, if the first input is the time since the previous row; otherwise None.
    - `notes`: sentences about how the data were read.
    - `calendar`: what the last inputs were made from; their names are not among `inputs`.
    - `form`: the form of the data frame that the series come from.
    """

    series_list: list[Series]
    names: list[str]
    columns: list[str]
    image: tuple[int, int] | None = None
    inputs: list[str] = []  # noqa: RUF012
    times: list[np.ndarray] | None = None
    spans: list[Span] | None = None
    unit: float | None = None
    notes: tuple[str, ...] = ()
    calendar: Calendar | None = None
    form: FrameForm | None = None

    @property
    def spacing(self) -> Spacing | None:
        """The spacing of the times; None if there are none."""
        return None if self.times is None or self.spans is None else spacing(self.times, self.spans)

    @property
    def moments(self) -> list[np.ndarray] | None:
        """The time of each step of each series, dates or numbers as in the file; None if there are none."""
        if self.times is None or self.spans is None:
            return None
        return [moments_of(elapsed, span) for elapsed, span in zip(self.times, self.spans, strict=True)]

    def with_gaps(self, unit: float | None = None) -> "Table":
        """Return the series with the time since the previous row as the first input; it is 1 at the first row.

        **Arguments:**

        - `unit`: the unit of time; by default the typical gap.
        """
        spacing = self.spacing
        if spacing is None or self.times is None:
            raise InputError(
                "There are no times from which to take the gaps between rows. Name their column (on the command line, "
                "--time); they are numbers or ISO dates."
            )
        if self.unit is not None:
            return self
        unit = spacing.unit if unit is None else unit
        series_list = []
        for series, times in zip(self.series_list, self.times, strict=True):
            gaps = np.concatenate([[1.0], np.diff(times) / unit])[:, None]
            series_list.append(_with_inputs(series, before=gaps))
        return self._replace(series_list=series_list, unit=unit)

    @property
    def frequency(self) -> Frequency | None:
        """How the times continue, in steps of `unit` if that is known; None without times."""
        spacing = self.spacing
        if spacing is None or self.unit is None or spacing.even:
            return None if spacing is None else spacing.grid.frequency
        return spacing.grid.frequency._replace(size=self.unit)

    def on_grid(self) -> "Table":
        """Return the table with a step for each date that its rows leave out of an even grid, and a note about them.

        Nothing is observed at these steps. The table is unchanged if times are no dates, lie on no grid, leave out more
        than half as many as there are, or if there are inputs, which must be known at every step.
        """
        spacing, moments = self.spacing, self.moments
        if spacing is None or moments is None or spacing.grid.steps is None or moments[0].dtype.kind != "M":
            return self
        grid, steps_between, rows = spacing.grid, spacing.grid.steps, sum(map(len, moments))
        if not 0 < grid.absent <= _MOST_ABSENT * rows or any(one.inputs is not None for one in self.series_list):
            return self
        series_list, times = [], []
        for series, dates, steps in zip(self.series_list, moments, steps_between, strict=True):
            filled, indices = fill_grid(dates, steps, grid.frequency)
            values = np.asarray(series.observations)
            observations = np.zeros((len(filled), values.shape[1]), values.dtype)
            known = np.zeros(observations.shape, bool)
            observations[indices], known[indices] = values, np.asarray(series.mask())
            series_list.append(Series.from_values(observations, observed=known, series_id=int(series.series_id)))
            times.append((filled - filled[0]) / np.timedelta64(1, "s"))
        where = next(index for index, steps in enumerate(steps_between) if (steps > 1).any())
        before = moments[where][int(np.argmax(steps_between[where] > 1))]
        owner = f" in series {self.names[where]}" if len(self.names) > 1 else ""
        lacking, rest = ("A row is", "is a step") if grid.absent == 1 else (f"{grid.absent} rows are", "are steps")
        note = f"{lacking} absent, the first after {before.astype('datetime64[D]')}{owner}, and {rest} without a value."
        return self._replace(series_list=series_list, times=times, notes=(*self.notes, note))

    def with_calendar(self, calendar: Any) -> "Table":
        """Return the series with calendar inputs after the others.

        **Arguments:**

        - `calendar`: a list of "month", "weekday", "month-dummies", "weekday-dummies", files of holidays, and mappings
          from names to dates.
        """
        calendar, moments, frequency = Calendar.read(calendar), self.moments, self.frequency
        if moments is None or frequency is None or moments[0].dtype.kind != "M":
            came = "there are no times" if moments is None else "the times are numbers"
            raise InputError(
                f"The calendar needs the dates of the steps, but {came}. Name the column of dates (on the command "
                "line, --time); ISO dates are read, 2020-01-31."
            )
        moments = [local_times(one, self.form) for one in moments]
        calendar.check(moments, frequency)
        both = zip(self.series_list, moments, strict=True)
        series_list = [_with_inputs(series, after=calendar.inputs(dates, frequency)) for series, dates in both]
        return self._replace(series_list=series_list, calendar=calendar)

    def to_frame(self) -> "pandas.DataFrame | pandas.Series":
        """Return the values and the inputs that were read as a pandas object, in the form that they had."""
        form = FrameForm() if self.form is None else self.form
        if self.form is None:
            named = [[name, "value", "float64"] for name in self.columns] + [
                [n, "input", "float64"] for n in self.inputs
            ]
            form = form._replace(columns=named)
        blocks = []
        for series in self.series_list:
            driven = np.zeros((series.steps, 0)) if series.inputs is None else np.asarray(series.inputs, np.float64)
            driven = driven[:, int(self.unit is not None) :]
            both = dict(zip(self.columns, series.values().T, strict=True))
            blocks.append(both | dict(zip(self.inputs, driven.T, strict=False)))
        return restore_frame(form, self.names, self.moments, blocks)


def _with_inputs(series: Series, *, before: np.ndarray | None = None, after: np.ndarray | None = None) -> Series:
    inputs = None if series.inputs is None else np.asarray(series.inputs)
    parts = [part for part in (before, inputs, after) if part is not None]
    driven = np.concatenate(parts, axis=1)
    return eqx.tree_at(lambda s: s.inputs, series, driven, is_leaf=lambda leaf: leaf is None)


def read_series(
    path: Any,
    *,
    values: Sequence[str] | None = None,
    series: str | None = None,
    time: str | None = None,
    inputs: Sequence[str] | None = None,
    calendar: Any = None,
    defaults: DefaultColumns | None = None,
) -> Table:
    """Read and check the series of a file or a data frame; every problem is an [`InputError`][] that says where it is.

    A CSV, Parquet or NetCDF file has one row for each step. An empty cell, NaN or NA is a missing value. Times are
    checked; each row is one step, whatever the time between two rows, unless `table.with_gaps()` is used. An NPZ file
    has one array `observations`, (series, steps, dimensions) or, for images, (series, steps, height, width), with
    optional `lengths`, `inputs` and `times`; or an array for each series.

    A pandas Series or DataFrame is read like a file: wide, with the times in the index or in a column; long, with a
    column of series (`unique_id`, `ds`, `y`, or others by name); or with an index of two levels, series and time. Data
    frames of polars and pyarrow are converted.

    **Arguments:**

    - `path`: the file, or a data frame.
    - `values`: the observed columns; by default all that are not series, time or inputs.
    - `series`: the column that identifies the series; by default `series` or `unique_id`, or one that must be it.
    - `time`: the column of times, which must increase within a series; by default `time`, `date`, `t` or `ds`, or one
      that must be it. "year,quarter" and "year,month" are times in two columns.
    - `inputs`: columns of exogenous inputs; none of their cells may be missing.
    - `calendar`: inputs made from the dates, as in [`Table.with_calendar`][]; absent rows become steps first.
    - `defaults`: names that replace these defaults if the file has them.
    """

    def listed(names: Sequence[str] | None) -> Sequence[str] | None:
        return [names] if isinstance(names, str) else names

    wanted, form = RequestedColumns(listed(values), series, time, listed(inputs), defaults or DefaultColumns()), None
    if is_frame(path):
        raw, form = read_frame(path, wanted)
        path = SOURCE
    else:
        path = Path(path)
        raw = read_file(path, wanted)
    about = {"image": raw.image, "inputs": raw.input_names, "times": raw.times, "spans": raw.spans, "notes": raw.notes}
    table = Table(_series(path, raw), raw.names, raw.columns, form=form, **about)
    return table if calendar is None else table.on_grid().with_calendar(calendar)


def series_of(data: Any) -> Any:
    """Return the series of a file, a table or a data frame; other data unchanged. Notes become warnings."""
    table = table_of(data)
    return data if table is None else table.series_list


def table_of(data: Any) -> Table | None:
    """Return a table, or the one in a file or a data frame, with a step for each absent row; None for other data."""
    if isinstance(data, Table) or not (isinstance(data, str | Path) or is_frame(data)):
        return data if isinstance(data, Table) else None
    table = read_series(data).on_grid()
    for note in table.notes:
        warnings.warn(note, stacklevel=4)
    return table


def _series(path: Path | str, raw: RawSeries) -> list[Series]:
    """Build one series for each array; all of them hold integers, or all floats."""

    def is_whole(values: np.ndarray) -> bool:
        return values.dtype.kind in "iub"

    def is_count(values: np.ndarray) -> bool:
        # As `read_table` decides, but for all series together.
        return is_whole(values) and float(np.abs(values, dtype=float).max(initial=0.0)) < 2**31

    counts = all(map(is_count, raw.arrays))
    series_list = []
    for number, (name, values) in enumerate(zip(raw.names, raw.arrays, strict=True)):
        try:
            values = values.astype(float) if is_whole(values) and not counts else values
            inputs = None if raw.inputs is None else raw.inputs[number]
            series_list.append(Series.from_values(values, inputs=inputs, series_id=number))
        except ValueError as error:
            raise InputError(f"{path}, series {name!r}: {error}") from error
    return series_list


def write_series(path: Path, series_list: Sequence[Series], columns: Sequence[str]) -> None:
    """Write a CSV file that [`read_series`][] reads: the columns `series` and `time`, both from 1, then `columns`.

    Padding is left out, and the cell of a missing value is empty.
    """
    names = ["series", "time", *columns]
    lowered = [name.lower() for name in names[2:]]
    if (
        len(set(names)) < len(names)
        or {"series", "time"} & set(lowered)
        or any(not name or name != name.strip() for name in names)
    ):
        raise InputError(
            f"Cannot name the columns of {path} {', '.join(map(repr, columns))}: names must differ from each other and "
            "from 'series' and 'time', and neither be empty nor start or end with a space."
        )
    text = io.StringIO(newline="")
    # The reader would take semicolons in an unquoted name for the delimiter.
    risky = any(mark in name for name in names for mark in DELIMITERS)
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL if risky else csv.QUOTE_MINIMAL).writerow(
        map(name_cell, names)
    )
    writer = csv.writer(text, lineterminator="\n")
    for number, series in enumerate(series_list, 1):
        shape = series.observations.shape
        if shape[1:] != (len(columns),):
            raise InputError(
                f"Cannot write {path}: series {number} has observations of shape {shape}, but (steps, {len(columns)}) "
                f"is wanted for the columns {', '.join(columns)}."
            )
        steps = series.steps if series.length is None else int(series.length)
        cells = np.asarray(series.observations).astype(object)
        if series.observed is not None:
            cells[~np.broadcast_to(np.asarray(series.observed), shape)] = None
        writer.writerows([number, step, *row] for step, row in enumerate(cells[:steps], 1))
    try:
        write_atomically(path, text.getvalue().encode())
    except OSError as error:
        raise InputError(f"Cannot write {path}: {error.strerror or error}.") from error
