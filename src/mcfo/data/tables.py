"""Series in files: reading CSV, Parquet, NetCDF and NPZ, and writing CSV."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import numpy as np

from mcfo.data.column_layout import DefaultColumns, RequestedColumns
from mcfo.data.npz import read_npz
from mcfo.data.table_files import DELIMITERS, read_csv, read_netcdf, read_parquet
from mcfo.data.times import RawSeries, Spacing, Span, spacing
from mcfo.errors import InputError
from mcfo.files import write_atomically
from mcfo.series import Series

_LISTED = ".csv, .parquet, .nc or .npz"


class Table(NamedTuple):
    """The series of a file, each with its name, and the names of the observed dimensions.

    - `image`: (height, width) if the dimensions are the pixels of images, row by row.
    - `inputs`: the names of the inputs.
    - `times`: for each series the time since its first row, in seconds if times are dates; None if it is unknown.
      `spans` has the first and the last time as written in the file.
    - `unit`: the unit of time, if the first input is the time since the previous row; otherwise None.
    """

    series_list: list[Series]
    names: list[str]
    columns: list[str]
    image: tuple[int, int] | None = None
    inputs: list[str] = []  # noqa: RUF012
    times: list[np.ndarray] | None = None
    spans: list[Span] | None = None
    unit: float | None = None

    @property
    def spacing(self) -> Spacing | None:
        """The spacing of the times; None if there are none."""
        return None if self.times is None or self.spans is None else spacing(self.times, self.spans)

    @property
    def moments(self) -> list[np.ndarray] | None:
        """The time of each step of each series, dates or numbers as in the file; None if there are none."""
        if self.times is None or self.spans is None:
            return None
        return [_moments(elapsed, span) for elapsed, span in zip(self.times, self.spans, strict=True)]

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
            inputs = gaps if series.inputs is None else np.concatenate([gaps, np.asarray(series.inputs)], axis=1)
            series_list.append(eqx.tree_at(lambda s: s.inputs, series, inputs, is_leaf=lambda leaf: leaf is None))
        return self._replace(series_list=series_list, unit=unit)


def _moments(elapsed: np.ndarray, span: Span) -> np.ndarray:
    if span.origin is None:
        return float(span.first) + elapsed
    origin = np.datetime64(span.origin.replace(tzinfo=None), "us")
    return origin + np.round(1e6 * elapsed).astype("timedelta64[us]")


def read_series(
    path: str | Path,
    *,
    values: Sequence[str] | None = None,
    series: str | None = None,
    time: str | None = None,
    inputs: Sequence[str] | None = None,
    defaults: DefaultColumns | None = None,
) -> Table:
    """Read and check the series of a file; every problem is an [`InputError`][] that says where it is.

    A CSV, Parquet or NetCDF file has one row for each step. An empty cell, NaN or NA is a missing value. Times are
    checked; each row is one step, whatever the time between two rows, unless `table.with_gaps()` is used. An NPZ file
    has one array `observations`, (series, steps, dimensions) or, for images, (series, steps, height, width), with
    optional `lengths`, `inputs` and `times`; or an array for each series.

    **Arguments:**

    - `values`: the observed columns; by default all that are not series, time or inputs.
    - `series`: the column that identifies the series; by default `series`.
    - `time`: the column of times, which must increase within a series; by default `time`, `date` or `t`.
    - `inputs`: columns of exogenous inputs; none of their cells may be missing.
    - `defaults`: names that replace these defaults if the file has them.
    """
    path = Path(path)

    def listed(names: Sequence[str] | None) -> Sequence[str] | None:
        return [names] if isinstance(names, str) else names

    try:
        raw = _read(path, RequestedColumns(listed(values), series, time, listed(inputs), defaults or DefaultColumns()))
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror or error}.") from error
    return Table(_series(path, raw), raw.names, raw.columns, raw.image, raw.input_names, raw.times, raw.spans)


def _read(path: Path, wanted: RequestedColumns) -> RawSeries:
    if path.is_dir():
        raise InputError(f"{path} is a folder, but a file is wanted: {_LISTED}.")
    if not path.exists():
        raise InputError(f"There is no file {path}. Check the name and the folder.")
    ending = path.suffix.lower()
    if ending == ".csv":
        return read_csv(path, wanted)
    if ending in (".parquet", ".pq"):
        return read_parquet(path, wanted)
    if ending in (".nc", ".nc4"):
        return read_netcdf(path, wanted)
    if ending == ".npz":
        for name, given in wanted._asdict().items():
            if given is not None and name != "defaults":
                raise InputError(
                    f"The option {name} is about the columns of a CSV, Parquet or NetCDF file, but the arrays in "
                    f"{path} have no names of columns. Leave it out, or write the series as CSV."
                )
        return read_npz(path)
    came = f"ends in {path.suffix}. Convert it" if path.suffix else "has no ending. Rename or convert it"
    raise InputError(f"Cannot read {path}: files that end in {_LISTED} are read, but this one {came}.")


def _series(path: Path, raw: RawSeries) -> list[Series]:
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
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL if risky else csv.QUOTE_MINIMAL).writerow(names)
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
