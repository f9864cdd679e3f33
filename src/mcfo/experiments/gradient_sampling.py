"""Samples of gradient estimates: the settings, the methods, and few compiled programs that give all of them.

The rule for theta and the rule for phi do not see each other, so a method takes theta's column from one program and
phi's from another, and the programs are fewer than the methods. Replicates and settings are arguments of a program;
only the objective with its number of particles makes another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from jaxtyping import Key as KeyArray

from mcfo.kalman import log_evidence
from mcfo.models.base import simulate
from mcfo.models.linear_gaussian import LinearGaussian
from mcfo.objectives.named import aesmc, bootstrap, fivo, iwae, mcfo, nasmc, rws
from mcfo.objectives.objective import Objective
from mcfo.proposals.base import Bootstrap, Proposal
from mcfo.proposals.gaussian import AffineGaussian
from mcfo.series import Series
from mcfo.types import Key

THETA = ("theta_1", "theta_2")
PHI = ("phi_1", "phi_2", "phi_3", "phi_4", "phi_5")
PARAMETERS = THETA + PHI
FIELDS = (
    ("transition_matrix", "emission_matrix"),
    ("initial_weight", "initial_offset", "latent_weight", "observation_weight", "offset"),
)
"""The arrays of the model and of the proposal that hold these."""
SWEEPS = 5
LAG = 3

PROGRAMS: dict[str, Callable[[int], Objective]] = {
    "iwae": iwae,
    "rws": rws,
    "aesmc": aesmc,
    "fivo-full": lambda particles: fivo(particles, full=True),
    "nasmc": nasmc,
    "filter-score-reparameterized": mcfo,
    "fisher-dreg": lambda particles: mcfo(particles, theta="fisher", phi="dreg"),
    "fisher-lag-stl": lambda particles: mcfo(particles, theta=f"fisher-lag-{LAG}", phi="sticking-the-landing"),
    "pimh": lambda particles: mcfo(particles, sweeps=SWEEPS),
    "bootstrap": bootstrap,
}


class Method(NamedTuple):
    """Which programs give a method's columns, what they estimate, and at which K alone it exists, if at one."""

    theta: str
    phi: str | None
    theta_estimand: str
    phi_estimand: str = "none"
    only: int | None = None


_FILTER = "score under the filtering law"
_SCORE = "score of log p(x), bias of order 1/K"
_STEP = "derivative of each step's bound"
_LOCAL, _FISHER, _LAGGED = list(PROGRAMS)[5:8]

METHODS: dict[str, Method] = {
    "elbo": Method("iwae", "iwae", "derivative of the ELBO", "derivative of the ELBO", only=1),
    "iwae": Method("iwae", "iwae", "derivative of the IWAE bound", "derivative of the IWAE bound"),
    "aesmc": Method("aesmc", "aesmc", _FILTER, "FIVO bound without the resampling term"),
    "fivo-full": Method("fivo-full", "fivo-full", "derivative of the FIVO bound", "derivative of the FIVO bound"),
    "alternating": Method("aesmc", "iwae", _FILTER, "derivative of the IWAE bound"),
    "rws": Method("rws", "rws", _SCORE, "KL(p(z_1:T | x) || q)"),
    "nasmc": Method("nasmc", "nasmc", _FILTER, "KL(p(z_t | x_1:t) || q), bias of order 1/K"),
    "bootstrap": Method("bootstrap", None, _FILTER),
    "mcfo-smc": Method(_LOCAL, _LOCAL, _FILTER, _STEP),
    "mcfo-pimh": Method("pimh", "pimh", "filter score, histories of the accepted sweep", _STEP),
    "mcfo-dreg": Method(_LOCAL, _FISHER, _FILTER, _STEP),
    "mcfo-stl": Method(_LOCAL, _LAGGED, _FILTER, "each step's bound without q's score"),
    "mcfo-fisher": Method(_FISHER, _LOCAL, _SCORE, _STEP),
    "mcfo-fisher-lag": Method(_LAGGED, _LOCAL, f"score under the smoothing law of lag {LAG}", _STEP),
}


class Problem(eqx.Module):
    """Where gradients are taken, and of what data."""

    model: LinearGaussian
    proposal: Proposal
    series: Series

    def exact(self) -> np.ndarray:
        """The exact score for theta, and zero for phi: the derivative of each step's bound at its maximum."""
        score = jax.grad(log_evidence)(self.model, self.series)
        theta = np.array([score.transition_matrix[0, 0], score.emission_matrix[0, 0]])
        return np.concatenate([theta, np.zeros(len(PHI))])

    def with_bootstrap(self) -> Problem:
        """The same with the prior for a proposal."""
        return Problem(self.model, Bootstrap(), self.series)


def gradient(objective: Objective, problem: Problem, key: Key) -> Float[Array, " parameters"]:
    """One estimate, in the direction of ascent; NaN for phi where the objective does not learn it."""

    def loss(modules: tuple[LinearGaussian, Proposal]):
        return objective.loss(*modules, problem.series, key=key)

    (model, proposal), _ = eqx.filter_grad(loss, has_aux=True)((problem.model, problem.proposal))
    learned = objective.phi is not None and isinstance(proposal, AffineGaussian)
    theta = [getattr(model, field) for field in FIELDS[0]]
    phi = [getattr(proposal, field) for field in FIELDS[1]] if learned else [jnp.full(len(PHI), jnp.nan)]
    return -jnp.concatenate([part.reshape(-1) for part in theta + phi])


_CHUNK = 20_000
"""Particles side by side: enough to fill vectors, few enough to stay in the cache."""
_CALL = 10_000_000
"""Particle steps in one call: a second or two, so that a bar moves and an interruption is heard."""


def sample(
    objective: Objective,
    problems: list[Problem],
    replicates: int,
    *,
    key: Key,
    advance: Callable[[float], None] = lambda share: None,
) -> Float[np.ndarray, "problems replicates parameters"]:
    """Independent gradient estimates for each problem, with the same keys for all of them.

    **Arguments:**

    - `advance`: called after each part with its share of the whole; may raise to stop.
    """
    particles, steps = objective.theta.sampler.particles, problems[0].series.steps
    side_by_side = max(1, min(replicates, _CHUNK // particles))
    in_turn = max(1, min(-(-replicates // side_by_side), _CALL // (side_by_side * particles * steps)))
    calls = -(-replicates // (side_by_side * in_turn))
    keys = jax.random.split(key, calls * in_turn * side_by_side).reshape(calls, in_turn, side_by_side)

    def estimates(
        problem: Problem, keys: KeyArray[Array, "in_turn side_by_side"]
    ) -> Float[Array, "in_turn side_by_side parameters"]:
        return jax.lax.map(jax.vmap(lambda key: gradient(objective, problem, key)), keys)

    # At this level compiling takes half as long, and the programs are as fast.
    compiled = jax.jit(estimates).lower(problems[0], keys[0]).compile({"xla_backend_optimization_level": "1"})
    samples = np.empty((len(problems), calls, in_turn * side_by_side, len(PARAMETERS)))
    for index, problem in enumerate(problems):
        for call in range(calls):
            samples[index, call] = np.asarray(compiled(problem, keys[call])).reshape(-1, len(PARAMETERS))
            advance(1 / (len(problems) * calls))
    return samples.reshape(len(problems), -1, len(PARAMETERS))[:, :replicates]


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


def _build(setting: Setting, steps: int, key: Key) -> Problem:
    variance = setting.emission_variance
    _, observations = simulate(LinearGaussian.scalar(*setting.data_theta, emission_variance=variance), steps, key=key)
    model = LinearGaussian.scalar(*setting.theta, emission_variance=variance)
    return Problem(model, AffineGaussian.optimal(model), Series.from_values(np.asarray(observations)))


def build_problems(steps: int, seed: int) -> dict[str, Problem]:
    """The settings of the paper, on the same random numbers, and the cases of the errata."""
    of_paper, of_long, of_small = jax.random.split(jax.random.fold_in(jax.random.key(seed), 0), 3)
    problems = {name: _build(setting, steps, of_paper) for name, setting in SETTINGS.items()}
    problems["displaced"] = _displaced(problems["r1"])
    problems["long"] = _build(_LONG, 50, of_long)
    problems["small"] = _timid(_build(_SMALL, 3, of_small))
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
