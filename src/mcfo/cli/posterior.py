"""`mcfo posterior`: draws of the parameters of a learned model, given the series in a file."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from mcfo.cli import options as opt
from mcfo.cli.apply import Applied, learned_fixed, open_run
from mcfo.cli.options import build_table, exists, messages, read_options, refusing, table_columns
from mcfo.errors import InputError
from mcfo.files import nested

FOLDER = "posterior"
"""The folder inside that of the run, unless another one is asked for."""
_ROWS = 20

Priors = Annotated[
    list[str] | None,
    opt.model(
        "A prior on a parameter as people mean it, name=distribution: emission_noise=half-normal:1, "
        "log_variance.persistence=beta:20,1.5. Repeat it for several.",
        "--prior",
    ),
]


def posterior(
    run: opt.RunFolder,
    data: opt.Data,
    prior: Priors = None,
    out: Annotated[
        Path | None, opt.main("Folder for draws, page and checkpoint; by default RUN/posterior.", show_default=False)
    ] = None,
    chains: Annotated[int, opt.sampling("Chains, side by side; R-hat compares them.", min=1, max=1000)] = 4,
    draws: Annotated[int, opt.sampling("Draws of each chain.", min=10)] = 2000,
    warmup: Annotated[int, opt.sampling("Iterations before them, in which the steps are adapted.", min=50)] = 1000,
    particles: Annotated[
        int | None,
        opt.sampling(
            "Particles of the filter; by default none where the likelihood is known exactly, otherwise so many that "
            "the variance of its logarithm is near one.",
            min=1,
        ),
    ] = None,
    method: opt.Method = None,
    seed: opt.Seed = 0,
    run_seed: opt.RunSeed = None,
    resume: Annotated[bool, opt.main("Resume what was interrupted in the folder.", "--resume")] = False,
    checkpoint_seconds: Annotated[float, opt.output("Seconds between checkpoints.", min=0.0)] = 10.0,
    model: opt.OwnModel = None,
    proposal: opt.OwnProposal = None,
    columns: opt.Columns = None,
    series: opt.SeriesColumn = None,
    time: opt.TimeColumn = None,
) -> None:
    """Draw the parameters of a learned model from their posterior, given the series in a file.

    By the exact likelihood where it is known, by particles otherwise. The draws go into draws.nc, which ArviZ opens and
    forecast, smooth and evaluate --rolling average over.
    """
    exists(run)
    folder = run / FOLDER if out is None else out
    wanted = read_options(prior, "--prior")
    try:
        with messages():
            applied = open_run(run, data, table_columns(columns, series, time), (model, proposal), None, run_seed)
            numbers = {"chains": chains, "draws": draws, "warmup": warmup, "particles": particles, "method": method}
            numbers |= {"seed": seed, "resume": resume, "checkpoint_seconds": checkpoint_seconds}
            _sample(applied, folder, wanted, numbers)
    except KeyboardInterrupt:
        print(f"\nmcfo: Interrupted. Resume with the same command and --resume; it is in {folder}.", file=sys.stderr)
        raise typer.Exit(130) from None


def _sample(applied: Applied, folder: Path, priors: dict[str, str], numbers: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from mcfo.posterior.page import posterior_rows, write_posterior_report
    from mcfo.posterior.sampling import sample_posterior

    console, learned = Console(), applied.learned
    bar = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    command = shlex.join(["mcfo", *sys.argv[1:]]).replace(" --resume", "")
    about = {"run": str(applied.run), "run_seed": learned.seed, "data": str(applied.data), "command": command}
    with (
        refusing(f"The posterior of the model in {applied.run} cannot be sampled with {applied.data}"),
        Progress(*bar, TimeRemainingColumn(), console=console, transient=True) as progress,
    ):
        task = progress.add_task("Sampling", total=None)
        result = sample_posterior(
            (learned.model, learned.proposal),
            applied.table.series_list,
            priors=learned_priors(applied.saved.config) | priors,
            fixed=learned_fixed(applied.saved.config),
            out=folder,
            about=about,
            progress=lambda done, total, text: progress.update(
                task, completed=done, total=total, description=f"Sampling: {text}"
            ),
            **numbers,
        )
    header, rows = posterior_rows(result.summary())
    console.print(build_table(header, rows, most=_ROWS, title=f"Posterior of {applied.run} given {applied.data}"))
    for warning in result.warnings:
        console.print(warning, style="yellow", highlight=False, markup=False)
    page = write_posterior_report(result, folder, title=f"Posterior of the run in {applied.run.name}")
    for what, path in (("Draws", folder / "draws.nc"), ("Report", page)):
        console.print(f"{what}: {path}", highlight=False, soft_wrap=True, markup=False)


def learned_priors(config: dict[str, Any]) -> dict[str, str]:
    """The priors of a run; those that were built in Python cannot be read from its folder."""
    priors = nested(config, "settings", "priors")
    known = priors if isinstance(priors, dict) else {}
    for name, text in known.items():
        if "(" in str(text):
            raise InputError(
                f"The run had the prior {text} on {name}, which was built in Python. Give it by name: --prior "
                f"{name}=half-normal:1, say; or use sample_posterior in Python."
            )
    return {str(name): str(text) for name, text in known.items()}
