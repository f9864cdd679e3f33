"""The list of the user's own code that may run because a run folder names it.

A run folder says where the code of its model is, but anybody may have written it. Code runs without being named on the
command line only if `mcfo fit` of the same user ran the same file, path and content, before. The list lies outside of
every run folder.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from mcfo.errors import InputError
from mcfo.files import read_json, write_atomically

_everything = False
"""Whether the user said so for this command, with --trust-code."""


def trust_list() -> Path:
    """The file with the list."""
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return folder / "mcfo" / "trusted-code.json"


def trust_everything(wanted: bool) -> bool:
    """Let every file run that a run folder names, in this process."""
    global _everything
    _everything = wanted
    return wanted


def trust(reference: str) -> None:
    """Add a file of the user's own, `path/to/file.py:Name`, as it is now. Without a home there is no list."""
    path = Path(reference.rpartition(":")[0]).resolve()
    try:
        list_file = trust_list()
        known = _read(list_file)
        known[str(path)] = digest(path)
        list_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(list_file, (json.dumps(known, indent=2) + "\n").encode())
    except (OSError, RuntimeError):
        return  # without it, commands ask where the code is, and say so


def trusted(side: str, run: Path, path: str | None, name: str, option: str) -> str:
    """Return the reference to the code that a run names, if it may run; otherwise say how to allow it.

    **Arguments:**

    - `side`: "model" or "proposal".
    - `path`, `name`: what config.json says of it: the file, and `file.py:Name`.
    - `option`: the option that names it.
    """
    remedy = f"Say where it is: {option} path/to/{name}; or add --trust-code if you trust the folder and the file."
    if path is None or not Path(path).is_file():
        raise InputError(f"{run} holds a {side} of your own, whose file is not where it was. {remedy}")
    if not (_everything or _read(trust_list()).get(path) == digest(Path(path))):
        raise InputError(
            f"{run} names the code of a {side}, {path}, which is not on your list of trusted code: no mcfo fit of "
            f"yours ran it as it is now. It was not run. {remedy}"
        )
    return f"{path}:{name.rpartition(':')[2]}"


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _read(path: Path) -> dict[str, str]:
    if not path.exists():
        return {}
    if os.name == "posix" and (path.stat().st_mode & 0o022 or path.stat().st_uid != os.getuid()):
        raise InputError(f"Others can write to {path}, so that it tells nothing. Delete it.")
    return {name: value for name, value in read_json(path).items() if isinstance(value, str)}
