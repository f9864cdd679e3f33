"""The peers' environments, made when they are first needed and again when their requirements change."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).parents[1]
PEERS = ROOT / "peers"
ENVIRONMENTS = ROOT / ".envs"

_ONE_AT_A_TIME = threading.Lock()


class NoEnvironment(Exception):
    """It could not be made; the text says why."""


def python_of(name: str | None) -> Path:
    """The Python of an environment, which is made if it is not there; None means the one that runs the suite."""
    if name is None:
        return Path(sys.executable)
    with _ONE_AT_A_TIME:
        return _made(name)


def _made(name: str) -> Path:
    requirements = PEERS / "requirements" / f"{name}.txt"
    folder = ENVIRONMENTS / name
    python = folder / "bin" / "python"
    mark = folder / ".made-from"
    wanted = hashlib.sha256(requirements.read_bytes()).hexdigest()
    if mark.exists() and mark.read_text() == wanted and python.exists():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(folder)], name)
    _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(requirements)], name)
    mark.write_text(wanted)
    return python


def _run(command: list[str], name: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if line.startswith("ERROR")] or result.stderr.splitlines()
        raise NoEnvironment(f"no environment {name}: {lines[0] if lines else 'pip failed'}"[:200])
