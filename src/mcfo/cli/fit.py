"""`mcfo fit`: learn a model from the series in a file."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from mcfo import interrupts
from mcfo.cli import options as opt
from mcfo.cli.fit_each import learn_each, refuse
from mcfo.cli.fit_results import add_uncertainty, check, score_last, show
from mcfo.cli.fit_setup import defaults, described, initial, read_data, with_suggestions, without_last
from mcfo.cli.options import exists, fail, messages, read_options, read_values, status, table_columns
from mcfo.cli.posterior import Priors


def fit(
    model: Annotated[
        str,
        typer.Argument(
            help="A model of the catalogue (mcfo models lists them: local-level, structural, "
            "stochastic-volatility, poisson-counts, deep, ...), or your own: path/to/file.py:Name.",
            metavar="MODEL",
        ),
    ],
    data: opt.Data,
    out: Annotated[Path, opt.main("Folder for the run; it must not exist yet.")],
    steps: Annotated[
        int, opt.main("Most updates of the parameters; a fit ends sooner where nothing improves.", min=1)
    ] = 2000,
    particles: Annotated[
        int | None,
        opt.main(
            "Learn by a filter with this many particles; by default 100 where the likelihood is not known.", min=1
        ),
    ] = None,
    model_option: Annotated[
        list[str] | None, opt.main("An option of the model, name=value; repeat it for several.", "--set")
    ] = None,
    holdout: Annotated[
        float, opt.data("Share of the series, the last ones, that is held out.", min=0.0, max=0.9)
    ] = 0.0,
    holdout_steps: Annotated[
        int, opt.main("Number of last steps of every series that are not learned from, but scored at the end.", min=0)
    ] = 0,
    seed: opt.Seed = 0,
    seeds: Annotated[int, opt.main("Number of runs side by side, with seeds from --seed.", min=1, max=1000)] = 1,
    resume: Annotated[bool, opt.main("Resume the run in the folder.", "--resume")] = False,
    each: Annotated[
        bool, opt.main("Learn parameters of its own for each series, many side by side.", "--each")
    ] = False,
    columns: opt.Columns = None,
    series: opt.SeriesColumn = None,
    time: opt.TimeColumn = None,
    inputs: opt.InputColumns = None,
    calendar: Annotated[
        str | None,
        opt.data(
            "Inputs made from the dates, separated by commas: month, weekday, and files of holidays, one date a line."
        ),
    ] = None,
    irregular: Annotated[
        str,
        opt.data(
            "What uneven times mean. inputs: the model reads the time since the row before. rows: each row is one "
            "step. auto: inputs where times are uneven and the model can read them."
        ),
    ] = "auto",
    validation: Annotated[
        Path | None, opt.data("A file of held-out series, by which the best parameters are chosen.")
    ] = None,
    proposal: Annotated[
        str | None, opt.model("Your own proposal, path/to/file.py:Name; by default that of the model.")
    ] = None,
    fix: Annotated[
        list[str] | None, opt.model("A parameter that is not learned, model.transition_matrix; repeat it for several.")
    ] = None,
    prior: Priors = None,
    objective: Annotated[
        str | None,
        opt.objective(
            "What is maximized: exact (the likelihood itself, the default where it is known), or by particles mcfo "
            "(the default elsewhere), nasmc, aesmc, fivo, vsmc, iwae, elbo, rws, bootstrap, ...",
            show_default=False,
        ),
    ] = None,
    objective_option: Annotated[
        list[str] | None, opt.objective("An option of the objective, name=value: sweeps=5, proposal_particles=10.")
    ] = None,
    theta: Annotated[
        str | None,
        opt.objective(
            "The gradient rule for the model: fisher, filter-score, ..., or your own: path/to/file.py:Name.",
            show_default="that of the objective",
        ),
    ] = None,
    phi: Annotated[
        str | None,
        opt.objective(
            "The gradient rule for the proposal: dreg, reparameterized, ..., or your own: path/to/file.py:Name.",
            show_default="that of the objective",
        ),
    ] = None,
    window: Annotated[
        int | None, opt.objective("Number of steps that a gradient goes back; by default all.", min=1)
    ] = None,
    batch: Annotated[int, opt.optimization("Series in each update.", min=1)] = 10,
    learning_rate: Annotated[float, opt.optimization("Learning rate of the optimizer.")] = 0.01,
    optimizer: Annotated[str, opt.optimization("An optimizer of optax, by name.")] = "adam",
    optimizer_option: Annotated[list[str] | None, opt.optimization("An option of the optimizer, name=value.")] = None,
    schedule: Annotated[
        str, opt.optimization("The schedule of the rate: constant, cosine, exponential, linear, warmup-cosine.")
    ] = "constant",
    schedule_option: Annotated[list[str] | None, opt.optimization("An option of the schedule, name=value.")] = None,
    rates: Annotated[
        str | None,
        opt.optimization(
            "equal: one rate for all. by-width: the more inputs a layer has, the lower.",
            show_default="by-width for deep, else equal",
        ),
    ] = None,
    clip: Annotated[float | None, opt.optimization("Largest global norm of a gradient; by default none.")] = None,
    evaluate_every: Annotated[int | None, opt.optimization("Updates between evaluations.", min=1)] = None,
    evaluation_particles: Annotated[int | None, opt.optimization("Particles of the evaluations.", min=1)] = None,
    tolerance: Annotated[
        float,
        opt.optimization(
            "Stop when twice as many updates gain less than this many nats of log-likelihood; 0 makes all updates.",
            min=0.0,
        ),
    ] = 0.1,
    patience: Annotated[int | None, opt.optimization("Stop after this many evaluations without gain.", min=1)] = None,
    buckets: Annotated[
        int | None,
        opt.optimization("Most groups of series of similar length; by default up to 4 where they pay.", min=1),
    ] = None,
    devices: Annotated[
        int | None, opt.optimization("Devices that share a batch; by default one for each core.", min=1)
    ] = None,
    log_every: Annotated[int, opt.output("Updates in one line of the metrics.", min=1)] = 10,
    checkpoint_seconds: Annotated[float, opt.output("Seconds between checkpoints.", min=0.0)] = 10.0,
    chunk: Annotated[int, opt.output("Series between two savings, with --each.", min=1)] = 2000,
    tensorboard: Annotated[bool, opt.output("Write event files for TensorBoard.", "--tensorboard")] = False,
    checks: Annotated[
        bool, opt.output("Check forecasts and simulated series for the report.", "--checks/--no-checks")
    ] = True,
) -> None:
    """Learn a model and its proposal from the series in a file."""
    if exists(out) and not resume and (not out.is_dir() or any(out.iterdir())):
        fail(f"{out} exists already. Choose another folder with --out, or resume the run in it with --resume.")
    own = model.rpartition(":")[0].endswith(".py")
    if model.endswith(".py"):
        fail(f"{model} is a file. Say which model in it: {model}:Name.")
    model_options = read_options(model_option, "--set")
    objective_options = read_values(objective_option, "--objective-option")
    for side, rule in {"theta": theta, "phi": phi}.items():
        if rule is not None and side in objective_options:
            fail(f"--{side} and --objective-option {side}=... both name a rule. Give one of them.")
        objective_options |= {} if rule is None else {side: rule}
    if own and model_options:
        fail(f"--set is for models of the catalogue, but {model} is your own. Give its class defaults instead.")
    settings = {
        "steps": steps,
        "batch": batch,
        "seeds": tuple(range(seed, seed + seeds)),
        "learning_rate": learning_rate,
        "optimizer": optimizer,
        "optimizer_options": read_values(optimizer_option, "--optimizer-option"),
        "schedule": schedule,
        "schedule_options": read_values(schedule_option, "--schedule-option"),
        "clip": clip,
        "evaluate_every": evaluate_every,
        "evaluation_particles": evaluation_particles,
        "patience": patience,
        "tolerance": tolerance,
        "log_every": log_every,
        "devices": devices,
        "window": window,
        "buckets": buckets,
        "priors": read_options(prior, "--prior"),
    }
    command = shlex.join(["mcfo", *sys.argv[1:]]).replace(" --resume", "")
    if each:
        refuse(
            {
                "--holdout": holdout,
                "--holdout-steps": holdout_steps,
                "--validation": validation,
                "--calendar": calendar,
                "--irregular inputs": irregular == "inputs",
                "--seeds": seeds > 1,
                "--patience": patience,
                "--evaluate-every": evaluate_every,
                "--buckets": buckets,
                "--tensorboard": tensorboard,
            }
        )
    with messages():
        from mcfo.catalogue.user_code import is_own
        from mcfo.cli.evaluate import season_of
        from mcfo.learning.devices import use_every_core

        use_every_core(devices)
        asked = table_columns(columns, series, time, inputs=inputs)
        rules, usual_rates = defaults(model, own)
        again = shlex.join(["mcfo", *sys.argv[1:], *([] if resume else ["--resume"])])
        if each:
            interrupts.set_outcome(f"What was learned is in {out}; resume with: {again}")
            learn_each(
                model,
                data,
                own=own,
                proposal=proposal,
                options=model_options,
                asked=(objective, particles, rules, objective_options),
                columns=asked,
                out=out,
                chunk=chunk,
                resume=resume,
                settings={**settings, "fixed": tuple(fix or ()), "rates": rates or usual_rates},
                about={"command": command, "data": str(data), "series_column": series, "time_column": time}
                | {"proposal": described(proposal, True) if proposal else {}},
            )
            return
        with status(f"Reading {data}"):
            whole, held_out = read_data(data, validation, holdout, asked, irregular, calendar, None if own else model)
        table = without_last(whole, holdout_steps)
        model_options = with_suggestions(model, model_options, table)
        gaps = table.unit is not None
        # A rule over whole paths cannot be cut into windows.
        rules = {side: rule for side, rule in rules.items() if side == "phi" or window is None}
        with status("Preparing the model"):
            start, chosen = initial(
                model, proposal, own, model_options, table, (objective, particles, rules, objective_options)
            )
        interrupts.set_outcome(f"What was learned is in {out}; resume with: {again}")
        fitted = _learn(
            start,
            table.series_list,
            held_out,
            chosen,
            out=out,
            tensorboard=tensorboard,
            about={
                "command": command,
                "model": described(model, own) | {"options": model_options | start.chosen},
                "proposal": described(proposal, True) if proposal else {},
                "rules": {side: described(rule, True) for side, rule in objective_options.items() if is_own(rule)},
                "data": str(data),
                "columns": None if data.suffix.lower() == ".npz" else table.columns,
                "series_column": series,
                "time_column": time,
                "inputs": table.inputs or ([] if gaps or table.calendar else None),
                "unit": table.unit,
                "calendar": None if table.calendar is None else table.calendar.as_data(),
                "irregular": "rows" if irregular == "rows" else None,
                "holdout_steps": holdout_steps or None,
                "image": None if table.image is None else list(table.image),
                "validation": None if validation is None else str(validation),
            },
            fixed=(*start.fixed, *(path for path in fix or () if path not in start.fixed)),
            resume=resume,
            checkpoint_seconds=checkpoint_seconds,
            rates=rates or usual_rates,
            **settings,
        )
        interrupts.set_outcome(f"What was learned is complete; see it with: {shlex.join(['mcfo', 'report', str(out)])}")
        if holdout_steps:
            score_last(fitted, out, whole, holdout_steps, model_options)
        if checks:
            check(fitted, out, held_out or table.series_list, table, season_of(model_options, whole))
            add_uncertainty(fitted, out)
        show(fitted, out, data, {"--model": model if own else None, "--proposal": proposal})


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
    how = f"at most {options['steps']} updates" if objective is not None else "the exact likelihood is maximized"
    console.print(f"{len(series_list)} series{others}, {how}. Compiling takes some seconds first.")
    data = {"objective": objective or "exact", "validation": held_out, "out": out, "listener": listener}
    return learn(start.model, start.proposal, series_list, **data, **options)
