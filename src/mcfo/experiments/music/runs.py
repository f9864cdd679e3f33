"""All methods learn; each run keeps checkpoints, so that the whole can be interrupted and resumed."""

from __future__ import annotations

from pathlib import Path

import jax
from rich.console import Console

from mcfo.catalogue.registry import build
from mcfo.experiments import pool
from mcfo.experiments.music.methods import Course, Job, Preset, cost
from mcfo.experiments.music.problem import Problem
from mcfo.experiments.music.summary import Learned
from mcfo.experiments.pool import Share
from mcfo.inference.evaluation import Evaluation, evaluate
from mcfo.learning.fit import fit
from mcfo.learning.progress import Listener
from mcfo.objectives.objective import Objective
from mcfo.series import Series
from mcfo.types import Key

_LOG_EVERY = 20
_TRAINING_PIECES = 50
"""Of the training split, those on which a run is evaluated in the end, to see what it has by heart."""


def run_all(
    preset: Preset, problems: dict[str, Problem], folder: Path, *, key: Key, console: Console, devices: int
) -> list[Learned]:
    """Every data set with every method, K and seed: one run at a time shared by all devices, or one on each core."""
    jobs, courses = preset.jobs(), dict(preset.courses)

    def work(job: Job, share: Share) -> Learned:
        found = learn(
            preset, courses[job.data], problems[job.data], job, jobs[job], folder, key=key, listener=share,
            devices=devices,
        )  # fmt: skip
        console.print(found.sentence(), highlight=False, soft_wrap=True)
        return found

    costs = {job: cost(job, courses[job.data], problems[job.data].mean_length) for job in jobs}
    label = f"{len(jobs)} run{'s learn' if len(jobs) > 1 else ' learns'}"
    return list(pool.run_all(costs, work, label=label, console=console, workers=_workers(devices)).values())


def seconds_together(learned: list[Learned], devices: int) -> float:
    """How long these take, as many at a time as `run_all` has."""
    return sum(one.seconds for one in learned) / pool.at_once(_workers(devices))


def _workers(devices: int) -> int:
    return 1 if devices > 1 else 2


def learn(
    preset: Preset,
    course: Course,
    problem: Problem,
    job: Job,
    objective: Objective,
    folder: Path,
    *,
    key: Key,
    listener: Listener | None = None,
    devices: int = 1,
) -> Learned:
    """One run, and its best parameters by the validation split on the test split, with the same keys as all others."""
    start = build("vrnn", problem.train, {"network_seed": job.seed})
    log_every = min(_LOG_EVERY, course.steps)
    fitted = fit(
        start.model,
        start.proposal,
        problem.train,
        objective=objective,
        validation=problem.valid,
        out=folder / job.name,
        resume=True,
        listener=listener,
        checkpoint_seconds=60.0,
        steps=course.steps,
        batch=course.batch,
        seeds=(job.seed,),
        optimizer="adamw" if course.decay else "adam",
        optimizer_options={"weight_decay": course.decay} if course.decay else {},
        learning_rate=course.rate,
        schedule="cosine",
        fixed=start.fixed,
        log_every=log_every,
        evaluate_every=max(log_every, course.steps // course.evaluations),
        evaluation_particles=preset.validation_particles,
        window=course.window,
        devices=devices,
    )
    (one,) = fitted.seeds
    particles = preset.test_particles

    def on(pieces: list[Series], particles: int, key: Key) -> Evaluation:
        return evaluate(one.model, one.proposal, pieces, particles=particles, predictions=False, key=key)

    tests = [on(problem.test, particles, jax.random.fold_in(key, number)) for number in range(preset.test_runs)]
    known = problem.train[:: max(1, len(problem.train) // _TRAINING_PIECES)]
    return Learned(
        job,
        list(fitted.metrics),
        tests=tests,
        few=on(problem.test, job.particles, key),
        known=on(known, particles, key),
        valid=one.evaluation,
        best_step=one.best_step or course.steps,
        skipped=one.skipped,
        seconds=fitted.seconds,
    )
