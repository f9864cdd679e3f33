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
import matplotlib

matplotlib.use("Agg")  # a picture in a file, also where there is no screen

import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console
from rich.table import Table

from mcfo.data.tables import write_series
from mcfo.experiments.lgssm.problem import EMISSION_VARIANCE, FIXED, TRUTH, Problem, make_problem, parameters
from mcfo.inference.evaluation import Evaluation, evaluate, exact_nll_per_step
from mcfo.learning.fit import fit
from mcfo.learning.progress import ProgressBar
from mcfo.learning.results import Fitted
from mcfo.objectives.named import aesmc, mcfo
from mcfo.objectives.objective import Objective
from mcfo.proposals.gaussian import AffineGaussian
from mcfo.reports.html import Report
from mcfo.series import Series

_SEEDS = 3
_COLOURS = {"mcfo": "#08519c", "aesmc": "#31a354"}
_SHOWN = ("theta_1", "theta_2", "phi_3", "phi_4")
_WRITTEN = 40
"""Series that go into the file for the first run of one's own."""


def run(out: Path, *, steps: int, particles: int, seed: int) -> Path:
    """Runs the demonstration, prints a table and returns the report's path."""
    console = Console()
    begun = time.perf_counter()
    problem = make_problem(series=2000, test_series=400, watched=200, steps=10, seed=seed)
    console.print(
        f"Data: 2000 series of 10 steps, made by z_t = {TRUTH[0]} z_t-1 + N(0, 1), x_t = {TRUTH[1]} z_t + "
        f"N(0, {EMISSION_VARIANCE}).\nTwo objectives learn both numbers and a proposal from x alone, {particles} "
        "particles, "
        f"{_SEEDS} seeds each (about a minute, a third of it compiling).",
        highlight=False,
    )
    objectives = {"mcfo": mcfo(particles, phi="dreg"), "aesmc": aesmc(particles)}
    fits = {
        name: _learn(name, objective, problem, steps=steps, seed=seed, console=console)
        for name, objective in objectives.items()
    }
    key = jax.random.key(seed)
    best = AffineGaussian.optimal(problem.truth)
    exact = evaluate(problem.truth, best, problem.test, particles=particles, key=key)
    rows = _rows(fits, problem, exact, particles, key)
    console.print(_table(rows))
    (out / "figures").mkdir(exist_ok=True)
    picture = _draw(out / "figures" / "learning.png", fits, problem, exact)
    series = out / "series.csv"
    write_series(series, _first(problem.train, _WRITTEN), ["x"])
    elapsed = time.perf_counter() - begun
    # Where the environment is not active, the program is typed with its path.
    program = "mcfo" if shutil.which("mcfo") else os.path.relpath(sys.argv[0])
    next_command = shlex.join([program, "fit", "linear-gaussian", "--data", str(series), "--out", str(out / "fit")])
    command = f"mcfo demo --steps {steps} --particles {particles} --seed {seed}"
    skipped = sum(fitted.skipped for fitted in fits.values())
    report = _report(out / "report.html", rows, picture, skipped, command, next_command, elapsed)
    console.print(f"Report: {report}   ({elapsed:.0f} s)", highlight=False, soft_wrap=True, markup=False)
    console.print(
        "Now yours. A CSV file with a header will do, one row a step, empty cells where nothing was measured:"
    )
    console.print(f"  {next_command}", highlight=False, soft_wrap=True, markup=False)
    return report


def _learn(name: str, objective: Objective, problem: Problem, *, steps: int, seed: int, console: Console) -> Fitted:
    def watch(model: Any, proposal: Any) -> dict[str, Any]:
        return {**parameters(model, proposal), "exact_nll_per_step": exact_nll_per_step(model, problem.test)}

    return fit(
        problem.model,
        problem.proposal,
        problem.train,
        objective=objective,
        validation=problem.watched,
        watch=watch,
        listener=ProgressBar(console, f"{name:>5} learns", each_evaluation=False),
        steps=steps,
        seeds=tuple(range(seed, seed + _SEEDS)),
        fixed=FIXED,
        evaluate_every=50,
        select="average",
    )


def _first(batch: Series, count: int) -> list[Series]:
    return [
        Series.from_values(np.asarray(values), series_id=place)
        for place, values in enumerate(batch.observations[:count])
    ]


def _rows(fits: dict[str, Fitted], problem: Problem, exact: Evaluation, particles: int, key: Any) -> list[list[str]]:
    rows = []
    for name, fitted in fits.items():
        found = [parameters(one.model, one.proposal) for one in fitted.seeds]
        values = {each: np.array([float(one[each]) for one in found]) for each in _SHOWN}
        tested = [evaluate(one.model, one.proposal, problem.test, particles=particles, key=key) for one in fitted.seeds]
        rows.append(
            [
                name,
                *(f"{values[each].mean():.3f} ± {values[each].std(ddof=1):.3f}" for each in _SHOWN),
                f"{np.mean([one.exact_nll_per_step or np.nan for one in tested]):.4f}",
                f"{np.mean([one.ess for one in tested]):.1f}",
            ]
        )
    rows.append(
        [
            "exact",
            *(f"{problem.optimum[each]:.3f}" for each in _SHOWN),
            f"{exact.exact_nll_per_step:.4f}",
            f"{exact.ess:.1f}",
        ]
    )
    return rows


_HEADER = ["objective", *_SHOWN, "NLL/step", "ESS"]
_CAPTION = (
    "Parameters averaged over the last tenth of the steps, mean and spread over the seeds. NLL/step: of the learned "
    "model on "
    "400 series that it has not seen, by the Kalman filter. ESS: effective sample size of the learned proposal. "
    "exact: the "
    "model that made the data, and its optimal proposal."
)


def _table(rows: list[list[str]]) -> Table:
    table = Table(title="What was learned", caption=_CAPTION)
    for title in _HEADER:
        table.add_column(title, justify="left" if title == "objective" else "right")
    for row in rows:
        table.add_row(*row)
    return table


def _report(
    path: Path, rows: list[list[str]], picture: Path, skipped: int, command: str, next_command: str, elapsed: float
) -> Path:
    report = Report(
        "Learning a linear Gaussian model",
        summary=(
            "MCFO (with doubly reparameterized proposal gradients) and AESMC learn the paper's linear Gaussian "
            "model and its "
            "proposal from 2000 short series. Everything is known exactly here, so what they learn can be compared "
            "with the "
            f"optimum and with the Kalman filter. It took {elapsed:.0f} seconds."
        ),
        command=command,
    )
    if skipped:
        report.warning(f"{skipped} updates were not finite and were skipped.")
    report.table(_HEADER, rows, caption=_CAPTION)
    report.figure(
        picture,
        "Parameters, likelihood and effective sample size while learning: mean over the seeds, and each seed. "
        "Dashed: exact.",
        alt="Curves of both objectives that approach the exact optimum",
    )
    report.heading("Your own series")
    report.text("series.csv holds some of the series. The same command works with any CSV file:")
    report.code(next_command)
    report.write(path)
    return path


def _draw(path: Path, fits: dict[str, Fitted], problem: Problem, exact: Evaluation) -> Path:
    figure, axes = plt.subplots(2, 3, figsize=(10, 5.6), layout="constrained")
    panels = {
        "theta_1": (r"$\theta_1$", problem.optimum["theta_1"]),
        "theta_2": (r"$\theta_2$", problem.optimum["theta_2"]),
        "exact_nll_per_step": ("NLL per step on unseen series", exact.exact_nll_per_step),
        "phi_3": (r"$\varphi_3$", problem.optimum["phi_3"]),
        "phi_4": (r"$\varphi_4$", problem.optimum["phi_4"]),
        "validation_ess": (f"effective sample size of {exact.particles}", exact.ess),
    }
    for axis, (metric, (title, target)) in zip(axes.ravel(), panels.items(), strict=True):
        for name, fitted in fits.items():
            curves = [_curve(fitted, one.seed, metric) for one in fitted.seeds]
            for steps, values in curves:
                axis.plot(steps, values, color=_COLOURS[name], lw=0.6, alpha=0.35)
            axis.plot(
                curves[0][0], np.mean([values for _, values in curves], 0), color=_COLOURS[name], lw=1.5, label=name
            )
        axis.axhline(target, color="black", lw=1.0, ls="--", label="exact")
        axis.set_title(title, fontsize=10, loc="left")
        axis.set_xlabel("step", fontsize=9)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=3, fontsize=9, frameon=False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


def _curve(fitted: Fitted, seed: int, metric: str) -> tuple[np.ndarray, np.ndarray]:
    found = [
        (line["step"], line.get(metric, line["watched"].get(metric)))
        for line in fitted.metrics
        if line["seed"] == seed and (metric in line or metric in line["watched"])
    ]
    return np.array([step for step, _ in found]), np.array([np.nan if value is None else value for _, value in found])
