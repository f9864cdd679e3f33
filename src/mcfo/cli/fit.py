"""`mcfo fit`: learn a model from a file."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from mcfo.cli.choices import described, make_objective, make_start, read_data, usual_rates, usual_rules
from mcfo.cli.common import (
    Columns,
    Data,
    Seed,
    SeriesColumn,
    TimeColumn,
    exists,
    fail,
    messages,
    read_options,
    read_values,
)


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
        str, typer.Option(help="What is maximized: mcfo, nasmc, aesmc, fivo, vsmc, iwae, elbo, rws, bootstrap, ...")
    ] = "mcfo",
    particles: Annotated[int, typer.Option(help="Particles of the filter that learns.", min=1)] = 100,
    steps: Annotated[int, typer.Option(help="Updates of the parameters.", min=1)] = 2000,
    batch: Annotated[int, typer.Option(help="Series in each update.", min=1)] = 10,
    seed: Seed = 0,
    seeds: Annotated[int, typer.Option(help="Runs side by side, with seeds from --seed on.", min=1, max=1000)] = 1,
    learning_rate: Annotated[float, typer.Option(help="Learning rate of the optimizer.")] = 0.01,
    optimizer: Annotated[str, typer.Option(help="An optimizer of optax, by name.")] = "adam",
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
    optimizer_option: Annotated[list[str] | None, typer.Option(help="An option of the optimizer, name=value.")] = None,
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
        "optimizer": read_values(optimizer_option or [], "--optimizer-option"),
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
        "optimizer": optimizer,
        "optimizer_options": asked["optimizer"],
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
            table, held_out = read_data(data, validation, holdout, columns_asked, irregular, None if own else model)
            series_list = table.series_list
            gaps = table.unit is not None
            chosen = make_objective(objective, particles, usual_rules(model, own, window), asked["objective"])
            start = make_start(model, proposal, own, asked["model"], series_list, gaps, bootstrap=chosen.prior_proposal)
            fitted = _learn(
                start,
                series_list,
                held_out,
                chosen,
                out=out,
                tensorboard=tensorboard,
                about={
                    "command": shlex.join(["mcfo", *sys.argv[1:]]).replace(" --resume", ""),
                    "model": described(model, own) | {"options": asked["model"] | start.chosen},
                    "proposal": described(proposal, True) if proposal else {},
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
                rates=rates or usual_rates(model, own),
                **settings,
            )
            if checks:
                _check(fitted, out, held_out or series_list, table.columns)
            _show(fitted, out, data, {"--model": model if own else None, "--proposal": proposal})
    except KeyboardInterrupt:
        print(f"\nmcfo: Interrupted. Go on with the same command and --resume; the run is in {out}.", file=sys.stderr)
        raise typer.Exit(130) from None


def _use_devices(devices: int | None) -> None:
    from mcfo.learning.devices import use_every_core

    use_every_core(devices)


def _learn(
    start: Any,
    series_list: list,
    held_out: list | None,
    objective: Any,
    *,
    out: Path,
    tensorboard: bool,
    **options: Any,
) -> Any:
    """Learns with a progress bar."""
    from rich.console import Console

    from mcfo.learning.fit import fit as learn
    from mcfo.learning.progress import Listener, ProgressBar, TensorBoard

    console = Console()
    listener: Listener = ProgressBar(console)
    if tensorboard:
        listener = TensorBoard(out / "tensorboard", listener)
    others = f", {len(held_out)} held out" if held_out else ""
    console.print(f"{len(series_list)} series{others}, {options['steps']} steps. Compiling takes some seconds first.")
    return learn(
        start.model,
        start.proposal,
        series_list,
        objective=objective,
        validation=held_out,
        out=out,
        listener=listener,
        **options,
    )


def _check(fitted: Any, out: Path, series_list: list, columns: list[str]) -> None:
    """Residuals and simulated series for the report; what was learned stays whatever happens here."""
    from rich.console import Console

    from mcfo.cli.report import keep_checks

    console = Console()
    try:
        with console.status("Checking: residuals and simulated series"):
            keep_checks(out, fitted.model, fitted.proposal, series_list, columns)
    except (TypeError, ValueError) as error:
        console.print(f"The report goes without checks: {error}", style="yellow", markup=False)


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
