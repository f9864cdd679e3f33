"""The paper's learning problem: a scalar linear Gaussian model, where to start, where to arrive, what is compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mcfo.experiments.runs import METHODS
from mcfo.inference.evaluation import Evaluation, evaluate
from mcfo.models.base import simulate
from mcfo.models.linear_gaussian import LinearGaussian
from mcfo.objectives.named import mcfo
from mcfo.objectives.objective import Objective
from mcfo.proposals.base import Proposal
from mcfo.proposals.gaussian import AffineGaussian
from mcfo.series import Series
from mcfo.types import Key

THETA = ("theta_1", "theta_2")
PHI = ("phi_1", "phi_2", "phi_3", "phi_4", "phi_5")
TRUTH = (0.9, 1.2)
START = (0.5, 1.0)
EMISSION_VARIANCE = 0.01
FIXED = (
    *(f"model.{name}" for name in ("initial_mean", "initial_noise", "transition_noise", "emission_noise")),
    *("proposal.initial_noise", "proposal.noise"),
)
"""Only theta_1, theta_2 and the five phi are learned; the variances of the proposal stand at their optimum."""
_COMPARED = ("bootstrap", "iwae", "aesmc", "nasmc", "mcfo-smc", "mcfo-dreg", "mcfo-fisher")
"""The methods that are run with every K; besides them MCFO-PIMH."""


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

    @property
    def main(self) -> int:
        """The K of the claims and of the first figures."""
        return 100 if 100 in self.particles else self.particles[-1]

    def objectives(self) -> dict[tuple[str, int], Objective]:
        """The objective of each method and K."""
        found = {(name, count): METHODS[name](count) for count in self.particles for name in _COMPARED}
        for sweeps in self.sweeps:
            found[f"mcfo-pimh-{sweeps}", self.pimh_particles] = mcfo(self.pimh_particles, sweeps=sweeps)
        return found


class Problem(NamedTuple):
    """Data, the model that made them, and the start.

    - `test`: held out; `watched`: its first series, on which the runs are followed.
    - `optimum`: theta and phi where learning should end; `ideal`, `ideal_watched`: its evaluation on all test series
      and on the watched ones.
    """

    train: Series
    test: Series
    watched: Series
    truth: LinearGaussian
    model: LinearGaussian
    proposal: AffineGaussian
    optimum: dict[str, float]
    ideal: Evaluation
    ideal_watched: Evaluation


def build_problem(size: Preset, seed: int) -> Problem:
    """Simulate the data. The proposal starts by taking each observation for the latent: phi_1 = phi_4 = 1."""
    truth = LinearGaussian.scalar(*TRUTH, emission_variance=EMISSION_VARIANCE)
    best = AffineGaussian.optimal(truth)
    keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), 0x6C67), size.series + size.test_series)

    def simulated(key: Key, series_id: jax.Array) -> Series:
        _, observations = simulate(truth, size.length, key=key)
        return Series(observations, None, None, None, series_id, jnp.zeros((), jnp.int32))

    batch = jax.vmap(simulated)(keys, jnp.arange(len(keys), dtype=jnp.int32))

    def part(start: int, end: int) -> Series:
        return jax.tree.map(lambda array: array[start:end], batch)

    test, watched = part(size.series, len(keys)), part(size.series, size.series + size.watched)
    return Problem(
        train=part(0, size.series),
        test=test,
        watched=watched,
        truth=truth,
        model=LinearGaussian.scalar(*START, emission_variance=EMISSION_VARIANCE),
        proposal=AffineGaussian(
            initial_weight=1.0,
            initial_offset=0.0,
            initial_noise=np.asarray(best.initial_noise.matrix),
            latent_weight=0.0,
            observation_weight=1.0,
            offset=0.0,
            covariance=np.asarray(best.noise.matrix),
        ),
        optimum={name: float(value) for name, value in parameters(truth, best).items()},
        ideal=evaluated(truth, best, test, size, seed),
        ideal_watched=evaluated(truth, best, watched, size, seed),
    )


def evaluated(model: Any, proposal: Any, series: Series, size: Preset, seed: int) -> Evaluation:
    """All evaluations use the same random numbers."""
    key = jax.random.fold_in(jax.random.key(seed), 1)
    return evaluate(model, proposal, series, particles=size.evaluation_particles, key=key)


def parameters(model: Any, proposal: Proposal) -> dict[str, Any]:
    """theta and phi under the paper's names."""
    found = {"theta_1": model.transition_matrix[0, 0], "theta_2": model.emission_matrix[0, 0]}
    if isinstance(proposal, AffineGaussian):
        found |= {
            "phi_1": proposal.initial_weight[0, 0],
            "phi_2": proposal.initial_offset[0],
            "phi_3": proposal.latent_weight[0, 0],
            "phi_4": proposal.observation_weight[0, 0],
            "phi_5": proposal.offset[0],
        }
    return found
