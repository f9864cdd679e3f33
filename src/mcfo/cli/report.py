"""`mcfo report`: the page about a run."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from mcfo.cli import options as opt
from mcfo.cli.apply import open_run
from mcfo.cli.options import build_table, exists, fail, messages, refusing, status, table_columns, writing
from mcfo.errors import InputError
from mcfo.files import nested

_ROWS = 20
"""Parameters that the terminal shows."""
_LONGEST = 20_000
"""Steps up to which level, components and forecast are drawn."""


def report(
    run: Annotated[Path, typer.Argument(help="The folder of a run of mcfo fit, or of mcfo reproduce.", metavar="RUN")],
    data: Annotated[
        Path | None, opt.main("Series to check the model on again: forecasts, residuals, simulated series.")
    ] = None,
    model: opt.OwnModel = None,
    proposal: opt.OwnProposal = None,
    trust_code: opt.TrustCode = False,
    columns: opt.Columns = None,
    series: opt.SeriesColumn = None,
    time: opt.TimeColumn = None,
) -> None:
    """Write one self-contained HTML page about a run.

    What was learned, how good the forecasts are, what to worry about, and how it was run.
    """
    exists(run)
    page = run / "report.html"
    experiment = _experiment(run)
    if experiment is not None:
        if not page.exists():
            fail(f"{run} has lost its report.html. Write it again: mcfo reproduce {experiment} --out another-folder.")
        print(f"Report: {page}")
        return
    with messages():
        from mcfo.cli.evaluate import season_of
        from mcfo.reports.run_page import write_run_report

        if data is not None:
            applied = open_run(run, data, table_columns(columns, series, time), (model, proposal))
            learned, table = applied.learned, applied.table
            with (
                status("Checking forecasts and simulated series"),
                refusing(f"The model in {run} cannot be checked on {data}"),
            ):
                season = season_of(nested(applied.saved.config, "model", "options"), table)
                written = check_run(run, learned.model, learned.proposal, table.series_list, table.columns, season)
                look_ahead(run, learned.model, learned.proposal, table)
            if not written:
                raise InputError(f"{data} has {len(table.columns)} columns of values, too many to check one by one.")
        with status("Writing the report"):
            page = write_run_report(run)
        print(f"Report: {page}")


def check_run(
    run: Path, model: Any, proposal: Any, series_list: list, columns: list[str], season: int | None = None
) -> bool:
    """Forecasts, residuals and simulated series for the page, where there are few columns; returns whether there
    are."""
    import jax

    from mcfo.data.inspection import MOST_COLUMNS
    from mcfo.inference.predictive_checks import predictive_checks, write_checks
    from mcfo.learning.run_folder import data_digest
    from mcfo.reports.predictive import FILE

    if len(columns) > MOST_COLUMNS:
        return False
    checks = predictive_checks(model, proposal, series_list, season=season, key=jax.random.key(0))
    with writing(run / FILE, "RUN"):
        write_checks(run / FILE, checks, columns, digest=data_digest(series_list))
    return True


def look_ahead(run: Path, model: Any, proposal: Any, table: Any) -> bool:
    """Level, components and forecast of the first series for the page, where there are few columns; returns whether
    there are."""
    from mcfo.data.inspection import MOST_COLUMNS
    from mcfo.data.outlook import FILE, write_outlook
    from mcfo.inference.datasets import named_series
    from mcfo.inference.outlook import outlook

    if len(table.columns) > MOST_COLUMNS or table.series_list[0].steps > _LONGEST:
        return False
    found = outlook(model, proposal, named_series(table))
    with writing(run / FILE, "RUN"):
        write_outlook(run / FILE, found)
    return True


def parameter_table(run: Path) -> Any:
    """The learned parameters of the model as people mean them; None where none is short enough to be shown."""
    from mcfo.data.run_record import read_run
    from mcfo.reports.parameters import model_rows

    header, rows = model_rows(read_run(run))
    return build_table(header, rows, most=_ROWS, title="Learned parameters") if rows else None


def _experiment(run: Path) -> str | None:
    """The name of the experiment, if the folder is one of mcfo reproduce."""
    try:
        config = json.loads((run / "config.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return None  # the reader of runs says what is wrong with it
    name = config.get("experiment") if isinstance(config, dict) else None
    return name if isinstance(name, str) else None
