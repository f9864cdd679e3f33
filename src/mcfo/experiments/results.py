"""Results in long form, and files that are whole or not there."""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class OtherRunError(ValueError):
    """A folder holds the beginning of another run than the one that was asked for."""


class Row(NamedTuple):
    """One number of an experiment. `stderr` is NaN where the value is exact."""

    setting: str
    method: str
    particles: int
    parameter: str
    quantity: str
    value: float
    stderr: float


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Writes the rows as CSV with a header, numbers in full precision; a standard error that is NaN is left empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Row._fields)
    for row in rows:
        stderr = float(row.stderr)
        writer.writerow([*row[:-2], repr(float(row.value)), "" if math.isnan(stderr) else repr(stderr)])
    write_atomically(path, text.getvalue().encode())


def read_rows(path: Path) -> list[Row]:
    """What [`write_rows`][] wrote."""
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Row(
                line["setting"],
                line["method"],
                int(line["particles"]),
                line["parameter"],
                line["quantity"],
                float(line["value"]),
                float(line["stderr"] or "nan"),
            )
            for line in csv.DictReader(file)
        ]


def write_atomically(path: Path, content: bytes) -> None:
    """Writes beside the file and renames: whoever opens it sees the old content or the new one, never a part."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        beside.write_bytes(content)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
