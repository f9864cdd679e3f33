"""Series in files: read from CSV and NPZ, and written as CSV."""

import csv
import io
from collections.abc import Sequence as Listing
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mcfo.data.archives import read_npz
from mcfo.data.delimited import DELIMITERS, read_csv
from mcfo.data.raw import RawSeries
from mcfo.files import InputError, write_atomically
from mcfo.sequences import Sequence


class Table(NamedTuple):
    """The series of a file, each with its name, and the names of the observed dimensions.

    `image` is (height, width) where these are the pixels of pictures, row by row.
    """

    sequences: list[Sequence]
    names: list[str]
    columns: list[str]
    image: tuple[int, int] | None = None


def read_series(
    path: Path,
    *,
    values: Listing[str] | None = None,
    series: str | None = None,
    time: str | None = None,
) -> Table:
    """Reads and checks the series of a `.csv` or `.npz` file; every problem is an [`InputError`][] with its place.

    A CSV file has one row for each step, below a header. An empty cell, NaN or NA is a missing value. Times are
    checked, not used: each row is one step, however much time lies between two. An NPZ file has one array
    `observations`, (series, steps, dimensions) or, for pictures, (series, steps, height, width), with optional
    `lengths`; or an array for each series.

    **Arguments:**

    - `values`: the observed columns; all but those of the series and of the time, unless given.
    - `series`: the column that tells series apart; `series`, unless given.
    - `time`: the column that must increase within a series; `time`, `date` or `t`, unless given.
    """
    try:
        raw = _read(path, [values] if isinstance(values, str) else values, series, time)
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror or error}.") from error
    return Table(_sequences(path, raw), raw.names, raw.columns, raw.image)


def _read(path: Path, values: Listing[str] | None, series: str | None, time: str | None) -> RawSeries:
    if path.is_dir():
        raise InputError(f"{path} is a folder, but a file is wanted: .csv or .npz.")
    if not path.exists():
        raise InputError(f"There is no file {path}. Check the name and the folder.")
    if path.suffix.lower() == ".csv":
        return read_csv(path, values=values, series=series, time=time)
    if path.suffix.lower() == ".npz":
        for name, given in {"values": values, "series": series, "time": time}.items():
            if given is not None:
                raise InputError(
                    f"The option {name} is about the columns of a CSV file, but the arrays in {path} have no names of "
                    "columns. Leave it out, or write the series as CSV."
                )
        return read_npz(path)
    came = f"ends in {path.suffix}. Convert it" if path.suffix else "has no ending. Rename or convert it"
    raise InputError(f"Cannot read {path}: files that end in .csv or .npz are read, but this one {came}.")


def _sequences(path: Path, raw: RawSeries) -> list[Sequence]:
    """One sequence for each array; all of them hold integers, or all floats."""

    def is_whole(values: np.ndarray) -> bool:
        return values.dtype.kind in "iub"

    def is_count(values: np.ndarray) -> bool:
        # As `read_table` decides, but for all series together.
        return is_whole(values) and float(np.abs(values, dtype=float).max(initial=0.0)) < 2**31

    counts = all(map(is_count, raw.arrays))
    sequences = []
    for number, (name, values) in enumerate(zip(raw.names, raw.arrays, strict=True)):
        try:
            values = values.astype(float) if is_whole(values) and not counts else values
            sequences.append(Sequence.from_values(values, number=number))
        except ValueError as error:
            raise InputError(f"{path}, series {name!r}: {error}") from error
    return sequences


def write_series(path: Path, sequences: Listing[Sequence], columns: Listing[str]) -> None:
    """Writes a CSV file that [`read_series`][] reads: the columns `series` and `time`, both from 1, then `columns`.

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
            "from 'series' and 'time', and neither be empty nor begin or end with a space."
        )
    text = io.StringIO(newline="")
    # Unquoted, a name with semicolons would make the reader take them for the delimiter.
    risky = any(mark in name for name in names for mark in DELIMITERS)
    csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL if risky else csv.QUOTE_MINIMAL).writerow(names)
    writer = csv.writer(text, lineterminator="\n")
    for place, sequence in enumerate(sequences, 1):
        shape = sequence.observations.shape
        if shape[1:] != (len(columns),):
            raise InputError(
                f"Cannot write {path}: series {place} has observations of shape {shape}, but (steps, {len(columns)}) "
                f"is wanted for the columns {', '.join(columns)}."
            )
        steps = sequence.steps if sequence.length is None else int(sequence.length)
        cells = np.asarray(sequence.observations).astype(object)
        if sequence.observed is not None:
            cells[~np.broadcast_to(np.asarray(sequence.observed), shape)] = None
        writer.writerows([place, step, *row] for step, row in enumerate(cells[:steps], 1))
    try:
        write_atomically(path, text.getvalue().encode())
    except OSError as error:
        raise InputError(f"Cannot write {path}: {error.strerror or error}.") from error
