"""All methods learn, one on each core; each keeps checkpoints, so that the whole can be interrupted and resumed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from mcfo.experiments.lgssm.methods import Preset
from mcfo.experiments.lgssm.problem import FIXED, Problem, parameters
from mcfo.experiments.lgssm.summary import Learned
from mcfo.objectives.base import Objective
from mcfo.proposals.base import Bootstrap
from mcfo.smc.pimh import PIMH
from mcfo.training.devices import cores
from mcfo.training.evaluation import evaluate, exact_nll_per_step
from mcfo.training.loop import fit
from mcfo.training.progress import Listener
from mcfo.types import Key


class _StoppedError(Exception):
    """Another run failed, or the user interrupted."""


class _Share(Listener):
    """Moves a bar that several runs share; raises in their threads when they must end."""

    def __init__(self, progress: Progress, task: Any, cost: float, stop: threading.Event):
        self._progress, self._task, self._cost, self._stop = progress, task, cost, stop

    def begin(self, steps: int, step: int, particles: int) -> None:
        self._steps, self._step = steps, 0
        self._move(step)

    def update(self, lines: list[dict[str, Any]]) -> None:
        if self._stop.is_set():
            raise _StoppedError
        self._move(lines[0]["step"])

    def _move(self, step: int) -> None:
        self._progress.advance(self._task, self._cost * (step - self._step) / self._steps)
        self._step = step


def cost(objective: Objective) -> float:
    """Seconds a thousand steps take, about: a filter of a hundred particles and a start."""
    sampler = objective.theta.sampler
    sweeps = sampler.sweeps + 2 if isinstance(sampler, PIMH) else 1
    return 5.0 + 0.03 * sampler.particles * sweeps


def run_all(preset: Preset, problem: Problem, folder: Path, *, key: Key, console: Console) -> list[Learned]:
    """Every method with every K."""
    jobs = preset.jobs()
    stop = threading.Event()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task(f"{len(jobs)} runs learn", total=sum(map(cost, jobs.values())))

        def work(method: str, particles: int, objective: Objective) -> Learned:
            listener = _Share(progress, bar, cost(objective), stop)
            found = learn(preset, problem, method, particles, objective, folder, key=key, listener=listener)
            console.print(found.sentence(problem.optimum), highlight=False)
            return found

        with ThreadPoolExecutor(min(2, cores())) as pool:
            order = sorted(jobs.items(), key=lambda job: -cost(job[1]))
            futures = {pool.submit(work, *place, objective): place for place, objective in order}
            try:
                found = {futures[future]: future.result() for future in as_completed(futures)}
            except BaseException:
                stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return [found[place] for place in jobs]


def learn(
    preset: Preset,
    problem: Problem,
    method: str,
    particles: int,
    objective: Objective,
    folder: Path,
    *,
    key: Key,
    listener: Listener | None = None,
) -> Learned:
    """One method, all seeds in one program, and what it learned, evaluated on all test series."""

    def watch(model: Any, proposal: Any) -> dict[str, Any]:
        return {**parameters(model, proposal), "exact_nll_per_step": exact_nll_per_step(model, problem.watched)}

    proposal = Bootstrap() if method == "bootstrap" else problem.proposal
    fitted = fit(
        problem.model,
        proposal,
        problem.train,
        objective=objective,
        validation=problem.watched,
        out=folder / f"{method}-{particles}",
        resume=True,
        watch=watch,
        listener=listener,
        steps=preset.steps,
        batch=preset.batch,
        seeds=preset.seeds,
        learning_rate=preset.learning_rate,
        fixed=tuple(path for path in FIXED if method != "bootstrap" or path.startswith("model")),
        log_every=preset.log_every,
        evaluate_every=preset.log_every,
        evaluation_particles=preset.evaluation_particles,
        select="average",
        devices=1,
    )
    return Learned(
        method=method,
        particles=particles,
        lines=list(fitted.metrics),
        parameters=[
            {name: float(value) for name, value in parameters(one.model, one.proposal).items()} for one in fitted.seeds
        ],
        evaluations=[
            evaluate(one.model, one.proposal, problem.test, particles=preset.evaluation_particles, key=key)
            for one in fitted.seeds
        ],
        skipped=[one.skipped for one in fitted.seeds],
        seconds=fitted.seconds,
    )
