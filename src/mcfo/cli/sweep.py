"""`mcfo sweep`: a grid of runs of `mcfo fit`, with one table and one page."""

import json
import shlex
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated

import typer

from mcfo import interrupts
from mcfo.cli import options as opt
from mcfo.cli.fit import fit
from mcfo.cli.options import build_table, check_out, fail, messages, writing
from mcfo.cli.sweep_grid import Option, Planned, read_grid
from mcfo.cli.sweep_runs import Task, as_json, run_here, run_on_ray, slurm_script

_ROWS = 40
"""Runs that the terminal shows."""


def sweep(
    file: Annotated[
        Path,
        typer.Argument(
            help="A TOML file: options of mcfo fit; a list of values is an axis of the grid.", metavar="FILE"
        ),
    ],
    out: Annotated[Path, opt.main("Folder for the runs; it must not exist yet.")],
    resume: Annotated[bool, opt.main("Do what is not finished of the sweep in the folder.", "--resume")] = False,
    cores: Annotated[int, opt.main("Cores of each run; others run beside it.", min=1)] = 1,
    ray: Annotated[
        str | None, opt.main("Run on a Ray cluster: its address, auto, or local to start one here.", metavar="ADDRESS")
    ] = None,
    slurm: Annotated[
        bool, opt.main("Write a job array for Slurm instead of running anything; --resume makes the table.", "--slurm")
    ] = False,
) -> None:
    """Learn a grid of models: models, objectives, particles, seeds, data sets and settings.

    Each run is a folder of mcfo fit, which resumes where it was interrupted. In the end there are sweep.csv and a page.
    """
    check_out(out, resume)
    with messages():
        runs = read_grid(file, _options_of_fit())
        tasks = [_task(run, out, cores) for run in runs]
        _start_folder(out, tasks, file)
        unfinished = [task for task in tasks if not _is_finished(out / "runs" / task.name)]
        if slurm:
            script = out / "slurm.sh"
            with writing(script, "--out"):
                script.write_text(slurm_script(unfinished, cores, out.name))
            print(f"Submit it: sbatch {shlex.quote(str(script))}")
            print(f"When it has run: {_again(file, out)}")
            return
        failed = _run(unfinished, len(tasks), cores, ray, file, out)
        _summarize(runs, out)
    if failed:
        logs = ", ".join(str(task.log) for task in unfinished if task.name in failed[:3])
        fail(f"{len(failed)} of {len(tasks)} runs failed ({logs} say why). Mend it, then: {_again(file, out)}")


@cache
def _options_of_fit() -> dict[str, Option]:
    alone = typer.Typer()
    alone.command()(fit)
    found = {}
    for parameter in typer.main.get_command(alone).params:
        if parameter.param_type_name == "argument":
            found[parameter.name] = Option("", "", False, False)
        else:
            flag, off = parameter.opts[0], next(iter(parameter.secondary_opts), "")
            found[flag.removeprefix("--")] = Option(
                flag, off, parameter.multiple, bool(getattr(parameter, "is_flag", False))
            )
    return found


def _task(run: Planned, out: Path, cores: int) -> Task:
    # One device for each core, so that a run's numbers are the same wherever it runs.
    devices = [] if "--devices" in run.arguments else ["--devices", str(cores)]
    folder = out.resolve() / "runs" / run.name
    words = ["fit", *run.arguments, *devices, "--out", str(folder), "--resume"]
    return Task(run.name, words, folder.with_suffix(".log"))


def _start_folder(out: Path, tasks: Sequence[Task], file: Path) -> None:
    """Saves what the sweep is; a folder with another one is refused."""
    path, plan = out / "sweep.json", {"runs": [as_json(task) for task in tasks]}
    if path.exists():
        from mcfo.files import read_json

        before = {run["name"]: run["arguments"] for run in read_json(path).get("runs", [])}
        other = [task.name for task in tasks if before.get(task.name, task.arguments) != task.arguments]
        if other or set(before) - {task.name for task in tasks}:
            fail(f"{out} holds another sweep than {file} now asks for. Choose another folder with --out.")
    elif out.exists() and any(out.iterdir()):
        fail(f"{out} holds no sweep, but other files. Choose another folder with --out.")
    with writing(path, "--out"):
        (out / "runs").mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(plan, indent=2) + "\n")


def _is_finished(folder: Path) -> bool:
    return (folder / "results.json").exists()


def _again(file: Path, out: Path) -> str:
    return shlex.join(["mcfo", "sweep", str(file), "--out", str(out), "--resume"])


def _run(tasks: Sequence[Task], total: int, cores: int, address: str | None, file: Path, out: Path) -> list[str]:
    """Runs the tasks under one progress bar; returns the names of those that failed."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console, failed = Console(), []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        shown = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        with interrupts.deferred(), shown as progress:
            bar = progress.add_task("runs", total=total, completed=total - len(tasks))

            def ended(name: str, code: int) -> None:
                progress.advance(bar)
                text = "finished" if code == 0 else f"failed with code {code}"
                console.print(f"{name}  {text}", highlight=False, markup=False, soft_wrap=True)
                if code:
                    failed.append(name)

            if address is None:
                run_here(tasks, cores, ended)
            elif tasks:
                run_on_ray(tasks, cores, address, ended)
    except KeyboardInterrupt:
        print(f"\nmcfo: Interrupted. Resume: {_again(file, out)}", file=sys.stderr)
        raise typer.Exit(interrupts.EXIT_CODE) from None
    return failed


def _summarize(runs: Sequence[Planned], out: Path) -> None:
    """Writes sweep.csv and sweep.html, and shows the table."""
    from rich.console import Console

    from mcfo.reports.sweep_page import HEADER, read_rows, write_sweep

    rows = read_rows([(run.name, run.values) for run in runs], out)
    axes = [axis for axis in runs[0].values if axis not in HEADER]
    with writing(out, "--out"):
        page = write_sweep(rows, axes, out)
    console = Console()
    header = [*axes, *HEADER.values()]
    console.print(build_table(header, [row.texts(axes) for row in rows], text=axes, most=_ROWS))
    console.print(f"Table: {out / 'sweep.csv'}\nPage: {page}", highlight=False, soft_wrap=True, markup=False)
