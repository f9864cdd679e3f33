"""Whole commands on files and run folders of random content."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fuzz.cases import MUTATIONS, Case, binary_case, csv_case, mutated, npz_case, run_case


def run_command(words: list[str], folder: Path) -> tuple[str, str]:
    """Run a command in a folder; return how it ended, and its message."""
    from typer.testing import CliRunner

    from mcfo.cli.main import app

    os.chdir(folder)
    result = CliRunner().invoke(
        app, words, input=(folder / "stdin").read_bytes() if (folder / "stdin").exists() else None
    )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    message = result.stderr.strip()
    if "\x1b" in result.stdout:
        return "escape", f"an escape sequence on standard output: {result.stdout[:500]!r}"
    if result.exit_code == 0:
        return "read", ""
    # What typer refuses by itself is a box of several lines.
    good = result.exit_code == 2 and (message.startswith("mcfo: ") or "Usage: " in message)
    return (
        ("refused", message.splitlines()[-1]) if good else ("exit", f"exit code {result.exit_code}: {message[:2000]}")
    )


@functools.cache
def fitted(folder: Path) -> dict[str, bytes]:
    """The files of a run that was fitted."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.glob("*"))
        if path.is_file() and path.suffix in (".json", ".npz", ".jsonl")
    }


@st.composite
def commands(draw: Any, run: dict[str, bytes]) -> tuple[Case, list[str]]:
    """A case and the words of a command on it; `run` has the files of a fitted run."""
    kind = draw(st.sampled_from(["inspect", "inspect", "music", "report", "run", "run", "stream"]))
    if kind == "inspect":
        case = draw(st.one_of(csv_case(), binary_case(), npz_case()))
        plot = ["--plot", "figure.png"] if draw(st.booleans()) else []
        return case, ["data", "inspect", next(iter(case.files)), *plot]
    if kind == "music":
        case = draw(st.one_of(binary_case(), npz_case()))
        return case, ["data", "music", "--from", next(iter(case.files)), "--out", "music"]
    if kind == "report":
        return draw(run_case()), ["report", "."]
    spoiled = draw(st.sampled_from([*run]))
    files = run | {spoiled: mutated(run[spoiled], draw(MUTATIONS))}
    if kind == "stream":
        lines = b"\n".join(
            draw(st.lists(st.sampled_from([b"1.5", b"null", b"\xff\xfe", b"[" * 9999, b"1e999"]), max_size=4))
        )
        return Case("run", {**files, "stdin": lines + b"\n"}), ["stream", ".", "--particles", "5", "--skip-bad"]
    data = {"data.csv": mutated(b"series,time,level\na,1,0.5\na,2,0.25\na,3,1\n", draw(MUTATIONS))}
    task = draw(st.sampled_from(["evaluate", "filter", "forecast"]))
    words = {
        "evaluate": ["evaluate", ".", "--data", "data.csv"],
        "filter": ["filter", ".", "--data", "data.csv", "--out", "states.csv"],
        "forecast": ["forecast", ".", "--data", "data.csv", "--steps", "3", "--draws", "2", "--out", "coming.csv"],
    }[task]
    return Case("run", files | data), words
