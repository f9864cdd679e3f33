"""All methods learn; each run keeps checkpoints, so that the whole can be interrupted and resumed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from rich.console import Console

from mcfo.catalogue.registry import build
from mcfo.experiments import pool
from mcfo.experiments.pendulum.methods import FIRST_RATE, Preset, cost
from mcfo.experiments.pendulum.motion import motion_foreseen
from mcfo.experiments.pendulum.prediction import follow_all, scores
from mcfo.experiments.pendulum.problem import Problem
from mcfo.experiments.pendulum.summary import Learned
from mcfo.experiments.pool import Share
from mcfo.learning.fit import fit
from mcfo.learning.progress import Listener
from mcfo.objectives.objective import Objective
from mcfo.types import Key

_LOG_EVERY = 10
SCHEDULES: dict[str, Callable[[float], dict[str, float]]] = {
    "cosine": lambda last: {"alpha": last / FIRST_RATE},
    "exponential": lambda last: {"decay_rate": last / FIRST_RATE, "end_value": last},
}
"""Options with which the rate ends at the last one."""


def run_all(preset: Preset, problem: Problem, folder: Path, *, key: Key, console: Console) -> list[Learned]:
    """Every method with every K and seed."""
    jobs = preset.jobs()

    def work(job: tuple[str, int, int], share: Share) -> Learned:
        found = learn(preset, problem, *job, jobs[job], folder, key=key, listener=share)
        console.print(found.sentence(), highlight=False, soft_wrap=True)
        return found

    costs = {job: cost(objective) for job, objective in jobs.items()}
    return list(pool.run_all(costs, work, label=f"{len(jobs)} runs learn", console=console).values())


def learn(
    preset: Preset,
    problem: Problem,
    method: str,
    particles: int,
    seed: int,
    objective: Objective,
    folder: Path,
    *,
    key: Key,
    listener: Listener | None = None,
) -> Learned:
    """One run: networks, order of the data and noise by its seed; evaluated on the same videos as all others."""

    def watch(model: Any, proposal: Any) -> dict[str, Any]:
        return scores(model, proposal, problem.test, problem.gray, particles=preset.evaluation_particles, key=key)

    options = {"latent": preset.latent, "traces": preset.traces, "network_seed": seed}
    start = build("deep", problem.train, options)
    every = max(_LOG_EVERY, preset.steps // preset.evaluations // _LOG_EVERY * _LOG_EVERY)
    fitted = fit(
        start.model,
        start.proposal,
        problem.train,
        objective=objective,
        validation=jax.tree.map(lambda array: array[:1], problem.test),
        out=folder / f"{method}-{particles}-{seed}",
        resume=True,
        watch=watch,
        listener=listener,
        checkpoint_seconds=60.0,
        steps=preset.steps,
        batch=preset.batch,
        seeds=(seed,),
        learning_rate=FIRST_RATE,
        schedule=preset.schedule,
        schedule_options=SCHEDULES[preset.schedule](preset.last_rate),
        rates="by-width",
        fixed=start.fixed,
        log_every=min(_LOG_EVERY, preset.steps),
        watch_every=every,
        evaluate_every=preset.steps,
        evaluation_particles=particles,
        select="last",
        devices=1,
    )
    (one,) = fitted.seeds
    followed = follow_all(one.model, one.proposal, problem.test, particles=preset.evaluation_particles, key=key)
    motion = motion_foreseen(np.asarray(followed.mean), problem.angles, problem.speeds)
    shown = followed if (particles, seed) == preset.shown else None
    return Learned(method, particles, seed, list(fitted.metrics), shown, motion, one.skipped, fitted.seconds)
