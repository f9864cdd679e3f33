"""The paper's learning problem: series of a scalar linear Gaussian model, where to start, and where to arrive."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mcfo.models.base import simulate
from mcfo.models.linear_gaussian import LinearGaussian
from mcfo.proposals.base import Proposal
from mcfo.proposals.gaussian import AffineGaussian
from mcfo.series import Series

THETA = ("theta_1", "theta_2")
PHI = ("phi_1", "phi_2", "phi_3", "phi_4", "phi_5")
TRUTH = (0.9, 1.2)
START = (0.5, 1.0)
EMISSION_VARIANCE = 0.01
FIXED = (
    "model.initial_mean",
    "model.initial_noise",
    "model.transition_noise",
    "model.emission_noise",
    "proposal.initial_noise",
    "proposal.noise",
)
"""Only theta_1, theta_2 and the five phi are learned; the variances of the proposal stand at their optimum."""


class Problem(NamedTuple):
    """Data, the model that made them, and the start.

    - `test`: held out; `watched`: its first series, on which the runs are followed.
    - `optimum`: theta and phi where learning should end.
    """

    train: Series
    test: Series
    watched: Series
    truth: LinearGaussian
    model: LinearGaussian
    proposal: AffineGaussian
    optimum: dict[str, float]


def make_problem(*, series: int, test_series: int, watched: int, steps: int, seed: int) -> Problem:
    """Simulates the data. The proposal starts by taking each observation for the latent: phi_1 = phi_4 = 1."""
    truth = LinearGaussian.scalar(*TRUTH, emission_variance=EMISSION_VARIANCE)
    best = AffineGaussian.optimal(truth)
    keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), 0x6C67), series + test_series)
    observations = jax.vmap(lambda key: simulate(truth, steps, key=key)[1])(keys)
    test = _batch(observations[series:], first=series)
    return Problem(
        train=_batch(observations[:series], first=0),
        test=test,
        watched=jax.tree.map(lambda array: array[:watched], test),
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
    )


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


def _batch(observations: jax.Array, *, first: int) -> Series:
    def one(values: jax.Array, number: jax.Array) -> Series:
        return Series(values, None, None, None, number, jnp.zeros((), jnp.int32))

    return jax.vmap(one)(observations, jnp.arange(first, first + len(observations), dtype=jnp.int32))
