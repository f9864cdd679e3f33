"""What is compared, and at which size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mcfo.objectives.named import aesmc, bootstrap, iwae, mcfo, nasmc
from mcfo.objectives.objective import Objective

METHODS: dict[str, Callable[[int], Objective]] = {
    "bootstrap": bootstrap,
    "iwae": iwae,
    "aesmc": aesmc,
    "nasmc": nasmc,
    "mcfo-smc": mcfo,
    "mcfo-dreg": lambda particles: mcfo(particles, phi="dreg"),
    "mcfo-fisher": lambda particles: mcfo(particles, theta="fisher"),
}
"""Those that are run with every K; besides them MCFO-PIMH."""


def pimh_name(sweeps: int) -> str:
    """MCFO-PIMH with so many sweeps."""
    return f"mcfo-pimh-{sweeps}"


@dataclass(frozen=True)
class Preset:
    """The size of the experiment.

    - `particles`: each K; `evaluation_particles`: that of the held-out evaluations, the same for all.
    - `sweeps`: each number of Metropolis-Hastings iterations of MCFO-PIMH, with `pimh_particles`.
    - `series`, `test_series`, `length`: the data; `watched`: test series on which runs are followed.
    """

    particles: tuple[int, ...] = (100,)
    sweeps: tuple[int, ...] = (1, 3)
    pimh_particles: int = 100
    evaluation_particles: int = 100
    seeds: tuple[int, ...] = (0, 1, 2)
    steps: int = 3000
    batch: int = 10
    learning_rate: float = 0.01
    series: int = 4000
    test_series: int = 1000
    watched: int = 100
    length: int = 10
    log_every: int = 20

    def jobs(self) -> dict[tuple[str, int], Objective]:
        """The objective of each method and K."""
        jobs = {(name, count): make(count) for count in self.particles for name, make in METHODS.items()}
        for sweeps in self.sweeps:
            jobs[pimh_name(sweeps), self.pimh_particles] = mcfo(self.pimh_particles, sweeps=sweeps)
        return jobs


PRESETS: dict[str, Preset] = {
    "quick": Preset(),
    "paper": Preset(particles=(10, 100, 1000), sweeps=(1, 5, 10), steps=5000, watched=200),
}
