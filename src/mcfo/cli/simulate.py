"""`mcfo simulate`: series that a learned model makes."""

from pathlib import Path
from typing import Annotated, Any

import typer

from mcfo.cli.common import (
    OwnModel,
    OwnProposal,
    Plot,
    RunFolder,
    RunSeed,
    Seed,
    check_new_file,
    exists,
    fail,
    messages,
    writing,
)
from mcfo.cli.forecast import check_film
from mcfo.files import InputError

_SHOWN = 4


def simulate(
    run: RunFolder,
    steps: Annotated[int, typer.Option(help="Steps of each series.", min=1, max=1_000_000)] = 20,
    count: Annotated[int, typer.Option(help="How many series.", min=1, max=100_000)] = 4,
    out: Annotated[
        Path | None, typer.Option(help="Write the series into this .csv or .npz file; it must not exist yet.")
    ] = None,
    plot: Plot = None,
    seed: Seed = 0,
    run_seed: RunSeed = None,
    model: OwnModel = None,
    proposal: OwnProposal = None,
) -> None:
    """Draw series from a learned model: a file that mcfo reads, and a picture."""
    if out is None and plot is None:
        fail("Nothing would be kept. Give a file for the series (--out), for a picture (--plot), or both.")
    check_new_file(out, "--out", (".csv", ".npz"))
    check_new_file(plot, "--plot", (".png", ".gif"))
    exists(run)
    with messages():
        _simulate(run, steps, count, seed, run_seed, model, proposal, out, plot)


def _simulate(
    run: Path,
    steps: int,
    count: int,
    seed: int,
    run_seed: int | None,
    model: str | None,
    proposal: str | None,
    out: Path | None,
    plot: Path | None,
) -> None:
    import jax
    import numpy as np
    from rich.console import Console

    from mcfo.data.archives import write_npz
    from mcfo.data.tables import write_series
    from mcfo.models.simulation import beginning
    from mcfo.sequences import Sequence
    from mcfo.training.saved import load_run

    console = Console()
    saved = load_run(run, model=model, proposal=proposal)
    check_film(plot, saved.image)
    learned = saved.choose(run_seed)
    keys = jax.random.split(jax.random.key(seed), count)
    try:
        with console.status(f"Drawing {count} series of {steps} steps"):
            paths = jax.lax.map(lambda key: beginning(learned.model, None, jax.random.split(key, steps)), keys)
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"The model in {run} cannot make series without inputs: {error}") from error
    values = np.asarray(paths.observations)
    if out is not None:
        with writing(out, "--out"):
            if out.suffix.lower() == ".csv":
                write_series(out, [Sequence.from_values(one) for one in values], saved.columns)
            else:
                shaped = values.reshape(count, steps, *(saved.image or (-1,)))
                write_npz(out, {"observations": shaped}, compress=saved.image is not None)
        console.print(f"Series: {out}", highlight=False, soft_wrap=True, markup=False)
    if plot is not None:
        with writing(plot, "--plot"):
            _draw(plot, values[:_SHOWN], None if paths.means is None else np.asarray(paths.means[:_SHOWN]), saved)
        console.print(f"Picture: {plot}", highlight=False, soft_wrap=True, markup=False)


def _draw(plot: Path, values: Any, means: Any, saved: Any) -> None:
    import numpy as np

    from mcfo.reports.fan import Fan, draw_fans
    from mcfo.reports.film import Film, draw_gif, draw_strips

    if saved.image is None:
        fans = [
            Fan(column, np.empty(0), draws=tuple(one[:, number] for one in values))
            for number, column in enumerate(saved.columns)
        ]
        draw_fans(plot, fans[: 2 * _SHOWN])
        return
    films = []
    for number, one in enumerate(values):
        rows = {"drawn": one} if means is None else {"expected": means[number], "drawn": one}
        films.append(Film(f"draw {number + 1}", {name: row.reshape(-1, *saved.image) for name, row in rows.items()}))
    (draw_gif if plot.suffix.lower() == ".gif" else draw_strips)(plot, films)
