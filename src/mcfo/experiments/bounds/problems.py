"""What the bounds are measured on: the paper's linear Gaussian model, a series, proposals around the optimal one."""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from mcfo.kalman import kalman_filter
from mcfo.models.base import simulate
from mcfo.models.linear_gaussian import LinearGaussian
from mcfo.proposals.gaussian import AffineGaussian
from mcfo.series import Series
from mcfo.types import Key

STEPS = 10
"""T of everything that does not grow T."""


@dataclass(frozen=True)
class Problem:
    """The paper's linear Gaussian model, one simulated series, and the proposals that are compared on it.

    The series of T = 10 steps is the beginning of the long one.
    """

    model: LinearGaussian
    long: Series
    proposals: dict[str, AffineGaussian]
    log_evidences: np.ndarray

    @classmethod
    def of(cls, model: LinearGaussian, long: Series, proposals: dict[str, AffineGaussian]) -> Problem:
        """With the exact log p(x_t | x_1:t-1) of every step of the long series."""
        return cls(model, long, proposals, np.asarray(kalman_filter(model, long).log_evidences))

    @property
    def series(self) -> Series:
        """The series of T = 10 steps."""
        return self.long.window(0, STEPS)

    @property
    def log_evidence(self) -> float:
        """log p(x_1:T), T = 10."""
        return float(self.log_evidences[:STEPS].sum())


def make_problem(steps: int, *, key: Key) -> Problem:
    """theta = (0.9, 1.2), mu_0 = 0.5, sigma_0 = 1, Q = 1, R = 1, and a series of so many steps."""
    model = LinearGaussian.scalar(0.9, 1.2)
    _, observations = simulate(model, steps, key=key)
    optimal = AffineGaussian.optimal(model)
    proposals = {"bootstrap": prior_proposal(model), "wide": moved(optimal, variance=1.5), "optimal": optimal}
    return Problem.of(model, Series.from_values(np.asarray(observations)), proposals)


def prior_proposal(model: LinearGaussian) -> AffineGaussian:
    """q(z_t | z_t-1, x_t) = p(z_t | z_t-1) in affine form, so that it runs the same program as the others."""
    nothing = jnp.zeros((model.latent_size, model.observed_size))
    offset = jnp.zeros(model.latent_size) if model.transition_offset is None else model.transition_offset
    return AffineGaussian(
        initial_weight=nothing,
        initial_offset=model.initial_mean,
        initial_noise=model.initial_noise.matrix,
        latent_weight=model.transition_matrix,
        observation_weight=nothing,
        offset=offset,
        covariance=model.transition_noise.matrix,
    )


def moved(proposal: AffineGaussian, *, shift: float = 0.0, variance: float = 1.0) -> AffineGaussian:
    """The proposal with its mean moved by so many standard deviations, and its variance multiplied."""

    def move(offset: Array, log_diagonal: Array) -> tuple[Array, Array]:
        return offset + shift * jnp.exp(log_diagonal), log_diagonal + 0.5 * jnp.log(variance)

    initial_offset, initial_noise = move(proposal.initial_offset, proposal.initial_noise.log_diagonal)
    offset, noise = move(proposal.offset, proposal.noise.log_diagonal)
    return eqx.tree_at(
        lambda q: (q.initial_offset, q.initial_noise.log_diagonal, q.offset, q.noise.log_diagonal),
        proposal,
        (initial_offset, initial_noise, offset, noise),
    )
