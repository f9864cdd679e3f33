"""`mcfo data`: look at a file of series, or create a data set."""

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from mcfo.cli import options as opt
from mcfo.cli.options import (
    build_table,
    check_known,
    check_new_file,
    check_out,
    fail,
    messages,
    status,
    table_columns,
    written,
)

app = typer.Typer(help="Look at a file of series; create, convert or download a data set.", no_args_is_help=True)

_ROWS = 12
"""Series and columns that a table shows at most."""
_SETS = ("jsb", "nottingham", "musedata", "piano-midi")


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(help="A CSV file with a header, Parquet, NetCDF or NPZ.", metavar="FILE")],
    plot: Annotated[Path | None, opt.main("Draw a figure into this .png file; it must not exist yet.")] = None,
    columns: opt.Columns = None,
    series: opt.SeriesColumn = None,
    time: opt.TimeColumn = None,
    inputs: opt.InputColumns = None,
) -> None:
    """Look at the series in a file: lengths, gaps, ranges, seasons, trends, outliers, and the model that follows."""
    check_new_file(plot, "--plot", (".png",))
    with messages():
        options = {"--columns": columns, "--series": series, "--time": time, "--inputs": inputs}
        _inspect(file, plot, table_columns(columns, series, time, inputs=inputs), options)


def _inspect(file: Path, plot: Path | None, asked: dict[str, Any], options: dict[str, str | None]) -> None:
    from rich.console import Console

    from mcfo.data.inspection import describe_columns, describe_series
    from mcfo.data.series_shape import describe_shapes, suggest
    from mcfo.data.tables import read_series

    console = Console()
    with status(f"Reading {file}"):
        raw = read_series(file, **asked)
        table = raw.on_grid()
        columns, each, suggestion = describe_columns(table), describe_series(table), suggest(raw)
    lengths = sorted(one.steps for one in each)
    steps = f"{lengths[0]} steps"
    if lengths[0] < lengths[-1]:
        steps = f"{lengths[0]} to {lengths[-1]} steps (median {lengths[len(lengths) // 2]})"
    print(f"{file}: {len(each)} series of {steps}" + (f", {sum(lengths)} in all." if len(each) > 1 else "."))
    print(_times(table))
    if table.inputs:
        print(f"Inputs: {', '.join(table.inputs)}.")
    for note in table.notes:
        print(note)
    console.print(_columns_table(columns, [shape.texts() for shape in describe_shapes(raw)]))
    if len(each) > 1:
        console.print(_series_table(each))
    _warn(console, columns, each)
    for warning in suggestion.warnings:
        console.print(warning, style="yellow", highlight=False, markup=False)
    words = [word for name, value in options.items() if value is not None for word in (name, value)]
    for reason in suggestion.reasons:
        print(reason)
    print(f"Models that may fit: {', '.join([suggestion.model, *suggestion.others])}.")
    print(f"Learn from it: {suggestion.command(str(file), words)}")
    if plot is not None:
        with written("Figure", plot, "--plot", console):
            _draw_overview(plot, table)


def _times(table: Any) -> str:
    if table.times is None or table.spans is None:
        return "No times: each row is one step."
    spacing = table.spacing
    first, last = table.spans[0][:2]
    span = f"Times from {first} to {last}" + (" in the first series" if len(table.names) > 1 else "")
    if not spacing.words:
        return f"{span}."
    if spacing.even:
        return f"{span}, evenly spaced: {spacing.words}."
    longest, series, row = spacing.longest
    where = f" (series {table.names[series]}, before row {row + 1})"
    return (
        f"{span}, not evenly spaced: typically {spacing.words}, at most {longest:.3g} times that{where}. Some "
        "models read the time between rows (mcfo fit --irregular)."
    )


def _columns_table(columns: list[Any], shapes: list[list[str]]) -> Any:
    rows = []
    for one, texts in zip(columns, shapes, strict=True):
        numbers = (f"{number:.5g}" for number in (one.least, one.mean, one.deviation, one.greatest))
        share = f" ({one.missing / (one.known + one.missing):.0%})" if one.missing else ""
        rows.append([one.name, f"{one.known}", f"{one.missing}{share}", *numbers, ", ".join([*one.notes, *texts])])
    header = ("column", "known", "missing", "smallest", "mean", "sd", "largest", "notes")
    return build_table(header, rows, text=("notes",), most=_ROWS)


def _series_table(each: list[Any]) -> Any:
    span = ("from", "to") if any(one.first for one in each) else ()
    rows = [
        [one.name, f"{one.steps}", f"{one.incomplete}", f"{one.longest_missing}", *(one.first, one.last)[: len(span)]]
        for one in each
    ]
    return build_table(("series", "steps", "incomplete", "longest gap", *span), rows, text=span, most=_ROWS)


def _warn(console: Any, columns: list[Any], each: list[Any]) -> None:
    def say(text: str) -> None:
        console.print(text, style="yellow", highlight=False, markup=False)

    for one in columns:
        if "constant" in one.notes:
            say(f"Column {one.name} is constant ({one.least:g}). Gaussian models refuse it: leave it out (--columns).")
        if "always missing" in one.notes:
            say(f"Column {one.name} is always missing. Leave it out with --columns.")
    if len(each) == 1 and each[0].longest_missing > 1:
        say(f"The longest run of missing steps has {each[0].longest_missing}.")
    short = sum(one.steps < 2 for one in each)
    if short:
        say(f"{short} of {len(each)} series have a single row, from which no change can be learned.")


def _draw_overview(plot: Path, table: Any) -> None:
    import numpy as np

    from mcfo.reports.figures import axis_title
    from mcfo.reports.series_plots import Panel, draw_panels

    moments, panels = table.moments, []
    for index, (name, series) in enumerate(zip(table.names, table.series_list, strict=True)):
        values = series.values()
        x = np.arange(1, len(values) + 1) if moments is None else moments[index]
        for column, title in enumerate(table.columns):
            title = title if len(table.names) == 1 else f"{title}, series {name}"
            panels.append(Panel(title, x, values[:, column], joined=True, gaps=True))
    draw_panels(plot, panels, x_label=axis_title(None if moments is None else moments[0]))


@app.command()
def pendulum(
    out: Annotated[Path, opt.main("Folder for the data; it must not exist yet.")] = Path("pendulum"),
    train: Annotated[int, opt.main("Videos to learn from.", min=1)] = 500,
    test: Annotated[int, opt.main("Videos to evaluate on.", min=1)] = 500,
    steps: Annotated[int, opt.main("Frames of each video.", min=1)] = 20,
    half_extent: Annotated[
        float, opt.main("The camera shows the square from minus this to this; 2.2 is gymnasium's view.")
    ] = 1.1,
    contrast: Annotated[
        str, opt.main("full: the rod is as dark as can be. gym: gymnasium's colors, as gray.")
    ] = "full",
    renderer: Annotated[str, opt.main("capsule: our own. gym: gymnasium's, slower.")] = "capsule",
    seed: opt.Seed = 0,
    force: opt.Force = False,
) -> None:
    """Simulate videos of a pendulum, 32 x 32 pixels, binary, as in the paper's second experiment.

    Writes train.npz and test.npz for mcfo fit and mcfo evaluate; truth.npz with the gray levels, the angles and the
    speeds; and config.json.
    """
    check_out(out, force)
    with messages():
        from mcfo.data.pendulum_videos import View

        _pendulum(out, train, test, steps, View(half_extent, contrast, renderer), seed)
    print(f"Learn from it: mcfo fit deep --data {out / 'train.npz'} --out {out.with_name(out.name + '-run')}")


def _pendulum(out: Path, train: int, test: int, steps: int, view: Any, seed: int) -> None:
    import numpy as np
    from rich.console import Console

    from mcfo.data.npz import write_npz
    from mcfo.data.pendulum_videos import simulate_pendulum
    from mcfo.files import write_atomically

    console = Console()
    with status(f"Rendering {train + test} videos of {steps} frames"):
        videos = simulate_pendulum(train + test, steps, seed=seed, view=view)
    parts = {"train": slice(None, train), "test": slice(train, None)}
    truth = {
        f"{part}_{name}": getattr(videos, name)[rows]
        for part, rows in parts.items()
        for name in ("gray", "angles", "speeds")
    }
    config = {"data": "pendulum", "train": train, "test": test, "steps": steps, **asdict(view), "seed": seed}
    try:
        out.mkdir(parents=True, exist_ok=True)
        for part, rows in parts.items():
            write_npz(out / f"{part}.npz", {"observations": videos.observations[rows]}, compress=True)
        write_npz(out / "truth.npz", truth, compress=True)
        write_atomically(out / "config.json", (json.dumps(config, indent=2) + "\n").encode())
    except OSError as error:
        fail(f"Cannot write {error.filename or out}: {error.strerror}. Choose another folder with --out.")
    share = float(np.mean(videos.observations))
    console.print(
        f"{train} videos to learn from and {test} to evaluate on, {steps} frames of 32 x 32 pixels, {share:.1%} of "
        f"them dark, in {out}",
        highlight=False,
    )


@app.command()
def music(
    source: Annotated[
        Path | None,
        opt.main("What to convert: .npz, .pickle, .mat or .json of piano-rolls, or a folder of MIDI files.", "--from"),
    ] = None,
    download: Annotated[
        str | None, opt.main(f"Download one of the public data sets instead: {', '.join(_SETS)}.")
    ] = None,
    out: Annotated[Path, opt.main("Folder for the data; it must not exist yet.")] = Path("music"),
    steps_per_quarter: opt.StepsPerQuarter = 2,
    sampling_period: Annotated[
        float | None, opt.output("Sample the pieces every so many seconds, instead of one row for each of their steps.")
    ] = None,
    beats_per_minute: Annotated[float, opt.output("The tempo for --sampling-period, in quarter notes.")] = 100.0,
    force: opt.Force = False,
) -> None:
    """Convert polyphonic music to piano-rolls of 88 keys.

    Writes train.npz, valid.npz and test.npz, one array (steps, 88) for each piece, for mcfo fit and mcfo evaluate.
    """
    if (source is None) == (download is None):
        fail("Give either a file with --from, or the name of a data set with --download.")
    if download is not None:
        check_known(download, _SETS, "data set")
    check_out(out, force)
    with messages():
        _music(source, download, out, steps_per_quarter, sampling_period, beats_per_minute)
    train, valid = (str(out / f"{split}.npz") for split in ("train", "valid"))
    run = str(out.with_name(out.name + "-run"))
    command = shlex.join(["mcfo", "fit", "vrnn", "--data", train, "--validation", valid, "--out", run])
    print(f"Learn from it: {command}")


def _music(
    source: Path | None,
    name: str | None,
    out: Path,
    steps_per_quarter: int,
    sampling_period: float | None,
    beats_per_minute: float,
) -> None:
    from rich.console import Console

    from mcfo.data.music_files import download, read_music
    from mcfo.data.npz import write_npz
    from mcfo.data.piano_rolls import TimeGrid, checked, statistics

    console = Console()
    try:
        if source is None:
            out.mkdir(parents=True, exist_ok=True)
            with status(f"Downloading {name}"):
                source = download(str(name), out)
        with status(f"Reading {source}"):
            splits = read_music(source, steps_per_quarter=steps_per_quarter)
        if sampling_period is not None:
            grid = TimeGrid(sampling_period, beats_per_minute, steps_per_quarter)
            splits = checked(grid.sample_all(splits), str(source))
        out.mkdir(parents=True, exist_ok=True)
        for split, rolls in splits.items():
            arrays = {str(index): roll for index, roll in enumerate(rolls, 1)}
            write_npz(out / f"{split}.npz", arrays, compress=True)
    except OSError as error:
        fail(f"Cannot write {error.filename or out}: {error.strerror}. Choose another folder with --out.")
    header = ("split", "pieces", "steps", "min T", "mean T", "max T", "notes", "most", "empty", "MIDI")
    rows = []
    for split, rolls in splits.items():
        one = statistics(rolls)
        lengths = (str(one.series_list), str(one.steps), str(one.shortest), f"{one.mean:.2f}", str(one.longest))
        notes = (f"{one.active:.4f}", str(one.most_active), f"{one.empty:.2%}", f"{one.lowest}-{one.highest}")
        rows.append([split, *lengths, *notes])
    console.print(build_table(header, rows, caption="T: steps of a piece. Notes: sounding at a step."))
