"""`mcfo filter`, `mcfo smooth`, `mcfo forecast`: a learned model applied to the series in a file."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from mcfo.cli import options as opt
from mcfo.cli.options import (
    Outputs,
    build_table,
    exists,
    fail,
    messages,
    read_circular,
    read_levels,
    refusing,
    status,
    table_columns,
    written,
)
from mcfo.errors import InputError, nearest
from mcfo.files import nested

_DRAWS = 100
_ROWS = 20
"""Series that a table shows."""

Out = Annotated[Path | None, opt.main("Write the numbers into this .nc (NetCDF) or .csv file; it must not exist yet.")]
Draws = Annotated[
    int | None,
    opt.sampling(
        f"Draws saved in a .nc file for ArviZ beside the summaries; {_DRAWS} by default, none of images.",
        min=0,
        max=100_000,
    ),
]


def filter(  # the name of the command
    run: opt.RunFolder,
    data: opt.Data,
    out: Out = None,
    plot: opt.Plot = None,
    only: opt.Only = None,
    particles: opt.AskedParticles = None,
    method: opt.Method = None,
    quantiles: opt.Quantiles = None,
    draws: Draws = None,
    seed: opt.Seed = 0,
    run_seed: opt.RunSeed = None,
    model: opt.OwnModel = None,
    proposal: opt.OwnProposal = None,
    trust_code: opt.TrustCode = False,
    columns: opt.Columns = None,
    series: opt.SeriesColumn = None,
    time: opt.TimeColumn = None,
    circular: opt.Circular = None,
) -> None:
    """Find the states of the series in a file, each given the observations up to it.

    Also predicts each observation from those before. Means, quantiles, log-likelihood; exact where that is possible,
    by particles otherwise.
    """
    options = {"particles": particles, "method": method, "draws": draws, "seed": seed, **read_levels(quantiles)}
    options |= read_circular(circular)
    source = run, data, table_columns(columns, series, time), (model, proposal), only, run_seed
    _find_states("filter", source, options, Outputs(out, plot))


def smooth(
    run: opt.RunFolder,
    data: opt.Data,
    out: Out = None,
    plot: opt.Plot = None,
    only: opt.Only = None,
    particles: opt.AskedParticles = None,
    method: opt.Method = None,
    paths: Annotated[int, opt.sampling("Paths that are drawn backwards in time.", min=2, max=100_000)] = 500,
    quantiles: opt.Quantiles = None,
    draws: Draws = None,
    seed: opt.Seed = 0,
    run_seed: opt.RunSeed = None,
    posterior: opt.PosteriorFile = None,
    model: opt.OwnModel = None,
    proposal: opt.OwnProposal = None,
    trust_code: opt.TrustCode = False,
    columns: opt.Columns = None,
    series: opt.SeriesColumn = None,
    time: opt.TimeColumn = None,
    circular: opt.Circular = None,
) -> None:
    """Find the states of the series in a file, each given the whole series, and fill the gaps.

    Means, quantiles, log-likelihood; exact where that is possible, by particles otherwise.
    """
    options = {"particles": particles, "method": method, "draws": draws, "seed": seed, **read_levels(quantiles)}
    options |= read_circular(circular)
    if draws is not None and draws > paths:
        fail(f"--draws {draws} are more than --paths {paths}, of which they are taken. Ask for fewer, or more paths.")
    source = run, data, table_columns(columns, series, time), (model, proposal), only, run_seed
    _find_states("smooth", source, {**options, "paths": paths}, Outputs(out, plot), posterior)


def forecast(
    run: opt.RunFolder,
    data: Annotated[
        Path, opt.main("The series: CSV with a header, Parquet, NetCDF or NPZ; a piece of music also as .mid.")
    ],
    steps: Annotated[int, opt.main("Steps after the last observation.", min=1, max=100_000)] = 20,
    out: Annotated[
        Path | None, opt.main("Write means and quantiles into this .csv, .npz or .nc file; it must not exist yet.")
    ] = None,
    plot: opt.Plot = None,
    only: opt.Only = None,
    particles: opt.AskedParticles = None,
    method: opt.Method = None,
    draws: Annotated[int, opt.sampling("Futures that are drawn for each series.", min=2, max=100_000)] = 200,
    quantiles: opt.Quantiles = None,
    midi: Annotated[
        Path | None,
        opt.output(
            "Write one piece, followed by one of its drawn futures, as music into this .mid file; it must not "
            "exist yet."
        ),
    ] = None,
    steps_per_quarter: opt.StepsPerQuarter = 2,
    seed: opt.Seed = 0,
    run_seed: opt.RunSeed = None,
    posterior: opt.PosteriorFile = None,
    model: opt.OwnModel = None,
    proposal: opt.OwnProposal = None,
    trust_code: opt.TrustCode = False,
    columns: opt.Columns = None,
    series: opt.SeriesColumn = None,
    time: opt.TimeColumn = None,
    future: opt.Future = None,
    circular: opt.Circular = None,
) -> None:
    """Forecast the series in a file: means and quantiles, a figure, a piece of music that continues."""
    outputs = Outputs(out, plot, () if midi is None else (midi,))
    outputs.check("the numbers", (".csv", ".npz", ".nc"), music=True)
    options = {"particles": particles, "method": method, "draws": draws, "seed": seed, **read_levels(quantiles)}
    options |= read_circular(circular)
    exists(run)
    with messages():
        asked = table_columns(columns, series, time)
        piece = _read_piece(data, asked, steps_per_quarter)
        applied = open_run(run, data, asked, (model, proposal), only, run_seed, table=piece, outputs=outputs)
        applied = over_posterior(applied, posterior)
        _forecast(applied, steps, future, options, outputs, steps_per_quarter)


class Applied(NamedTuple):
    """A run, one of its seeds, and the chosen series of a table."""

    run: Path
    data: Path
    table: Any
    saved: Any
    learned: Any
    chosen: Any


def open_run(
    run: Path,
    data: Path,
    columns: dict[str, Any],
    own: tuple[str | None, str | None],
    only: list[str] | None = None,
    run_seed: int | None = None,
    *,
    table: Any = None,
    outputs: Outputs | None = None,
) -> Applied:
    """Reads the series as the run wants them, loads the run and chooses a seed.

    **Arguments:**

    - `own`: where the user's own model and proposal are.
    - `only`: the names of the series; all of them if it is None.
    - `table`: what was read already.
    - `outputs`: refused before the run is loaded where the series cannot be written so.
    """
    with status(f"Reading {data}"):
        from mcfo.data.run_columns import read_for_run
        from mcfo.inference.datasets import named_series
        from mcfo.learning.saved_each import is_each, load_each
        from mcfo.learning.saved_runs import load_run

        table = read_for_run(run, data, **columns) if table is None else table
    for name in only or []:
        if name not in table.names:
            raise InputError(f"{data} has no series {name!r}. {nearest(name, table.names)}")
    indices = [index for index, name in enumerate(table.names) if only is None or name in only]
    for note in table.notes:
        print(note, file=sys.stderr)
    chosen = named_series(table).choose(indices)
    if outputs is not None and outputs.midi and len(indices) > 1:
        raise InputError(
            f"--midi is for one piece, but there are {len(indices)}. Choose one: --only {chosen.names[0]}."
        )
    if outputs is not None:
        outputs.check_film(table.image)
        outputs.check_music(chosen.series_list[0].values(), str(data))
    if is_each(run):
        saved = load_each(run, model=own[0], proposal=own[1])
        learned = [index for index, name in enumerate(chosen.names) if saved.is_learned(name)]
        absent = sorted({*range(len(chosen.names))} - {*learned})
        if not learned:
            raise InputError(f"The run in {run} has learned none of these series. Choose others with --only.")
        if absent:
            names = ", ".join(chosen.names[index] for index in absent[:5]) + (", ..." if len(absent) > 5 else "")
            print(f"Left out, because they were not learned: {names}", file=sys.stderr)
            chosen = chosen.choose(learned)
        return Applied(run, data, table, saved, saved.choose(run_seed), chosen)
    with status(f"Loading {run}"):
        saved = load_run(run, model=own[0], proposal=own[1], series_list=table.series_list)
    return Applied(run, data, table, saved, saved.choose(run_seed), chosen)


class Averaged(NamedTuple):
    """A learned model whose parameters are drawn from a posterior; it answers as one seed of a run does."""

    posterior: Any
    seed: int

    def forecast(self, data: Any, steps: int, **options: Any) -> Any:
        """Forecast, averaged over the posterior."""
        from mcfo.posterior.averaging import forecast_over

        return forecast_over(self.posterior, data, steps, **options)

    def smooth(self, data: Any, **options: Any) -> Any:
        """Smooth, averaged over the posterior."""
        from mcfo.posterior.averaging import smooth_over

        return smooth_over(self.posterior, data, **options)


def learned_fixed(config: dict[str, Any]) -> tuple[str, ...]:
    """The parameters that a run did not learn."""
    fixed = nested(config, "model", "fixed")
    return tuple(path for path in fixed if isinstance(path, str)) if isinstance(fixed, list) else ()


def over_posterior(applied: Applied, file: Path | None) -> Applied:
    """The same, with draws of the parameters where a file of them was given."""
    if file is None:
        return applied
    from mcfo.posterior.result import load_posterior

    learned = applied.learned
    drawn = load_posterior(file, learned.model, learned.proposal, fixed=learned_fixed(applied.saved.config))
    return applied._replace(learned=Averaged(drawn, learned.seed))


def _find_states(
    task: str, source: tuple[Any, ...], options: dict[str, Any], outputs: Outputs, posterior: Path | None = None
) -> None:
    """Filters or smooths; `source` has the arguments of `open_run`."""
    outputs.check("the numbers", (".nc", ".csv"))
    exists(source[0])
    with messages():
        applied = over_posterior(open_run(*source, outputs=outputs), posterior)
        _write_states(task, applied, options, outputs)


def _write_states(task: str, applied: Applied, options: dict[str, Any], outputs: Outputs) -> None:
    import numpy as np
    from rich.console import Console

    from mcfo.data.export import write_summaries
    from mcfo.inference.datasets import write_netcdf

    console, image = Console(), applied.table.image
    if options["draws"] is None:
        saves = outputs.ends_in(".nc") and image is None
        options["draws"] = min(_DRAWS, options.get("paths", _DRAWS)) if saves else 0
    with refusing(f"The model in {applied.run} cannot {task} {applied.data}"):
        dataset = getattr(applied.learned, task)(
            applied.chosen,
            progress=lambda indices: _shown(f"{task.capitalize()}ing", indices),
            **options,
        )
    dataset.attrs |= _origin(applied)
    console.print(_states_table(dataset, task))
    _warn_of_loss(dataset["series"].values, np.isfinite(dataset["log_evidence"].values), console)
    if outputs.out is not None:
        with written("Numbers", outputs.out, "--out", console):
            (write_netcdf if outputs.ends_in(".nc") else write_summaries)(outputs.out, dataset)
    if outputs.plot is not None:
        # Matplotlib takes half a second to import.
        from mcfo.reports.series_plots import draw_states

        with written("Figure", outputs.plot, "--plot", console):
            draw_states(outputs.plot, dataset, image)


def _shown(what: str, indices: Sequence[int]) -> Any:
    """Iterates over the series, and shows on a terminal how far it is."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    text = f"{what} {len(indices)} series, after some seconds of compiling"
    return track(indices, text, console=console, transient=True, disable=not console.is_terminal)


def _origin(applied: Applied) -> dict[str, Any]:
    return {"run": str(applied.run), "data": str(applied.data), "run_seed": applied.learned.seed}


def _states_table(dataset: Any, task: str) -> Any:
    """A row for each series, as many as a screen holds."""
    import numpy as np

    exact, rows = "exact" in dataset.attrs, []
    for index, name in enumerate(dataset["series"].values):
        one = dataset.isel(series=index)
        steps = int(one["length"])
        missing = int(np.isnan(one["observation"].values[:steps]).sum())
        numbers = [f"{float(one['log_evidence']):.3f}"]
        if not exact:
            ess = one["ess"].values[:steps]
            numbers += [f"{ess.mean():.1f}", f"{ess.min():.1f}"]
        rows.append([str(name), str(steps), str(missing), *numbers])
    header = ("series", "steps", "missing", "log-likelihood", *(() if exact else ("mean ESS", "lowest ESS")))
    return build_table(header, rows, most=_ROWS, title=f"{task} {_how(dataset)}")


def _how(dataset: Any) -> str:
    drawn = dataset.attrs.get("posterior_draws")
    over = "" if drawn is None else f", averaged over {drawn} draws of the parameters"
    how = "by exact distributions" if "exact" in dataset.attrs else f"with {dataset.attrs['particles']} particles"
    return how + over


def _warn_of_loss(names: Any, finite: Any, console: Any) -> None:
    lost = [str(name) for name, whole in zip(names, finite, strict=True) if not whole]
    if lost:
        more = ", ..." if len(lost) > 5 else ""
        text = f"The filter lost series {', '.join(lost[:5])}{more}: what follows the loss means little."
        console.print(f"{text} Use more particles.", style="yellow", markup=False)


def _read_piece(data: Path, columns: dict[str, Any], steps_per_quarter: int) -> Any:
    """The piece in a MIDI file; None for other files."""
    from mcfo.data.music_files import MIDI, read_piece

    if data.suffix.lower() not in MIDI:
        return None
    if any(columns.values()):
        raise InputError(f"--columns, --series and --time are about CSV files. Leave them out for {data}.")
    return read_piece(data, steps_per_quarter=steps_per_quarter)


def _forecast(
    applied: Applied, steps: int, future: Path | None, options: dict[str, Any], outputs: Outputs, per_quarter: int
) -> None:
    import numpy as np
    import xarray
    from rich.console import Console

    from mcfo.data.export import write_forecast_arrays, write_summaries
    from mcfo.data.piano_rolls import write_midi
    from mcfo.data.run_columns import coming_inputs, read_future
    from mcfo.inference.datasets import write_netcdf

    console, chosen = Console(), applied.chosen
    known = applied.saved.inputs
    coming = read_future(future, applied.run, known)
    dates = chosen.coming(steps) or [None] * len(chosen.names)
    both = zip(chosen.names, dates, strict=True)
    inputs = [coming_inputs(known, steps, coming, name, next_dates) for name, next_dates in both]
    # Padded to one length, so that one program serves all series; each has inputs of its own.
    longest = max(series.steps for series in chosen.series_list)
    results = []
    with refusing(f"The model in {applied.run} cannot forecast {applied.data}"):
        for index in _shown("Forecasting", range(len(inputs))):
            one = chosen.choose([index])._replace(series_list=[chosen.series_list[index].pad(longest)])
            result = applied.learned.forecast(one, steps, inputs=inputs[index], **options)
            # Only a NetCDF file has room for all draws; one is drawn or heard.
            results.append(result if outputs.ends_in(".nc") else result.isel(particle=slice(0, 1)))
    dataset: Any = xarray.concat(results, "series", data_vars="all")
    dataset.attrs |= _origin(applied)
    past = [series.values() for series in chosen.series_list]
    drawn = dataset["observation_draws"].values[:, :, 0]
    outputs.check_music(drawn[0], f"the model in {applied.run}")
    console.print(f"Forecast {steps} steps {_how(dataset)}.", highlight=False)
    _warn_of_loss(chosen.names, dataset["finite"].values, console)
    if outputs.out is not None:
        with written("Forecasts", outputs.out, "--out", console):
            if outputs.ends_in(".npz"):
                write_forecast_arrays(outputs.out, dataset, applied.table.image)
            else:
                (write_netcdf if outputs.ends_in(".nc") else write_summaries)(outputs.out, dataset)
    if outputs.plot is not None:
        from mcfo.reports.series_plots import draw_forecasts

        with written("Figure", outputs.plot, "--plot", console):
            draw_forecasts(outputs.plot, dataset, past, applied.table.image, chosen.moments)
    for path in outputs.midi:
        with written("Music", path, "--midi", console):
            # What is missing is silent.
            write_midi(path, np.nan_to_num(np.concatenate([past[0], drawn[0]])), steps_per_quarter=per_quarter)
