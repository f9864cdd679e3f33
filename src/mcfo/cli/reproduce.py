"""`mcfo reproduce`: the paper's experiments."""

import os
import shlex
import shutil
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from mcfo import interrupts
from mcfo.cli import options as opt
from mcfo.cli.options import check_known, check_out, fail
from mcfo.errors import InputError, RunError

EXPERIMENTS = {
    "bounds": "mcfo.experiments.bounds",
    "gradients": "mcfo.experiments.gradient_study",
    "lgssm": "mcfo.experiments.lgssm",
    "music": "mcfo.experiments.music",
    "pendulum": "mcfo.experiments.pendulum",
}
"""Where the paper's experiments are: modules with a class `STUDY`."""
_learning, _music = opt.panel("For lgssm, pendulum and music"), opt.panel("For music")
_MARK = ".unfinished"
"""A file in every folder of a run that has not ended, so that no other folder is taken for one."""


def reproduce(
    name: Annotated[str, typer.Argument(help=f"The experiment: {', '.join(EXPERIMENTS)}.", metavar="NAME")],
    preset: Annotated[
        str, opt.main("quick takes minutes; paper has the paper's sizes and takes hours; pendulum and music have long.")
    ] = "quick",
    out: Annotated[
        Path | None, opt.main("Folder for the results; it must not exist yet.", show_default="results/NAME-PRESET")
    ] = None,
    seed: opt.Seed = 0,
    resume: Annotated[bool, opt.main("Resume a run that was interrupted.", "--resume")] = False,
    seeds: Annotated[
        int | None,
        _learning("Runs of each method, with seeds from --seed on.", min=1, max=1000, show_default="the preset's"),
    ] = None,
    particles: Annotated[
        list[int] | None, _learning("Learn with this K instead of the preset's; repeat it for several.", min=1)
    ] = None,
    method: Annotated[
        list[str] | None, _learning("Compare this method alone; repeat it for several. Not for lgssm.")
    ] = None,
    only: Annotated[list[str] | None, _music("Learn this data set alone; repeat it for several.")] = None,
    data: Annotated[Path | None, _music("Where the piano-rolls are: a folder of jsb.npz and so on.")] = None,
    force: opt.Force = False,
) -> None:
    """Repeat an experiment of the paper: tables, figures and a report, with the exact answer beside them."""
    check_known(name, EXPERIMENTS, "experiment")
    study = import_module(EXPERIMENTS[name]).STUDY
    check_known(preset, study.presets, "preset")
    size = study.presets[preset]
    if method:
        size = _only(name, size, method)
    if seeds is not None:
        if not hasattr(size, "seeds"):
            fail(f"The experiment {name} has no runs of several seeds. Leave out --seeds.")
        size = replace(size, seeds=tuple(range(seeds)))
    if particles:
        if not (hasattr(size, "particles") and hasattr(size, "seeds")):
            fail(f"The experiment {name} does not learn with a K that could be chosen. Leave out --particles.")
        particles = sorted(set(particles))
        size = replace(size, particles=tuple(particles))
    if only:
        size = _of_data(name, size, only)
    if data is not None and not study.reads_files:
        fail(f"The experiment {name} makes its own data. Leave out --data.")
    given = {"--preset": [preset], "--seed": [seed], "--method": method, "--seeds": [seeds] if seeds else None}
    given |= {"--particles": particles, "--only": only, "--data": [data] if data else None}
    words = [str(word) for flag, values in given.items() for value in values or () for word in (flag, value)]
    out = out or Path("results") / f"{name}-{preset}"
    check_out(out, force)
    working = _working_folder(out, force=force, resume=resume)
    # Imported here: the help needs no JAX.
    from mcfo.experiments.study import JOBS, run_study

    command = shlex.join(["mcfo", "reproduce", name, *words])
    interrupts.set_outcome(f"What is finished is saved in {working}: resume with --resume.")
    try:
        with interrupts.deferred():
            run_study(study(size, seed, data), working, preset=preset, command=command)
    except BaseException as error:
        saved = (working / JOBS).is_dir() and any((working / JOBS).iterdir())
        if not saved:
            shutil.rmtree(working, ignore_errors=True)
        if isinstance(error, InputError | RunError):
            fail(str(error))
        if not isinstance(error, KeyboardInterrupt):
            raise
        after = f"What is finished is saved in {working}: resume with --resume." if saved else "Nothing was written."
        print(f"mcfo: Interrupted. {after}", file=sys.stderr)
        raise typer.Exit(interrupts.EXIT_CODE) from None
    _publish(working, out)
    print(f"Report: {out / 'report.html'}")


def _only(name: str, size: Any, methods: list[str]) -> Any:
    """The preset with these methods alone."""
    if not hasattr(size, "methods"):
        fail(f"The experiment {name} compares no methods that could be left out. Leave out --method.")
    for one in methods:
        check_known(one, size.methods, "method of this preset")
    return replace(size, methods=tuple(one for one in size.methods if one in methods))


def _of_data(name: str, size: Any, chosen: list[str]) -> Any:
    """The preset with these data sets alone."""
    if not hasattr(size, "courses"):
        fail(f"The experiment {name} has a single data set. Leave out --only.")
    known = [data for data, _ in size.courses]
    for one in chosen:
        check_known(one, known, "data set of this preset")
    return replace(size, courses=tuple(course for course in size.courses if course[0] in chosen))


def _working_folder(out: Path, *, force: bool, resume: bool) -> Path:
    """The folder beside `out` in which a run works, so that `out` is whole or not there."""
    working = Path(os.path.relpath(f"{out.resolve()}.partial"))
    if working.exists():
        if not (working / _MARK).exists():
            fail(f"{working} is in the way: a run works there until it ends. Move it, or choose another --out.")
        if not (resume or force):
            fail(f"{working} holds a run that has not ended. Add --resume to resume it, or --force to start again.")
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
