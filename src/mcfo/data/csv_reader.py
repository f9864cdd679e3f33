"""Series from a CSV file: one row for each step, below a header."""

import csv
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mcfo.data.column_layout import MISSING, Wanted, choose, read_rows
from mcfo.data.times import RawSeries, read_date, read_number
from mcfo.errors import InputError

DELIMITERS = (",", ";", "\t")


def read_csv(path: Path, wanted: Wanted) -> RawSeries:
    """Reads a file in UTF-8; the delimiter is the one of the header."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            lines = itertools.chain([first], file)
            reader = csv.reader(lines, delimiter=_delimiter(first), skipinitialspace=True, strict=True)
            rows = _rows(path, reader)
            _, header = next(rows, (1, []))
            header = [name.strip() for name in header]
            _check_header(path, header)
            return read_rows(path, choose(path, header, wanted), rows, unit="line", missing="leave the cell empty")
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
    if all(name in MISSING or read_number(name) or read_date(name) for name in header):
        raise InputError(
            f"{path}, line 1: {', '.join(header[:3])} look like data, but a header is wanted. Write the names of the "
            "columns into a line above."
        )


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
