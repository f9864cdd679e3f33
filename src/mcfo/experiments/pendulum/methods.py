"""What is compared, and at which size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mcfo.objectives.named import aesmc, mcfo, nasmc
from mcfo.objectives.objective import Objective
from mcfo.smc.pimh import PIMH

PROPOSAL_PARTICLES = 10
SWEEPS = 5
FIRST_RATE = 1e-2
PAPER_STEPS = 23_000
"""Iterations after which a rate of 1e-2 that falls by 0.998 every 10 of them has come to 1e-4."""

METHODS: dict[str, Callable[[int], Objective]] = {
    "aesmc": aesmc,
    "nasmc": nasmc,
    "mcfo-smc": lambda particles: mcfo(particles, proposal_particles=PROPOSAL_PARTICLES),
    "mcfo-pimh": lambda particles: mcfo(particles, proposal_particles=PROPOSAL_PARTICLES, sweeps=SWEEPS),
    "mcfo-dreg": lambda particles: mcfo(particles, phi="dreg"),
    "mcfo-lag": lambda particles: mcfo(
        particles, proposal_particles=PROPOSAL_PARTICLES, theta="fisher-lag-3", phi="path-kl-lag-3"
    ),
}
"""The paper's methods, and ours: DReG for phi, with all K particles, as it is to repair what more of them do; and for
theta and phi the weights of three steps later, of which both learn what frames tell of the latents before them."""


@dataclass(frozen=True)
class Preset:
    """The size of the experiment.

    - `methods`: some of `METHODS`; `particles`: each K for theta (AESMC, NASMC and DReG: for phi too).
    - `steps`: iterations; the learning rate falls from 1e-2 to `last_rate` in so many. The paper's falls to 1e-4 in
      23 000, exponentially.
    - `schedule`: how it falls. In few iterations an exponential spends most of them at rates too low to learn by; a
      cosine keeps to the high ones for longer.
    - `latent`, `traces`: of the deep model. Two latents say where the rod is, and their traces how it moves; with the
      paper's three and no traces, rules that do not go back through time hardly find the speed.
    - `series`, `test_series`, `length`: the data; `evaluated`: test videos that everything is evaluated on, evenly
      spread.
    - `evaluation_particles`: of the filter that evaluates; `evaluations`: how often it does during a run.
    - `last`: the share of these, the last ones, over which tables average.
    """

    methods: tuple[str, ...] = tuple(METHODS)
    particles: tuple[int, ...] = (10,)
    seeds: tuple[int, ...] = (0,)
    steps: int = 800
    last_rate: float = 1e-4
    schedule: str = "cosine"
    batch: int = 5
    latent: int = 2
    traces: int = 2
    series: int = 500
    test_series: int = 500
    length: int = 20
    evaluated: int = 8
    evaluation_particles: int = 1000
    evaluations: int = 5
    last: float = 0.3

    @property
    def shown(self) -> tuple[int, int]:
        """K and seed of the runs whose pictures are drawn."""
        return self.particles[-1], self.seeds[0]

    def jobs(self) -> dict[tuple[str, int, int], Objective]:
        """The objective of each method, K and seed."""
        return {
            (method, particles, seed): METHODS[method](particles)
            for seed in self.seeds
            for particles in self.particles
            for method in self.methods
        }


def cost(objective: Objective) -> float:
    """How long an iteration takes, about: passes of all particles through the decoder."""
    estimators = (objective.theta,) if objective.shares_run else (objective.theta, objective.phi)
    samplers = [estimator.sampler for estimator in estimators if estimator is not None]
    passes = [sampler.particles * (sampler.sweeps + 3 if isinstance(sampler, PIMH) else 3) for sampler in samplers]
    return float(sum(passes))


PRESETS: dict[str, Preset] = {
    "quick": Preset(),
    "long": Preset(particles=(10, 20), seeds=(0, 1)),
    "paper": Preset(
        particles=(10, 20, 50, 100, 200, 500, 1000),
        seeds=(0, 1, 2),
        steps=PAPER_STEPS,
        schedule="exponential",
        latent=3,
        traces=0,
        evaluated=500,
        evaluations=100,
        last=0.05,
    ),
}
