"""`mcfo reproduce gradients`: the paper's figures 1, 4, 5 and 6 and its Table 4, with the exact answer beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np

from mcfo.experiments.gradient_outcomes import DISPLACED, PIMH_PARTICLES, SMALL, GradientOutcomes
from mcfo.experiments.gradient_sampling import LAG, PROGRAMS, SETTINGS, SWEEPS, Problem, build_problems, sample
from mcfo.experiments.gradient_theory import analytic_scores, expected_bound_gradient, next_increment
from mcfo.experiments.jobs import Job, Samples, Share, sampling
from mcfo.experiments.study import Study
from mcfo.gradients.rules import Reparameterized
from mcfo.gradients.score import FilterScore, Fisher
from mcfo.objectives.named import fivo, vsmc
from mcfo.objectives.objective import Estimator, Objective
from mcfo.smc.filter import SMC
from mcfo.smc.pimh import PIMH
from mcfo.smc.resampling import Always


@dataclass(frozen=True)
class Preset:
    """The size of the experiment.

    - `particles`: each K; `costly_particles`: the largest K of the full FIVO gradient and of PIMH.
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
_SMALL: dict[str, Callable[[int], Objective]] = {
    SMALL[0]: lambda particles: fivo(particles, full=True),
    SMALL[1]: next_increment,
    SMALL[2]: vsmc,
}


class Prepared(NamedTuple):
    """Problems by name, their exact gradients, and the paper's analytic ones."""

    problems: dict[str, Problem]
    exact: dict[str, np.ndarray]
    analytic: dict[str, dict[str, np.ndarray]]


class Gradients(Study):
    """Gradient estimates of all objectives beside the exact ones."""

    name = "gradients"
    title = "Gradient estimates on a linear Gaussian model"
    presets: ClassVar = {
        "quick": Preset((1, 10, 100, 1000), 1000),
        "paper": Preset((1, 10, 100, 1000, 10_000, 100_000), 10_000),
    }
    # Exact statements are compared exactly.
    double = True

    def settings(self) -> dict[str, Any]:
        settings = {name: setting._asdict() for name, setting in SETTINGS.items()}
        return {"settings": settings, "sweeps": SWEEPS, "lag": LAG}

    def prepare(self) -> Prepared:
        problems = build_problems(self.size.steps, self.seed)
        exact = {name: problem.exact() for name, problem in problems.items()}
        exact["small"] = expected_bound_gradient(problems["small"])
        return Prepared(problems, exact, {name: analytic_scores(problems[name]) for name in (*SETTINGS, "long")})

    def jobs(self, problem: Prepared) -> dict[str, Job]:
        """All samples that the tables, the figures and the errata need."""
        size, problems = self.size, problem.problems
        jobs: dict[str, Job] = {}

        def add(name: str, objective: Objective, chosen: dict[str, Problem], replicates: int) -> None:
            sampler = objective.theta.sampler
            sweeps = sampler.sweeps + 1 if isinstance(sampler, PIMH) else 1
            steps = next(iter(chosen.values())).series.steps
            work = len(chosen) * replicates * sampler.particles * steps * sweeps

            def draw(share: Share) -> dict[str, np.ndarray]:
                key = jax.random.fold_in(jax.random.key(self.seed), 1)
                found = sample(objective, list(chosen.values()), replicates, key=key, advance=share.advance)
                return dict(zip(chosen, found, strict=True))

            # Compiling takes as long as some twenty million particle steps.
            jobs[name] = sampling(work + 2e7, draw)

        for particles in size.particles:
            for name, build in PROGRAMS.items():
                if name in _COSTLY and particles > size.costly_particles:
                    continue
                objective = build(particles)
                chosen = {setting: problems[setting] for setting in SETTINGS}
                if name in DISPLACED and particles > 1:
                    chosen["displaced"] = problems["displaced"]
                if objective.phi is None:
                    chosen = {setting: one.with_bootstrap() for setting, one in chosen.items()}
                add(f"{name}-{particles}", objective, chosen, size.replicates)
        for particles in size.long_particles:
            for name, rule in (("mcfo-smc", FilterScore()), ("mcfo-fisher", Fisher())):
                objective = Objective(Estimator(SMC(particles, criterion=Always()), rule))
                add(f"long-{name}-{particles}", objective, {"long": problems["long"]}, size.long_replicates)
        for name, build in _SMALL.items():
            add(f"small-{name}", build(2), {"small": problems["small"]}, size.small_replicates)
        for name, reuse in (("fresh-noise", False), ("reused-noise", True)):
            sampler = PIMH(SMC(PIMH_PARTICLES, criterion=Always()), SWEEPS, reuse)
            objective = Objective(Estimator(sampler, FilterScore()), Estimator(sampler, Reparameterized()))
            add(f"pimh-{name}", objective, {"r1": problems["r1"]}, size.pimh_replicates)
        return jobs

    def outcomes(self, problem: Prepared, results: dict[str, Samples]) -> GradientOutcomes:
        blocks = {name: result.arrays for name, result in results.items()}
        seconds = sum(result.seconds for result in results.values())
        return GradientOutcomes(self.size, blocks, problem.exact, problem.analytic, seconds)


STUDY = Gradients
