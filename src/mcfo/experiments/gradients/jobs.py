"""What is to be sampled, and a run of all of it that can be interrupted and resumed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from rich.console import Console

from mcfo.data.npz import write_npz
from mcfo.experiments import pool
from mcfo.experiments.gradients.errata import next_increment
from mcfo.experiments.gradients.problems import SETTINGS
from mcfo.experiments.gradients.samples import PROGRAMS, SWEEPS, Problem, Seconds, sample
from mcfo.experiments.pool import Share
from mcfo.gradients.pathwise import Reparameterized
from mcfo.gradients.score import FilterScore, Fisher
from mcfo.objectives.named import fivo, vsmc
from mcfo.objectives.objective import Estimator, Objective
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
    pimh_replicates: int = 40_000


_COSTLY = ("fivo-full", "pimh")
DISPLACED = ("filter-score-reparameterized", "fisher-dreg", "fisher-lag-stl")
"""The programs whose rules for phi are also compared away from the optimal proposal."""
SMALL_METHODS: dict[str, Callable[[int], Objective]] = {
    "fivo-full": lambda particles: fivo(particles, full=True),
    "next-increment": next_increment,
    "fivo-truncated": vsmc,
}
PIMH_PARTICLES = 5


class Job(NamedTuple):
    """Samples of one program."""

    objective: Objective
    problems: dict[str, Problem]
    replicates: int
    cost: float


class Block(NamedTuple):
    """What a job gave, for each of its problems."""

    samples: dict[str, np.ndarray]
    seconds: Seconds


def make_jobs(size: Preset, problems: dict[str, Problem]) -> dict[str, Job]:
    """All samples that the tables, the figures and the errata need."""
    jobs: dict[str, Job] = {}

    def add(name: str, objective: Objective, chosen: dict[str, Problem], replicates: int) -> None:
        sampler = objective.theta.sampler
        sweeps = sampler.sweeps + 1 if isinstance(sampler, PIMH) else 1
        steps = next(iter(chosen.values())).series.steps
        work = len(chosen) * replicates * sampler.particles * steps * sweeps
        # Compiling takes as long as some twenty million particle steps.
        jobs[name] = Job(objective, chosen, replicates, work + 2e7)

    for particles in size.particles:
        for name, make in PROGRAMS.items():
            if name in _COSTLY and particles > size.costly_particles:
                continue
            chosen = {setting: problems[setting] for setting in SETTINGS}
            if name in DISPLACED and particles > 1:
                chosen["displaced"] = problems["displaced"]
            if name == "bootstrap":
                chosen = {setting: problem.with_bootstrap() for setting, problem in chosen.items()}
            add(f"{name}-{particles}", make(particles), chosen, size.replicates)
    for particles in size.long_particles:
        for name, rule in (("mcfo-smc", FilterScore()), ("mcfo-fisher", Fisher())):
            estimator = Estimator(SMC(particles, criterion=Always()), rule)
            long = {"long": problems["long"]}
            add(f"long-{name}-{particles}", Objective(estimator), long, size.long_replicates)
    for name, make in SMALL_METHODS.items():
        add(f"small-{name}", make(2), {"small": problems["small"]}, size.small_replicates)
    for reuse in (False, True):
        name = "reused-noise" if reuse else "fresh-noise"
        add(f"pimh-{name}", _pimh(reuse), {"r1": problems["r1"]}, size.pimh_replicates)
    return jobs


def _pimh(reuse_noise: bool) -> Objective:
    sampler = PIMH(SMC(PIMH_PARTICLES, criterion=Always()), SWEEPS, reuse_noise)
    return Objective(Estimator(sampler, FilterScore()), Estimator(sampler, Reparameterized()))


def run_jobs(jobs: dict[str, Job], folder: Path, seed: int, console: Console) -> dict[str, Block]:
    """All jobs; each finished one is kept beside until the end."""
    folder.mkdir(exist_ok=True)

    def work(name: str, share: Share) -> Block:
        path = folder / f"{name}.npz"
        if path.exists():
            share.advance(1.0)
            return read_block(path)
        job = jobs[name]
        # The setting belongs to the thread.
        with jax.enable_x64(True):
            share.advance(0.0)
            key = jax.random.fold_in(jax.random.key(seed), 1)
            problems = list(job.problems.values())
            samples, seconds = sample(job.objective, problems, job.replicates, key=key, advance=share.advance)
        block = Block(dict(zip(job.problems, samples, strict=True)), seconds)
        write_block(path, block)
        return block

    costs = {name: job.cost for name, job in jobs.items()}
    return pool.run_all(costs, work, label="Sampling gradients", console=console)


def write_block(path: Path, block: Block) -> None:
    """Keeps what a job gave, without pickled objects."""
    samples = {f"samples_{name}": values for name, values in block.samples.items()}
    write_npz(path, {"seconds": np.array(block.seconds), **samples})


def read_block(path: Path) -> Block:
    """What [`write_block`][] kept."""
    with np.load(path, allow_pickle=False) as stored:
        samples = {name.removeprefix("samples_"): stored[name] for name in stored.files if name != "seconds"}
        return Block(samples, Seconds(*stored["seconds"].tolist()))
