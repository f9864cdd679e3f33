"""All methods learn, one on each core; each keeps checkpoints, so that the whole can be interrupted and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from mcfo.experiments import pool
from mcfo.experiments.lgssm.methods import Preset
from mcfo.experiments.lgssm.problem import FIXED, Problem, parameters
from mcfo.experiments.lgssm.summary import Learned
from mcfo.experiments.pool import Share
from mcfo.inference.evaluation import evaluate, exact_nll_per_step
from mcfo.learning.fit import fit
from mcfo.learning.progress import Listener
from mcfo.objectives.objective import Objective
from mcfo.proposals.base import Bootstrap
from mcfo.smc.pimh import PIMH
from mcfo.types import Key


def cost(objective: Objective) -> float:
    """Seconds a thousand steps take, about: a filter of a hundred particles and a start."""
    sampler = objective.theta.sampler
    sweeps = sampler.sweeps + 2 if isinstance(sampler, PIMH) else 1
    return 5.0 + 0.03 * sampler.particles * sweeps


def run_all(preset: Preset, problem: Problem, folder: Path, *, key: Key, console: Console) -> list[Learned]:
    """Every method with every K."""
    jobs = preset.jobs()

    def work(job: tuple[str, int], share: Share) -> Learned:
        found = learn(preset, problem, *job, jobs[job], folder, key=key, listener=share)
        console.print(found.sentence(problem.optimum), highlight=False)
        return found

    costs = {job: cost(objective) for job, objective in jobs.items()}
    return list(pool.run_all(costs, work, label=f"{len(jobs)} runs learn", console=console).values())


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
