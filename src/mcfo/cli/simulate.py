"""`mcfo simulate`: series that a learned model makes."""

from pathlib import Path
from typing import Annotated, Any

import typer

from mcfo.cli.common import (
    SHOWN,
    Kept,
    OwnModel,
    OwnProposal,
    Plot,
    RunFolder,
    RunSeed,
    Seed,
    StepsPerQuarter,
    exists,
    messages,
    written,
)
from mcfo.errors import InputError


def simulate(
    run: RunFolder,
    steps: Annotated[int, typer.Option(help="Steps of each series.", min=1, max=1_000_000)] = 20,
    count: Annotated[int, typer.Option(help="How many series.", min=1, max=100_000)] = 4,
    out: Annotated[
        Path | None, typer.Option(help="Write the series into this .csv, .npz or .nc file; it must not exist yet.")
    ] = None,
    plot: Plot = None,
    midi: Annotated[
        Path | None,
        typer.Option(
            help="Write drawn piano-rolls as music into this .mid file; more than one, each into a file of its own: "
            "out-1.mid, out-2.mid, ... None of them may exist yet."
        ),
    ] = None,
    steps_per_quarter: StepsPerQuarter = 2,
    seed: Seed = 0,
    run_seed: RunSeed = None,
    model: OwnModel = None,
    proposal: OwnProposal = None,
    future: Annotated[
        Path | None,
        typer.Option(help="The inputs of a model that reads some: a table of them, one row for each step."),
    ] = None,
) -> None:
    """Draw series from a learned model: a file that mcfo reads, a picture, and music."""
    kept = Kept(out, plot, _numbered(midi, count))
    kept.check("the series")
    exists(run)
    with messages():
        _simulate(run, steps, count, seed, run_seed, (model, proposal), kept, steps_per_quarter, future)


def _numbered(midi: Path | None, count: int) -> tuple[Path, ...]:
    """A file for each piece."""
    if midi is None or count == 1:
        return () if midi is None else (midi,)
    digits = len(str(count))
    return tuple(midi.parent / f"{midi.stem}-{place:0{digits}}{midi.suffix}" for place in range(1, count + 1))


def _simulate(
    run: Path,
    steps: int,
    count: int,
    seed: int,
    run_seed: int | None,
    own: tuple[str | None, str | None],
    kept: Kept,
    steps_per_quarter: int,
    future: Path | None,
) -> None:
    import jax
    import numpy as np
    from rich.console import Console

    from mcfo.data.npz import write_npz
    from mcfo.data.piano_rolls import write_midi
    from mcfo.data.run_columns import coming_inputs, read_future
    from mcfo.data.tables import write_series
    from mcfo.inference.datasets import build_dataset, write_netcdf
    from mcfo.learning.saved_runs import load_run
    from mcfo.models.base import simulate_from_start
    from mcfo.series import Series

    console = Console()
    saved = load_run(run, model=own[0], proposal=own[1])
    kept.check_film(saved.image)
    learned = saved.choose(run_seed)
    keys = jax.random.split(jax.random.key(seed), count)
    coming = read_future(future, run, saved.inputs)
    if coming is not None and len(coming.names) > 1:
        raise InputError(
            f"{future} has the inputs of {len(coming.names)} series, but all that are drawn share theirs. Give those "
            "of one series."
        )
    inputs = coming_inputs(saved.inputs, steps, coming)
    inputs = None if inputs is None else jax.numpy.asarray(inputs, float)
    try:
        with console.status(f"Drawing {count} series of {steps} steps"):
            paths = jax.lax.map(
                lambda key: simulate_from_start(learned.model, inputs, jax.random.split(key, steps)), keys
            )
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"The model in {run} cannot make series: {error}") from error
    values = np.asarray(paths.observations)
    kept.check_music(values, f"the model in {run}")
    if kept.out is not None:
        with written("Series", kept.out, "--out", console):
            if kept.out.suffix.lower() == ".csv":
                write_series(kept.out, [Series.from_values(one) for one in values], saved.columns)
            elif kept.out.suffix.lower() == ".nc":
                states = np.asarray(paths.latents).reshape(count, steps, -1)
                arrays = [{"observation": x, "latent_state": z} for x, z in zip(values, states, strict=True)]
                dataset = build_dataset(
                    arrays,
                    series=[str(place + 1) for place in range(count)],
                    columns=saved.columns,
                    lengths=[steps] * count,
                    attributes={"kind": "simulate", "seed": seed, "run": str(run)},
                )
                write_netcdf(kept.out, dataset)
            else:
                shaped = values.reshape(count, steps, *(saved.image or (-1,)))
                write_npz(kept.out, {"observations": shaped}, compress=saved.image is not None)
    if kept.plot is not None:
        with written("Picture", kept.plot, "--plot", console):
            _draw(kept.plot, values[:SHOWN], None if paths.means is None else np.asarray(paths.means[:SHOWN]), saved)
    for path, roll in zip(kept.midi, values, strict=False):
        with written("Music", path, "--midi", console):
            write_midi(path, roll, steps_per_quarter=steps_per_quarter)


def _draw(plot: Path, values: Any, means: Any, saved: Any) -> None:
    import numpy as np

    from mcfo.data.piano_rolls import is_roll
    from mcfo.reports.fan import Fan, draw_fans
    from mcfo.reports.film import Film, draw_films
    from mcfo.reports.roll import Roll, draw_rolls

    expected = [None] * len(values) if means is None else means
    drawn = [(f"draw {place}", *both) for place, both in enumerate(zip(values, expected, strict=True), 1)]
    if saved.image is not None:
        films = []
        for title, one, mean in drawn:
            rows = {"drawn": one} if mean is None else {"expected": mean, "drawn": one}
            films.append(Film(title, {name: row.reshape(-1, *saved.image) for name, row in rows.items()}))
        draw_films(plot, films)
    elif is_roll(values):
        draw_rolls(plot, [Roll(title, one, probabilities=mean) for title, one, mean in drawn])
    else:
        fans = [
            Fan(column, np.empty(0), draws=tuple(one[:, number] for one in values))
            for number, column in enumerate(saved.columns)
        ]
        draw_fans(plot, fans[: 2 * SHOWN])
