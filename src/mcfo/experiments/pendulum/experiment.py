"""`mcfo reproduce pendulum`: the paper's tables 2 and 5 and its figures 3, 10 and 11, deep models from pixels."""

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

from mcfo.experiments import pool
from mcfo.experiments.pendulum.figures import draw_curves, draw_frames, draw_latents
from mcfo.experiments.pendulum.methods import FIRST_RATE, PROPOSAL_PARTICLES, SWEEPS, Preset
from mcfo.experiments.pendulum.methods import PRESETS as PRESETS
from mcfo.experiments.pendulum.page import print_table, write_report
from mcfo.experiments.pendulum.problem import Problem, make_problem
from mcfo.experiments.pendulum.runs import run_all
from mcfo.experiments.pendulum.summary import Outcomes
from mcfo.experiments.results import LearningRow, SummaryRow, write_table
from mcfo.files import write_atomically

_SHOWN = [0, 1]
"""Test videos of the film strips."""
_WITH_LATENTS = ("aesmc", "mcfo-smc", "mcfo-lag")


def run(out: Path, size: Preset, *, preset: str, seed: int, command: str) -> Path:
    """Runs the experiment, or the rest of it where `out` holds unfinished runs of the same one.

    Writes `results.csv`, `summary.csv`, `figures/`, `config.json` and `report.html`, and returns the report's path.
    """
    console = Console()
    begun = time.perf_counter()
    (out / "figures").mkdir(parents=True, exist_ok=True)
    size = replace(size, seeds=tuple(seed + number for number in size.seeds))
    with console.status("Rendering the videos"):
        problem = make_problem(
            series=size.series,
            test_series=size.test_series,
            evaluated=size.evaluated,
            steps=size.length,
            seed=seed,
        )
    key = jax.random.fold_in(jax.random.key(seed), 1)
    outcomes = Outcomes(run_all(size, problem, out / "runs", key=key, console=console), size.last)
    baselines = problem.baselines()
    write_table(
        out / "results.csv",
        LearningRow._fields,
        [
            *(row for one in outcomes.learned for row in one.rows()),
            *(LearningRow(name, 0, 0, 0, "prediction", value) for name, value in baselines.items()),
        ],
    )
    write_table(
        out / "summary.csv",
        SummaryRow._fields,
        [
            *outcomes.summary(),
            *(SummaryRow(name, 0, "prediction", value, math.nan, 0) for name, value in baselines.items()),
        ],
    )
    with console.status("Drawing the figures"):
        pictures = _pictures(out / "figures", outcomes, problem, baselines, size)
    # What a resumed run's parts took before counts too.
    together = sum(one.seconds for one in outcomes.learned) / pool.at_once()
    elapsed = max(time.perf_counter() - begun, together)
    config = _config(size, preset, seed, elapsed)
    write_atomically(out / "config.json", (json.dumps(config, indent=2) + "\n").encode())
    print_table(console, outcomes, baselines)
    report = write_report(
        out / "report.html", outcomes, baselines, pictures, size=size, command=command, elapsed=elapsed
    )
    shutil.rmtree(out / "runs", ignore_errors=True)
    return report


def _pictures(
    folder: Path, outcomes: Outcomes, problem: Problem, baselines: dict[str, float], size: Preset
) -> dict[str, Path]:
    """Curves of all runs; film strips and latents of the first seed with the largest K."""
    followed = {one.method: one.followed for one in outcomes.learned if one.followed is not None}
    videos = [video for video in _SHOWN if video < size.evaluated]
    strips = {
        method: [jax.tree.map(lambda array, video=video: array[video], found) for video in videos]
        for method, found in followed.items()
    }
    latents = {method: found for method, found in followed.items() if method in _WITH_LATENTS}
    return {
        "curves": draw_curves(folder / "curves.png", outcomes, baselines),
        "frames": draw_frames(folder / "frames.png", problem, strips, videos),
        "latents": draw_latents(folder / "latents.png", problem, latents or followed, size.latent),
    }


def _config(size: Preset, preset: str, seed: int, seconds: float) -> dict[str, Any]:
    """Everything that determines the run, and how long it took."""
    return {
        "experiment": "pendulum",
        "preset": preset,
        "seed": seed,
        **asdict(size),
        "proposal_particles": PROPOSAL_PARTICLES,
        "sweeps": SWEEPS,
        "optimizer": "adam",
        "learning_rate": {"from": FIRST_RATE, "to": size.last_rate, "course": size.schedule, "of a layer": "by-width"},
        "view": {"half_extent": 1.1, "contrast": "full", "renderer": "capsule"},
        "precision": str(jnp.zeros(()).dtype),
        "versions": {name: metadata.version(name) for name in ("mcfo", "jax", "equinox", "numpyro", "optax")},
        "seconds": round(seconds, 1),
    }
