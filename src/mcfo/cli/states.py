"""`mcfo filter` and `mcfo smooth`: the hidden states of the series in a file."""

from pathlib import Path
from typing import Annotated, Any

import typer

from mcfo.cli.common import (
    SHOWN,
    Columns,
    Data,
    OwnModel,
    OwnProposal,
    RunFolder,
    RunSeed,
    Seed,
    SeriesColumn,
    TimeColumn,
    check_new_file,
    exists,
    fail,
    messages,
    written,
)
from mcfo.errors import InputError, nearest

_DRAWS = 100
_PANELS = 2 * SHOWN

Out = Annotated[
    Path | None, typer.Option(help="Write the numbers into this .nc (NetCDF) or .csv file; it must not exist yet.")
]
Picture = Annotated[
    Path | None,
    typer.Option("--plot", help="Draw a picture into this .png file; of series of pictures, a film into a .gif."),
]
Only = Annotated[list[str] | None, typer.Option(help="This series alone, by its name; several times for several.")]
Particles = Annotated[int, typer.Option(help="Particles of the filter.", min=1)]
Levels = Annotated[str, typer.Option("--quantiles", help="Levels of the quantiles, by commas.")]
Draws = Annotated[
    int | None,
    typer.Option(
        help=f"Draws that a .nc file keeps for ArviZ beside the summaries; {_DRAWS} by default, none of pictures.",
        min=0,
        max=100_000,
    ),
]


def filter(  # the name of the command
    run: RunFolder,
    data: Data,
    out: Out = None,
    plot: Picture = None,
    only: Only = None,
    particles: Particles = 1000,
    quantiles: Levels = "0.05,0.25,0.5,0.75,0.95",
    draws: Draws = None,
    seed: Seed = 0,
    run_seed: RunSeed = None,
    model: OwnModel = None,
    proposal: OwnProposal = None,
    columns: Columns = None,
    series: SeriesColumn = None,
    time: TimeColumn = None,
) -> None:
    """Filter the series in a file with a learned model: each state given what came before it, and each observation
    predicted from the ones before; means, quantiles, effective sample size, log-likelihood."""
    options = {"particles": particles, "levels": read_levels(quantiles), "draws": draws, "seed": seed}
    table = {"values": columns.split(",") if columns else None, "series": series, "time": time}
    _check(run, out, plot)
    with messages():
        _apply("filter", run, data, table, only, (model, proposal), run_seed, options, out, plot)


def smooth(
    run: RunFolder,
    data: Data,
    out: Out = None,
    plot: Picture = None,
    only: Only = None,
    particles: Particles = 1000,
    paths: Annotated[int, typer.Option(help="Paths that are drawn backwards.", min=2, max=100_000)] = 500,
    quantiles: Levels = "0.05,0.25,0.5,0.75,0.95",
    draws: Draws = None,
    seed: Seed = 0,
    run_seed: RunSeed = None,
    model: OwnModel = None,
    proposal: OwnProposal = None,
    columns: Columns = None,
    series: SeriesColumn = None,
    time: TimeColumn = None,
) -> None:
    """Smooth the series in a file with a learned model: each state given the whole series, and its gaps filled; means,
    quantiles, effective sample size, log-likelihood."""
    options = {"particles": particles, "paths": paths, "levels": read_levels(quantiles), "draws": draws, "seed": seed}
    if draws is not None and draws > paths:
        fail(f"--draws {draws} are more than --paths {paths}, of which they are taken. Ask for fewer, or more paths.")
    table = {"values": columns.split(",") if columns else None, "series": series, "time": time}
    _check(run, out, plot)
    with messages():
        _apply("smooth", run, data, table, only, (model, proposal), run_seed, options, out, plot)


def read_levels(text: str) -> tuple[float, ...]:
    """Levels of quantiles from the command line."""
    try:
        levels = tuple(float(word) for word in text.split(","))
    except ValueError:
        levels = ()
    if not levels or not all(0 < level < 1 for level in levels) or list(levels) != sorted(set(levels)):
        fail(f"--quantiles {text!r} must be increasing numbers between 0 and 1, by commas: 0.05,0.5,0.95, say.")
    return levels


def _check(run: Path, out: Path | None, plot: Path | None) -> None:
    """Refuses to work for nothing, and names that cannot be written."""
    if out is None and plot is None:
        fail("Nothing would be kept. Give a file for the numbers (--out) or a picture (--plot).")
    check_new_file(out, "--out", (".nc", ".csv"))
    check_new_file(plot, "--plot", (".png", ".gif"))
    exists(run)


def places_of(names: list[str], only: list[str] | None, data: Path) -> list[int]:
    """Where the chosen series stand; refuses one that is not there."""
    for name in only or []:
        if name not in names:
            raise InputError(f"{data} has no series {name!r}. {nearest(name, names)}")
    return [place for place, name in enumerate(names) if only is None or name in only]


def _apply(
    task: str,
    run: Path,
    data: Path,
    asked: dict[str, Any],
    only: list[str] | None,
    own: tuple[str | None, str | None],
    run_seed: int | None,
    options: dict[str, Any],
    out: Path | None,
    plot: Path | None,
) -> None:
    from rich.console import Console
    from rich.progress import track

    from mcfo.data.export import write_summaries
    from mcfo.data.run_columns import read_for_run
    from mcfo.inference.datasets import NamedSeries, write_netcdf
    from mcfo.learning.saved_runs import load_run

    console = Console()
    table = read_for_run(run, data, **asked)
    if plot is not None and plot.suffix.lower() == ".gif" and table.image is None:
        raise InputError(f"{plot}: these are no series of pictures, so that nothing moves. Draw a .png.")
    places = places_of(table.names, only, data)
    chosen = NamedSeries(
        [table.series_list[place] for place in places],
        [table.names[place] for place in places],
        table.columns,
        None if table.moments is None else [table.moments[place] for place in places],
    )
    saved = load_run(run, model=own[0], proposal=own[1], series_list=table.series_list)
    learned = saved.choose(run_seed)
    if options["draws"] is None:
        keeps = out is not None and out.suffix.lower() == ".nc" and table.image is None
        options = {**options, "draws": min(_DRAWS, options.get("paths", _DRAWS)) if keeps else 0}

    def progress(places: list[int]) -> Any:
        return track(places, f"{task.capitalize()}ing", console=console, transient=True)

    try:
        dataset = getattr(learned, task)(chosen, progress=progress, **options)
    except (TypeError, ValueError) as error:
        raise InputError(f"The model in {run} cannot {task} {data}: {error}") from error
    dataset.attrs |= {"run": str(run), "data": str(data), "run_seed": learned.seed}
    console.print(_table(dataset, task))
    _warn(dataset, console)
    if out is not None:
        with written("Numbers", out, "--out", console):
            (write_netcdf if out.suffix.lower() == ".nc" else write_summaries)(out, dataset)
    if plot is not None:
        with written("Picture", plot, "--plot", console):
            _draw(plot, dataset, table.image, task)


def _table(dataset: Any, task: str) -> Any:
    """A row for each series, as many as a screen holds."""
    import numpy as np
    from rich.markup import escape
    from rich.table import Table

    shown = Table(title=f"{task} with {dataset.attrs['particles']} particles")
    shown.add_column("series")
    for name in ("steps", "missing", "log-likelihood", "ESS", "least"):
        shown.add_column(name, justify="right")
    for place in range(min(dataset.sizes["series"], 20)):
        one = dataset.isel(series=place)
        steps = int(one["length"])
        ess, values = one["ess"].values[:steps], one["observation"].values[:steps]
        shown.add_row(
            escape(str(one["series"].item())),
            str(steps),
            str(int(np.isnan(values).sum())),
            f"{float(one['log_evidence']):.3f}",
            f"{ess.mean():.1f}",
            f"{ess.min():.1f}",
        )
    if dataset.sizes["series"] > 20:
        shown.caption = f"and {dataset.sizes['series'] - 20} more"
    return shown


def _warn(dataset: Any, console: Any) -> None:
    import numpy as np

    lost = [str(dataset["series"].values[place]) for place in np.flatnonzero(~np.isfinite(dataset["log_evidence"]))]
    if lost:
        console.print(
            f"[yellow]The filter lost series {', '.join(lost[:5])}{', ...' if len(lost) > 5 else ''}: what follows the "
            "loss means little. Use more particles.[/yellow]"
        )


def _draw(plot: Path, dataset: Any, image: tuple[int, int] | None, task: str) -> None:
    """Films of pictures, bands of numbers."""
    from mcfo.reports.bands import draw_bands, panels_of
    from mcfo.reports.film import Film, draw_films

    places = range(min(dataset.sizes["series"], SHOWN))
    if image is None:
        draw_bands(plot, panels_of(dataset, list(places), gaps=task == "smooth")[:_PANELS])
        return
    films = []
    for place in places:
        one = dataset.isel(series=place, time=slice(0, int(dataset["length"].values[place])))
        rows = {
            "observed": one["observation"].values.reshape(-1, *image),
            "predicted" if task == "filter" else "smoothed": one["observation_mean"].values.reshape(-1, *image),
        }
        films.append(Film(f"series {one['series'].item()}", rows))
    draw_films(plot, films)
