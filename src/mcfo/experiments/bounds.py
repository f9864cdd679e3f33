"""`mcfo reproduce bounds`: Propositions 1 and 2 of the paper on the linear Gaussian model, where all is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mcfo.experiments import bounds_sampling as draws
from mcfo.experiments.bounds_outcomes import BoundsOutcomes
from mcfo.experiments.bounds_sampling import GROWING, SCAN, SCHEMES, STEPS, Problem, build_problem
from mcfo.experiments.jobs import Job, Samples, sampling
from mcfo.experiments.study import Study
from mcfo.objectives.named import fivo, mcfo
from mcfo.proposals.gaussian import AffineGaussian
from mcfo.smc.filter import SMC, sis
from mcfo.smc.resampling import Always, Multinomial


@dataclass(frozen=True)
class Preset:
    """How much is measured.

    - `exact_particles`: the K of exact histories and of IWAE, each a divisor of the next; they share their weights.
    - `exact_replicates`, `path_replicates`: independent sets of the largest K weights, of exact histories and of paths.
    - `smc_replicates`: runs of SMC for each K.
    - `scan_particles`, `scan_replicates`: for the scan of proposals around the optimal one.
    - `growing_steps`, `growing_particles`, `growing_replicates`: the T at which bounds are compared, at one K.
    """

    exact_particles: tuple[int, ...]
    exact_replicates: int
    path_replicates: int
    smc_replicates: dict[int, int]
    scan_particles: tuple[int, ...]
    scan_replicates: int
    growing_steps: tuple[int, ...]
    growing_particles: int
    growing_replicates: int

    @property
    def smc_particles(self) -> int:
        """The least K of SMC that resamples among several particles."""
        return next(size for size in self.smc_replicates if size > 1)


PRESETS = {
    "quick": Preset(
        exact_particles=(1, 5, 10, 50, 100, 500, 1000), exact_replicates=8_000, path_replicates=4_000,
        smc_replicates={1: 20_000, 10: 20_000, 100: 20_000, 1000: 6_000}, scan_particles=(1, 10, 100),
        scan_replicates=2_000, growing_steps=(1, 2, 5, 10, 20, 50, 100), growing_particles=100,
        growing_replicates=2_000,
    ),
    "paper": Preset(
        exact_particles=(1, 5, 10, 50, 100, 500, 1000, 5000, 10_000), exact_replicates=10_000, path_replicates=10_000,
        smc_replicates={1: 100_000, 10: 100_000, 100: 100_000, 1000: 50_000, 10_000: 10_000},
        scan_particles=(1, 10, 100, 1000), scan_replicates=10_000, growing_steps=(1, 2, 5, 10, 20, 50, 100, 200),
        growing_particles=100, growing_replicates=20_000,
    ),
}  # fmt: skip


class Bounds(Study):
    """Bounds of log p(x_1:T) as K, T and the proposal change."""

    name = "bounds"
    title = "Bounds of the log-evidence: Propositions 1 and 2"
    presets: ClassVar = PRESETS
    # The gaps at large K are small differences: in single precision they would be rounding.
    double = True

    def settings(self) -> dict[str, Any]:
        model = {"theta_1": 0.9, "theta_2": 1.2, "initial_mean": 0.5, "initial_variance": 1.0,
                 "transition_variance": 1.0, "emission_variance": 1.0}  # fmt: skip
        return {"model": model, "steps": STEPS}

    def _keys(self) -> tuple[Any, Any]:
        of_data, of_measurements = jax.random.split(jax.random.key(self.seed))
        return of_data, jax.random.split(of_measurements, 6)

    def prepare(self) -> Problem:
        return build_problem(max(self.size.growing_steps), key=self._keys()[0])

    def jobs(self, problem: Problem) -> dict[str, Job]:
        size, model, series, optimal = self.size, problem.model, problem.series, problem.proposals["optimal"]
        of_exact, of_smc, of_paths, of_growing, of_scan, of_values = self._keys()[1]
        no_memory = eqx.tree_at(lambda m: m.transition_matrix, model, jnp.zeros_like(model.transition_matrix))
        forgetful = AffineGaussian.optimal(no_memory)

        def blocks(draw: Any, proposal: Any, sizes: Any, replicates: int, key: Any, series=series, model=model) -> Job:
            def sample(keys: jax.Array) -> Any:
                return draw(model, proposal, series, sizes, keys)._asdict()

            return draws.in_chunks(sample, replicates, sizes[-1] * series.steps, key=key)

        def smc(sampler: SMC, proposal: Any, replicates: int, key: Any, series=series, model=model) -> Job:
            def sample(keys: jax.Array) -> Any:
                return {"log_ratio": draws.log_ratios(sampler, model, proposal, series, keys)}

            return draws.in_chunks(sample, replicates, sampler.particles * series.steps, key=key)

        jobs = {}
        for name, proposal in problem.proposals.items():
            whole = size.exact_particles
            jobs[f"exact-{name}"] = blocks(draws.exact_history_blocks, proposal, whole, size.exact_replicates, of_exact)
            jobs[f"paths-{name}"] = blocks(draws.path_blocks, proposal, whole, size.path_replicates, of_paths)
            for method, scheme in SCHEMES.items():
                for particles, count in size.smc_replicates.items():
                    sampler = SMC(particles, scheme, Always())
                    jobs[f"{method}-{name}-{particles}"] = smc(sampler, proposal, count, of_smc)
        for kind, amounts in SCAN.items():
            for amount in amounts:
                draw = draws.exact_history_blocks, draws.moved(optimal, **{kind: amount}), size.scan_particles
                jobs[f"scan-{kind}-{amount:g}"] = blocks(*draw, size.scan_replicates, of_scan)
        flat = draws.exact_history_blocks, forgetful, size.scan_particles, size.scan_replicates, of_scan
        jobs["no-memory-exact"] = blocks(*flat, model=no_memory)
        sampler, count = SMC(size.smc_particles, Multinomial(), Always()), size.smc_replicates[size.smc_particles]
        jobs["no-memory-smc"] = smc(sampler, forgetful, count, of_smc, model=no_memory)
        for name in GROWING:
            proposal, particles, count = problem.proposals[name], size.growing_particles, size.growing_replicates
            keys = jax.random.split(of_growing, 3)
            resampled = SMC(particles, Multinomial(), Always())
            jobs[f"growing-iwae-{name}"] = smc(sis(particles), proposal, count, keys[0], series=problem.long)
            jobs[f"growing-fivo-{name}"] = smc(resampled, proposal, count, keys[1], series=problem.long)
            draw = draws.exact_history_blocks, proposal, (particles,), count, keys[2]
            jobs[f"growing-mcfo-exact-{name}"] = blocks(*draw, series=problem.long)
        jobs["values"] = sampling(1e7, lambda share: {"gap": self._difference_of_values(problem, of_values)})
        return jobs

    def _difference_of_values(self, problem: Problem, key: Any) -> np.ndarray:
        """|MCFO - FIVO| of the objectives' values on some keys, with the same sampler: zero."""
        proposal, particles = problem.proposals["bootstrap"], self.size.smc_particles
        ours = mcfo(particles, resampling=Multinomial())
        theirs = fivo(particles, resampling=Multinomial(), criterion=Always())

        def value(objective: Any, key: Any) -> float:
            return float(objective.loss(problem.model, proposal, problem.series, key=key)[0])

        return np.array([abs(value(ours, one) - value(theirs, one)) for one in jax.random.split(key, 8)])

    def outcomes(self, problem: Problem, results: dict[str, Samples]) -> BoundsOutcomes:
        return BoundsOutcomes(problem, self.size, results)


STUDY = Bounds
