"""What `mcfo fit` does once it has learned: scores, checks, the report and the tables on the terminal."""

import shlex
from pathlib import Path
from typing import Any

from mcfo.cli.options import status


def score_last(fitted: Any, out: Path, table: Any, steps: int, options: dict[str, str]) -> None:
    """Scores the forecasts of the steps that were held out, one step ahead, and writes them into results.json."""
    import json

    from rich.console import Console

    from mcfo.cli.evaluate import NAIVE_NOTE, score_table, season_of
    from mcfo.files import read_json, write_atomically
    from mcfo.inference.rolling_evaluation import RollingEvaluation, evaluate_rolling

    results: dict[int, RollingEvaluation] = {}
    season = season_of(options, table)
    with status(f"Scoring forecasts of the last {steps} steps"):
        for one in fitted.seeds:
            results[one.seed] = evaluate_rolling(one.model, one.proposal, table.series_list, last=steps, season=season)
    console = Console()
    console.print(score_table(results, f"The last {steps} steps, which were held out, one step ahead"))
    console.print(NAIVE_NOTE, highlight=False)
    content = read_json(out / "results.json")
    content["holdout"] = {"steps": steps, "seeds": [{"seed": seed, **one.as_data()} for seed, one in results.items()]}
    write_atomically(out / "results.json", (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())


def check(fitted: Any, out: Path, series_list: list, table: Any, season: int | None) -> None:
    """Forecasts and simulated series for the report; what was learned stays whatever happens here."""
    from rich.console import Console

    from mcfo.cli.report import check_run, look_ahead

    console = Console()
    try:
        with status("Checking forecasts and simulated series"):
            check_run(out, fitted.model, fitted.proposal, series_list, table.columns, season)
        with status("Smoothing and forecasting the first series"):
            look_ahead(out, fitted.model, fitted.proposal, table)
    except (TypeError, ValueError) as error:
        console.print(f"The report has no checks: {error}", style="yellow", markup=False)


def add_uncertainty(fitted: Any, out: Path) -> None:
    """Adds standard errors by particles to results.json; exact ones are there already."""
    import json

    from mcfo.files import read_json, write_atomically

    if fitted.exact:
        return
    with status("Computing standard errors"):
        uncertainties = fitted.uncertainties
    content = read_json(out / "results.json")
    for seed, uncertainty in zip(content["seeds"], uncertainties, strict=True):
        if uncertainty is not None:
            seed["uncertainty"] = uncertainty.as_data()
    write_atomically(out / "results.json", (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())


def _convergence(seed: int, found: Any, steps: int) -> str:
    """How the search for the maximum ended, in a sentence."""
    reached = [value for value in found.log_likelihoods if value is not None]
    near = sum(value > max(reached) - 0.01 for value in reached)
    end = "converged" if found.converged else "did not converge"
    bounds = f" At a bound, zero: {', '.join(found.at_bounds)}." if found.at_bounds else ""
    return (
        f"Seed {seed}: exact maximum likelihood {end} after {steps} steps; {near} of {len(found.log_likelihoods)} "
        f"starts reached the maximum; the largest derivative there is {found.gradient_norm:.1e}.{bounds}"
    )


def show(fitted: Any, out: Path, data: Path, again: dict[str, str | None]) -> None:
    from rich.console import Console

    from mcfo.cli.evaluate import evaluation_table
    from mcfo.cli.report import parameter_table
    from mcfo.data.run_record import read_run
    from mcfo.reports.parameters import uncertainty_notes
    from mcfo.reports.run_page import write_run_report

    console = Console()
    if fitted.skipped:
        total = fitted.steps * len(fitted.seeds)
        console.print(f"[yellow]{fitted.skipped} of {total} updates were not finite and were skipped.[/yellow]")
    for warning in fitted.warnings:
        console.print(warning, style="yellow", highlight=False, markup=False)
    for one in fitted.seeds:
        if one.convergence is not None:
            console.print(_convergence(one.seed, one.convergence, fitted.steps), highlight=False, markup=False)
    if (reason := fitted.reason) is not None:
        console.print(reason, highlight=False, soft_wrap=True)
    if (table := parameter_table(out)) is not None:
        console.print(table)
    for note in uncertainty_notes(read_run(out, metrics=False)):
        console.print(note, style="yellow", highlight=False, markup=False)
    results = [(one.seed, one.evaluation) for one in fitted.seeds]
    console.print(evaluation_table(results, f"On the {fitted.evaluated_on}"))
    with status("Writing the report"):
        page = write_run_report(out)
    console.print(f"Report: {page}", highlight=False, soft_wrap=True, markup=False)
    words = [word for name, value in again.items() if value is not None for word in (name, value)]
    command = shlex.join(["mcfo", "evaluate", str(out), "--data", str(data), *words])
    console.print(f"Evaluate it: {command}", highlight=False, soft_wrap=True, markup=False)
