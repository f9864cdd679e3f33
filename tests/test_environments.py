"""Each version of Python has an environment of its own, so that `make` never tests on another one than it was asked."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def commands(tmp_path: Path, target: str, python: str) -> str:
    """Return what `make` would run where three interpreters are installed, of which python3 is 3.11."""
    for name, version in [("python3", "3.11.99"), ("python3.11", "3.11.99"), ("python3.13", "3.13.99")]:
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho {version}\n")
        program.chmod(0o755)
    # A make above this one must not pass its own options on.
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("MAKE") and name != "MFLAGS"
    }
    environment["PATH"] = f"{tmp_path}{os.pathsep}{environment['PATH']}"
    words = ["make", "--dry-run", "--always-make", target, f"PYTHON={python}"]
    return subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("python", "folder", "version"),
    [("python3", ".venv", "3.11.99"), ("python3.11", ".venv", "3.11.99"), ("python3.13", ".venv-3.13", "3.13.99")],
)
def test_the_environment_depends_on_the_interpreter(tmp_path, python, folder, version):
    lines = commands(tmp_path, "test", python).splitlines()
    assert any(line.endswith(f"{python} -m venv --clear {folder}") for line in lines), lines
    assert f"touch {folder}/.ready-{version}" in lines
    assert any(line.startswith(f"{folder}/bin/python -m pytest") for line in lines), lines


@pytest.mark.parametrize(("python", "runs"), [("python3", True), ("python3.13", False)])
def test_the_newest_python_is_tested_once(tmp_path, python, runs):
    shown = commands(tmp_path, "test-newest", python)
    assert (".venv-3.13/bin/python -m pytest" in shown) == runs
    assert ("Skipped: only Python 3.13.99 is here" in shown) != runs
