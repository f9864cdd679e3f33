"""`mcfo evaluate`: how well a learned model explains the series in a file, and how well it forecasts them."""

import json
from pathlib import Path
from typing import Annotated, Any

from mcfo.cli import options as opt
from mcfo.cli.apply import Applied, open_run
from mcfo.cli.options import (
    build_table,
    check_new_file,
    exists,
    fail,
    messages,
    refusing,
    table_columns,
    writing,
    written,
)

_forecasts = opt.panel("Forecasts, with --rolling")


def evaluate(
    run: opt.RunFolder,
    data: opt.Data,
    rolling: Annotated[
        bool, opt.main("Forecast from one step after another, and score the forecasts.", "--rolling")
    ] = False,
    particles: opt.Particles = 500,
    seed: opt.Seed = 0,
    model: opt.OwnModel = None,
    proposal: opt.OwnProposal = None,
    columns: opt.Columns = None,
    series: opt.SeriesColumn = None,
    time: opt.TimeColumn = None,
    as_json: Annotated[bool, opt.output("Print JSON instead of a table.", "--json")] = False,
    out: Annotated[Path | None, opt.output("Write the JSON into this file; it must not exist yet.")] = None,
    horizon: Annotated[int | None, _forecasts("Steps ahead, 1 by default.", min=1, max=100_000)] = None,
    first: Annotated[
        int | None, _forecasts("The first step that is forecast, counted from 1.", "--from", min=1)
    ] = None,
    origins: Annotated[
        int | None, _forecasts("Number of forecasts of each series, evenly spread; by default all.", min=1)
    ] = None,
    draws: Annotated[int | None, _forecasts("Draws of each forecast, 1000 by default.", min=2, max=100_000)] = None,
    plot: Annotated[Path | None, _forecasts("Draw forecasts and calibration into this .png file.")] = None,
) -> None:
    """Measure how well a learned model explains and forecasts the series in a file.

    Log-likelihood, NLL per step, ESS, one-step prediction; with --rolling, log score, CRPS, coverage and calibration
    of its forecasts.
    """
    if out is not None and exists(out):
        fail(f"{out} exists already. Choose another file with --out.")
    exists(run)
    about_forecasts = {"--horizon": horizon, "--from": first, "--origins": origins, "--draws": draws, "--plot": plot}
    for flag, value in about_forecasts.items():
        if value is not None and not rolling:
            fail(f"{flag} is about forecasts. Add --rolling, or leave it out.")
    check_new_file(plot, "--plot", (".png",))
    with messages():
        applied = open_run(run, data, table_columns(columns, series, time), (model, proposal))
        if rolling:
            sizes = {"horizon": horizon or 1, "first": first or 1, "origins": origins, "draws": draws or 1000}
            _score_forecasts(applied, {**sizes, "particles": particles}, seed, as_json, out, plot)
        else:
            _evaluate(applied, particles, seed, as_json, out)


def _evaluate(applied: Applied, particles: int, seed: int, as_json: bool, out: Path | None) -> None:
    import jax
    from rich.console import Console

    from mcfo.inference.evaluation import evaluate as compute

    console, series_list, results = Console(stderr=as_json), applied.table.series_list, []
    with (
        console.status(f"Filtering {len(series_list)} series with {particles} particles"),
        refusing(f"The model in {applied.run} cannot filter {applied.data}"),
    ):
        for one in applied.saved.seeds:
            result = compute(one.model, one.proposal, series_list, particles=particles, key=jax.random.key(seed))
            results.append((one.seed, result))
    about = {"particles": particles, "seed": seed}
    text = _json(applied, about, results)
    if as_json:
        print(text)
    else:
        console.print(evaluation_table(results, f"{applied.run} on {applied.data}"))
    _write(text, out)


def _score_forecasts(
    applied: Applied, sizes: dict[str, Any], seed: int, as_json: bool, out: Path | None, plot: Path | None
) -> None:
    """Scores the forecasts of every seed of a run."""
    import jax
    from rich.console import Console

    from mcfo.inference.rolling_evaluation import evaluate_rolling as compute

    console, table, results = Console(stderr=as_json), applied.table, {}
    with (
        console.status(f"Forecasting {len(table.series_list)} series with {sizes['particles']} particles"),
        refusing(f"The model in {applied.run} cannot forecast {applied.data}"),
    ):
        for one in applied.saved.seeds:
            results[one.seed] = compute(one.model, one.proposal, table.series_list, key=jax.random.key(seed), **sizes)
    about = {"horizon": sizes["horizon"], "from": sizes["first"], "origins": sizes["origins"], "seed": seed}
    text = _json(applied, about, list(results.items()))
    if as_json:
        print(text)
    else:
        console.print(_score_table(results, f"{applied.run} on {applied.data}: forecasts"))
    for number, result in results.items():
        if result.collapsed:
            console.print(
                f"[yellow]Seed {number}: the filter lost {result.collapsed} of {len(result.series)} series, so that "
                "their scores mean little. Use more particles.[/yellow]"
            )
    _write(text, out)
    if plot is not None:
        from mcfo.reports.calibration import draw_rolling

        with written("Figure", plot, "--plot", console):
            draw_rolling(plot, results[applied.learned.seed], columns=table.columns, names=table.names)


def _json(applied: Applied, about: dict[str, Any], results: list[tuple[int, Any]]) -> str:
    seeds = [{"seed": number, **result.as_data()} for number, result in results]
    content = {"run": str(applied.run), "data": str(applied.data), **about, "seeds": seeds}
    return json.dumps(content, indent=2, allow_nan=False)


def _write(text: str, out: Path | None) -> None:
    from mcfo.files import write_atomically

    if out is not None:
        with writing(out, "--out"):
            write_atomically(out, (text + "\n").encode())


def evaluation_table(results: list[tuple[int, Any]], title: str) -> Any:
    """One column for each seed."""
    each = [result for _, result in results]
    rows = {
        "log-likelihood": [f"{one.log_evidence:.3f}" for one in each],
        "NLL per step": [f"{one.nll_per_step:.5f}" for one in each],
        "  exact": [_or_blank(one.exact_nll_per_step, ".5f") for one in each],
        f"mean ESS of {each[0].particles}": [f"{one.ess:.1f}" for one in each],
        "  lowest": [f"{one.ess_min:.1f}" for one in each],
        "one-step RMSE": [_or_blank(one.prediction_rmse, ".4f") for one in each],
        "collapsed series": [f"{one.collapsed} of {one.series}" for one in each],
    }
    header = ["", *(f"seed {seed}" for seed, _ in results)]
    return build_table(header, [[name, *cells] for name, cells in rows.items() if any(cells)], title=title)


def _or_blank(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _score_table(results: dict[int, Any], title: str) -> Any:
    """A row for each seed and distance."""
    rows = []
    for number, result in results.items():
        for scores in result.scores:
            counts = (str(number), str(scores.ahead), str(scores.forecasts))
            sizes = (f"{scores.log_score:.4f}", f"{scores.crps:.4g}", f"{scores.rmse:.4g}")
            rows.append([*counts, *sizes, f"{scores.coverage_50:.1%}", f"{scores.coverage_90:.1%}"])
    return build_table(
        ("seed", "ahead", "forecasts", "log score", "CRPS", "RMSE", "in 50%", "in 90%"), rows, title=title
    )
