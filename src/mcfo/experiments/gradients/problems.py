"""The settings of the paper's gradient experiments, and the cases that its errata need."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np

from mcfo.experiments.gradients.samples import Problem
from mcfo.models.base import simulate
from mcfo.models.linear_gaussian import LinearGaussian
from mcfo.proposals.gaussian import AffineGaussian
from mcfo.series import Series
from mcfo.types import Key


class Setting(NamedTuple):
    """Data from one theta, gradients at another, phi at the locally optimal proposal of the latter."""

    theta: tuple[float, float]
    data_theta: tuple[float, float]
    emission_variance: float


SETTINGS: dict[str, Setting] = {
    "r1": Setting((0.9, 10.0), (0.9, 10.0), 1.0),
    "r0.01": Setting((0.9, 10.0), (0.9, 10.0), 0.01),
    "off-optimum": Setting((0.6, 8.0), (0.9, 10.0), 1.0),
}
_LONG = Setting((0.8, 1.08), (0.9, 1.2), 1.0)
_SMALL = Setting((0.9, 1.2), (0.9, 1.2), 1.0)


def _problem(setting: Setting, steps: int, key: Key) -> Problem:
    variance = setting.emission_variance
    _, observations = simulate(LinearGaussian.scalar(*setting.data_theta, emission_variance=variance), steps, key=key)
    model = LinearGaussian.scalar(*setting.theta, emission_variance=variance)
    return Problem(model, AffineGaussian.optimal(model), Series.from_values(np.asarray(observations)))


def make_problems(steps: int, seed: int) -> dict[str, Problem]:
    """The settings of the paper, on the same random numbers, and the cases of the errata."""
    of_paper, of_long, of_small = jax.random.split(jax.random.fold_in(jax.random.key(seed), 0), 3)
    problems = {name: _problem(setting, steps, of_paper) for name, setting in SETTINGS.items()}
    problems["displaced"] = _displaced(problems["r1"])
    problems["long"] = _problem(_LONG, 50, of_long)
    problems["small"] = _timid(_problem(_SMALL, 3, of_small))
    return problems


def _displaced(problem: Problem) -> Problem:
    """Both offsets of the proposal, φ_2 and φ_5, half a standard deviation of the proposal away from the optimum."""
    proposal = problem.proposal
    assert isinstance(proposal, AffineGaussian)
    offsets = (
        proposal.initial_offset + 0.5 * proposal.initial_noise.factor[0],
        proposal.offset + 0.5 * proposal.noise.factor[0],
    )
    return eqx.tree_at(lambda p: (p.proposal.initial_offset, p.proposal.offset), problem, offsets)


def _timid(problem: Problem) -> Problem:
    """A proposal that follows the observation 0.4 times as far as the optimal one: its weights differ."""
    return eqx.tree_at(
        lambda p: (p.proposal.initial_weight, p.proposal.observation_weight), problem, replace_fn=lambda w: 0.4 * w
    )
