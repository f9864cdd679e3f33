"""`mcfo compare`: a few models and naive forecasts, ranked by how they forecast the end of the series in a file."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from mcfo.cli import options as opt
from mcfo.cli.options import build_table, check_new_file, fail, messages, table_columns, writing


def compare(
    file: Annotated[Path, typer.Argument(help="A CSV file with a header, Parquet, NetCDF or NPZ.", metavar="FILE")],
    horizon: Annotated[int, opt.main("Steps ahead; all from 1 on are scored.", min=1, max=10_000)] = 1,
    holdout: Annotated[
        int | None,
        opt.main("Last steps of every series that are forecast; by default a fifth.", "--holdout-steps", min=1),
    ] = None,
    season: Annotated[
        str, opt.main("Steps in a season, auto to look for it, or none.", "--season", metavar="STEPS")
    ] = "auto",
    models: Annotated[
        list[str] | None,
        opt.model(
            "A model of the catalogue, with options: structural:season=12,trend=local; repeat it for several. By "
            "default a local level, a local trend and what the data suggest.",
            "--model",
        ),
    ] = None,
    seed: opt.Seed = 0,
    columns: opt.Columns = None,
    series: opt.SeriesColumn = None,
    time: opt.TimeColumn = None,
    inputs: opt.InputColumns = None,
    as_json: Annotated[bool, opt.output("Print JSON instead of a table.", "--json")] = False,
    out: Annotated[
        Path | None, opt.output("Write the scores into this .csv or .json file; it must not exist yet.")
    ] = None,
) -> None:
    """Fit a few models to all but the last steps, and rank them by their forecasts of these.

    Naive forecasts stand beside them and, if statsmodels is installed, its ETS and SARIMAX.
    """
    check_new_file(out, "--out", (".csv", ".json"))
    period = _season(season)
    with messages():
        from rich.console import Console

        from mcfo.data.tables import read_series
        from mcfo.learning.comparison import compare as compute
        from mcfo.learning.comparison import verdict

        asked: dict[str, Any] = table_columns(columns, series, time, inputs=inputs)
        table = read_series(file, **asked).on_grid()
        console = Console(stderr=as_json)
        for note in table.notes:
            console.print(note, highlight=False, markup=False)
        with console.status("Reading") as status:
            found = compute(
                table,
                models=models,
                holdout=holdout,
                horizon=horizon,
                season=period,
                seed=seed,
                progress=lambda name: status.update(f"Fitting {name}, and forecasting"),
            )
        text = json.dumps({"file": str(file), "seed": seed, **found.as_data()}, indent=2, allow_nan=False)
        if as_json:
            print(text)
        else:
            for note in found.notes:
                console.print(note, highlight=False, markup=False)
            console.print(_table(found, file))
            console.print(verdict(found), highlight=False, markup=False)
        if out is not None:
            _write(out, text, found)
            console.print(f"Scores: {out}", highlight=False, soft_wrap=True, markup=False)


def _season(text: str) -> float | int | str | None:
    if text in ("auto", "none"):
        return None if text == "none" else text
    try:
        period = float(text)
    except ValueError:
        period = 0.0
    if not 2 <= period < float("inf"):
        fail(f"--season {text!r} must be a number of steps, 2 or more, or auto, or none.")
    return int(period) if period.is_integer() else period


def _table(found: Any, file: Path) -> Any:
    def shown(value: float, decimals: int) -> str:
        return "–" if value != value else f"{value:.{decimals}f}"

    far = found.horizon > 1
    header = ["model", "log score", "CRPS", *(["1 ahead", f"{found.horizon} ahead"] if far else []), "RMSE"]
    rows = []
    for one in found.scores:
        ends = [f"{one.by_step[0]:.4g}", f"{one.by_step[-1]:.4g}"] if far else []
        cells = [one.name, shown(one.log_score, 4), f"{one.crps:.4g}", *ends, f"{one.rmse:.4g}"]
        rows.append([*cells, f"{one.coverage_90:.1%}", f"{one.seconds:.1f}"])
    ahead = f"1 to {found.horizon} steps ahead" if far else "one step ahead"
    title = f"{file}: the last {found.holdout} steps, {ahead} ({found.forecasts} forecasts)"
    return build_table([*header, "in 90%", "seconds"], rows, title=title)


def _write(out: Path, text: str, found: Any) -> None:
    from mcfo.files import write_atomically

    content = found.to_frame().to_csv() if out.suffix.lower() == ".csv" else text + "\n"
    with writing(out, "--out"):
        write_atomically(out, content.encode())
