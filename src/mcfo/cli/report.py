"""`mcfo report`: the page about a run."""

import json
from pathlib import Path
from typing import Annotated

import typer

from mcfo.cli.common import exists, fail, messages


def report(
    run: Annotated[Path, typer.Argument(help="The folder of a run of mcfo fit, or of mcfo reproduce.", metavar="RUN")],
) -> None:
    """Write one self-contained HTML page about a run: results, curves, warnings, how to make it again."""
    exists(run)
    page = run / "report.html"
    experiment = _experiment(run)
    if experiment is not None:
        if not page.exists():
            fail(f"{run} has lost its report.html. Make it again: mcfo reproduce {experiment} --out another-folder.")
        print(f"Report: {page}")
        return
    with messages():
        from mcfo.reports.run import write_run_report

        print(f"Report: {write_run_report(run)}")


def _experiment(run: Path) -> str | None:
    """The name of the experiment, if the folder is one of mcfo reproduce."""
    try:
        config = json.loads((run / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return None  # what is wrong with it is said by the reader of runs
    name = config.get("experiment") if isinstance(config, dict) else None
    return name if isinstance(name, str) else None
