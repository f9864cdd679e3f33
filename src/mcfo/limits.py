"""Limits of what is read from files. They are stated here alone, and checked before anything is allocated."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mcfo.errors import InputError, nearest

VARIABLE = "MCFO_LIMITS"
"""The variable of the environment that raises limits, as in elements=1e9,columns=200000."""


@dataclass(frozen=True)
class Limits:
    """The largest sizes that a file may have, or ask for.

    - `bytes`: bytes of the arrays in a file, once they are unpacked.
    - `elements`: numbers and texts in a file.
    - `columns`: columns of a table, arrays in a file.
    - `line`: characters of a row of text.
    - `document`: bytes of a file that is read as a whole, whose objects take many times its size: JSON, pickles, MIDI.
    - `nesting`: lists within lists.
    """

    bytes: int = 2 * 2**30
    elements: int = 100_000_000
    columns: int = 100_000
    line: int = 10_000_000
    document: int = 32 * 2**20
    nesting: int = 30

    def check(self, name: str, size: int, source: Any) -> None:
        """Refuse a source of this size."""
        most = getattr(self, name)
        if size > most:
            raise InputError(
                f"{source} asks for {size} {_TEXTS[name]}, but at most {most} are read, so that a damaged or hostile "
                f"file cannot fill the memory. If the file is right, raise the limit: mcfo --limit {name}={size} (in "
                f"Python, the environment variable {VARIABLE}={name}={size})."
            )


_TEXTS = {
    "bytes": "bytes after unpacking",
    "elements": "elements",
    "columns": "columns",
    "line": "characters in a row",
    "document": "bytes at once",
    "nesting": "levels of nesting",
}


def limits() -> Limits:
    """Return the limits, as raised by the environment."""
    text = os.environ.get(VARIABLE)
    return read_limits(text) if text else Limits()


def read_limits(text: str) -> Limits:
    """Read `name=value` pairs, separated by commas."""
    chosen: dict[str, int] = {}
    for pair in text.split(","):
        name, _, value = pair.strip().partition("=")
        if name not in _TEXTS:
            raise InputError(f"There is no limit {name!r}. {nearest(name, _TEXTS)}")
        try:
            chosen[name] = int(float(value))
        except (ValueError, OverflowError):
            chosen[name] = 0
        if chosen[name] < 1:
            raise InputError(f"The limit {name} is {value!r}, but a positive number is wanted: {name}=1e9.")
    return Limits(**chosen)


def raise_limits(pairs: Iterable[str]) -> None:
    """Raise limits for this process and those that it starts."""
    text = ",".join(pairs)
    read_limits(text)
    os.environ[VARIABLE] = ",".join(filter(None, [os.environ.get(VARIABLE), text]))


def check_document(path: Path) -> None:
    """Refuse a file that is too large to be read as a whole."""
    limits().check("document", path.stat().st_size, path)
