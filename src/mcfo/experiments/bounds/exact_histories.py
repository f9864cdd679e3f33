"""MCFO as Propositions 1 and 2 of the paper state it: histories drawn from the exact filtering law.

At step t, K histories z_t-1 are drawn independently from p(z_t-1 | x_1:t-1), which the Kalman filter knows, and
z_t from q. Then R_t = K⁻¹ Σ_i w_t^i is a mean of independent weights, unbiased for p(x_t | x_1:t-1), and
L_t^K = E log R_t.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mcfo.kalman import KalmanFilter, kalman_filter
from mcfo.models.linear_gaussian import LinearGaussian
from mcfo.proposals.base import Proposal
from mcfo.series import Frame, Series
from mcfo.smc.noise import from_noise
from mcfo.smc.step import log_densities, prior_and_proposed
from mcfo.smc.step_scan import frames, split_first
from mcfo.types import Key

ROUNDING = 1e-12
"""Log-ratios below this are zero up to rounding."""

Samples: TypeAlias = Float[Array | np.ndarray, " samples"]
"""Independent draws of one number."""


class Blocks(NamedTuple):
    """Means over the disjoint blocks of K among all weights of a replicate: replicates, then K, then steps.

    - `log_ratio`: of log(R_t / p), whose mean is L_t^K - log p(x_t | x_1:t-1).
    - `excess`: of R_t / p - 1, whose mean is zero: the control variate. It is the same for every K.
    - `square`: of log(R_t / p)², for the spread of a single estimate.
    """

    log_ratio: Float[Array, "..."]
    excess: Float[Array, "..."]
    square: Float[Array, "..."]


class Estimate(NamedTuple):
    """A mean and its standard error."""

    value: float
    stderr: float


@eqx.filter_jit
def exact_history_blocks(
    model: LinearGaussian, proposal: Proposal, series: Series, sizes: tuple[int, ...], keys: jax.Array
) -> Blocks:
    """The blocks of independent replicates, one for each key.

    **Arguments:**

    - `sizes`: the numbers of particles K, each a divisor of the next. All share the weights of the largest one, so the
      bounds at two K are paired: their difference varies far less than either.
    """
    exact = kalman_filter(model, series)

    def replicate(key: Key) -> Blocks:
        return in_blocks(log_weight_ratios(model, proposal, series, exact, sizes[-1], key=key), sizes)

    return jax.vmap(replicate)(keys)


def log_weight_ratios(
    model: LinearGaussian,
    proposal: Proposal,
    series: Series,
    exact: KalmanFilter,
    particles: int,
    *,
    key: Key,
) -> Float[Array, "steps particles"]:
    """log(w_t / p(x_t | x_1:t-1)) of independent particles with exact histories, for every step."""
    first, rest = split_first(frames(proposal, series))
    of_histories, of_latents = jax.random.split(key)
    shape = (series.steps, particles, model.latent_size)
    noise = jax.random.normal(of_latents, shape, model.initial_mean.dtype)
    before = jax.tree.map(lambda array: array[:-1], exact.filtered)
    histories = before.sample(particles, key=of_histories)

    def begin(noise: Array) -> Array:
        memory = model.start(first.inputs)
        return _log_weight(model, proposal, memory, noise, first, True)

    def extend(frame, history: Array, noise: Array) -> Array:
        return _log_weight(model, proposal, history, noise, frame, False)

    later = jax.vmap(jax.vmap(extend, in_axes=(None, 0, 0)))(rest, histories, noise[1:])
    log_weights = jnp.concatenate([jax.vmap(begin)(noise[0])[None], later])
    return log_weights - exact.log_evidences[:, None]


def _log_weight(model: Any, proposal: Proposal, memory: Any, noise: Array, frame: Frame, first: bool) -> Array:
    prior, proposed = prior_and_proposed(model, proposal, memory, frame, first=first)
    return log_densities(model, prior, proposed, memory, from_noise(proposed, noise), frame, None).log_weight


def in_blocks(log_ratios: Float[Array, "*steps particles"], sizes: tuple[int, ...]) -> Blocks:
    """Estimates from disjoint blocks of the weights of each size, averaged over the blocks."""
    _check_sizes(sizes, log_ratios.shape[-1])
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
    useful = (control.std(0) > ROUNDING) & (values.std(0) < 1)
    squares = np.where(useful, np.sum(centered**2, axis=0), np.inf)
    slopes = np.sum(centered * values, axis=0) / squares
    return mean(np.sum(values - slopes * control, axis=-1))


def mean(values: Samples) -> Estimate:
    """The mean of independent samples."""
    return Estimate(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))


def _check_sizes(sizes: tuple[int, ...], particles: int) -> None:
    chain = (1, *sizes, particles)
    if any(later % earlier for earlier, later in pairwise(chain)):
        raise ValueError(
            f"The numbers of particles are {sizes} and there are {particles} weights. Give sizes of which each divides "
            "the next, the last dividing the number of weights, as in (1, 10, 100)."
        )
