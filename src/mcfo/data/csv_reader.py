"""Series from CSV files: one row for each step, under a header."""

import codecs
import csv
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mcfo.data.column_layout import MISSING, RequestedColumns, check_names, choose_columns, read_rows
from mcfo.data.column_roles import sample_rows
from mcfo.data.times import RawSeries, read_date, read_number
from mcfo.errors import InputError
from mcfo.limits import limits

DELIMITERS = (",", ";", "\t")


def name_cell(name: str) -> str:
    """Return a name as a cell that no spreadsheet takes for a formula; a number is none."""
    return f"'{name}" if name[:1] in ("=", "+", "-", "@") and read_number(name) is None else name


class _Lines:
    """The lines of a file, of which those of one row may not be longer than the limit."""

    def __init__(self, path: Path, file: Any):
        self._path, self._file, self._limits = path, file, limits()
        self.length = 0
        """Characters since the last row began; the reader of rows resets it."""

    def __iter__(self) -> Iterator[str]:
        while line := self._file.readline(self._limits.line + 1 - self.length):
            self.length += len(line)
            if self.length > self._limits.line:
                self._limits.check("line", self.length, self._path)
            yield line


def read_csv(path: Path, wanted: RequestedColumns) -> RawSeries:
    """Read a CSV file in UTF-8; the delimiter is that of the header."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = _Lines(path, file)
            each = iter(lines)
            first = next(each, "")
            reader = csv.reader(
                itertools.chain([first], each), delimiter=_delimiter(first), skipinitialspace=True, strict=True
            )
            rows = _rows(path, reader, lines)
            _, header = next(rows, (1, []))
            header = _checked_header(path, [name.strip() for name in header])
            first_rows = list(itertools.islice(rows, sample_rows(len(header))))
            sample = [[row[index].strip() for _, row in first_rows] for index in range(len(header))]
            layout = choose_columns(path, header, wanted, sample)
            rows = itertools.chain(first_rows, rows)
            return read_rows(path, layout, rows, unit="line", missing="leave the cell empty")
    except UnicodeDecodeError:
        raise _not_text(path, _undecodable_line(path)) from None


def _delimiter(line: str) -> str:
    """Return the most frequent delimiter outside quotes."""
    bare = re.sub(r'"[^"]*"', "", line)
    return max(DELIMITERS, key=bare.count)


def _rows(path: Path, reader: Any, lines: _Lines) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows, all as long as the header, each with the number of its first line."""
    width, next_line = 0, 1
    # Empty lines at the end of the file are ignored; the next row shows whether this is the end.
    empty, first_empty = 0, 0
    try:
        for row in reader:
            lines.length = 0
            line, next_line = next_line, reader.line_num + 1
            if (width and not row) or (width > 1 and len(row) == 1 and not row[0].strip()):
                empty, first_empty = empty + 1, first_empty if empty else line
                continue
            if empty and width > 1:
                raise InputError(
                    f"{path}, line {first_empty}: the line is empty, but {width} cells are wanted. Remove it; if a "
                    "step is missing there, write the row with empty cells."
                )
            for gap in range(empty):
                yield first_empty + gap, [""]
            empty = 0
            width = width or len(row)
            if len(row) != width:
                raise InputError(
                    f"{path}, line {line}: the row has {len(row)} cells, but the header has {width}. Write as many "
                    "cells as there are columns, and quote a cell that holds the delimiter."
                )
            yield line, row
    except csv.Error as error:
        raise InputError(
            f"{path}, line {next_line}: the row cannot be read ({error}). Check its quotation marks."
        ) from error


def _checked_header(path: Path, header: list[str]) -> list[str]:
    if any("\0" in name for name in header):
        raise _not_text(path, 1)
    if not header:
        raise InputError(f"{path}, line 1: there is no header. Write the names of the columns into the first line.")
    header = check_names(f"{path}, line 1", header)
    if all(name in MISSING or read_number(name) or read_date(name) for name in header):
        raise InputError(
            f"{path}, line 1: {', '.join(header[:3])} look like data, but a header is wanted. Write the names of the "
            "columns into a line above."
        )
    return header


def _undecodable_line(path: Path) -> int:
    """Return the number of the first line that is not UTF-8."""
    decoder, number = codecs.getincrementaldecoder("utf-8")(), 1
    with path.open("rb") as file:
        for block in iter(lambda: file.read(2**16), b""):
            try:
                decoder.decode(block)
            except UnicodeDecodeError as error:
                return number + error.object[: error.start].count(b"\n")
            number += block.count(b"\n")
    return number


def _not_text(path: Path, line: int) -> InputError:
    return InputError(
        f"{path}, line {line}: this is not text in UTF-8. Save the file with that encoding; if it is a spreadsheet or "
        "another binary file, export it as CSV."
    )
