"""`mcfo evaluate`: how well a learned model explains a file."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from mcfo.cli.common import (
    Columns,
    Data,
    OwnModel,
    OwnProposal,
    RunFolder,
    Seed,
    SeriesColumn,
    TimeColumn,
    check_new_file,
    exists,
    fail,
    messages,
    writing,
)
from mcfo.cli.rolling import Asked, evaluate_rolling


def evaluate(
    run: RunFolder,
    data: Data,
    particles: Annotated[int, typer.Option(help="Particles of the filter.", min=1)] = 500,
    seed: Seed = 0,
    model: OwnModel = None,
    proposal: OwnProposal = None,
    columns: Columns = None,
    series: SeriesColumn = None,
    time: TimeColumn = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write the JSON into this file; it must not exist yet.")] = None,
    rolling: Annotated[
        bool, typer.Option("--rolling", help="Forecast from one step after the other, and score the forecasts.")
    ] = False,
    horizon: Annotated[
        int | None, typer.Option(help="With --rolling: steps ahead, 1 by default.", min=1, max=100_000)
    ] = None,
    first: Annotated[
        int | None,
        typer.Option("--from", help="With --rolling: the first step that is forecast, counted from 1.", min=1),
    ] = None,
    origins: Annotated[
        int | None,
        typer.Option(help="With --rolling: so many forecasts of each series, evenly spread; by default all.", min=1),
    ] = None,
    draws: Annotated[
        int | None, typer.Option(help="With --rolling: draws of each forecast, 1000 by default.", min=2, max=100_000)
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="With --rolling: draw forecasts and calibration into this .png file.")
    ] = None,
) -> None:
    """Filter the series in a file with a learned model: log-likelihood, NLL per step, ESS, one-step prediction; or,
    with --rolling, log score, CRPS, coverage and calibration of its forecasts."""
    if out is not None and exists(out):
        fail(f"{out} exists already. Choose another file with --out.")
    exists(run)
    about_forecasts = {"--horizon": horizon, "--from": first, "--origins": origins, "--draws": draws, "--plot": plot}
    for flag, given in about_forecasts.items():
        if given is not None and not rolling:
            fail(f"{flag} is about forecasts. Add --rolling, or leave it out.")
    check_new_file(plot, "--plot", (".png",))
    with messages():
        if rolling:
            chosen = {"values": columns.split(",") if columns else None, "series": series, "time": time}
            sizes = Asked(horizon or 1, first or 1, origins, particles, draws or 1000, seed, as_json, out, plot)
            _roll(run, data, (model, proposal), chosen, sizes)
            return
        _evaluate(
            run,
            data,
            particles,
            seed,
            model,
            proposal,
            {"values": columns.split(",") if columns else None, "series": series, "time": time},
            as_json,
            out,
        )


def _roll(run: Path, data: Path, own: tuple[str | None, str | None], columns: dict[str, Any], asked: Asked) -> None:
    from mcfo.data.run_columns import read_for_run
    from mcfo.learning.saved_runs import load_run

    table = read_for_run(run, data, **columns)
    saved = load_run(run, model=own[0], proposal=own[1], series_list=table.series_list)
    evaluate_rolling(run, data, table, saved, asked)


def _evaluate(
    run: Path,
    data: Path,
    particles: int,
    seed: int,
    model: str | None,
    proposal: str | None,
    columns: dict[str, Any],
    as_json: bool,
    out: Path | None,
) -> None:
    import jax
    from rich.console import Console

    from mcfo.data.run_columns import read_for_run
    from mcfo.errors import InputError
    from mcfo.files import write_atomically
    from mcfo.inference.evaluation import evaluate as compute
    from mcfo.learning.saved_runs import load_run

    series_list = read_for_run(run, data, **columns).series_list
    saved = load_run(run, model=model, proposal=proposal, series_list=series_list)
    console = Console(stderr=as_json)
    found = []
    with console.status(f"Filtering {len(series_list)} series with {particles} particles"):
        for one in saved.seeds:
            try:
                result = compute(one.model, one.proposal, series_list, particles=particles, key=jax.random.key(seed))
            except (TypeError, ValueError) as error:
                raise InputError(f"The model in {run} cannot filter {data}: {error}") from error
            found.append((one.seed, result))
    content = {
        "run": str(run),
        "data": str(data),
        "particles": particles,
        "seed": seed,
        "seeds": [{"seed": number, **result.as_data()} for number, result in found],
    }
    text = json.dumps(content, indent=2, allow_nan=False)
    if as_json:
        print(text)
    else:
        console.print(evaluation_table(found, f"{run} on {data}"))
    if out is not None:
        with writing(out, "--out"):
            write_atomically(out, (text + "\n").encode())


def evaluation_table(found: list[tuple[int, Any]], title: str) -> Any:
    """One column for each seed."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title))
    table.add_column("")
    for seed, _ in found:
        table.add_column(f"seed {seed}", justify="right")
    results = [result for _, result in found]
    rows = {
        "log-likelihood": [f"{one.log_evidence:.3f}" for one in results],
        "NLL per step": [f"{one.nll_per_step:.5f}" for one in results],
        "  exact": [_or_blank(one.exact_nll_per_step, ".5f") for one in results],
        f"ESS of {results[0].particles}": [f"{one.ess:.1f}" for one in results],
        "  least": [f"{one.ess_min:.1f}" for one in results],
        "one-step RMSE": [_or_blank(one.prediction_rmse, ".4f") for one in results],
        "collapsed series": [f"{one.collapsed} of {one.series}" for one in results],
    }
    for name, cells in rows.items():
        if any(cells):
            table.add_row(name, *cells)
    return table


def _or_blank(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
