"""`mcfo forecast`: what follows the series in a file, by a learned model."""

from pathlib import Path
from typing import Annotated, Any

from mcfo.cli import options as opt
from mcfo.cli.apply import Applied, each_with_progress, method_text, open_run, origin, over_posterior, warn_of_loss
from mcfo.cli.options import exists, messages, read_circular, read_levels, refusing, table_columns, written
from mcfo.cli.outputs import Outputs
from mcfo.errors import InputError


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
        for index in each_with_progress("Forecasting", range(len(inputs))):
            one = chosen.choose([index])._replace(series_list=[chosen.series_list[index].pad(longest)])
            result = applied.learned.forecast(one, steps, inputs=inputs[index], **options)
            # Only a NetCDF file has room for all draws; one is drawn or heard.
            results.append(result if outputs.ends_in(".nc") else result.isel(particle=slice(0, 1)))
    dataset: Any = xarray.concat(results, "series", data_vars="all")
    dataset.attrs |= origin(applied)
    past = [series.values() for series in chosen.series_list]
    drawn = dataset["observation_draws"].values[:, :, 0]
    outputs.check_music(drawn[0], f"the model in {applied.run}")
    console.print(f"Forecast {steps} steps {method_text(dataset)}.", highlight=False)
    warn_of_loss(chosen.names, dataset["finite"].values, console)
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
