"""`mcfo forecast`: what comes after the last observation."""

from pathlib import Path
from typing import Annotated, Any

import typer

from mcfo.cli.common import (
    Columns,
    Data,
    OwnModel,
    OwnProposal,
    Plot,
    RunFolder,
    RunSeed,
    Seed,
    SeriesColumn,
    TimeColumn,
    check_new_file,
    exists,
    fail,
    messages,
    writing,
)
from mcfo.files import InputError
from mcfo.suggestions import nearest

_SHOWN = 4
"""Panels or films of a picture."""
_PAST = 100
"""Observations before the forecast that a picture shows."""


def forecast(
    run: RunFolder,
    data: Data,
    steps: Annotated[int, typer.Option(help="Steps after the last observation.", min=1, max=100_000)] = 20,
    only: Annotated[
        list[str] | None, typer.Option(help="Forecast this series alone, by its name; several times for several.")
    ] = None,
    particles: Annotated[int, typer.Option(help="Particles of the filter.", min=1)] = 1000,
    draws: Annotated[int, typer.Option(help="Futures that are drawn for each series.", min=2, max=100_000)] = 200,
    out: Annotated[
        Path | None, typer.Option(help="Write means and quantiles into this .csv or .npz file; it must not exist yet.")
    ] = None,
    plot: Plot = None,
    seed: Seed = 0,
    run_seed: RunSeed = None,
    model: OwnModel = None,
    proposal: OwnProposal = None,
    columns: Columns = None,
    series: SeriesColumn = None,
    time: TimeColumn = None,
) -> None:
    """Forecast the series in a file with a learned model: means and quantiles as a file, and a picture."""
    if out is None and plot is None:
        fail("Nothing would be kept. Give a file for the numbers (--out), for a picture (--plot), or both.")
    check_new_file(out, "--out", (".csv", ".npz"))
    check_new_file(plot, "--plot", (".png", ".gif"))
    exists(run)
    asked = {"values": columns.split(",") if columns else None, "series": series, "time": time}
    with messages():
        _forecast(run, data, asked, only, (model, proposal), run_seed, (steps, particles, draws, seed), out, plot)


def _forecast(
    run: Path,
    data: Path,
    columns: dict[str, Any],
    only: list[str] | None,
    own: tuple[str | None, str | None],
    run_seed: int | None,
    sizes: tuple[int, int, int, int],
    out: Path | None,
    plot: Path | None,
) -> None:
    import jax
    import numpy as np
    from rich.console import Console
    from rich.progress import track

    from mcfo.data.predictions import LEVELS, write_predictions
    from mcfo.data.tables import read_series
    from mcfo.sequences import stack
    from mcfo.smc.filter import SMC
    from mcfo.smc.forecast import forecast as compute
    from mcfo.training.saved import load_run

    steps, particles, draws, seed = sizes
    console = Console()
    table = read_series(data, **columns)
    places = _places(table.names, only, data)
    check_film(plot, table.image)
    saved = load_run(run, model=own[0], proposal=own[1], sequences=table.sequences)
    learned = saved.choose(run_seed)
    # Padded to one length, so that one program serves all of them.
    batch = stack([table.sequences[place] for place in places])
    found, kept = [], []
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
        if len(kept) < _SHOWN:
            kept.append((place, one))
    if out is not None:
        mean, quantiles = (np.stack(arrays) for arrays in zip(*found, strict=True))
        with writing(out, "--out"):
            write_predictions(
                out,
                series=[table.names[place] for place in places],
                columns=table.columns,
                mean=mean,
                quantiles=np.moveaxis(quantiles, 1, 0),
                image=table.image,
            )
        console.print(f"Forecasts: {out}", highlight=False, soft_wrap=True, markup=False)
    if plot is not None:
        with writing(plot, "--plot"):
            (_draw_films if table.image else _draw_fans)(plot, table, kept)
        console.print(f"Picture: {plot}", highlight=False, soft_wrap=True, markup=False)


def check_film(plot: Path | None, image: tuple[int, int] | None) -> None:
    """Only pictures move."""
    if plot is not None and plot.suffix.lower() == ".gif" and image is None:
        raise InputError(
            f"{plot}: these are no series of pictures, so that nothing moves. Draw a .png. Pictures are `observations` "
            "of shape (series, steps, height, width) in an NPZ file."
        )


def _places(names: list[str], only: list[str] | None, data: Path) -> list[int]:
    for name in only or []:
        if name not in names:
            raise InputError(f"{data} has no series {name!r}. {nearest(name, names)}")
    return [place for place, name in enumerate(names) if only is None or name in only]


def _draw_films(plot: Path, table: Any, kept: list[tuple[int, Any]]) -> None:
    """The observed pictures, followed by the expected ones; below them, by one draw."""
    import numpy as np

    from mcfo.reports.film import Film, draw_gif, draw_strips

    films = []
    for place, one in kept:
        past = _past(table.sequences[place])
        path = one.paths.observations if one.paths.means is None else one.paths.means
        rows = {
            name: np.concatenate([past, np.asarray(future)]).reshape(-1, *table.image)
            for name, future in {"expected": one.mean, "one draw": path[0]}.items()
        }
        films.append(Film(f"series {table.names[place]}", rows, begins=len(past)))
    (draw_gif if plot.suffix.lower() == ".gif" else draw_strips)(plot, films)


def _draw_fans(plot: Path, table: Any, kept: list[tuple[int, Any]]) -> None:
    """Each column of each series, as many as a picture holds."""
    import numpy as np

    from mcfo.reports.fan import Fan, draw_fans

    fans = []
    for place, one in kept:
        past = _past(table.sequences[place])[-_PAST:]
        low, quarter, _, three, high = np.asarray(one.quantiles((0.05, 0.25, 0.5, 0.75, 0.95)))
        mean = np.asarray(one.mean)
        for number, column in enumerate(table.columns):
            title = column if len(table.names) == 1 else f"{column}, series {table.names[place]}"
            bands = ((0.9, low[:, number], high[:, number]), (0.5, quarter[:, number], three[:, number]))
            fans.append(Fan(title, past[:, number], mean[:, number], bands))
    draw_fans(plot, fans[: 2 * _SHOWN])


def _past(sequence: Any) -> Any:
    """What was observed, with NaN for the rest."""
    import numpy as np

    steps = sequence.steps if sequence.length is None else int(sequence.length)
    return np.where(np.asarray(sequence.mask()), np.asarray(sequence.observations, float), np.nan)[:steps]
