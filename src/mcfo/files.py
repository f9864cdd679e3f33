"""Files that are complete or absent, JSON objects, and the entries of nested dictionaries."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from mcfo.errors import InputError, shown
from mcfo.limits import check_document


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


_OF_A_RUN = (
    *("config.json", "metrics.jsonl", "results.json", "model.npz", "checks.npz", "report.html", ".lock"),
    *("checkpoints", "figures", "tensorboard"),
)
"""What a run reads and writes in its folder."""


def refuse_links(folder: Path) -> None:
    """Refuse a folder in which a name stands for a file elsewhere: it would be shown, or written over."""
    for path in [*(folder / name for name in _OF_A_RUN), *(folder / "checkpoints").rglob("*")]:
        if path.is_symlink():
            raise InputError(
                f"{path} is a link, but the files of a run lie in its own folder. Put what it leads to in its place; "
                "to keep a run elsewhere, link the whole folder."
            )


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file."""
    try:
        check_document(path)
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}.") from error
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}.") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} holds a {type(content).__name__}, but an object is wanted.")
    return content


def json_text(value: Any) -> str:
    """Return the beginning of a value of a JSON file as it stands there, for a message."""
    if isinstance(value, list | dict):
        return shown(value)
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def nested(value: Any, *names: str) -> Any:
    """Return the entry of nested dictionaries under these names, or None."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value
