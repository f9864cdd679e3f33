"""`mcfo fit`: learn a model from a file."""

import os
import shlex
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

from mcfo.cli.common import Seed, as_value, fail, messages, read_options
from mcfo.files import InputError

_Columns = Annotated[str | None, typer.Option("--columns", help="The value columns, by commas; all by default.")]


def fit(
    model: Annotated[
        str,
        typer.Argument(
            help="A model of the catalogue (linear-gaussian, stochastic-volatility, poisson-counts), or your own: "
            "path/to/file.py:Name.",
            metavar="MODEL",
        ),
    ],
    data: Annotated[Path, typer.Option(help="The series: a CSV file with a header, or an NPZ file.")],
    out: Annotated[Path, typer.Option(help="Folder for the run; it must not exist yet.")],
    objective: Annotated[
        str, typer.Option(help="What is maximised: mcfo, nasmc, aesmc, fivo, vsmc, iwae, elbo, rws, bootstrap, ...")
    ] = "mcfo",
    particles: Annotated[int, typer.Option(help="Particles of the filter that learns.", min=1)] = 100,
    steps: Annotated[int, typer.Option(help="Updates of the parameters.", min=1)] = 2000,
    batch: Annotated[int, typer.Option(help="Series in each update.", min=1)] = 10,
    seed: Seed = 0,
    seeds: Annotated[int, typer.Option(help="Runs side by side, with seeds from --seed on.", min=1, max=1000)] = 1,
    learning_rate: Annotated[float, typer.Option(help="Learning rate of the optimiser.")] = 0.01,
    optimiser: Annotated[str, typer.Option(help="An optimiser of optax, by name.")] = "adam",
    schedule: Annotated[
        str, typer.Option(help="The rate's course: constant, cosine, exponential, linear, warmup-cosine.")
    ] = "constant",
    clip: Annotated[float | None, typer.Option(help="Largest global norm of a gradient.")] = None,
    model_option: Annotated[
        list[str] | None, typer.Option("--set", help="An option of the model, name=value; several times.")
    ] = None,
    objective_option: Annotated[
        list[str] | None, typer.Option(help="An option of the objective, name=value: phi=dreg, sweeps=5.")
    ] = None,
    optimiser_option: Annotated[list[str] | None, typer.Option(help="An option of the optimiser, name=value.")] = None,
    schedule_option: Annotated[list[str] | None, typer.Option(help="An option of the schedule, name=value.")] = None,
    proposal: Annotated[
        str | None, typer.Option(help="Your own proposal, path/to/file.py:Name; else the model's default.")
    ] = None,
    fix: Annotated[
        list[str] | None, typer.Option(help="A parameter that is not learned, model.transition_matrix; several times.")
    ] = None,
    validation: Annotated[Path | None, typer.Option(help="A file of held-out series, to choose the best by.")] = None,
    holdout: Annotated[
        float, typer.Option(help="Share of the series, the last ones, that is held out instead.", min=0.0, max=0.9)
    ] = 0.0,
    evaluate_every: Annotated[int | None, typer.Option(help="Updates between evaluations.", min=1)] = None,
    evaluation_particles: Annotated[int | None, typer.Option(help="Particles of the evaluations.", min=1)] = None,
    patience: Annotated[int | None, typer.Option(help="Stop after so many evaluations in vain.", min=1)] = None,
    log_every: Annotated[int, typer.Option(help="Updates that make one line of the metrics.", min=1)] = 10,
    columns: _Columns = None,
    series: Annotated[str | None, typer.Option(help="The column that names the series.")] = None,
    time: Annotated[str | None, typer.Option(help="The column of times.")] = None,
    devices: Annotated[
        int | None, typer.Option(help="Devices that share a batch; by default one for each core.", min=1)
    ] = None,
    checkpoint_seconds: Annotated[
        float, typer.Option(help="How long a run goes on without a checkpoint.", min=0.0)
    ] = 10.0,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write event files for TensorBoard.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
) -> None:
    """Learn a model and its proposal from the series in a file."""
    if out.exists() and not resume and (not out.is_dir() or any(out.iterdir())):
        fail(f"{out} exists already. Choose another folder with --out, or go on with the run in it by --resume.")
    own = model.rpartition(":")[0].endswith(".py")
    asked = {
        "model": read_options(model_option or [], "--set"),
        "objective": read_options(objective_option or [], "--objective-option"),
        "optimiser": read_options(optimiser_option or [], "--optimiser-option"),
        "schedule": read_options(schedule_option or [], "--schedule-option"),
    }
    if own and asked["model"]:
        fail(f"--set is for models of the catalogue, but {model} is your own. Give its class defaults instead.")
    try:
        with messages():
            _fit(
                model,
                proposal,
                own,
                data,
                out,
                objective,
                particles,
                asked,
                validation,
                holdout,
                {"values": columns.split(",") if columns else None, "series": series, "time": time},
                devices,
                tensorboard,
                tuple(fix or ()),
                {
                    "steps": steps,
                    "batch": batch,
                    "seeds": tuple(range(seed, seed + seeds)),
                    "learning_rate": learning_rate,
                    "optimiser": optimiser,
                    "schedule": schedule,
                    "clip": clip,
                    "evaluate_every": evaluate_every,
                    "evaluation_particles": evaluation_particles,
                    "patience": patience,
                    "log_every": log_every,
                },
                {"resume": resume, "checkpoint_seconds": checkpoint_seconds},
            )
    except KeyboardInterrupt:
        print(f"\nmcfo: Interrupted. Go on with the same command and --resume; the run is in {out}.", file=sys.stderr)
        raise typer.Exit(130) from None


def _fit(
    model: str,
    proposal: str | None,
    own: bool,
    data: Path,
    out: Path,
    objective: str,
    particles: int,
    asked: dict[str, dict[str, str]],
    validation: Path | None,
    holdout: float,
    columns: dict[str, Any],
    devices: int | None,
    tensorboard: bool,
    fixed: tuple[str, ...],
    settings: dict[str, Any],
    running: dict[str, Any],
) -> None:
    from rich.console import Console

    from mcfo.catalogue import load_own, make, make_own
    from mcfo.data.tables import read_series
    from mcfo.objectives.named import objective as named_objective
    from mcfo.proposals.base import Bootstrap, Proposal
    from mcfo.reports.run import write_run_report
    from mcfo.training.devices import use_every_core
    from mcfo.training.loop import fit as learn
    from mcfo.training.progress import Listener, ProgressBar, TensorBoard

    console = Console()
    use_every_core(devices)
    sequences = read_series(data, **columns).sequences
    held_out = None if validation is None else read_series(validation, **columns).sequences
    if holdout:
        sequences, held_out = _hold_out(sequences, holdout, validation)
    if own:
        start = make_own(model, sequences, proposal)
    else:
        start = make(model, sequences, asked["model"])
        if proposal is not None:
            made = load_own(proposal)
            made = made() if isinstance(made, type) else made
            if not isinstance(made, Proposal):
                raise InputError(
                    f"{proposal} is {made!r}, but a Proposal is wanted. Name a class derived from mcfo.Proposal."
                )
            start = start._replace(proposal=made)
    options = {name: as_value(value) for name, value in asked["objective"].items()}
    try:
        chosen = named_objective(objective, **({"particles": particles} if objective != "elbo" else {}), **options)
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from error
    if objective == "bootstrap" and proposal is None:
        start = start._replace(proposal=Bootstrap())
    other = proposal is not None or objective == "bootstrap"
    default = tuple(path for path in start.fixed if not other or path.startswith("model"))
    listener: Listener = ProgressBar(console)
    if tensorboard:
        listener = TensorBoard(out / "tensorboard", listener)
    console.print(
        f"{len(sequences)} series"
        + (f", {len(held_out)} held out" if held_out else "")
        + f"; {model} by {objective} with {particles} particles, {settings['steps']} steps. "
        "Compiling takes some seconds first."
    )
    try:
        fitted = learn(
            start.model,
            start.proposal,
            sequences,
            objective=chosen,
            validation=held_out,
            out=out,
            listener=listener,
            about={
                "command": shlex.join(["mcfo", *sys.argv[1:]]).replace(" --resume", ""),
                "model": {"name": Path(model).name if own else model, "options": asked["model"], "own": own},
                "proposal": {"name": Path(proposal).name, "own": True} if proposal else {},
                "data": str(data),
                "validation": None if validation is None else str(validation),
            },
            fixed=(*default, *(path for path in fixed if path not in default)),
            devices=devices,
            optimiser_options={name: as_value(value) for name, value in asked["optimiser"].items()},
            schedule_options={name: as_value(value) for name, value in asked["schedule"].items()},
            **running,
            **settings,
        )
    except (InputError, KeyboardInterrupt):
        raise
    except Exception as error:
        if own or proposal is not None:
            _blame(error, [name.rpartition(":")[0] for name in (model, proposal) if name and ":" in name])
        raise
    page = write_run_report(out)
    _show(console, fitted, out, data, own, model)
    console.print(f"Report: {page}")


def _hold_out(sequences: list[Any], share: float, validation: Path | None) -> tuple[list[Any], list[Any]]:
    if validation is not None:
        raise InputError("--holdout and --validation both name held-out series. Give one of them.")
    count = round(len(sequences) * share)
    if count < 1 or count >= len(sequences):
        raise InputError(
            f"--holdout {share} of {len(sequences)} series leaves none to learn from or none to hold out. Give more "
            "series, "
            "another share, or a file by --validation."
        )
    return sequences[:-count], sequences[-count:]


def _blame(error: Exception, files: list[str]) -> None:
    """Reports an exception that came out of the user's own file at its line."""
    wanted = {os.path.realpath(file) for file in files}
    frames = [
        frame for frame in traceback.extract_tb(error.__traceback__) if os.path.realpath(frame.filename) in wanted
    ]
    if frames:
        last = frames[-1]
        raise InputError(
            f"{last.filename}, line {last.lineno}, in {last.name}: {type(error).__name__}: "
            f"{str(error).strip().splitlines()[0] if str(error).strip() else ''} Correct the model."
        ) from error


def _show(console: Any, fitted: Any, out: Path, data: Path, own: bool, model: str) -> None:
    from mcfo.cli.evaluate import evaluation_table

    if fitted.skipped:
        total = fitted.steps * len(fitted.seeds)
        console.print(f"[yellow]{fitted.skipped} of {total} updates were not finite and were skipped.[/yellow]")
    if fitted.stopped == "early":
        console.print(f"Stopped early after {fitted.steps} steps: the validation NLL had ceased to fall.")
    console.print(
        evaluation_table([(one.seed, one.evaluation) for one in fitted.seeds], f"On the {fitted.evaluated_on}")
    )
    again = f" --model {model}" if own else ""
    console.print(f"Evaluate it: mcfo evaluate {out} --data {data}{again}", highlight=False)
