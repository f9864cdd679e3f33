"""The layout of a table: the role of each column, and the series in its rows."""

from __future__ import annotations

import math
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mcfo.data.column_roles import guess_roles, join_time
from mcfo.data.times import Clock, RawSeries
from mcfo.errors import InputError, nearest, printable
from mcfo.limits import limits
from mcfo.validation import largest_value, too_large

MISSING = frozenset({"", "NA", "NaN", "nan"})
SERIES = ("series", "unique_id")
TIMES = ("time", "date", "t", "ds")
FLAGS = ("--columns", "--series", "--time")
"""How the command line names the columns of values, of series and of times."""


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
            time=time if self.time is None and time and free.issuperset(time.split(",")) else self.time,
        )


class Layout(NamedTuple):
    """The indices of values, inputs, series and time in a row; a time may stand in several columns.

    `notes` are sentences about columns whose role was guessed.
    """

    header: list[str]
    values: list[int]
    inputs: list[int]
    series: int | None
    time: tuple[int, ...]
    notes: tuple[str, ...] = ()

    @property
    def indices(self) -> list[int]:
        """All columns that are read."""
        return [*self.values, *self.inputs, *(() if self.series is None else (self.series,)), *self.time]


def check_names(where: str, names: Sequence[str]) -> list[str]:
    """Return the names of columns as they can be shown; refuse too many, empty ones, and two that are equal."""
    limits().check("columns", len(names), where)
    if "" in names:
        raise InputError(
            f"{where}: column {names.index('') + 1} has no name. Name it, or remove it (pandas leaves its index out "
            "with index=False)."
        )
    shown = [*map(printable, names)]
    if len(set(shown)) < len(shown):
        name = Counter(shown).most_common(1)[0][0]
        raise InputError(f"{where}: two columns are called {name!r}. Rename one.")
    return shown


def choose_columns(
    path: Path | str, header: Sequence[str], wanted: RequestedColumns, sample: Sequence[Sequence[str]] | None = None
) -> Layout:
    """Find the requested columns, and those of series and times by their default names.

    **Arguments:**

    - `sample`: the first cells of each column, from which other columns of series and times are guessed.
    """
    header = list(header)
    wanted = wanted.with_defaults(header)
    index_of = {name: index for index, name in enumerate(header)}

    def find(name: str) -> int:
        if name not in index_of:
            raise InputError(f"{path} has no column {name!r}. {nearest(name, header)}")
        return index_of[name]

    chosen = None if wanted.values is None else [find(name) for name in wanted.values]
    inputs = [find(name) for name in wanted.inputs or ()]
    series = None if wanted.series is None else find(wanted.series)

    def find_time(name: str) -> tuple[int, ...]:
        return (index_of[name],) if name in index_of else tuple(find(part.strip()) for part in name.split(","))

    time = () if wanted.time is None else find_time(wanted.time)
    requests = Counter([*(chosen or []), *inputs, *(() if series is None else (series,)), *time])
    for index, count in requests.items():
        if count > 1:
            raise InputError(
                f"The column {header[index]!r} of {path} is requested twice. A column is a value, an input, the series "
                "or the time, and one of them only."
            )

    def first_free(names: tuple[str, ...]) -> int | None:
        free = {name.lower(): index for index, name in reversed([*enumerate(header)]) if index not in requests}
        return next((free[name] for name in names if name in free), None)

    series = first_free(SERIES) if series is None else series
    default = None if time else first_free(TIMES)
    time = (default,) if default is not None else time
    notes: tuple[str, ...] = ()
    if sample is not None:
        named = {*(chosen or ()), *inputs}
        free = {name: sample[index] for index, name in enumerate(header) if index not in named}
        names = (None if series is None else header[series], ",".join(header[index] for index in time) or None)
        roles = guess_roles(free, *names, all_read=chosen is None)
        left = [name for name in free if name not in (roles.series, *(roles.time or "").split(","))]
        # A guess may not take the last column of values.
        if chosen is not None or left:
            series = None if roles.series is None else index_of[roles.series]
            time = time or (() if roles.time is None else find_time(roles.time))
            notes = roles.notes
    if chosen is None:
        others = {series, *time, *inputs}
        chosen = [index for index in range(len(header)) if index not in others]
    if not chosen:
        raise InputError(
            f"{path} has no column of values: there are {', '.join(header)}. Name at least one beside those of the "
            "series, of the time and of the inputs."
        )
    return Layout(header, chosen, inputs, series, time, notes)


def read_rows(
    path: Path | str,
    layout: Layout,
    rows: Iterable[tuple[int, Sequence[str] | Mapping[int, str]]],
    *,
    unit: str,
    missing: str,
    options: tuple[str, str, str] = FLAGS,
) -> RawSeries:
    """Read the series in numbered rows of text.

    **Arguments:**

    - `unit`: the name of a row in messages: line or row.
    - `missing`: how a missing value is written, for messages.
    - `options`: how the caller names the columns of values, of series and of times, for messages.
    """
    numbers, driven, owners, elapsed = array("d"), array("d"), array("q"), array("d")
    owner_of: dict[str, int] = {}
    clock, largest, most = Clock(unit), largest_value(), limits()
    name, whole, index = "1", True, 0
    labels = [layout.header[index] for index in layout.time]
    for line, row in rows:
        try:
            if layout.series is not None:
                index = layout.series
                name = _name(printable(row[index].strip()))
            if layout.time:
                index = layout.time[0]
                elapsed.append(clock.check(printable(join_time(labels, [row[one] for one in layout.time])), name, line))
            for index in layout.values:
                cell = row[index].strip()
                numbers.append(_number(cell, largest, missing, options))
                whole = whole and cell.lstrip("+-").isdecimal()
            for index in layout.inputs:
                driven.append(_input(row[index].strip(), largest))
        except ValueError as error:
            raise InputError(f"{path}, {unit} {line}, column {layout.header[index]!r}: {error}") from None
        owners.append(owner_of.setdefault(name, len(owner_of)))
        if len(numbers) + len(driven) > most.elements:
            most.check("elements", len(numbers) + len(driven), path)
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

    ordered = bool(layout.time) and clock.kind != "text"
    return RawSeries(
        names=[*owner_of],
        arrays=apart(table),
        columns=[layout.header[index] for index in layout.values],
        inputs=apart(np.frombuffer(driven).reshape(len(owners), -1)) if layout.inputs else None,
        input_names=[layout.header[index] for index in layout.inputs],
        times=apart(np.frombuffer(elapsed)) if ordered else None,
        spans=clock.spans() if ordered else None,
        notes=layout.notes,
    )


def _name(cell: str) -> str:
    if not cell:
        raise ValueError("the cell is empty. Write to which series the row belongs, or remove it.")
    return cell


def _input(cell: str, largest: float) -> float:
    if cell in MISSING:
        raise ValueError("the input is missing. Inputs are known at every step: fill the gap, or make it a value.")
    return _number(cell, largest, "correct it")


def _number(cell: str, largest: float, missing: str, options: tuple[str, str, str] = FLAGS) -> float:
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
            f"column holds text, name the columns of values without it ({options[0]}), or say that it holds the times "
            f"({options[2]}) or tells series apart ({options[1]})."
        )
    if -largest <= number <= largest or math.isnan(number):
        return number
    if "inf" in cell.lower():
        raise ValueError(f"{cell!r} is infinite. Correct it, or {missing} if the value is missing.")
    raise ValueError(too_large(cell, missing))
