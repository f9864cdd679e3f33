"""`mcfo reproduce gradients`: the paper's figures 1, 4, 5 and 6 and its Table 4, with the exact answer beside them."""

from __future__ import annotations

import json
import math
import shutil
import time
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from mcfo.errors import OtherRunError
from mcfo.experiments.gradients.errata import analytic_score, expected_bound_gradient
from mcfo.experiments.gradients.figures import draw_figures
from mcfo.experiments.gradients.jobs import (
    DISPLACED,
    PIMH_PARTICLES,
    SMALL_METHODS,
    Block,
    Preset,
    make_jobs,
    run_jobs,
)
from mcfo.experiments.gradients.page import write_report
from mcfo.experiments.gradients.problems import SETTINGS, make_problems
from mcfo.experiments.gradients.samples import LAG, METHODS, PHI, SWEEPS, THETA, Method, Problem, Seconds
from mcfo.experiments.gradients.summary import Summary, rows_of
from mcfo.experiments.results import Row, write_rows
from mcfo.files import write_atomically

PRESETS: dict[str, Preset] = {
    "quick": Preset((1, 10, 100, 1000), 1000),
    "paper": Preset((1, 10, 100, 1000, 10_000, 100_000), 10_000),
}


def run(out: Path, size: Preset, *, preset: str, seed: int, command: str) -> Path:
    """Runs the experiment, or the rest of it where `out` holds finished blocks of the same one.

    Writes `results.csv`, `errata.csv`, `figures/`, `config.json` and `report.html`, and returns the report's path.
    """
    console = Console()
    begun = time.perf_counter()
    config = _config(size, preset, seed)
    (out / "figures").mkdir(parents=True, exist_ok=True)
    _check_config(out, config)
    # Exact statements are compared exactly; the setting ends with the block.
    with jax.enable_x64(True):
        with console.status("Computing the exact gradients"):
            problems = make_problems(size.steps, seed)
            exact = {name: problem.exact() for name, problem in problems.items()}
            exact["small"] = expected_bound_gradient(problems["small"])
            analytic = _analytic(problems)
        blocks = run_jobs(make_jobs(size, problems), out / "blocks", seed, console)
    samples = _samples_by_method(size, blocks)
    rows = [row for place, values in samples.items() for row in rows_of(*place, values, exact[place[0]])]
    errata = [*_errata_rows(size, blocks, exact), *_analytic_rows(analytic)]
    write_rows(out / "results.csv", rows)
    write_rows(out / "errata.csv", errata)
    summary = Summary(rows)
    with console.status("Drawing the figures"):
        pictures = draw_figures(out / "figures", samples, exact, summary)
    compiling, running = (sum(times) for times in zip(*(block.seconds for block in blocks.values()), strict=True))
    report = write_report(
        out / "report.html",
        summary,
        Summary(errata),
        analytic,
        pictures,
        size=size,
        command=command,
        seconds=Seconds(compiling, running),
        elapsed=time.perf_counter() - begun,
    )
    _print(console, summary)
    shutil.rmtree(out / "blocks", ignore_errors=True)
    return report


def _config(size: Preset, preset: str, seed: int) -> dict[str, Any]:
    """Everything that determines the run."""
    return json.loads(
        json.dumps(
            {
                "experiment": "gradients",
                "preset": preset,
                "seed": seed,
                **asdict(size),
                "settings": {name: setting._asdict() for name, setting in SETTINGS.items()},
                "methods": list(METHODS),
                "sweeps": SWEEPS,
                "lag": LAG,
                "precision": "float64",
                "versions": {name: metadata.version(name) for name in ("mcfo", "jax", "equinox", "numpyro")},
            }
        )
    )


def _check_config(out: Path, config: dict[str, Any]) -> None:
    path = out / "config.json"
    if (out / "blocks").exists() and path.exists():
        found = json.loads(path.read_text())
        different = sorted(name for name in config.keys() | found.keys() if config.get(name) != found.get(name))
        if different:
            raise OtherRunError(
                f"{out} holds an unfinished run with another {' and '.join(different)}. Go on with the settings in "
                f"{path}, or begin anew with --force."
            )
    write_atomically(path, (json.dumps(config, indent=2) + "\n").encode())


def _samples_by_method(size: Preset, blocks: dict[str, Block]) -> dict[tuple[str, str, int], np.ndarray]:
    """The samples of each setting, method and K: theta's columns from one program, phi's from another."""
    samples = {}
    for setting in SETTINGS:
        for name, method in METHODS.items():
            for particles in size.particles:
                if method.only not in (None, particles):
                    continue
                columns = _columns(blocks, method, setting, particles)
                if columns is not None:
                    samples[setting, name, particles] = columns
    return samples


def _columns(blocks: dict[str, Block], method: Method, setting: str, particles: int) -> np.ndarray | None:
    theta = blocks.get(f"{method.theta}-{particles}")
    if theta is None:
        return None
    phi = blocks[f"{method.phi or method.theta}-{particles}"]
    return np.concatenate([theta.samples[setting][:, : len(THETA)], phi.samples[setting][:, len(THETA) :]], axis=1)


def _errata_rows(size: Preset, blocks: dict[str, Block], exact: dict[str, np.ndarray]) -> list[Row]:
    rows = []
    for particles in size.long_particles:
        for method in ("mcfo-smc", "mcfo-fisher"):
            block = blocks[f"long-{method}-{particles}"]
            rows += rows_of("long", method, particles, block.samples["long"], exact["long"])
    for method in SMALL_METHODS:
        rows += rows_of("small", method, 2, blocks[f"small-{method}"].samples["small"], exact["small"])
    for method in ("fresh-noise", "reused-noise"):
        rows += rows_of("r1", method, PIMH_PARTICLES, blocks[f"pimh-{method}"].samples["r1"], exact["r1"])
    for particles in size.particles:
        if particles == 1:
            continue
        reference = blocks[f"{DISPLACED[0]}-{particles}"].samples["displaced"]
        # The reparameterized rule is unbiased here and has no exact value: the others are compared with it in pairs.
        for method, program in zip(("reparameterized", "dreg", "sticking-the-landing"), DISPLACED, strict=True):
            values = blocks[f"{program}-{particles}"].samples["displaced"].copy()
            values[:, : len(THETA)] = np.nan
            rows += rows_of("displaced", method, particles, values, np.full(len(THETA + PHI), np.nan))
            if program != DISPLACED[0]:
                gaps = values - reference
                rows += rows_of("displaced", f"{method} minus reparameterized", particles, gaps, np.zeros(7))
    return rows


def _analytic(problems: dict[str, Problem]) -> dict[str, dict[str, np.ndarray]]:
    """The recursion in the paper's appendix, as printed and corrected, beside automatic differentiation."""
    return {
        name: {
            "exact": problems[name].exact()[: len(THETA)],
            "printed": analytic_score(problems[name], as_printed=True),
            "corrected": analytic_score(problems[name], as_printed=False),
        }
        for name in (*SETTINGS, "long")
    }


def _analytic_rows(analytic: dict[str, dict[str, np.ndarray]]) -> list[Row]:
    return [
        Row(setting, f"appendix-{method}", 0, parameter, quantity, value, math.nan)
        for setting, values in analytic.items()
        for method in ("printed", "corrected")
        for quantity, source in (("value", method), ("exact", "exact"))
        for parameter, value in zip(THETA, values[source].tolist(), strict=True)
    ]


def _print(console: Console, summary: Summary) -> None:
    """The gaps at the largest K of the first setting."""
    setting = next(iter(SETTINGS))
    table = Table(
        title=f"Gaps to the exact gradient, setting {setting}, each method at its largest K",
        caption="In standard errors in brackets. phi: the parameter with the largest gap.",
    )
    for title in ("method", "K", *THETA, "phi"):
        table.add_column(title, justify="left" if title == "method" else "right")
    for method in METHODS:
        particles = summary.particles(setting, method, THETA[0])[-1]
        cells = []
        for parameter in (*THETA, summary.worst(setting, method, particles, PHI)):
            if parameter is None:
                cells.append("none")
                continue
            found = summary.at(setting, method, particles, parameter)
            cells.append(f"{found.bias:.3f} ({found.sigmas:.1f})")
        table.add_row(method, str(particles), *cells)
    console.print(table)
