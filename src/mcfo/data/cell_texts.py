"""Cells of typed columns as text, so that every table is read by the same rules."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mcfo.data.column_layout import Layout, read_rows
from mcfo.data.times import RawSeries
from mcfo.errors import InputError

_BLOCK = 100_000
"""Cells that are text at the same time: a text takes ten times the room of a number."""

Cells = Callable[[int, int], Sequence[str]]
"""The cells of a column from one row to another."""


def array_texts(values: np.ndarray) -> list[str]:
    """Return the cells of an array as text."""
    if values.dtype.kind == "M":
        return ["" if text == "NaT" else without_zeros(text) for text in np.datetime_as_string(values).tolist()]
    if values.dtype.kind == "m":
        values = values / np.timedelta64(1, "s")
    if values.dtype.kind == "b":
        values = values.astype(np.int8)
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    return ["" if value is None else str(value) for value in values.tolist()]


def without_zeros(moment: str) -> str:
    """Return a date without trailing zeros."""
    return re.sub(r"[ T]00:00:00$", "", re.sub(r"(:\d\d)\.0+$", r"\1", moment))


def read_cells(path: Path | str, layout: Layout, cells: Mapping[int, Cells], count: int, **speech: Any) -> RawSeries:
    """Read the series in columns of `count` cells; `speech` is what [`read_rows`][] says otherwise."""

    def rows() -> Iterator[tuple[int, dict[int, str]]]:
        size = max(1, _BLOCK // len(cells))
        for start in range(0, count, size):
            block = {index: column(start, start + size) for index, column in cells.items()}
            for row in range(min(size, count - start)):
                yield start + row + 1, {index: column[row] for index, column in block.items()}

    return read_rows(path, layout, rows(), unit="row", missing="make it NaN", **speech)


def not_installed(format: str, package: str, requirement: str, path: Path) -> InputError:
    """Return the error about a package that is missing."""
    return InputError(
        f"Cannot read {path}: {format} files need the package {package}, which is not installed. Install it: "
        f"pip install {requirement}. Or convert the file to CSV or NPZ."
    )
