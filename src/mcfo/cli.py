"""The command line. Nothing heavy is imported before a command needs it, so that help comes at once."""

import os
import shutil
import sys
from collections.abc import Iterable
from importlib import import_module, metadata
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from mcfo.suggestions import nearest

app = typer.Typer(
    name="mcfo",
    help="Learn state-space models and their proposals from time series by particle methods.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

EXPERIMENTS = {
    "bounds": "mcfo.experiments.bounds.experiment",
    "gradients": "mcfo.experiments.gradients.experiment",
}
"""Where the paper's experiments are: modules with `run(out, *, preset, seed, command)`."""
_PRESETS = ("quick", "paper")
_MARK = ".unfinished"
"""A file in every folder of a run that has not ended, so that no other folder is taken for one."""


def _show_version(wanted: bool) -> bool:
    if wanted:
        print(f"mcfo {metadata.version('mcfo')}")
        raise typer.Exit
    return wanted


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """What stands before the command."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture; it must not exist yet.")] = Path("mcfo-demo"),
    steps: Annotated[int, typer.Option(help="Length of the simulated series.", min=10, max=10_000)] = 100,
    particles: Annotated[int, typer.Option(help="Number of particles.", min=2, max=100_000)] = 500,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.", min=0, max=2**31 - 2)] = 0,
    force: Annotated[bool, typer.Option("--force", help="Write into the folder even if it exists.")] = False,
) -> None:
    """See the library work: filter and smooth a series with gaps, and compare with the exact answer.

    It takes about half a minute, most of it compiling.
    """
    _check_out(out, force)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _fail(f"Cannot make the folder {out}: {error.strerror}. Choose another one with --out.")

    if not os.access(out, os.W_OK):
        _fail(f"Cannot write into the folder {out}. Choose another one with --out.")

    from mcfo.demo import run

    run(out, steps=steps, particles=particles, seed=seed)


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help=f"The experiment: {', '.join(EXPERIMENTS)}.", metavar="NAME")],
    preset: Annotated[str, typer.Option(help="quick: minutes. paper: the paper's sizes, hours.")] = "quick",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the results; it must not exist yet.", show_default="results/NAME-PRESET"),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.", min=0, max=2**31 - 2)] = 0,
    force: Annotated[bool, typer.Option("--force", help="Write into the folder even if it exists.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was interrupted.")] = False,
) -> None:
    """Repeat an experiment of the paper: tables, figures and a report, with the exact answer beside them."""
    _check_known(name, EXPERIMENTS, "experiment")
    _check_known(preset, _PRESETS, "preset")
    out = out or Path("results") / f"{name}-{preset}"
    _check_out(out, force)
    working = _working_folder(out, force=force, resume=resume)

    from mcfo.experiments.results import OtherRunError

    try:
        experiment = import_module(EXPERIMENTS[name])
        command = f"mcfo reproduce {name} --preset {preset} --seed {seed}"
        experiment.run(working, preset=preset, seed=seed, command=command)
    except OtherRunError as error:
        _fail(str(error))
    except BaseException as error:
        kept = (working / "blocks").is_dir() and any((working / "blocks").iterdir())
        if not kept:
            shutil.rmtree(working, ignore_errors=True)
        if not isinstance(error, KeyboardInterrupt):
            raise
        after = f"What is finished is kept in {working}: go on with --resume." if kept else "Nothing was written."
        print(f"mcfo: Interrupted. {after}", file=sys.stderr)
        raise typer.Exit(130) from None
    _publish(working, out)
    print(f"Report: {out / 'report.html'}")


def _check_known(name: str, known: Iterable[str], what: str) -> None:
    if name not in known:
        _fail(f"There is no {what} {name!r}. {nearest(name, known)}")


def _check_out(out: Path, force: bool) -> None:
    if out.exists() and not out.is_dir():
        _fail(f"{out} is not a folder. Choose another one with --out.")
    if out.exists() and not force:
        _fail(f"{out} exists already. Choose another folder with --out, or add --force to write into it.")


def _working_folder(out: Path, *, force: bool, resume: bool) -> Path:
    """The folder beside `out` in which a run works, so that `out` is whole or not there."""
    working = Path(os.path.relpath(f"{out.resolve()}.partial"))
    if working.exists():
        if not (working / _MARK).exists():
            _fail(f"{working} is in the way: a run works there until it ends. Move it, or choose another --out.")
        if not (resume or force):
            _fail(f"{working} holds a run that has not ended. Add --resume to go on with it, or --force to begin anew.")
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
        _fail(f"Cannot write {error.filename}: {error.strerror}. Choose another folder with --out.")
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


def _fail(message: str) -> NoReturn:
    """Ends the command: one message, exit code 2, no traceback."""
    print(f"mcfo: {message}", file=sys.stderr)
    raise typer.Exit(2)


def main() -> None:
    app()
