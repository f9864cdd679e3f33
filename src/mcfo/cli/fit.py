"""`mcfo fit`: learn a model from a file."""

import hashlib
import inspect
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from mcfo.cli.common import (
    Columns,
    Data,
    Seed,
    SeriesColumn,
    TimeColumn,
    as_value,
    exists,
    fail,
    messages,
    read_options,
    read_values,
)
from mcfo.cli.programs import programs_folder
from mcfo.files import InputError


def fit(
    model: Annotated[
        str,
        typer.Argument(
            help="A model of the catalogue (mcfo models lists them: local-level, stochastic-volatility, "
            "poisson-counts, deep, ...), or your own: path/to/file.py:Name.",
            metavar="MODEL",
        ),
    ],
    data: Data,
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
    rates: Annotated[
        str | None,
        typer.Option(
            help="equal: one rate for all. by-width: less the more inputs a layer has.",
            show_default="by-width for deep, else equal",
        ),
    ] = None,
    clip: Annotated[float | None, typer.Option(help="Largest global norm of a gradient.")] = None,
    model_option: Annotated[
        list[str] | None, typer.Option("--set", help="An option of the model, name=value; several times.")
    ] = None,
    objective_option: Annotated[
        list[str] | None, typer.Option(help="An option of the objective, name=value: theta=fisher, sweeps=5.")
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
    columns: Columns = None,
    series: SeriesColumn = None,
    time: TimeColumn = None,
    inputs: Annotated[
        str | None, typer.Option(help="Columns that drive the model and are not explained by it, by commas.")
    ] = None,
    irregular: Annotated[
        str,
        typer.Option(
            help="What uneven times mean. inputs: the model reads the time since the row before. rows: each row is one "
            "step. auto: inputs where times are uneven and the model can read them."
        ),
    ] = "auto",
    window: Annotated[
        int | None, typer.Option(help="Steps that a gradient goes back at most; all, unless given.", min=1)
    ] = None,
    buckets: Annotated[
        int | None, typer.Option(help="Groups of similar lengths, at most; by default up to 4 where they pay.", min=1)
    ] = None,
    devices: Annotated[
        int | None, typer.Option(help="Devices that share a batch; by default one for each core.", min=1)
    ] = None,
    checkpoint_seconds: Annotated[
        float, typer.Option(help="How long a run goes on without a checkpoint.", min=0.0)
    ] = 10.0,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write event files for TensorBoard.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in the folder.")] = False,
    checks: Annotated[
        bool, typer.Option("--checks/--no-checks", help="Residuals and simulated series in the report.")
    ] = True,
) -> None:
    """Learn a model and its proposal from the series in a file."""
    if exists(out) and not resume and (not out.is_dir() or any(out.iterdir())):
        fail(f"{out} exists already. Choose another folder with --out, or go on with the run in it by --resume.")
    own = model.rpartition(":")[0].endswith(".py")
    if model.endswith(".py"):
        fail(f"{model} is a file. Say which model in it: {model}:Name.")
    asked: dict[str, dict[str, Any]] = {
        "model": read_options(model_option or [], "--set"),
        "objective": read_options(objective_option or [], "--objective-option"),
        "optimiser": read_values(optimiser_option or [], "--optimiser-option"),
        "schedule": read_values(schedule_option or [], "--schedule-option"),
    }
    if own and asked["model"]:
        fail(f"--set is for models of the catalogue, but {model} is your own. Give its class defaults instead.")
    columns_asked = {
        "values": columns.split(",") if columns else None,
        "series": series,
        "time": time,
        "inputs": inputs.split(",") if inputs else None,
    }
    settings = {
        "steps": steps,
        "batch": batch,
        "seeds": tuple(range(seed, seed + seeds)),
        "learning_rate": learning_rate,
        "optimiser": optimiser,
        "optimiser_options": asked["optimiser"],
        "schedule": schedule,
        "schedule_options": asked["schedule"],
        "clip": clip,
        "evaluate_every": evaluate_every,
        "evaluation_particles": evaluation_particles,
        "patience": patience,
        "log_every": log_every,
        "devices": devices,
        "window": window,
        "buckets": buckets,
    }
    try:
        with messages():
            _use_devices(devices)
            table, held_out = _read(data, validation, holdout, columns_asked, irregular, None if own else model)
            sequences = table.sequences
            gaps = table.unit is not None
            start = _start(model, proposal, own, asked["model"], sequences, gaps, bootstrap=objective == "bootstrap")
            fitted = _learn(
                start,
                sequences,
                held_out,
                _objective(objective, particles, _rules(model, own, window), asked["objective"]),
                out=out,
                tensorboard=tensorboard,
                about={
                    "command": shlex.join(["mcfo", *sys.argv[1:]]).replace(" --resume", ""),
                    "model": _about(model, own) | {"options": asked["model"] | start.chosen},
                    "proposal": _about(proposal, True) if proposal else {},
                    "data": str(data),
                    "columns": None if data.suffix.lower() == ".npz" else table.columns,
                    "series_column": series,
                    "time_column": time,
                    "inputs": table.inputs or ([] if gaps else None),
                    "unit": table.unit,
                    "image": None if table.image is None else list(table.image),
                    "validation": None if validation is None else str(validation),
                },
                fixed=(*start.fixed, *(path for path in fix or () if path not in start.fixed)),
                resume=resume,
                checkpoint_seconds=checkpoint_seconds,
                rates=rates or _rates(model, own),
                **settings,
            )
            if checks:
                _check(fitted, out, held_out or sequences, table.columns)
            _show(fitted, out, data, {"--model": model if own else None, "--proposal": proposal})
    except KeyboardInterrupt:
        print(f"\nmcfo: Interrupted. Go on with the same command and --resume; the run is in {out}.", file=sys.stderr)
        raise typer.Exit(130) from None


def _use_devices(devices: int | None) -> None:
    from mcfo.training.devices import use_every_core

    use_every_core(devices)


def _read(
    data: Path,
    validation: Path | None,
    holdout: float,
    columns: dict[str, Any],
    irregular: str,
    model: str | None,
) -> tuple[Any, list | None]:
    """The series to learn from, as a table, and those that are held out; `model` is one of the catalogue."""
    from mcfo.catalogue.entries import entry
    from mcfo.data.columns import Usual
    from mcfo.data.tables import read_series
    from mcfo.training.reading import timed

    able = model is not None and entry(model).gaps
    table, note = timed(read_series(data, **columns), irregular, model or "a model of your own", able=able)
    if note:
        print(note)
    sequences = table.sequences
    if validation is not None:
        if holdout:
            raise InputError("--holdout and --validation both name held-out series. Give one of them.")
        held_out = read_series(validation, **columns, usual=Usual(table.columns))
        return table, (held_out if table.unit is None else held_out.with_gaps(table.unit)).sequences
    if not holdout:
        return table, None
    count = round(len(sequences) * holdout)
    if count < 1 or count >= len(sequences):
        raise InputError(
            f"--holdout {holdout} of {len(sequences)} series leaves none to learn from or none to hold out. Give more "
            "series, another share, or a file by --validation."
        )
    return table._replace(sequences=sequences[:-count]), sequences[-count:]


def _start(
    model: str,
    proposal: str | None,
    own: bool,
    options: dict[str, str],
    sequences: list,
    gaps: bool,
    *,
    bootstrap: bool,
) -> Any:
    """Model, proposal and what is fixed by default."""
    from mcfo.catalogue.entries import make
    from mcfo.catalogue.start import require_steps
    from mcfo.own_code import make_own, make_own_proposal
    from mcfo.proposals.base import Bootstrap

    require_steps(sequences)
    start = make_own(model, sequences, proposal) if own else make(model, sequences, options, gaps=gaps)
    if not own and proposal is not None:
        start = start._replace(proposal=make_own_proposal(proposal, sequences))
    elif bootstrap and proposal is None:
        start = start._replace(proposal=Bootstrap())
    elif proposal is None:
        return start
    return start._replace(fixed=tuple(path for path in start.fixed if path.startswith("model")))


def _rules(model: str, own: bool, window: int | None) -> dict[str, str]:
    """By which gradients a model is learned, unless one says otherwise."""
    from mcfo.catalogue.entries import LIKELIHOOD, entry

    rules = LIKELIHOOD if own else entry(model).rules
    # A rule over whole paths cannot be cut into windows.
    return {side: rule for side, rule in rules.items() if side == "phi" or window is None}


def _rates(model: str, own: bool) -> str:
    """Which rates a model is learned with, unless one says otherwise."""
    from mcfo.catalogue.entries import entry

    return "equal" if own else entry(model).rates


def _objective(name: str, particles: int, rules: dict[str, str], options: dict[str, str]) -> Any:
    """The objective of this name; `rules` as far as it leaves the choice and `options` do not choose."""
    from mcfo.objectives.named import OBJECTIVES, objective

    known: dict[str, Any] = {"particles": particles} if name != "elbo" else {}
    if name in OBJECTIVES:
        takes = inspect.signature(OBJECTIVES[name]).parameters
        known |= {side: rule for side, rule in rules.items() if side in takes}
    try:
        return objective(name, **known | {option: as_value(value) for option, value in options.items()})
    except (TypeError, ValueError) as error:
        raise InputError(str(error)) from error


def _learn(
    start: Any,
    sequences: list,
    held_out: list | None,
    objective: Any,
    *,
    out: Path,
    tensorboard: bool,
    **options: Any,
) -> Any:
    """Learns with a progress bar."""
    from rich.console import Console

    from mcfo.training.loop import fit as learn
    from mcfo.training.progress import Listener, ProgressBar, TensorBoard
    from mcfo.training.traced import keeping_traced

    console = Console()
    listener: Listener = ProgressBar(console)
    if tensorboard:
        listener = TensorBoard(out / "tensorboard", listener)
    others = f", {len(held_out)} held out" if held_out else ""
    console.print(f"{len(sequences)} series{others}, {options['steps']} steps. Compiling takes some seconds first.")
    with keeping_traced(programs_folder()):
        return learn(
            start.model,
            start.proposal,
            sequences,
            objective=objective,
            validation=held_out,
            out=out,
            listener=listener,
            **options,
        )


def _check(fitted: Any, out: Path, sequences: list, columns: list[str]) -> None:
    """Residuals and simulated series for the report; what was learned stays whatever happens here."""
    from rich.console import Console

    from mcfo.cli.report import keep_checks

    console = Console()
    try:
        with console.status("Checking: residuals and simulated series"):
            keep_checks(out, fitted.model, fitted.proposal, sequences, columns)
    except (TypeError, ValueError) as error:
        console.print(f"The report goes without checks: {error}", style="yellow", markup=False)


def _about(reference: str, own: bool) -> dict[str, Any]:
    """What config.json says of a model or a proposal; of one's own, a hash of the code too."""
    if not own:
        return {"name": reference, "own": False}
    file, _, name = reference.rpartition(":")
    code = hashlib.sha256(Path(file).read_bytes()).hexdigest()
    return {"name": f"{Path(file).name}:{name}", "own": True, "sha256": code}


def _show(fitted: Any, out: Path, data: Path, again: dict[str, str | None]) -> None:
    from rich.console import Console

    from mcfo.cli.evaluate import evaluation_table
    from mcfo.reports.run import write_run_report

    console = Console()
    if fitted.skipped:
        total = fitted.steps * len(fitted.seeds)
        console.print(f"[yellow]{fitted.skipped} of {total} updates were not finite and were skipped.[/yellow]")
    if fitted.stopped == "early":
        console.print(f"Stopped early after {fitted.steps} steps: the validation NLL had ceased to fall.")
    found = [(one.seed, one.evaluation) for one in fitted.seeds]
    console.print(evaluation_table(found, f"On the {fitted.evaluated_on}"))
    console.print(f"Report: {write_run_report(out)}", highlight=False, soft_wrap=True, markup=False)
    words = [word for name, value in again.items() if value is not None for word in (name, value)]
    command = shlex.join(["mcfo", "evaluate", str(out), "--data", str(data), *words])
    console.print(f"Evaluate it: {command}", highlight=False, soft_wrap=True, markup=False)
