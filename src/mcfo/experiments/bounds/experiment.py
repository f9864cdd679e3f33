"""`mcfo reproduce bounds`: Propositions 1 and 2 of the paper on the linear Gaussian model, where all is known."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from importlib import metadata
from math import isnan, nan
from pathlib import Path

import jax
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from mcfo.experiments.bounds.figures import PROPOSALS
from mcfo.experiments.bounds.measurements import Curve, Measurements, Preset, measure
from mcfo.experiments.bounds.page import write_report
from mcfo.experiments.bounds.problems import STEPS, make_problem
from mcfo.experiments.results import Row, write_rows
from mcfo.files import write_atomically

PRESETS: dict[str, Preset] = {
    "quick": Preset(
        exact_particles=(1, 5, 10, 50, 100, 500, 1000),
        exact_replicates=8_000,
        path_replicates=4_000,
        smc_replicates={1: 20_000, 10: 20_000, 100: 20_000, 1000: 6_000},
        scan_particles=(1, 10, 100),
        scan_replicates=2_000,
        growing_steps=(1, 2, 5, 10, 20, 50, 100),
        growing_particles=100,
        growing_replicates=2_000,
    ),
    "paper": Preset(
        exact_particles=(1, 5, 10, 50, 100, 500, 1000, 5000, 10_000),
        exact_replicates=10_000,
        path_replicates=10_000,
        smc_replicates={1: 100_000, 10: 100_000, 100: 100_000, 1000: 50_000, 10_000: 10_000},
        scan_particles=(1, 10, 100, 1000),
        scan_replicates=10_000,
        growing_steps=(1, 2, 5, 10, 20, 50, 100, 200),
        growing_particles=100,
        growing_replicates=20_000,
    ),
}


def run(out: Path, size: Preset, *, preset: str, seed: int, command: str) -> Path:
    """Measures, writes `results.csv`, `config.json`, `figures/` and `report.html`, and returns the report's path."""
    console = Console()
    begun = time.perf_counter()
    of_data, of_measurements = jax.random.split(jax.random.key(seed))
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total:.0f}"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )
    # The gaps at large K are small differences: in single precision they would be rounding.
    with jax.enable_x64(True), progress:
        problem = make_problem(max(size.growing_steps), key=of_data)
        measured = measure(problem, size, progress, key=of_measurements)
        rows = list(_rows(measured, size))
    write_rows(out / "results.csv", rows)
    write_atomically(out / "config.json", _config(size, preset, seed, command).encode())
    report = write_report(out, measured, size, command=command)
    console.print(_table(measured))
    console.print(f"Measured in {time.perf_counter() - begun:.0f} s.")
    return report


def _config(size: Preset, preset: str, seed: int, command: str) -> str:
    config = {
        "experiment": "bounds",
        "command": command,
        "preset": preset,
        "seed": seed,
        "model": {
            "theta_1": 0.9,
            "theta_2": 1.2,
            "initial_mean": 0.5,
            "initial_variance": 1.0,
            "transition_variance": 1.0,
            "emission_variance": 1.0,
        },
        "steps": STEPS,
        "settings": dataclasses.asdict(size),
        "versions": {name: metadata.version(name) for name in ("mcfo", "jax", "numpy")},
    }
    return json.dumps(config, indent=2) + "\n"


def _rows(measured: Measurements, preset: Preset) -> Iterator[Row]:
    exact = measured.problem.log_evidence
    for name, curve in measured.exact.items():
        yield from _curve_rows("exact-histories", f"mcfo-exact/{name}", curve, exact)
        for size in curve.particles:
            yield _row("exact-histories", f"mcfo-exact/{name}", size, "second_order", measured.second_orders[name])
            largest = float(measured.step_variances[name].max())
            yield _row("exact-histories", f"mcfo-exact/{name}", size, "largest_relative_variance", largest)
    for method, curves in (("mcfo-smc", measured.smc), ("mcfo-smc-systematic", measured.systematic)):
        for name, curve in curves.items():
            yield from _curve_rows("smc-histories", f"{method}/{name}", curve, exact)
    for method, curves in (("iwae", measured.paths), ("fivo", measured.smc), ("mcfo-exact", measured.exact)):
        for name, curve in curves.items():
            yield from _curve_rows("growing-k", f"{method}/{name}", curve, exact)
    log_evidences = measured.problem.log_evidences.cumsum()
    for name, curves in measured.growing.items():
        for method, curve in curves.items():
            for place, steps in enumerate(preset.growing_steps):
                setting, whole = f"growing-t-{steps}", float(log_evidences[steps - 1])
                yield from _point_rows(setting, f"{method}/{name}", curve, place, whole)
    for one in measured.scan:
        method = f"mcfo-exact/{one.kind}={one.amount:g}"
        for size, gap in one.gap.items():
            yield _row("optimal", method, size, "mean", exact - gap.value, gap.stderr)
            yield _row("optimal", method, size, "exact", exact)
            yield _row("optimal", method, size, "gap", *gap)
            yield _row("optimal", method, size, "loss", *one.loss[size])
            yield _row("optimal", method, size, "limit", one.limit)
    largest, smc_particles = preset.scan_particles[-1], next(size for size in preset.smc_replicates if size > 1)
    for setting, method, size, value in (
        ("optimal-t-1", "mcfo-exact/optimal", largest, measured.largest_gap_first_step),
        ("optimal-theta_1-0", "mcfo-exact/optimal", largest, measured.largest_gap_no_memory),
        ("optimal-t-1", "mcfo-smc/optimal", smc_particles, measured.largest_gap_first_step_smc),
        ("optimal-theta_1-0", "mcfo-smc/optimal", smc_particles, measured.largest_gap_no_memory_smc),
        ("smc-histories", "mcfo-smc-minus-fivo/bootstrap", smc_particles, measured.largest_difference_fivo),
    ):
        yield _row(setting, method, size, "largest_difference", value)


def _curve_rows(setting: str, method: str, curve: Curve, exact: float) -> Iterator[Row]:
    for place in range(len(curve.particles)):
        yield from _point_rows(setting, method, curve, place, exact)


def _point_rows(setting: str, method: str, curve: Curve, place: int, exact: float) -> Iterator[Row]:
    particles, gap, increase = curve.particles[place], curve.gap[place], curve.increase[place]
    yield _row(setting, method, particles, "mean", exact - gap.value, gap.stderr)
    yield _row(setting, method, particles, "std", curve.deviation[place])
    yield _row(setting, method, particles, "exact", exact)
    yield _row(setting, method, particles, "gap", *gap)
    yield _row(setting, method, particles, "k_gap", *curve.k_gap(place))
    if not isnan(curve.limit[place]):
        yield _row(setting, method, particles, "limit", curve.limit[place])
    yield _row(setting, method, particles, "ratio", *curve.ratio[place])
    if increase is not None:
        yield _row(setting, method, particles, "increase", *increase)


def _row(setting: str, method: str, particles: int, quantity: str, value: float, stderr: float = nan) -> Row:
    return Row(setting, method, particles, "log_evidence", quantity, value, stderr)


def _table(measured: Measurements) -> Table:
    particles = measured.smc["optimal"].particles
    table = Table(
        title=f"K × gap of the bounds of log p(x) = {measured.problem.log_evidence:.3f}, T = {STEPS}",
        caption="exact: exact histories. SMC: multinomial resampling. limit: of K × gap, in closed form (none is known "
        f"for systematic resampling). wide: {PROPOSALS['wide']}. ±: one standard error at K = {particles[-1]}.",
    )
    table.add_column("sampler", no_wrap=True)
    table.add_column("proposal", no_wrap=True)
    for size in particles:
        table.add_column(f"K={size}", justify="right", no_wrap=True)
    table.add_column("±", justify="right", no_wrap=True)
    table.add_column("limit", justify="right", no_wrap=True)
    for sampler, curves in (
        ("exact", measured.exact),
        ("SMC", measured.smc),
        ("systematic", measured.systematic),
        ("IWAE", measured.paths),
    ):
        for name, curve in curves.items():
            shown = [curve.k_gap(curve.particles.index(size)) for size in particles]
            limit = curve.limit[0]
            table.add_row(
                sampler,
                name,
                *(f"{estimate.value:.4g}" for estimate in shown),
                f"{shown[-1].stderr:.2g}",
                "" if isnan(limit) else f"{limit:.4g}",
            )
    return table
