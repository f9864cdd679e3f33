"""Draws of log R_t and log p̂ on the paper's linear Gaussian model, in chunks that fit into memory.

MCFO as Propositions 1 and 2 of the paper state it has histories from the exact filtering distribution: at step t, K
histories z_t-1 are drawn independently from p(z_t-1 | x_1:t-1), which the Kalman filter knows, and z_t from q. Then
R_t = K⁻¹ Σ_i w_t^i is a mean of independent weights, unbiased for p(x_t | x_1:t-1), and L_t^K = E log R_t.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mcfo.experiments.jobs import Job, sampling
from mcfo.experiments.outcomes import Estimate
from mcfo.kalman import KalmanFilter, kalman_filter
from mcfo.models.base import simulate
from mcfo.models.linear_gaussian import LinearGaussian
from mcfo.proposals.base import Proposal
from mcfo.proposals.gaussian import AffineGaussian
from mcfo.series import Frame, Series
from mcfo.smc.filter import SMC, sis
from mcfo.smc.noise import from_noise
from mcfo.smc.resampling import Multinomial, Systematic
from mcfo.smc.step import log_densities, prior_and_proposed
from mcfo.smc.step_scan import frames, split_first
from mcfo.types import Key

STEPS = 10
"""T of everything that does not grow T."""
SCAN = {
    "shift": (-1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0),
    "variance": (0.55, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 2.5, 3.0),
}
"""Proposals around the optimal one: its mean in standard deviations, and its variance by a factor."""
SCHEMES = {"mcfo-smc": Multinomial(), "mcfo-smc-systematic": Systematic()}
METHODS = ("iwae", "fivo", "mcfo-exact")
GROWING = ("bootstrap", "optimal")
"""The proposals with which these are compared as T grows."""
_ROUNDING = 1e-12
"""Log-ratios below this are zero up to rounding."""
_CHUNK = 2**20
"""Weights that are drawn at once: a few hundred megabytes at most with all that is made from them."""


class Blocks(NamedTuple):
    """Means over the disjoint blocks of K among all weights of a replicate: replicates, then K, then steps.

    - `log_ratio`: of log(R_t / p), whose mean is L_t^K - log p(x_t | x_1:t-1).
    - `excess`: of R_t / p - 1, whose mean is zero: the control variate. It is the same for every K.
    - `square`: of log(R_t / p)², for the spread of a single estimate.
    """

    log_ratio: Float[Array, "..."]
    excess: Float[Array, "..."]
    square: Float[Array, "..."]


@eqx.filter_jit
def exact_history_blocks(
    model: LinearGaussian, proposal: Proposal, series: Series, sizes: tuple[int, ...], keys: jax.Array
) -> Blocks:
    """The blocks of independent replicates, one for each key.

    The `sizes` are numbers of particles K, each a divisor of the next. All share the weights of the largest one, so the
    bounds at two K are paired: their difference varies far less than either.
    """
    exact = kalman_filter(model, series)

    def replicate(key: Key) -> Blocks:
        return in_blocks(log_weight_ratios(model, proposal, series, exact, sizes[-1], key=key), sizes)

    return jax.vmap(replicate)(keys)


def log_weight_ratios(
    model: LinearGaussian, proposal: Proposal, series: Series, exact: KalmanFilter, particles: int, *, key: Key
) -> Float[Array, "steps particles"]:
    """log(w_t / p(x_t | x_1:t-1)) of independent particles with exact histories, for every step."""
    first, rest = split_first(frames(proposal, series))
    of_histories, of_latents = jax.random.split(key)
    shape = (series.steps, particles, model.latent_size)
    noise = jax.random.normal(of_latents, shape, model.initial_mean.dtype)
    before = jax.tree.map(lambda array: array[:-1], exact.filtered)
    histories = before.sample(particles, key=of_histories)

    def log_weight(frame: Frame, memory: Any, noise: Array, *, first: bool = False) -> Array:
        prior, proposed = prior_and_proposed(model, proposal, memory, frame, first=first)
        return log_densities(model, prior, proposed, memory, from_noise(proposed, noise), frame, None).log_weight

    begun = jax.vmap(lambda noise: log_weight(first, model.start(first.inputs), noise, first=True))(noise[0])
    later = jax.vmap(jax.vmap(log_weight, in_axes=(None, 0, 0)))(rest, histories, noise[1:])
    return jnp.concatenate([begun[None], later]) - exact.log_evidences[:, None]


def in_blocks(log_ratios: Float[Array, "*steps particles"], sizes: tuple[int, ...]) -> Blocks:
    """Estimates from disjoint blocks of the weights of each size, averaged over the blocks."""
    particles = log_ratios.shape[-1]
    if any(later % earlier for earlier, later in pairwise((1, *sizes, particles))):
        raise ValueError(
            f"The numbers of particles are {sizes} and there are {particles} weights. Give sizes of which each divides "
            "the next, the last dividing the number of weights, as in (1, 10, 100)."
        )
    estimates, previous, means = log_ratios, 1, []
    for size in sizes:
        ratio = size // previous
        if ratio > 1:
            grouped = estimates.reshape(*estimates.shape[:-1], -1, ratio)
            estimates = jax.nn.logsumexp(grouped, axis=-1) - np.log(ratio)
        means.append(Blocks(estimates.mean(-1), jnp.expm1(estimates).mean(-1), (estimates**2).mean(-1)))
        previous = size
    return jax.tree.map(lambda *each: jnp.stack(each), *means)


def controlled_mean(
    values: Float[Array | np.ndarray, " samples *terms"], control: Float[Array | np.ndarray, " samples *terms"]
) -> Estimate:
    """E[values], or of their sum over terms, freed of what control variates of mean zero explain, one for each term.

    For log(p̂ / p) the control p̂ / p - 1 removes the term of first order: what is left is of the size of the gap itself.
    The coefficients are those of least squares; estimating them from n samples costs a relative bias of order 1/n.
    Where log p̂ spreads by more than a nat the control is left out: p̂ / p then owes its mean to values that no sample
    shows. It is left out too where it is nothing but rounding, as with one step and the optimal proposal.
    """
    values, control = (np.asarray(each).reshape(len(each), -1) for each in (values, control))
    centered = control - control.mean(0)
    useful = (control.std(0) > _ROUNDING) & (values.std(0) < 1)
    squares = np.where(useful, np.sum(centered**2, axis=0), np.inf)
    slopes = np.sum(centered * values, axis=0) / squares
    return mean(np.sum(values - slopes * control, axis=-1))


def mean(values: Float[Array | np.ndarray, " samples"]) -> Estimate:
    """The mean of independent samples."""
    return Estimate(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))


@eqx.filter_jit
def log_ratios(sampler: SMC, model: LinearGaussian, proposal: AffineGaussian, series: Series, keys: jax.Array) -> Array:
    """log p̂(x_1:t) / p(x_1:t) for every t: the first t steps of a run are a run on the first t steps."""
    exact = kalman_filter(model, series).log_evidences
    increments = jax.vmap(lambda key: sampler(model, proposal, series, key=key).record.log_evidence)(keys)
    return jnp.cumsum(increments - exact, axis=-1)


@eqx.filter_jit
def path_blocks(
    model: LinearGaussian, proposal: AffineGaussian, series: Series, sizes: tuple[int, ...], keys: jax.Array
) -> Blocks:
    """The blocks of weights of whole paths that are never resampled."""
    exact = kalman_filter(model, series).log_evidence

    def replicate(key: Key) -> Blocks:
        trace = sis(sizes[-1])(model, proposal, series, key=key)
        log_paths = trace.state.log_weights + jnp.log(sizes[-1]) + trace.log_evidence
        return in_blocks(log_paths - exact, sizes)

    return jax.vmap(replicate)(keys)


def in_chunks(sample: Callable[[jax.Array], Any], replicates: int, weights: int, *, key: Key) -> Job:
    """A job that draws replicates, of this many weights each; `sample` gives arrays by name for some keys."""
    chunk = max(1, min(replicates, _CHUNK // weights))
    count = -(-replicates // chunk)

    def draw_all(share: Any) -> dict[str, np.ndarray]:
        parts = []
        for number in range(count):
            arrays = sample(jax.random.split(jax.random.fold_in(key, number), chunk))
            parts.append(jax.tree.map(np.asarray, arrays))
            share.advance(1 / count)
        return jax.tree.map(lambda *each: np.concatenate(each)[:replicates], *parts)

    # Compiling takes as long as some ten million weights.
    return sampling(replicates * weights + 1e7, draw_all)


@dataclass(frozen=True)
class Problem:
    """The paper's linear Gaussian model, one simulated series, and the proposals that are compared on it.

    The series of T = 10 steps is the beginning of the long one. `log_evidences` are the exact log p(x_t | x_1:t-1) of
    every step of the long one.
    """

    model: LinearGaussian
    long: Series
    proposals: dict[str, AffineGaussian]
    log_evidences: np.ndarray

    @property
    def series(self) -> Series:
        """The series of T = 10 steps."""
        return self.long.window(0, STEPS)

    @property
    def log_evidence(self) -> float:
        """log p(x_1:T), T = 10."""
        return float(self.log_evidences[:STEPS].sum())


def build_problem(steps: int, *, key: Key) -> Problem:
    """theta = (0.9, 1.2), mu_0 = 0.5, sigma_0 = 1, Q = 1, R = 1, and a series of `steps` steps."""
    model = LinearGaussian.scalar(0.9, 1.2)
    _, observations = simulate(model, steps, key=key)
    optimal = AffineGaussian.optimal(model)
    proposals = {"bootstrap": prior_proposal(model), "wide": moved(optimal, variance=1.5), "optimal": optimal}
    long = Series.from_values(np.asarray(observations))
    return Problem(model, long, proposals, np.asarray(kalman_filter(model, long).log_evidences))


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
    """The proposal with its mean moved by `shift` standard deviations, and its variance multiplied."""

    def move(offset: Array, log_diagonal: Array) -> tuple[Array, Array]:
        return offset + shift * jnp.exp(log_diagonal), log_diagonal + 0.5 * jnp.log(variance)

    first = move(proposal.initial_offset, proposal.initial_noise.log_diagonal)
    later = move(proposal.offset, proposal.noise.log_diagonal)
    return eqx.tree_at(
        lambda q: (q.initial_offset, q.initial_noise.log_diagonal, q.offset, q.noise.log_diagonal),
        proposal,
        (*first, *later),
    )


class Point(NamedTuple):
    """A bound at one K and T.

    - `gap`: log p - E log p̂; `ratio`: the mean of p̂ / p, or of R_t / p over all steps with exact histories: one, up to
      its standard error.
    - `spread`: the standard deviation of one log p̂; `limit`: of K x gap, in closed form; NaN where none is known.
    - `increase`: how much the bound grew since the K before, paired; None where the K do not share their weights.
    """

    particles: int
    gap: Estimate
    ratio: Estimate
    spread: float
    limit: float
    increase: Estimate | None = None

    @property
    def k_gap(self) -> Estimate:
        return Estimate(*(self.particles * part for part in self.gap))


def points_of_blocks(sizes: tuple[int, ...], blocks: Mapping[str, np.ndarray], limit: float) -> list[Point]:
    """The points of each K from blocks of one estimate a step, or of one estimate a path."""
    log_ratio, excess, square = (blocks[name].reshape(*blocks[name].shape[:2], -1) for name in Blocks._fields)
    spreads = np.sqrt(np.sum(square.mean(0) - log_ratio.mean(0) ** 2, axis=-1))
    totals = log_ratio.sum(-1)
    return [
        Point(
            size,
            controlled_mean(-log_ratio[:, place], excess[:, place]),
            mean(1 + excess[:, place].mean(-1)),
            float(spreads[place]),
            limit,
            mean(totals[:, place] - totals[:, place - 1]) if place else None,
        )
        for place, size in enumerate(sizes)
    ]


def point_of_samples(particles: int, values: np.ndarray, limit: float) -> Point:
    """A point from independent values of log p̂ / p."""
    gap, ratio = controlled_mean(-values, np.expm1(values)), mean(np.exp(values))
    return Point(particles, gap, ratio, float(values.std(ddof=1)), limit)


def point_of_first_steps(particles: int, blocks: Mapping[str, np.ndarray], time: int, limit: float) -> Point:
    """A point of the first steps of exact histories."""
    log_ratio, excess = (blocks[name][:, 0, :time] for name in ("log_ratio", "excess"))
    spread = float(log_ratio.sum(-1).std(ddof=1))
    return Point(particles, controlled_mean(-log_ratio, excess), mean(1 + excess.mean(-1)), spread, limit)
