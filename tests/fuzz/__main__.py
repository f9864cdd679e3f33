"""Random cases for as long as one likes: python -m fuzz --minutes 30 (make fuzz ARGS="--minutes 30").

What is found is written into a folder, one folder for each finding: its files, and what did not hold of it.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, seed, settings

from fuzz.cases import CASES, Case
from fuzz.commands import commands, fitted
from fuzz.oracle import Worker

_ROUND, _COMMANDS = 400, 20
"""Cases of one round, and whole commands after it."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=0, help="of the first round")
    parser.add_argument("--no-commands", action="store_true", help="readers alone")
    parser.add_argument("--out", type=Path, default=Path("fuzz-findings"))
    chosen = parser.parse_args()
    end, number = time.monotonic() + 60 * chosen.minutes, chosen.seed
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        readers, shell = Worker(Path(folder) / "readers"), Worker(Path(folder) / "commands", commands=True)
        run = {} if chosen.no_commands else fit_once(Path(folder))
        while time.monotonic() < end:
            play(number, _ROUND, CASES, readers, counts, chosen.out, end)
            if run:
                play(number, _COMMANDS, commands(run), shell, counts, chosen.out, end)
            number += 1
            print(f"seed {number}: {', '.join(f'{count} {name}' for name, count in counts.items())}", flush=True)
        readers.close()
        shell.close()
    print(f"{counts['cases']} cases, {counts['commands']} commands, {counts['findings']} findings.")
    sys.exit(1 if counts["findings"] else 0)


def fit_once(folder: Path) -> dict[str, bytes]:
    """The files of a small run."""
    from typer.testing import CliRunner

    from mcfo.cli.main import app

    data = folder / "series.csv"
    data.write_text("series,time,level\n" + "".join(f"a,{step},{step % 3}.5\n" for step in range(1, 9)))
    words = ["fit", "local-level", "--data", str(data), "--out", str(folder / "run"), "--no-checks", "--devices", "1"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    return fitted(folder / "run")


def play(number: int, count: int, cases: Any, worker: Worker, counts: Counter[str], out: Path, end: float) -> None:
    """Look at some cases; a finding is made small before it is written down."""
    smallest: list[tuple[Case, list[str] | None, list[str]]] = []

    @seed(number)
    @settings(max_examples=count, deadline=None, database=None, suppress_health_check=[*HealthCheck], print_blob=False)
    @given(cases)
    def look(drawn: Any) -> None:
        if time.monotonic() > end:
            return
        case, words = (drawn, None) if isinstance(drawn, Case) else drawn
        counts["cases" if words is None else "commands"] += 1
        violations = worker.violations(case, words)
        if violations:
            smallest[:] = [(case, words, violations)]
            raise AssertionError(violations[0])

    try:
        look()
    except Exception:
        # Flaky cases and several distinct ones come as errors of other types; the last case is the smallest.
        if not smallest:
            raise
        case, words, violations = smallest[0]
        counts["findings"] += 1
        folder = out / f"{number}-{counts['findings']}"
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in case.files.items():
            (folder / name).write_bytes(content)
        (folder / "finding.txt").write_text("\n\n".join([case.reader, str(words), *violations]), errors="replace")
        print(f"found {folder}: {violations[0].strip().splitlines()[-1][:300]}", flush=True)


if __name__ == "__main__":
    main()
