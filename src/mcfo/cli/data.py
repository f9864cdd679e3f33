"""`mcfo data`: look at a file, or make a data set."""

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from mcfo.cli.common import Force, Seed, StepsPerQuarter, check_known, check_out, fail, messages
from mcfo.cli.inspect import inspect

app = typer.Typer(help="Look at a file of series; make, convert or fetch a data set.", no_args_is_help=True)
app.command()(inspect)

_SETS = ("jsb", "nottingham", "musedata", "piano-midi")


@app.command()
def pendulum(
    out: Annotated[Path, typer.Option(help="Folder for the data; it must not exist yet.")] = Path("pendulum"),
    train: Annotated[int, typer.Option(help="Videos to learn from.", min=1)] = 500,
    test: Annotated[int, typer.Option(help="Videos to evaluate on.", min=1)] = 500,
    steps: Annotated[int, typer.Option(help="Frames of each video.", min=1)] = 20,
    half_extent: Annotated[
        float, typer.Option(help="The camera shows the square from minus this to this; 2.2 is gymnasium's view.")
    ] = 1.1,
    contrast: Annotated[
        str, typer.Option(help="full: the rod is as dark as can be. gym: gymnasium's colors, as gray.")
    ] = "full",
    renderer: Annotated[str, typer.Option(help="capsule: our own. gym: gymnasium's, slower.")] = "capsule",
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Simulate videos of a pendulum, 32 x 32 pixels, binary, as in the paper's second experiment.

    Writes train.npz and test.npz for mcfo fit and mcfo evaluate; truth.npz with the gray levels, the angles and the
    speeds; and config.json.
    """
    check_out(out, force)
    with messages():
        _pendulum(out, train, test, steps, half_extent, contrast, renderer, seed)
    print(f"Learn from it: mcfo fit deep --data {out / 'train.npz'} --out {out.with_name(out.name + '-run')}")


def _pendulum(
    out: Path, train: int, test: int, steps: int, half_extent: float, contrast: str, renderer: str, seed: int
) -> None:
    import numpy as np
    from rich.console import Console

    from mcfo.data.npz import write_npz
    from mcfo.experiments.pendulum_videos import View, simulate_pendulum
    from mcfo.files import write_atomically

    console = Console()
    view = View(half_extent, contrast, renderer)
    with console.status(f"Rendering {train + test} videos of {steps} frames"):
        made = simulate_pendulum(train + test, steps, seed=seed, view=view)
    parts = {"train": slice(None, train), "test": slice(train, None)}
    truth = {
        f"{part}_{name}": getattr(made, name)[place]
        for part, place in parts.items()
        for name in ("gray", "angles", "speeds")
    }
    config = {
        "data": "pendulum",
        "train": train,
        "test": test,
        "steps": steps,
        "half_extent": half_extent,
        "contrast": contrast,
        "renderer": renderer,
        "seed": seed,
    }
    try:
        out.mkdir(parents=True, exist_ok=True)
        for part, place in parts.items():
            write_npz(out / f"{part}.npz", {"observations": made.observations[place]}, compress=True)
        write_npz(out / "truth.npz", truth, compress=True)
        write_atomically(out / "config.json", (json.dumps(config, indent=2) + "\n").encode())
    except OSError as error:
        fail(f"Cannot write {error.filename or out}: {error.strerror}. Choose another folder with --out.")
    share = float(np.mean(made.observations))
    console.print(
        f"{train} videos to learn from and {test} to evaluate on, {steps} frames of 32 x 32 pixels, {share:.1%} of "
        f"them dark, in {out}",
        highlight=False,
    )


@app.command()
def music(
    source: Annotated[
        Path | None,
        typer.Option(
            "--from", help="What to convert: .npz, .pickle, .mat or .json of piano-rolls, or a folder of MIDI files."
        ),
    ] = None,
    download: Annotated[
        str | None, typer.Option(help=f"Fetch one of the public data sets instead: {', '.join(_SETS)}.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the data; it must not exist yet.")] = Path("music"),
    steps_per_quarter: StepsPerQuarter = 2,
    force: Force = False,
) -> None:
    """Convert polyphonic music to piano-rolls of 88 keys.

    Writes train.npz, valid.npz and test.npz, one array (steps, 88) for each piece, for mcfo fit and mcfo evaluate.
    """
    if (source is None) == (download is None):
        fail("Give a file by --from, or the name of a data set by --download.")
    if download is not None:
        check_known(download, _SETS, "data set")
    check_out(out, force)
    with messages():
        _music(source, download, out, steps_per_quarter)
    train, valid = (str(out / f"{split}.npz") for split in ("train", "valid"))
    run = str(out.with_name(out.name + "-run"))
    command = shlex.join(["mcfo", "fit", "vrnn", "--data", train, "--validation", valid, "--out", run])
    print(f"Learn from it: {command}")


def _music(source: Path | None, name: str | None, out: Path, steps_per_quarter: int) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from mcfo.data.music_files import download, read_music
    from mcfo.data.npz import write_npz
    from mcfo.data.piano_rolls import statistics

    console = Console()
    try:
        if source is None:
            out.mkdir(parents=True, exist_ok=True)
            with console.status(f"Fetching {name}"):
                source = download(str(name), out)
        with console.status(f"Reading {source}"):
            splits = read_music(source, steps_per_quarter=steps_per_quarter)
        out.mkdir(parents=True, exist_ok=True)
        for split, rolls in splits.items():
            arrays = {str(place): roll for place, roll in enumerate(rolls, 1)}
            write_npz(out / f"{split}.npz", arrays, compress=True)
    except OSError as error:
        fail(f"Cannot write {error.filename or out}: {error.strerror}. Choose another folder with --out.")
    table = Table(box=SIMPLE_HEAD, padding=(0, 0), caption="T: steps of a piece. Notes: that sound at a step.")
    titles = ("split", "pieces", "steps", "min T", "mean T", "max T", "notes", "most", "empty", "MIDI")
    for title in titles:
        table.add_column(title, justify="left" if title == "split" else "right", no_wrap=True)
    for split, rolls in splits.items():
        found = statistics(rolls)
        table.add_row(
            *(split, str(found.series_list), str(found.steps), str(found.shortest), f"{found.mean:.2f}"),
            *(str(found.longest), f"{found.active:.4f}", str(found.most_active), f"{found.empty:.2%}"),
            f"{found.lowest}-{found.highest}",
        )
    console.print(table)
