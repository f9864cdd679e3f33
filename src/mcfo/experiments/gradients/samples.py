"""Samples of gradient estimates: the methods compared, and few compiled programs that give all of them.

The rule for theta and the rule for phi do not see each other, so a method takes theta's column from one program and
phi's from another, and the programs are fewer than the methods. Replicates and settings are arguments of a program;
only the objective with its number of particles makes another.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from jaxtyping import Key as KeyArray

from mcfo.kalman import log_evidence
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


class Seconds(NamedTuple):
    """Where the time went."""

    compiling: float
    running: float


def gradient(objective: Objective, problem: Problem, key: Key) -> Float[Array, " parameters"]:
    """One estimate, in the direction of ascent; NaN for phi where the objective does not learn it."""

    def loss(modules: tuple[LinearGaussian, Proposal]):
        return objective.loss(*modules, problem.series, key=key)

    (model, proposal), _ = eqx.filter_grad(loss, has_aux=True)((problem.model, problem.proposal))
    theta = [model.transition_matrix, model.emission_matrix]
    if objective.phi is None or not isinstance(proposal, AffineGaussian):
        phi = [jnp.full(len(PHI), jnp.nan)]
    else:
        phi = [
            proposal.initial_weight,
            proposal.initial_offset,
            proposal.latent_weight,
            proposal.observation_weight,
            proposal.offset,
        ]
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
) -> tuple[Float[np.ndarray, "problems replicates parameters"], Seconds]:
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

    begun = time.perf_counter()
    # At this level compiling takes half as long, and the programs are as fast.
    compiled = jax.jit(estimates).lower(problems[0], keys[0]).compile({"xla_backend_optimization_level": "1"})
    compiling = time.perf_counter() - begun
    samples = np.empty((len(problems), calls, in_turn * side_by_side, len(PARAMETERS)))
    for place, problem in enumerate(problems):
        for call in range(calls):
            samples[place, call] = np.asarray(compiled(problem, keys[call])).reshape(-1, len(PARAMETERS))
            advance(1 / (len(problems) * calls))
    running = time.perf_counter() - begun - compiling
    return samples.reshape(len(problems), -1, len(PARAMETERS))[:, :replicates], Seconds(compiling, running)
