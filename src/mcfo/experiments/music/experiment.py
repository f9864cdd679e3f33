"""`mcfo reproduce music`: the paper's table 3, recurrent models of polyphonic music."""

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

from mcfo.experiments.music.figures import draw_curves
from mcfo.experiments.music.methods import PRESETS as PRESETS
from mcfo.experiments.music.methods import SWEEPS, Preset
from mcfo.experiments.music.page import print_table, write_report
from mcfo.experiments.music.problem import find_folder, make_problem
from mcfo.experiments.music.runs import run_all, seconds_together
from mcfo.experiments.music.summary import Outcomes, Row, Summary
from mcfo.experiments.results import write_table
from mcfo.files import write_atomically
from mcfo.learning.devices import cores, use_every_core


def run(out: Path, size: Preset, *, preset: str, seed: int, command: str, data: Path | None = None) -> Path:
    """Runs the experiment, or the rest of it where `out` holds unfinished runs of the same one.

    Writes `results.csv`, `summary.csv`, `figures/`, `config.json` and `report.html`, and returns the report's path.

    **Arguments:**

    - `data`: the folder with the data sets.
    """
    console = Console()
    begun = time.perf_counter()
    folder = find_folder(data, [name for name, _ in size.courses])
    size = replace(size, seeds=tuple(seed + number for number in size.seeds))
    # One run is shared by all cores; of several, each core has one.
    devices = cores() if len(size.jobs()) == 1 else 1
    if devices > 1:
        use_every_core(devices)
    (out / "figures").mkdir(parents=True, exist_ok=True)
    with console.status("Reading the pieces"):
        problems = {name: make_problem(folder, name, transposed=course.transposed) for name, course in size.courses}
    key = jax.random.fold_in(jax.random.key(seed), 1)
    outcomes = Outcomes(run_all(size, problems, out / "runs", key=key, console=console, devices=devices))
    baselines = {name: problem.baselines() for name, problem in problems.items()}
    known = [(name, value, data) for data, found in baselines.items() for name, value in found.items()]
    write_table(
        out / "results.csv",
        Row._fields,
        [
            *(row for one in outcomes.learned for row in one.rows()),
            *(Row(name, 0, 0, 0, "test_nll", value, data) for name, value, data in known),
        ],
    )
    write_table(
        out / "summary.csv",
        Summary._fields,
        [
            *outcomes.summary(),
            *(Summary(name, 0, "test_nll", value, math.nan, 0, data) for name, value, data in known),
        ],
    )
    with console.status("Drawing the figures"):
        pictures = {"curves": draw_curves(out / "figures" / "curves.png", outcomes, baselines)}
    # What a resumed run's parts took before counts too.
    elapsed = max(time.perf_counter() - begun, seconds_together(outcomes.learned, devices))
    config = _config(size, preset, seed, devices, elapsed)
    write_atomically(out / "config.json", (json.dumps(config, indent=2) + "\n").encode())
    print_table(console, outcomes, baselines)
    report = write_report(
        out / "report.html", outcomes, baselines, pictures, size=size, command=command, elapsed=elapsed
    )
    shutil.rmtree(out / "runs", ignore_errors=True)
    return report


def _config(size: Preset, preset: str, seed: int, devices: int, seconds: float) -> dict[str, Any]:
    """Everything that determines the run, and how long it took."""
    return {
        "experiment": "music",
        "preset": preset,
        "seed": seed,
        **asdict(size),
        "courses": {name: course._asdict() for name, course in size.courses},
        "sweeps": SWEEPS,
        "optimizer": "adam, or adamw where weights decay",
        "devices": devices,
        "precision": str(jnp.zeros(()).dtype),
        "versions": {name: metadata.version(name) for name in ("mcfo", "jax", "equinox", "numpyro", "optax")},
        "seconds": round(seconds, 1),
    }
