"""Files that are whole or not there, and the error of those who hand over something unusable."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


class InputError(ValueError):
    """What the user handed over cannot be used; the message says what came, what was wanted and what to do."""


class OtherRunError(InputError):
    """A folder holds the beginning of another run than the one that was asked for."""


class RunError(RuntimeError):
    """A run cannot go on; what it kept before is whole, and the message says how to go on."""


def write_atomically(path: Path, content: bytes) -> None:
    """Writes beside the file and renames: whoever opens it sees the old content or the new one, never a part."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def inside(value: Any, *names: str) -> Any:
    """What lies in nested objects under these names, or None."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value
