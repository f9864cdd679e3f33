"""`mcfo simulate`: series drawn from a learned model."""

from pathlib import Path
from typing import Annotated, Any

from mcfo.cli import options as opt
from mcfo.cli.options import Outputs, exists, messages, refusing, status, written
from mcfo.errors import InputError


def simulate(
    run: opt.RunFolder,
    steps: Annotated[int, opt.main("Steps of each series.", min=1, max=1_000_000)] = 20,
    count: Annotated[int, opt.main("Number of series.", min=1, max=100_000)] = 4,
    out: Annotated[
        Path | None, opt.main("Write the series into this .csv, .npz or .nc file; it must not exist yet.")
    ] = None,
    plot: opt.Plot = None,
    seed: opt.Seed = 0,
    midi: Annotated[
        Path | None,
        opt.output(
            "Write drawn piano-rolls as music into this .mid file; more than one, each into a file of its own: "
            "out-1.mid, out-2.mid, ... None of them may exist yet."
        ),
    ] = None,
    steps_per_quarter: opt.StepsPerQuarter = 2,
    run_seed: opt.RunSeed = None,
    model: opt.OwnModel = None,
    proposal: opt.OwnProposal = None,
    trust_code: opt.TrustCode = False,
    future: opt.Future = None,
) -> None:
    """Draw series from a learned model: a file that mcfo reads, a figure, and music."""
    outputs = Outputs(out, plot, _numbered(midi, count))
    outputs.check("the series", (".csv", ".npz", ".nc"), music=True)
    exists(run)
    with messages():
        _simulate(run, steps, count, seed, run_seed, (model, proposal), outputs, steps_per_quarter, future)


def _numbered(midi: Path | None, count: int) -> tuple[Path, ...]:
    """A file for each piece."""
    if midi is None or count == 1:
        return () if midi is None else (midi,)
    digits = len(str(count))
    return tuple(midi.parent / f"{midi.stem}-{index:0{digits}}{midi.suffix}" for index in range(1, count + 1))


def _simulate(
    run: Path,
    steps: int,
    count: int,
    seed: int,
    run_seed: int | None,
    own: tuple[str | None, str | None],
    outputs: Outputs,
    steps_per_quarter: int,
    future: Path | None,
) -> None:
    import jax
    import numpy as np
    from rich.console import Console

    from mcfo.data.piano_rolls import write_midi
    from mcfo.data.run_columns import coming_inputs, read_future
    from mcfo.learning.saved_runs import load_run
    from mcfo.models.base import simulate_from_start
    from mcfo.reports.series_plots import draw_simulated

    console = Console()
    with status(f"Loading {run}"):
        saved = load_run(run, model=own[0], proposal=own[1])
    outputs.check_film(saved.image)
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
    with (
        status(f"Drawing {count} series of {steps} steps"),
        refusing(f"The model in {run} cannot draw series", AttributeError),
    ):
        paths = jax.lax.map(lambda key: simulate_from_start(learned.model, inputs, jax.random.split(key, steps)), keys)
    values = np.asarray(paths.observations)
    outputs.check_music(values, f"the model in {run}")
    if outputs.out is not None:
        with written("Series", outputs.out, "--out", console):
            _write(outputs, values, np.asarray(paths.latents), saved, {"seed": seed, "run": str(run)})
    if outputs.plot is not None:
        means = None if paths.means is None else np.asarray(paths.means)
        with written("Figure", outputs.plot, "--plot", console):
            draw_simulated(outputs.plot, values, means, saved.columns, saved.image)
    for path, roll in zip(outputs.midi, values, strict=False):
        with written("Music", path, "--midi", console):
            write_midi(path, roll, steps_per_quarter=steps_per_quarter)


def _write(outputs: Outputs, values: Any, latents: Any, saved: Any, about: dict[str, Any]) -> None:
    """The series as CSV, NetCDF or NPZ."""
    from mcfo.data.npz import write_npz
    from mcfo.data.tables import write_series
    from mcfo.inference.datasets import build_dataset, write_netcdf
    from mcfo.series import Series

    assert outputs.out is not None
    count, steps = values.shape[:2]
    if outputs.ends_in(".csv"):
        write_series(outputs.out, [Series.from_values(one) for one in values], saved.columns)
    elif outputs.ends_in(".nc"):
        states = latents.reshape(count, steps, -1)
        dataset = build_dataset(
            [{"observation": x, "latent_state": z} for x, z in zip(values, states, strict=True)],
            series=[str(index + 1) for index in range(count)],
            columns=saved.columns,
            lengths=[steps] * count,
            attributes={"kind": "simulate", **about},
        )
        write_netcdf(outputs.out, dataset)
    else:
        shaped = values.reshape(count, steps, *(saved.image or (-1,)))
        write_npz(outputs.out, {"observations": shaped}, compress=saved.image is not None)
