"""`mcfo report`: the page about a run."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from mcfo.cli.common import (
    Columns,
    OwnModel,
    OwnProposal,
    SeriesColumn,
    TimeColumn,
    exists,
    fail,
    messages,
    writing,
)
from mcfo.errors import InputError


def report(
    run: Annotated[Path, typer.Argument(help="The folder of a run of mcfo fit, or of mcfo reproduce.", metavar="RUN")],
    data: Annotated[
        Path | None, typer.Option(help="Series to check the model on again: residuals and simulated series.")
    ] = None,
    model: OwnModel = None,
    proposal: OwnProposal = None,
    columns: Columns = None,
    series: SeriesColumn = None,
    time: TimeColumn = None,
) -> None:
    """Write one self-contained HTML page about a run: results, curves, checks, warnings, how to make it again."""
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

        if data is not None:
            asked = {"values": columns.split(",") if columns else None, "series": series, "time": time}
            _check(run, data, asked, model, proposal)
        print(f"Report: {write_run_report(run)}")


def _check(run: Path, data: Path, asked: dict[str, Any], model: str | None, proposal: str | None) -> None:
    from mcfo.data.run_columns import read_for_run
    from mcfo.learning.saved_runs import load_run

    table = read_for_run(run, data, **asked)
    learned = load_run(run, model=model, proposal=proposal, series_list=table.series_list).choose()
    try:
        made = keep_checks(run, learned.model, learned.proposal, table.series_list, table.columns)
    except (TypeError, ValueError) as error:
        raise InputError(f"The model in {run} cannot be checked on {data}: {error}") from error
    if not made:
        raise InputError(f"{data} has {len(table.columns)} columns of values, too many to check one by one.")


def keep_checks(run: Path, model: Any, proposal: Any, series_list: list, columns: list[str]) -> bool:
    """Residuals and simulated series for the page, where there are few columns; whether there are."""
    import jax

    from mcfo.data.inspection import MOST_COLUMNS
    from mcfo.inference.predictive_checks import predictive_checks, write_checks
    from mcfo.reports.checks import FILE

    if len(columns) > MOST_COLUMNS:
        return False
    checks = predictive_checks(model, proposal, series_list, key=jax.random.key(0))
    with writing(run / FILE, "RUN"):
        write_checks(run / FILE, checks, columns)
    return True


def _experiment(run: Path) -> str | None:
    """The name of the experiment, if the folder is one of mcfo reproduce."""
    try:
        config = json.loads((run / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return None  # what is wrong with it is said by the reader of runs
    name = config.get("experiment") if isinstance(config, dict) else None
    return name if isinstance(name, str) else None
