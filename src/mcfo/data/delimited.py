"""Series from a CSV file: one row for each step, below a header."""

import csv
import itertools
import math
import re
from array import array
from collections.abc import Iterator
from collections.abc import Sequence as Listing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mcfo.data.clock import Clock, read_date, read_number
from mcfo.data.raw import RawSeries, largest_value, too_large
from mcfo.files import InputError
from mcfo.suggestions import nearest

DELIMITERS = (",", ";", "\t")
_MISSING = frozenset({"", "NA", "NaN", "nan"})
_SERIES = ("series",)
_TIMES = ("time", "date", "t")


class _Layout(NamedTuple):
    """Where things stand in a row."""

    header: list[str]
    values: list[int]
    series: int | None
    time: int | None


def read_csv(path: Path, *, values: Listing[str] | None, series: str | None, time: str | None) -> RawSeries:
    """Reads a file in UTF-8; the delimiter is the one of the header."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            lines = itertools.chain([first], file)
            reader = csv.reader(lines, delimiter=_delimiter(first), skipinitialspace=True, strict=True)
            rows = _rows(path, reader)
            _, header = next(rows, (1, []))
            return _read_rows(path, _layout(path, header, values, series, time), rows)
    except UnicodeDecodeError:
        raise _not_text(path, _undecodable_line(path)) from None


def _delimiter(line: str) -> str:
    """The most frequent one outside quotes."""
    bare = re.sub(r'"[^"]*"', "", line)
    return max(DELIMITERS, key=bare.count)


def _rows(path: Path, reader: Any) -> Iterator[tuple[int, list[str]]]:
    """The rows, all as long as the header, each with the line on which it begins."""
    width, begins = 0, 1
    empty: list[int] = []
    try:
        for row in reader:
            line, begins = begins, reader.line_num + 1
            if (width and not row) or (width > 1 and len(row) == 1 and not row[0].strip()):
                # At the end of the file it means nothing, and whether it is the end will be seen.
                empty.append(line)
                continue
            for gap in empty:
                if width > 1:
                    raise InputError(
                        f"{path}, line {gap}: the line is empty, but {width} cells are wanted. Remove it; if a step is "
                        "missing there, write the row with empty cells."
                    )
                yield gap, [""]
            empty.clear()
            width = width or len(row)
            if len(row) != width:
                raise InputError(
                    f"{path}, line {line}: the row has {len(row)} cells, but the header has {width}. Write as many "
                    "cells as there are columns, and quote a cell that holds the delimiter."
                )
            yield line, row
    except csv.Error as error:
        raise InputError(
            f"{path}, line {begins}: the row cannot be read ({error}). Check its quotation marks."
        ) from error


def _layout(
    path: Path, header: list[str], values: Listing[str] | None, series: str | None, time: str | None
) -> _Layout:
    header = [name.strip() for name in header]
    _check_header(path, header)

    def find(name: str) -> int:
        if name not in header:
            raise InputError(f"{path} has no column {name!r}. {nearest(name, header)}")
        return header.index(name)

    chosen = None if values is None else [find(name) for name in values]
    series_place = None if series is None else find(series)
    time_place = None if time is None else find(time)
    taken = [*(chosen or []), *(place for place in (series_place, time_place) if place is not None)]
    for place in taken:
        if taken.count(place) > 1:
            raise InputError(
                f"The column {header[place]!r} of {path} is asked for twice. A column is a value, the series or the "
                "time, and one of them only."
            )

    def usual(names: tuple[str, ...]) -> int | None:
        free = {name.lower(): place for place, name in reversed([*enumerate(header)]) if place not in taken}
        return next((free[name] for name in names if name in free), None)

    series_place = usual(_SERIES) if series_place is None else series_place
    time_place = usual(_TIMES) if time_place is None else time_place
    if chosen is None:
        chosen = [place for place in range(len(header)) if place not in (series_place, time_place)]
    if not chosen:
        raise InputError(
            f"{path} has no column of values: there are {', '.join(header)}. Name at least one beside those of the "
            "series and of the time."
        )
    return _Layout(header, chosen, series_place, time_place)


def _check_header(path: Path, header: list[str]) -> None:
    if any("\0" in name for name in header):
        raise _not_text(path, 1)
    if not header:
        raise InputError(f"{path}, line 1: there is no header. Write the names of the columns into the first line.")
    if "" in header:
        raise InputError(
            f"{path}, line 1: column {header.index('') + 1} has no name. Name it, or remove it (pandas leaves its "
            "index out with index=False)."
        )
    for place, name in enumerate(header):
        if name in header[:place]:
            raise InputError(f"{path}, line 1: two columns are called {name!r}. Rename one.")
    if all(name in _MISSING or read_number(name) or read_date(name) for name in header):
        raise InputError(
            f"{path}, line 1: {', '.join(header[:3])} look like data, but a header is wanted. Write the names of the "
            "columns into a line above."
        )


def _read_rows(path: Path, layout: _Layout, rows: Iterator[tuple[int, list[str]]]) -> RawSeries:
    numbers, owners = array("d"), array("q")
    owner_of: dict[str, int] = {}
    clock, largest = Clock(), largest_value()
    name, whole = "1", True
    for line, row in rows:
        place = 0
        try:
            if layout.series is not None:
                place = layout.series
                name = _name(row[place].strip())
            if layout.time is not None:
                place = layout.time
                clock.check(row[place].strip(), name, line)
            for place in layout.values:
                cell = row[place].strip()
                numbers.append(_number(cell, largest))
                whole = whole and cell.lstrip("+-").isdecimal()
        except ValueError as error:
            raise InputError(f"{path}, line {line}, column {layout.header[place]!r}: {error}") from None
        owners.append(owner_of.setdefault(name, len(owner_of)))
    if not owners:
        raise InputError(f"{path} has a header, but no rows below it. Write one row for each step.")
    table = np.frombuffer(numbers).reshape(len(owners), len(layout.values))
    if whole and np.abs(table).max() < 2**31:
        table = table.astype(np.int32)
    # Stable, so that the rows of a series stay in the order of the file.
    order = np.argsort(owners, kind="stable")
    series = np.split(table[order], np.cumsum(np.bincount(owners))[:-1])
    return RawSeries([*owner_of], series, [layout.header[place] for place in layout.values])


def _name(cell: str) -> str:
    if not cell:
        raise ValueError("the cell is empty. Write to which series the row belongs, or remove it.")
    return cell


def _number(cell: str, largest: float) -> float:
    """The number in a cell, NaN if it is missing."""
    try:
        number = float(cell)
    except ValueError:
        if cell in _MISSING:
            return math.nan
        number = None
    # Python reads 1_000 as a number; in a file it is a slip.
    if number is None or "_" in cell:
        hint = " Write decimals with a point." if re.fullmatch(r"[+-]?\d*,\d+", cell) else ""
        raise ValueError(
            f"{cell!r} is not a number.{hint} Correct it, or leave the cell empty if the value is missing; if the "
            "column holds text, name the columns to read without it."
        )
    if -largest <= number <= largest or math.isnan(number):
        return number
    if "inf" in cell.lower():
        raise ValueError(f"{cell!r} is infinite. Correct it, or leave the cell empty if the value is missing.")
    raise ValueError(too_large(cell, "leave the cell empty"))


def _undecodable_line(path: Path) -> int:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 1


def _not_text(path: Path, line: int) -> InputError:
    return InputError(
        f"{path}, line {line}: this is not text in UTF-8. Save the file with that encoding; if it is a spreadsheet or "
        "another binary file, export it as CSV."
    )
