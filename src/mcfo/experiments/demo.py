"""The demonstration behind `mcfo demo`: two objectives learn the paper's linear Gaussian model, beside the truth."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console

from mcfo.data.tables import write_series
from mcfo.experiments.lgssm_problem import EMISSION_VARIANCE, FIXED, TRUTH, build_problem, parameters
from mcfo.experiments.outcomes import Outcome
from mcfo.experiments.runs import Runs, learned, seed_lines
from mcfo.experiments.study import TextTable
from mcfo.inference.evaluation import Evaluation, evaluate, exact_nll_per_step
from mcfo.learning.progress import ProgressBar
from mcfo.objectives.named import aesmc, mcfo
from mcfo.proposals.gaussian import AffineGaussian
from mcfo.reports.figures import Chart, draw_charts
from mcfo.reports.html import Report
from mcfo.series import Series

_SEEDS = 3
_SHOWN = ("theta_1", "theta_2", "phi_3", "phi_4")
_WRITTEN = 40
"""Series that go into the file for the first run of one's own."""


def run(out: Path, *, steps: int, particles: int, seed: int) -> Path:
    """Runs the demonstration, prints a table and returns the report's path."""
    console = Console()
    started = time.perf_counter()
    problem = build_problem(series=2000, test_series=400, watched=200, steps=10, seed=seed)
    console.print(
        f"Data: 2000 series of 10 steps, made by z_t = {TRUTH[0]} z_t-1 + N(0, 1), x_t = {TRUTH[1]} z_t + "
        f"N(0, {EMISSION_VARIANCE}).\nTwo objectives learn both numbers and a proposal from x alone, {particles} "
        f"particles, {_SEEDS} seeds each (about a minute, a third of it compiling).",
        highlight=False,
    )

    def evaluated(model: Any, proposal: Any) -> Evaluation:
        return evaluate(model, proposal, problem.test, particles=particles, key=jax.random.key(seed))

    def numbers(one: Any, fitted: Any) -> tuple[dict[str, Any], None]:
        tested = evaluated(one.model, one.proposal)
        found = {"exact_nll_per_step": tested.exact_nll_per_step, "ess": tested.ess}
        return {**parameters(one.model, one.proposal), **found}, None

    def watch(model: Any, proposal: Any) -> dict[str, Any]:
        return {**parameters(model, proposal), "exact_nll_per_step": exact_nll_per_step(model, problem.test)}

    runs = Runs()
    for name, objective in {"mcfo": mcfo(particles, phi="dreg"), "aesmc": aesmc(particles)}.items():
        bar = ProgressBar(console, f"{name:>5} learns", each_evaluation=False)
        runs += learned(
            ("", name, particles), None, bar, problem.model, problem.proposal, problem.train, numbers=numbers,
            objective=objective, validation=problem.watched, watch=watch, steps=steps,
            seeds=tuple(range(seed, seed + _SEEDS)), fixed=FIXED, evaluate_every=50, select="average",
        )  # fmt: skip
    exact = evaluated(problem.truth, AffineGaussian.optimal(problem.truth))
    table = _table(runs, problem.optimum, exact)
    console.print(table.for_terminal(table.header))
    (out / "figures").mkdir(exist_ok=True)
    charts = []
    for name in _SHOWN:
        best = {"exact": problem.optimum[name]}
        charts.append(Chart(rf"$\{name}$", seed_lines(runs, name), levels=best, formula=True))
    for metric, text, target in (
        ("exact_nll_per_step", "NLL per step on unseen series", exact.exact_nll_per_step),
        ("validation_ess", f"effective sample size of {exact.particles}", exact.ess),
    ):
        charts.append(Chart(text, seed_lines(runs, metric), levels={"exact": float(target or np.nan)}))
    caption = (
        "Parameters, likelihood and effective sample size while learning: both objectives approach the exact optimum. "
        "Mean and range over seeds. Dashed: exact."
    )
    figure = draw_charts(out / "figures" / "learning.png", charts, caption, columns=3)
    series = out / "series.csv"
    values = np.asarray(problem.train.observations[:_WRITTEN])
    write_series(series, [Series.from_values(one, series_id=number) for number, one in enumerate(values)], ["x"])
    elapsed = time.perf_counter() - started
    # Where the environment is not active, the program is typed with its path.
    program = "mcfo" if shutil.which("mcfo") else os.path.relpath(sys.argv[0])
    next_command = shlex.join([program, "fit", "linear-gaussian", "--data", str(series), "--out", str(out / "fit")])
    page = Report(
        "Learning a linear Gaussian model",
        summary="MCFO (with doubly reparameterized proposal gradients) and AESMC learn the paper's linear Gaussian "
        "model and its proposal from 2000 short series. All is known exactly here, so what they learn can be compared "
        f"with the optimum and with the Kalman filter. It took {elapsed:.0f} seconds.",
        command=f"mcfo demo --steps {steps} --particles {particles} --seed {seed}",
    )
    if skipped := sum(one.skipped for one in runs):
        page.warning(f"{skipped} updates were not finite and were skipped.")
    page.table(*table)
    page.figure(*figure)
    page.heading("Your own series")
    page.text("series.csv holds some of the series. The same command works with any CSV file:")
    page.code(next_command)
    report = out / "report.html"
    page.write(report)
    console.print(f"Report: {report}   ({elapsed:.0f} s)", highlight=False, soft_wrap=True, markup=False)
    console.print(
        "Now yours. A CSV file with a header will do, one row a step, empty cells where nothing was measured:"
    )
    console.print(f"  {next_command}", highlight=False, soft_wrap=True, markup=False)
    return report


def _table(runs: Runs, optimum: dict[str, float], exact: Evaluation) -> TextTable:
    rows = []
    for method in dict.fromkeys(run.method for run in runs):
        group = [run.numbers for run in runs if run.method == method]
        found = {metric: Outcome.of_seeds(numbers[metric] for numbers in group) for metric in group[0]}
        shown = [found[metric].text(3) for metric in _SHOWN]
        rows.append([method, *shown, f"{found['exact_nll_per_step'].mean:.4f}", f"{found['ess'].mean:.1f}"])
    best = [f"{optimum[name]:.3f}" for name in _SHOWN]
    rows.append(["exact", *best, f"{exact.exact_nll_per_step:.4f}", f"{exact.ess:.1f}"])
    return TextTable(
        ["objective", *_SHOWN, "NLL/step", "ESS"],
        rows,
        "Parameters averaged over the last tenth of the steps, mean and spread over the seeds. NLL/step: of the "
        "learned model on 400 series that it has not seen, by the Kalman filter. ESS: effective sample size of the "
        "learned proposal. exact: the model that made the data, and its optimal proposal.",
    )
