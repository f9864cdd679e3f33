"""`mcfo reproduce`: the paper's experiments."""

import os
import shutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from mcfo.cli.common import Force, Seed, check_known, check_out, fail
from mcfo.files import InputError, RunError

EXPERIMENTS = {
    "bounds": "mcfo.experiments.bounds.experiment",
    "gradients": "mcfo.experiments.gradients.experiment",
    "lgssm": "mcfo.experiments.lgssm.experiment",
    "pendulum": "mcfo.experiments.pendulum.experiment",
}
"""Where the paper's experiments are: modules with `PRESETS` and `run(out, size, *, preset, seed, command)`."""
_KEPT = ("blocks", "runs")
"""Folders in which experiments keep what is finished until they end."""
_MARK = ".unfinished"
"""A file in every folder of a run that has not ended, so that no other folder is taken for one."""


def reproduce(
    name: Annotated[str, typer.Argument(help=f"The experiment: {', '.join(EXPERIMENTS)}.", metavar="NAME")],
    preset: Annotated[
        str, typer.Option(help="quick: minutes. paper: the paper's sizes, hours. pendulum: also long.")
    ] = "quick",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the results; it must not exist yet.", show_default="results/NAME-PRESET"),
    ] = None,
    seed: Seed = 0,
    force: Force = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was interrupted.")] = False,
) -> None:
    """Repeat an experiment of the paper: tables, figures and a report, with the exact answer beside them."""
    check_known(name, EXPERIMENTS, "experiment")
    experiment = import_module(EXPERIMENTS[name])
    check_known(preset, experiment.PRESETS, "preset")
    out = out or Path("results") / f"{name}-{preset}"
    check_out(out, force)
    working = _working_folder(out, force=force, resume=resume)
    try:
        command = f"mcfo reproduce {name} --preset {preset} --seed {seed}"
        experiment.run(working, experiment.PRESETS[preset], preset=preset, seed=seed, command=command)
    except (InputError, RunError) as error:
        fail(str(error))
    except BaseException as error:
        kept = any((working / folder).is_dir() and any((working / folder).iterdir()) for folder in _KEPT)
        if not kept:
            shutil.rmtree(working, ignore_errors=True)
        if not isinstance(error, KeyboardInterrupt):
            raise
        after = f"What is finished is kept in {working}: go on with --resume." if kept else "Nothing was written."
        print(f"mcfo: Interrupted. {after}", file=sys.stderr)
        raise typer.Exit(130) from None
    _publish(working, out)
    print(f"Report: {out / 'report.html'}")


def _working_folder(out: Path, *, force: bool, resume: bool) -> Path:
    """The folder beside `out` in which a run works, so that `out` is whole or not there."""
    working = Path(os.path.relpath(f"{out.resolve()}.partial"))
    if working.exists():
        if not (working / _MARK).exists():
            fail(f"{working} is in the way: a run works there until it ends. Move it, or choose another --out.")
        if not (resume or force):
            fail(f"{working} holds a run that has not ended. Add --resume to go on with it, or --force to begin anew.")
        if not resume:
            shutil.rmtree(working)
    try:
        if out.exists():
            # Refused now rather than after hours.
            (out / _MARK).touch()
            (out / _MARK).unlink()
        working.mkdir(parents=True, exist_ok=True)
        (working / _MARK).touch()
    except OSError as error:
        fail(f"Cannot write {error.filename}: {error.strerror}. Choose another folder with --out.")
    return working


def _publish(working: Path, out: Path) -> None:
    """Gives a finished run its name; where the folder exists, moves its files over those of the same names."""
    (working / _MARK).unlink()
    if not out.exists():
        working.rename(out)
        return
    for path in sorted(working.rglob("*"), key=lambda path: path.name == "report.html"):
        target = out / path.relative_to(working)
        if path.is_dir():
            target.mkdir(exist_ok=True)
        else:
            path.replace(target)
    shutil.rmtree(working)
