"""Files that are complete or absent, and entries of nested dictionaries."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a temporary file and rename it: a reader sees the old content or the new one, never a part."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)


def nested(value: Any, *names: str) -> Any:
    """Return the entry of nested dictionaries under these names, or None."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value
