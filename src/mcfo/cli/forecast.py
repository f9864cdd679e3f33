"""`mcfo forecast`: what comes after the last observation."""

from pathlib import Path
from typing import Annotated, Any

import typer

from mcfo.cli.common import (
    SHOWN,
    Columns,
    Kept,
    OwnModel,
    OwnProposal,
    Plot,
    RunFolder,
    RunSeed,
    Seed,
    SeriesColumn,
    StepsPerQuarter,
    TimeColumn,
    exists,
    messages,
    written,
)
from mcfo.cli.states import places_of
from mcfo.errors import InputError

_PAST = 100
"""Observations before the forecast that a picture shows."""


def forecast(
    run: RunFolder,
    data: Annotated[
        Path, typer.Option(help="The series: CSV with a header, Parquet, NetCDF or NPZ; a piece of music also as .mid.")
    ],
    steps: Annotated[int, typer.Option(help="Steps after the last observation.", min=1, max=100_000)] = 20,
    only: Annotated[
        list[str] | None, typer.Option(help="Forecast this series alone, by its name; several times for several.")
    ] = None,
    particles: Annotated[int, typer.Option(help="Particles of the filter.", min=1)] = 1000,
    draws: Annotated[int, typer.Option(help="Futures that are drawn for each series.", min=2, max=100_000)] = 200,
    out: Annotated[
        Path | None,
        typer.Option(help="Write means and quantiles into this .csv, .npz or .nc file; it must not exist yet."),
    ] = None,
    plot: Plot = None,
    midi: Annotated[
        Path | None,
        typer.Option(
            help="Write one piece, and after it one of its drawn futures, as music into this .mid file; it must not "
            "exist yet."
        ),
    ] = None,
    steps_per_quarter: StepsPerQuarter = 2,
    seed: Seed = 0,
    run_seed: RunSeed = None,
    model: OwnModel = None,
    proposal: OwnProposal = None,
    columns: Columns = None,
    series: SeriesColumn = None,
    time: TimeColumn = None,
    future: Annotated[
        Path | None,
        typer.Option(
            help="The coming inputs of a model that reads some: a table like the data, one row for each step."
        ),
    ] = None,
) -> None:
    """Forecast the series in a file with a learned model: means and quantiles, a picture, a piece that goes on."""
    kept = Kept(out, plot, () if midi is None else (midi,))
    kept.check("the numbers")
    exists(run)
    asked = {"values": columns.split(",") if columns else None, "series": series, "time": time}
    with messages():
        table = _read(run, data, asked, steps_per_quarter)
        sizes = steps, particles, draws, seed
        _forecast(run, data, table, only, (model, proposal), run_seed, sizes, kept, steps_per_quarter, future)


def _read(run: Path, data: Path, columns: dict[str, Any], steps_per_quarter: int) -> Any:
    from mcfo.data.music_files import MIDI, read_piece
    from mcfo.data.run_columns import read_for_run

    if data.suffix.lower() not in MIDI:
        return read_for_run(run, data, **columns)
    if any(columns.values()):
        raise InputError(f"--columns, --series and --time are about CSV files. Leave them out for {data}.")
    return read_piece(data, steps_per_quarter=steps_per_quarter)


def _forecast(
    run: Path,
    data: Path,
    table: Any,
    only: list[str] | None,
    own: tuple[str | None, str | None],
    run_seed: int | None,
    sizes: tuple[int, int, int, int],
    kept: Kept,
    steps_per_quarter: int,
    future: Path | None,
) -> None:
    import jax
    import numpy as np
    from rich.console import Console
    from rich.progress import track

    from mcfo.data.export import write_predictions
    from mcfo.data.piano_rolls import write_midi
    from mcfo.data.run_columns import coming_inputs, read_future
    from mcfo.inference.datasets import build_dataset, write_netcdf
    from mcfo.inference.forecasting import forecast_series as compute
    from mcfo.inference.forecasting import future_arrays
    from mcfo.inference.quantiles import LEVELS
    from mcfo.learning.saved_runs import load_run
    from mcfo.series import stack
    from mcfo.smc.filter import SMC

    steps, particles, draws, seed = sizes
    console = Console()
    places = places_of(table.names, only, data)
    kept.check_film(table.image)
    if kept.midi and len(places) > 1:
        raise InputError(f"--midi is for one piece, but {len(places)} go on. Choose: --only {table.names[places[0]]}.")
    kept.check_music(_past(table.series_list[places[0]]), str(data))
    saved = load_run(run, model=own[0], proposal=own[1], series_list=table.series_list)
    learned = saved.choose(run_seed)
    coming = read_future(future, run, saved.inputs)
    driven = [coming_inputs(saved.inputs, steps, coming, table.names[place]) for place in places]
    # Padded to one length, so that one program serves all of them.
    batch = stack([table.series_list[place] for place in places])
    found, shown, whole = [], [], []
    netcdf = kept.out is not None and kept.out.suffix.lower() == ".nc"
    for number, place in enumerate(
        track(places, "Forecasting", console=console, transient=True, disable=len(places) == 1)
    ):
        try:
            one = compute(
                learned.model,
                learned.proposal,
                jax.tree.map(lambda array, number=number: array[number], batch),
                steps=steps,
                sampler=SMC(particles),
                draws=draws,
                inputs=driven[number],
                key=jax.random.key(seed),
            )
        except (TypeError, ValueError) as error:
            raise InputError(f"The model in {run} cannot forecast {data}: {error}") from error
        if not bool(one.finite):
            console.print(
                f"[yellow]Series {table.names[place]}: the filter lost it before its end, so that its forecast means "
                "little. Use more particles.[/yellow]"
            )
        found.append((np.asarray(one.mean), np.asarray(one.quantiles(LEVELS))))
        if netcdf:
            whole.append(jax.tree.map(np.asarray, future_arrays(one, jax.numpy.asarray(LEVELS, float))))
        if len(shown) < SHOWN:
            shown.append((place, one))
    piece, drawn = _past(table.series_list[places[0]]), np.asarray(shown[0][1].paths.observations[0])
    kept.check_music(drawn, f"the model in {run}")
    names = [table.names[place] for place in places]
    if kept.out is not None and netcdf:
        lengths = [len(_past(table.series_list[place])) for place in places]
        about = {"kind": "forecast", "particles": particles, "seed": seed, "run": str(run), "data": str(data)}
        with written("Forecasts", kept.out, "--out", console):
            named = {"series": names, "columns": table.columns, "lengths": lengths}
            write_netcdf(kept.out, build_dataset(whole, **named, levels=LEVELS, attributes=about))
    elif kept.out is not None:
        mean, quantiles = (np.stack(arrays) for arrays in zip(*found, strict=True))
        with written("Forecasts", kept.out, "--out", console):
            write_predictions(
                kept.out,
                series=names,
                columns=table.columns,
                mean=mean,
                quantiles=np.moveaxis(quantiles, 1, 0),
                levels=LEVELS,
                image=table.image,
            )
    if kept.plot is not None:
        with written("Picture", kept.plot, "--plot", console):
            _draw(kept.plot, table, shown)
    for path in kept.midi:
        with written("Music", path, "--midi", console):
            # What is missing is silent.
            write_midi(path, np.nan_to_num(np.concatenate([piece, drawn])), steps_per_quarter=steps_per_quarter)


def _draw(plot: Path, table: Any, shown: list[tuple[int, Any]]) -> None:
    """Films of pictures, rolls of piano-rolls, fans of numbers."""
    import numpy as np

    from mcfo.data.piano_rolls import is_roll

    if table.image is not None:
        _draw_films(plot, table, shown)
    elif all(
        is_roll(_past(table.series_list[place])) and is_roll(np.asarray(one.paths.observations[0]))
        for place, one in shown
    ):
        _draw_rolls(plot, table, shown)
    else:
        _draw_fans(plot, table, shown)


def _draw_films(plot: Path, table: Any, shown: list[tuple[int, Any]]) -> None:
    """The observed pictures, followed by the expected ones; below them, by one draw."""
    import numpy as np

    from mcfo.reports.film import Film, draw_films

    films = []
    for place, one in shown:
        past = _past(table.series_list[place])
        path = one.paths.observations if one.paths.means is None else one.paths.means
        rows = {
            name: np.concatenate([past, np.asarray(future)]).reshape(-1, *table.image)
            for name, future in {"expected": one.mean, "one draw": path[0]}.items()
        }
        films.append(Film(f"series {table.names[place]}", rows, begins=len(past)))
    draw_films(plot, films)


def _draw_rolls(plot: Path, table: Any, shown: list[tuple[int, Any]]) -> None:
    """The end of each piece, followed by one draw over the probability of each note."""
    import numpy as np

    from mcfo.reports.roll import Roll, draw_rolls

    rolls = []
    for place, one in shown:
        past = _past(table.series_list[place])[-_PAST:]
        notes = np.concatenate([past, np.asarray(one.paths.observations[0])])
        rolls.append(Roll(f"piece {table.names[place]}", notes, len(past), np.asarray(one.mean)))
    draw_rolls(plot, rolls)


def _draw_fans(plot: Path, table: Any, shown: list[tuple[int, Any]]) -> None:
    """Each column of each series, as many as a picture holds."""
    import numpy as np

    from mcfo.reports.fan import Fan, draw_fans

    fans = []
    for place, one in shown:
        whole = _past(table.series_list[place])
        past = whole[-_PAST:]
        low, quarter, _, three, high = np.asarray(one.quantiles((0.05, 0.25, 0.5, 0.75, 0.95)))
        mean = np.asarray(one.mean)
        for number, column in enumerate(table.columns):
            title = column if len(table.names) == 1 else f"{column}, series {table.names[place]}"
            bands = ((0.9, low[:, number], high[:, number]), (0.5, quarter[:, number], three[:, number]))
            begins = len(whole) - len(past) + 1
            fans.append(Fan(title, past[:, number], mean[:, number], bands, begins=begins))
    draw_fans(plot, fans[: 2 * SHOWN])


def _past(series: Any) -> Any:
    """What was observed, with NaN for the rest."""
    import numpy as np

    steps = series.steps if series.length is None else int(series.length)
    return np.where(np.asarray(series.mask()), np.asarray(series.observations, float), np.nan)[:steps]
