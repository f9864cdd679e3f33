"""`mcfo reproduce lgssm`: the paper's figures 2, 7, 8 and 9, learning linear Gaussian models beside the optimum."""

from __future__ import annotations

import json
import math
import shutil
import time
from dataclasses import asdict, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from rich.console import Console

from mcfo.experiments.lgssm.figures import draw_figures
from mcfo.experiments.lgssm.methods import PRESETS as PRESETS
from mcfo.experiments.lgssm.methods import Preset
from mcfo.experiments.lgssm.page import print_table, write_report
from mcfo.experiments.lgssm.problem import EMISSION_VARIANCE, FIXED, START, TRUTH, Problem, make_problem
from mcfo.experiments.lgssm.runs import run_all
from mcfo.experiments.results import LearningRow, SummaryRow, write_table
from mcfo.files import write_atomically
from mcfo.inference.evaluation import Evaluation, evaluate
from mcfo.proposals.gaussian import AffineGaussian


def run(out: Path, size: Preset, *, preset: str, seed: int, command: str) -> Path:
    """Runs the experiment, or the rest of it where `out` holds unfinished runs of the same one.

    Writes `results.csv`, `summary.csv`, `figures/`, `config.json` and `report.html`, and returns the report's path.
    """
    console = Console()
    begun = time.perf_counter()
    (out / "figures").mkdir(parents=True, exist_ok=True)
    size = replace(size, seeds=tuple(seed + number for number in size.seeds))
    problem = make_problem(
        series=size.series, test_series=size.test_series, watched=size.watched, steps=size.length, seed=seed
    )
    key = jax.random.fold_in(jax.random.key(seed), 1)
    best = AffineGaussian.optimal(problem.truth)
    ideal, followed = (
        evaluate(problem.truth, best, series, particles=size.evaluation_particles, key=key)
        for series in (problem.test, problem.watched)
    )
    learned = run_all(size, problem, out / "runs", key=key, console=console)
    write_table(
        out / "results.csv",
        LearningRow._fields,
        [*(row for one in learned for row in one.rows()), *_reference_rows(problem, followed, ideal)],
    )
    write_table(
        out / "summary.csv",
        SummaryRow._fields,
        [*(row for one in learned for row in one.summary()), *_exact_rows(problem, ideal)],
    )
    with console.status("Drawing the figures"):
        pictures = draw_figures(out / "figures", learned, problem.optimum, followed, size)
    elapsed = time.perf_counter() - begun
    config = _config(size, preset, seed, elapsed)
    write_atomically(out / "config.json", (json.dumps(config, indent=2) + "\n").encode())
    print_table(console, learned, problem.optimum, ideal)
    report = write_report(
        out / "report.html", learned, problem.optimum, ideal, pictures, size=size, command=command, elapsed=elapsed
    )
    shutil.rmtree(out / "runs", ignore_errors=True)
    return report


def _reference_rows(problem: Problem, followed: Evaluation, ideal: Evaluation) -> list[LearningRow]:
    """The exact values beside the curves (on the series that are followed) and beside the averages (on all)."""
    values: dict[str, Any] = {
        **problem.optimum,
        "test_ess": followed.ess,
        "exact_nll_per_step": followed.exact_nll_per_step,
        "averaged_ess": ideal.ess,
        "averaged_exact_nll_per_step": ideal.exact_nll_per_step,
    }
    return [LearningRow("exact", ideal.particles, 0, 0, name, value) for name, value in values.items()]


def _exact_rows(problem: Problem, ideal: Evaluation) -> list[SummaryRow]:
    """What the truth and its optimal proposal give on the same test series."""
    values: dict[str, Any] = {
        **problem.optimum,
        "ess": ideal.ess,
        "nll_per_step": ideal.nll_per_step,
        "exact_nll_per_step": ideal.exact_nll_per_step,
    }
    return [SummaryRow("exact", ideal.particles, name, value, math.nan, 0) for name, value in values.items()]


def _config(size: Preset, preset: str, seed: int, seconds: float) -> dict[str, Any]:
    """Everything that determines the run, and how long it took."""
    return {
        "experiment": "lgssm",
        "preset": preset,
        "seed": seed,
        **asdict(size),
        "truth": TRUTH,
        "start": {"theta": START, "phi_1": 1.0, "phi_4": 1.0, "others": 0.0},
        "emission_variance": EMISSION_VARIANCE,
        "fixed": FIXED,
        "optimizer": "adam",
        "precision": str(jnp.zeros(()).dtype),
        "versions": {name: metadata.version(name) for name in ("mcfo", "jax", "equinox", "numpyro", "optax")},
        "seconds": round(seconds, 1),
    }
