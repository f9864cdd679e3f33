"""`mcfo reproduce gradients`: the paper's figures 1, 4, 5 and 6 and its Table 4, with the exact answer beside them."""

from __future__ import annotations

import io
import json
import math
import os
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from mcfo.experiments.gradient_errata import analytic_score, expected_bound_gradient, next_increment
from mcfo.experiments.gradient_figures import draw_figures
from mcfo.experiments.gradient_report import write_report
from mcfo.experiments.gradient_samples import (
    LAG,
    METHODS,
    PHI,
    PROGRAMS,
    SWEEPS,
    THETA,
    Method,
    Problem,
    Seconds,
    sample,
)
from mcfo.experiments.gradient_summary import Summary, rows_of
from mcfo.experiments.results import Row, write_atomically, write_rows
from mcfo.gradients.score import FilterScore, Fisher
from mcfo.models.base import simulate
from mcfo.models.linear_gaussian import LinearGaussian
from mcfo.objectives.base import Estimator, Objective
from mcfo.objectives.named import fivo, mcfo, vsmc
from mcfo.proposals.gaussian import AffineGaussian
from mcfo.sequences import Sequence
from mcfo.smc.filter import SMC
from mcfo.smc.pimh import PIMH
from mcfo.smc.resampling import Always


@dataclass(frozen=True)
class Preset:
    """The size of the experiment.

    - `particles`: each K.
    - `costly_particles`: the largest K of the full FIVO gradient and of PIMH.
    - `long_particles`, `long_replicates`: of the series of 50 steps.
    - `small_replicates`: of the case with three steps and two particles whose answer is known without sampling.
    - `pimh_replicates`: of PIMH with fresh and with reused noise, five particles.
    """

    particles: tuple[int, ...]
    costly_particles: int
    replicates: int = 1000
    steps: int = 10
    long_particles: tuple[int, ...] = (100, 1000)
    long_replicates: int = 200
    small_replicates: int = 400_000
    pimh_replicates: int = 4000


PRESETS: dict[str, Preset] = {
    "quick": Preset((1, 10, 100, 1000), 1000),
    "paper": Preset((1, 10, 100, 1000, 10_000, 100_000), 10_000),
}


class Setting(NamedTuple):
    """Data from one theta, gradients at another, phi at the locally optimal proposal of the latter."""

    theta: tuple[float, float]
    data_theta: tuple[float, float]
    emission_variance: float


SETTINGS: dict[str, Setting] = {
    "r1": Setting((0.9, 10.0), (0.9, 10.0), 1.0),
    "r0.01": Setting((0.9, 10.0), (0.9, 10.0), 0.01),
    "off-optimum": Setting((0.6, 8.0), (0.9, 10.0), 1.0),
}
_LONG = Setting((0.8, 1.08), (0.9, 1.2), 1.0)
_SMALL = Setting((0.9, 1.2), (0.9, 1.2), 1.0)
_COSTLY = ("fivo-full", "pimh")
_DISPLACED = ("filter-score-reparameterised", "fisher-dreg", "fisher-lag-stl")
"""The programs whose rules for phi are also compared away from the optimal proposal."""
_SMALL_METHODS: dict[str, Callable[[], Objective]] = {
    "fivo-full": lambda: fivo(2, full=True),
    "next-increment": lambda: next_increment(2),
    "fivo-truncated": lambda: vsmc(2),
}
_PIMH_PARTICLES = 5


class Job(NamedTuple):
    """Samples of one program."""

    objective: Callable[[], Objective]
    problems: dict[str, Problem]
    replicates: int
    cost: float


class Block(NamedTuple):
    """What a job gave, for each of its problems."""

    samples: dict[str, np.ndarray]
    seconds: Seconds


def run(out: Path, *, preset: str, seed: int, command: str) -> Path:
    """Runs the experiment, or the rest of it where `out` holds finished blocks of the same one.

    Writes `results.csv`, `errata.csv`, `figures/`, `config.json` and `report.html`, and returns the report's path.
    """
    return run_size(out, PRESETS[preset], preset=preset, seed=seed, command=command)


def run_size(out: Path, size: Preset, *, preset: str, seed: int, command: str) -> Path:
    """The same for any size."""
    console = Console()
    begun = time.perf_counter()
    config = _config(size, preset, seed)
    (out / "figures").mkdir(parents=True, exist_ok=True)
    _check_config(out, config)
    # Exact statements are compared exactly; the setting ends with the block.
    with jax.enable_x64(True):
        problems = _problems(size, seed)
        exact = {name: problem.exact() for name, problem in problems.items()}
        exact["small"] = expected_bound_gradient(problems["small"])
        blocks = _run_jobs(_jobs(size, problems), out / "blocks", seed, console)
        analytic = _analytic(problems)
    samples = _samples_by_method(size, blocks)
    rows = [row for place, values in samples.items() for row in rows_of(*place, values, exact[place[0]])]
    errata = [*_errata_rows(size, blocks, exact), *_analytic_rows(analytic)]
    write_rows(out / "results.csv", rows)
    write_rows(out / "errata.csv", errata)
    summary = Summary(rows)
    pictures = draw_figures(out / "figures", samples, exact, summary)
    seconds = Seconds(*np.sum([block.seconds for block in blocks.values()], axis=0).tolist())
    report = write_report(
        out / "report.html",
        summary,
        Summary(errata),
        analytic,
        pictures,
        size=size,
        command=command,
        seconds=seconds,
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
            raise ValueError(
                f"{out} holds an unfinished run with another {' and '.join(different)}. Go on with the settings in "
                f"{path}, or begin anew with --force."
            )
    write_atomically(path, (json.dumps(config, indent=2) + "\n").encode())


def _problem(setting: Setting, steps: int, key: Any) -> Problem:
    variance = setting.emission_variance
    _, observations = simulate(LinearGaussian.scalar(*setting.data_theta, emission_variance=variance), steps, key=key)
    model = LinearGaussian.scalar(*setting.theta, emission_variance=variance)
    return Problem(model, AffineGaussian.optimal(model), Sequence.from_values(np.asarray(observations)))


def _problems(size: Preset, seed: int) -> dict[str, Problem]:
    """The settings of the paper, on the same random numbers, and the cases of the errata."""
    of_paper, of_long, of_small = jax.random.split(jax.random.fold_in(jax.random.key(seed), 0), 3)
    problems = {name: _problem(setting, size.steps, of_paper) for name, setting in SETTINGS.items()}
    problems["displaced"] = _displaced(problems["r1"])
    problems["long"] = _problem(_LONG, 50, of_long)
    problems["small"] = _timid(_problem(_SMALL, 3, of_small))
    return problems


def _displaced(problem: Problem) -> Problem:
    """Both offsets of the proposal, φ_2 and φ_5, half a standard deviation of the proposal away from the optimum."""
    proposal = problem.proposal
    assert isinstance(proposal, AffineGaussian)
    offsets = (
        proposal.initial_offset + 0.5 * proposal.initial_noise.factor[0],
        proposal.offset + 0.5 * proposal.noise.factor[0],
    )
    return eqx.tree_at(lambda p: (p.proposal.initial_offset, p.proposal.offset), problem, offsets)


def _timid(problem: Problem) -> Problem:
    """A proposal that follows the observation 0.4 times as far as the optimal one: its weights differ."""
    return eqx.tree_at(
        lambda p: (p.proposal.initial_weight, p.proposal.observation_weight), problem, replace_fn=lambda w: 0.4 * w
    )


def _jobs(size: Preset, problems: dict[str, Problem]) -> dict[str, Job]:
    jobs: dict[str, Job] = {}

    def add(name: str, objective: Callable[[], Objective], chosen: dict[str, Problem], replicates: int) -> None:
        made = objective()
        sweeps = made.theta.sampler.sweeps + 1 if isinstance(made.theta.sampler, PIMH) else 1
        steps = next(iter(chosen.values())).sequence.steps
        work = len(chosen) * replicates * made.theta.sampler.particles * steps * sweeps
        # Compiling takes as long as some twenty million particle steps.
        jobs[name] = Job(objective, chosen, replicates, work + 2e7)

    for particles in size.particles:
        for name, make in PROGRAMS.items():
            if name in _COSTLY and particles > size.costly_particles:
                continue
            chosen = {setting: problems[setting] for setting in SETTINGS}
            if name in _DISPLACED and particles > 1:
                chosen["displaced"] = problems["displaced"]
            if name == "bootstrap":
                chosen = {setting: problem.with_bootstrap() for setting, problem in chosen.items()}
            add(f"{name}-{particles}", lambda make=make, particles=particles: make(particles), chosen, size.replicates)
    for particles in size.long_particles:
        for name, rule in (("mcfo-smc", FilterScore()), ("mcfo-fisher", Fisher())):
            estimator = Estimator(SMC(particles, criterion=Always()), rule)
            long = {"long": problems["long"]}
            add(f"long-{name}-{particles}", lambda e=estimator: Objective(e), long, size.long_replicates)
    for name, make in _SMALL_METHODS.items():
        add(f"small-{name}", make, {"small": problems["small"]}, size.small_replicates)
    for reuse in (False, True):
        name = "reused-noise" if reuse else "fresh-noise"
        add(f"pimh-{name}", lambda reuse=reuse: _pimh(reuse), {"r1": problems["r1"]}, size.pimh_replicates)
    return jobs


def _pimh(reuse_noise: bool) -> Objective:
    made = mcfo(_PIMH_PARTICLES, sweeps=SWEEPS)
    sampler = PIMH(SMC(_PIMH_PARTICLES, criterion=Always()), SWEEPS, reuse_noise)
    assert made.phi is not None
    return Objective(Estimator(sampler, made.theta.rule), Estimator(sampler, made.phi.rule))


class _StoppedError(Exception):
    """Another job failed, or the user interrupted."""


def _run_jobs(jobs: dict[str, Job], folder: Path, seed: int, console: Console) -> dict[str, Block]:
    """All jobs, the largest first, one on each of two cores; each finished one is kept beside until the end."""
    folder.mkdir(exist_ok=True)
    stop = threading.Event()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("Sampling gradients", total=sum(job.cost for job in jobs.values()))

        def work(name: str, job: Job) -> Block:
            path = folder / f"{name}.npz"
            if path.exists():
                progress.advance(bar, job.cost)
                return _read_block(path)

            def advance(share: float) -> None:
                if stop.is_set():
                    raise _StoppedError
                progress.advance(bar, job.cost * share)

            # The setting belongs to the thread.
            with jax.enable_x64(True):
                advance(0.0)
                key = jax.random.fold_in(jax.random.key(seed), 1)
                problems = list(job.problems.values())
                samples, seconds = sample(job.objective(), problems, job.replicates, key=key, advance=advance)
            block = Block(dict(zip(job.problems, samples, strict=True)), seconds)
            _write_block(path, block)
            return block

        with ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
            order = sorted(jobs.items(), key=lambda item: -item[1].cost)
            futures = {pool.submit(work, name, job): name for name, job in order}
            try:
                blocks = {futures[future]: future.result() for future in as_completed(futures)}
            except BaseException:
                stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return blocks


def _write_block(path: Path, block: Block) -> None:
    content = io.BytesIO()
    arrays = {f"samples_{name}": samples for name, samples in block.samples.items()}
    np.savez(content, seconds=np.array(block.seconds), **arrays)  # pyright: ignore[reportArgumentType]
    write_atomically(path, content.getvalue())


def _read_block(path: Path) -> Block:
    with np.load(path, allow_pickle=False) as stored:
        samples = {name.removeprefix("samples_"): stored[name] for name in stored.files if name != "seconds"}
        return Block(samples, Seconds(*stored["seconds"].tolist()))


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
    for method in _SMALL_METHODS:
        rows += rows_of("small", method, 2, blocks[f"small-{method}"].samples["small"], exact["small"])
    for method in ("fresh-noise", "reused-noise"):
        rows += rows_of("r1", method, _PIMH_PARTICLES, blocks[f"pimh-{method}"].samples["r1"], exact["r1"])
    for particles in size.particles:
        if particles == 1:
            continue
        reference = blocks[f"{_DISPLACED[0]}-{particles}"].samples["displaced"]
        # The reparameterised rule is unbiased here and has no exact value: the others are compared with it in pairs.
        for method, program in zip(("reparameterised", "dreg", "sticking-the-landing"), _DISPLACED, strict=True):
            values = blocks[f"{program}-{particles}"].samples["displaced"].copy()
            values[:, : len(THETA)] = np.nan
            rows += rows_of("displaced", method, particles, values, np.full(len(THETA + PHI), np.nan))
            if program != _DISPLACED[0]:
                gaps = values - reference
                rows += rows_of("displaced", f"{method} minus reparameterised", particles, gaps, np.zeros(7))
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
