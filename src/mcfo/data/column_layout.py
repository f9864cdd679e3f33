"""The layout of a table: the role of each column, and the series in its rows."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mcfo.data.times import Clock, RawSeries
from mcfo.errors import InputError, nearest
from mcfo.validation import largest_value, too_large

MISSING = frozenset({"", "NA", "NaN", "nan"})
SERIES = ("series",)
TIMES = ("time", "date", "t")


class DefaultColumns(NamedTuple):
    """The names of the columns that a model learned from; they are used if a file has them."""

    values: Sequence[str] | None = None
    series: str | None = None
    time: str | None = None


class RequestedColumns(NamedTuple):
    """The columns that were requested by name; None where a default may be used."""

    values: Sequence[str] | None = None
    series: str | None = None
    time: str | None = None
    inputs: Sequence[str] | None = None
    defaults: DefaultColumns = DefaultColumns()

    def with_defaults(self, names: Sequence[str]) -> RequestedColumns:
        """Return the request with those defaults that are among these names and not requested as something else."""
        asked = {self.series, self.time, *(self.values or ()), *(self.inputs or ())}
        free = {name for name in names if name not in asked}
        values, series, time = self.defaults
        return self._replace(
            values=values if self.values is None and values and free.issuperset(values) else self.values,
            series=series if self.series is None and series in free else self.series,
            time=time if self.time is None and time in free else self.time,
        )


class Layout(NamedTuple):
    """The indices of values, inputs, series and time in a row."""

    header: list[str]
    values: list[int]
    inputs: list[int]
    series: int | None
    time: int | None

    @property
    def indices(self) -> list[int]:
        """All columns that are read."""
        return [*self.values, *self.inputs, *(one for one in (self.series, self.time) if one is not None)]


def choose_columns(path: Path, header: Sequence[str], wanted: RequestedColumns) -> Layout:
    """Find the requested columns, and those with the default names of series and times."""
    header = list(header)
    wanted = wanted.with_defaults(header)

    def find(name: str) -> int:
        if name not in header:
            raise InputError(f"{path} has no column {name!r}. {nearest(name, header)}")
        return header.index(name)

    chosen = None if wanted.values is None else [find(name) for name in wanted.values]
    inputs = [find(name) for name in wanted.inputs or ()]
    series = None if wanted.series is None else find(wanted.series)
    time = None if wanted.time is None else find(wanted.time)
    taken = [*(chosen or []), *inputs, *(index for index in (series, time) if index is not None)]
    for index in taken:
        if taken.count(index) > 1:
            raise InputError(
                f"The column {header[index]!r} of {path} is requested twice. A column is a value, an input, the series "
                "or the time, and one of them only."
            )

    def first_free(names: tuple[str, ...]) -> int | None:
        free = {name.lower(): index for index, name in reversed([*enumerate(header)]) if index not in taken}
        return next((free[name] for name in names if name in free), None)

    series = first_free(SERIES) if series is None else series
    time = first_free(TIMES) if time is None else time
    if chosen is None:
        chosen = [index for index in range(len(header)) if index not in (series, time, *inputs)]
    if not chosen:
        raise InputError(
            f"{path} has no column of values: there are {', '.join(header)}. Name at least one beside those of the "
            "series, of the time and of the inputs."
        )
    return Layout(header, chosen, inputs, series, time)


def read_rows(
    path: Path,
    layout: Layout,
    rows: Iterable[tuple[int, Sequence[str] | Mapping[int, str]]],
    *,
    unit: str,
    missing: str,
) -> RawSeries:
    """Read the series in numbered rows of text.

    **Arguments:**

    - `unit`: the name of a row in messages: line or row.
    - `missing`: how a missing value is written, for messages.
    """
    numbers, driven, owners, elapsed = array("d"), array("d"), array("q"), array("d")
    owner_of: dict[str, int] = {}
    clock, largest = Clock(unit), largest_value()
    name, whole, index = "1", True, 0
    for line, row in rows:
        try:
            if layout.series is not None:
                index = layout.series
                name = _name(row[index].strip())
            if layout.time is not None:
                index = layout.time
                elapsed.append(clock.check(row[index].strip(), name, line))
            for index in layout.values:
                cell = row[index].strip()
                numbers.append(_number(cell, largest, missing))
                whole = whole and cell.lstrip("+-").isdecimal()
            for index in layout.inputs:
                driven.append(_input(row[index].strip(), largest))
        except ValueError as error:
            raise InputError(f"{path}, {unit} {line}, column {layout.header[index]!r}: {error}") from None
        owners.append(owner_of.setdefault(name, len(owner_of)))
    if not owners:
        raise InputError(f"{path} has a header, but no rows below it. Write one row for each step.")
    table = np.frombuffer(numbers).reshape(len(owners), len(layout.values))
    if whole and np.abs(table).max() < 2**31:
        table = table.astype(np.int32)
    # A stable sort leaves the rows of a series in the order of the file.
    order = np.argsort(owners, kind="stable")
    ends = np.cumsum(np.bincount(owners))[:-1]

    def apart(values: np.ndarray) -> list[np.ndarray]:
        return np.split(values[order], ends)

    ordered = layout.time is not None and clock.kind != "text"
    return RawSeries(
        names=[*owner_of],
        arrays=apart(table),
        columns=[layout.header[index] for index in layout.values],
        inputs=apart(np.frombuffer(driven).reshape(len(owners), -1)) if layout.inputs else None,
        input_names=[layout.header[index] for index in layout.inputs],
        times=apart(np.frombuffer(elapsed)) if ordered else None,
        spans=clock.spans() if ordered else None,
    )


def _name(cell: str) -> str:
    if not cell:
        raise ValueError("the cell is empty. Write to which series the row belongs, or remove it.")
    return cell


def _input(cell: str, largest: float) -> float:
    if cell in MISSING:
        raise ValueError("the input is missing. Inputs are known at every step: fill the gap, or make it a value.")
    return _number(cell, largest, "correct it")


def _number(cell: str, largest: float, missing: str) -> float:
    """Return the number in a cell, NaN if it is missing."""
    try:
        number = float(cell)
    except ValueError:
        if cell in MISSING:
            return math.nan
        number = None
    # Python reads 1_000 as a number; in a file it is a mistake.
    if number is None or "_" in cell:
        hint = " Write decimals with a point." if re.fullmatch(r"[+-]?\d*,\d+", cell) else ""
        raise ValueError(
            f"{cell!r} is not a number.{hint} Correct it, or {missing} if the value is missing; if the "
            "column holds text, name the columns of values without it (--columns), or say that it holds the times "
            "(--time) or tells series apart (--series)."
        )
    if -largest <= number <= largest or math.isnan(number):
        return number
    if "inf" in cell.lower():
        raise ValueError(f"{cell!r} is infinite. Correct it, or {missing} if the value is missing.")
    raise ValueError(too_large(cell, missing))
