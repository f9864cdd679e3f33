"""The demonstration behind `mcfo demo`: two objectives learn the paper's linear Gaussian model, beside the truth."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from mcfo.data.tables import write_series
from mcfo.experiments.lgssm import Lgssm, LgssmOutcomes
from mcfo.experiments.lgssm_problem import EMISSION_VARIANCE, TRUTH, Preset
from mcfo.experiments.runs import METHODS
from mcfo.learning.progress import ProgressBar
from mcfo.reports.figures import draw_charts
from mcfo.reports.html import Report
from mcfo.series import Series

_SHOWN = ("theta_1", "theta_2", "phi_3", "phi_4")
_WRITTEN = 40
"""Series that go into the file for the first run of one's own."""


def run(out: Path, *, steps: int, particles: int, seed: int) -> Path:
    """Runs the demonstration, prints a table and returns the report's path."""
    console = Console()
    started = time.perf_counter()
    data: Any = {"series": 2000, "test_series": 400, "watched": 200}
    size = Preset((particles,), evaluation_particles=particles, steps=steps, **data)
    study = Lgssm(size, seed)
    problem = study.prepare()
    console.print(
        f"Data: {size.series} series of {size.length} steps, made by z_t = {TRUTH[0]} z_t-1 + N(0, 1), x_t = "
        f"{TRUTH[1]} z_t + N(0, {EMISSION_VARIANCE}).\nTwo objectives learn both numbers and a proposal from x alone, "
        f"{particles} particles, {len(size.seeds)} seeds each (about a minute, a third of it compiling).",
        highlight=False,
    )
    results = {}
    for name in ("mcfo-dreg", "aesmc"):
        bar = ProgressBar(console, f"{name:>9} learns", each_evaluation=False)
        # All cores share a batch: one run after another.
        results[name] = study.job(problem, name, METHODS[name](particles), devices=None).work(None, bar)
    outcomes = LgssmOutcomes(study.size, problem, results)
    (table,) = outcomes.tables()
    console.print(table.for_terminal(("method", *_SHOWN, "exact NLL", "ESS")))
    (out / "figures").mkdir(exist_ok=True)
    nll, _, _, ess = outcomes.learning_charts(outcomes.runs)
    caption = (
        "Parameters, likelihood and effective sample size while learning: both objectives approach the exact optimum. "
        "Mean and range over seeds. Dashed: exact."
    )
    charts = [*outcomes.parameter_charts(outcomes.runs, _SHOWN), nll, ess]
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
        f"model and its proposal from {size.series} short series. All is known exactly here, so what they learn can be "
        f"compared with the optimum and with the Kalman filter. It took {elapsed:.0f} seconds.",
        command=f"mcfo demo --steps {steps} --particles {particles} --seed {seed}",
    )
    for warning in outcomes.warnings():
        page.warning(warning)
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
