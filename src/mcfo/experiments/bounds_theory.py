"""The problem of the bounds, and moments of its importance weights in closed form: how fast a bound closes as K grows.

If p̂ = K⁻¹ Σ_i w_i is unbiased for p and its relative variance is σ²/K (up to smaller terms), then by Jensen's
expansion K (log p - E log p̂) → σ²/2. Every weight here is a product of powers of Gaussian densities of affine maps of
the latents, so every σ² is a Gaussian integral:

- exact histories (MCFO): Σ_t V[w_t] / p(x_t | x_1:t-1)², the history of w_t drawn from the filtering law;
- SMC with multinomial resampling at every step (FIVO): Σ_t V[w_t ψ_t] / p(x_t:T | x_1:t-1)² with
  ψ_t(z_t) = p(x_t+1:T | z_t), which is where the smoothing law comes in (Del Moral, 2004; Chopin, 2004);
- whole paths (IWAE): V[Π_t w_t] / p(x_1:T)².

The moments are numpy in float64: the matrices are tiny, and nothing depends on how JAX is configured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

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


class Problem(NamedTuple):
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
    proposals = {"bootstrap": AffineGaussian.prior(model), "wide": moved(optimal, variance=1.5), "optimal": optimal}
    long = Series.from_values(np.asarray(observations))
    return Problem(model, long, proposals, np.asarray(kalman_filter(model, long).log_evidences))


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


def log_gaussian(value: np.ndarray, matrix: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """u ↦ log N(value; matrix u, covariance), as the matrix M of the form -[u, 1]ᵀ M [u, 1] / 2.

    Sums and multiples of such functions are those of their matrices.
    """
    weighted = np.linalg.solve(covariance, matrix)
    shift = -(weighted.T @ value)
    scale = len(value) * np.log(2 * np.pi) + np.linalg.slogdet(covariance)[1]
    constant = value @ np.linalg.solve(covariance, value) + scale
    return np.block([[matrix.T @ weighted, shift[:, None]], [shift, constant]])


def integrated(form: np.ndarray, places: np.ndarray) -> np.ndarray:
    """log ∫ exp over the coordinates at `places`, a function of the others; +∞ where the integral diverges."""
    kept = np.setdiff1d(np.arange(len(form)), places)
    inner = form[np.ix_(places, places)]
    if not np.isfinite(form[-1, -1]) or (np.linalg.eigvalsh(inner) <= 0).any():
        return np.diag([*np.zeros(len(kept) - 1), -np.inf])
    beside = [*form[np.ix_(places, kept[:-1])].T, form[-1, places]]
    removed = form[np.ix_(kept, places)] @ np.column_stack([np.linalg.solve(inner, column) for column in beside])
    removed[-1, -1] += len(places) * np.log(2 * np.pi) - np.linalg.slogdet(inner)[1]
    return form[np.ix_(kept, kept)] - removed


def log_integral(form: np.ndarray) -> float:
    """log ∫ exp over everything."""
    return -0.5 * float(integrated(form, np.arange(len(form) - 1))[0, 0])


@dataclass(frozen=True)
class Step:
    """The densities that make one weight, as functions of u = (z_t-1, z_t); at the first step of u = z_1."""

    history: np.ndarray
    joint: np.ndarray
    proposal: np.ndarray
    before: np.ndarray
    after: np.ndarray

    def powers(self, power: int) -> np.ndarray:
        """log of q(z_t | z_t-1, x_t) w_t^power, the history's law left out."""
        return (1 - power) * self.proposal + power * self.joint

    def placed(self, form: np.ndarray, places: np.ndarray) -> np.ndarray:
        """A function of the coordinates of u at `places`, as one of u."""
        whole, at = np.zeros_like(self.joint), [*places, -1]
        whole[np.ix_(at, at)] = form
        return whole


def log_weight_moments(model: LinearGaussian, proposal: AffineGaussian, series: Series, power: int) -> np.ndarray:
    """log E[w_t^power] for t = 1..T, with z_t-1 ~ p(z_t-1 | x_1:t-1) and z_t ~ q.

    With power one it is log p(x_t | x_1:t-1). With power two

        E[w_t²] = ∫∫ N(z_t-1; m_t-1, P_t-1) p(z_t | z_t-1)² p(x_t | z_t)² / q(z_t | z_t-1, x_t) dz_t-1 dz_t,

    whose integrand is the exponential of a quadratic form in (z_t-1, z_t); it is infinite where that form is not
    negative definite, as it is for proposals much narrower than p(z_t | z_t-1, x_t).
    """
    return np.array([log_integral(step.history + step.powers(power)) for step in _steps(model, proposal, series)])


def relative_variances(model: LinearGaussian, proposal: AffineGaussian, series: Series) -> np.ndarray:
    """V[w_t] / p(x_t | x_1:t-1)² for t = 1..T: K (log p - E log R_t) tends to half of it with exact histories."""
    squares = log_weight_moments(model, proposal, series, 2)
    return np.expm1(squares - 2 * _log_evidences(model, series))


def second_order(model: LinearGaussian, proposal: AffineGaussian, series: Series) -> float:
    """The next term of the expansion with exact histories: K gap = Σ_t v_t / 2 + second_order / K + O(K⁻²).

    With r = R_t / p - 1, E log(1 + r) = -E[r²]/2 + E[r³]/3 - E[r⁴]/4 + ..., where E[r²] = v_t / K,
    E[r³] = E[(w_t / p - 1)³] / K² and E[r⁴] = 3 v_t² / K² + O(K⁻³).
    """
    log_evidences = _log_evidences(model, series)
    second, third = (
        np.exp(log_weight_moments(model, proposal, series, power) - power * log_evidences) for power in (2, 3)
    )
    variances, skews = second - 1, third - 3 * second + 2
    return float(np.sum(0.75 * variances**2 - skews / 3))


def smc_relative_variance(
    model: LinearGaussian, proposal: AffineGaussian, series: Series, length: int | None = None
) -> float:
    """lim K V[p̂ / p] of SMC that resamples multinomially before every step, on the first `length` steps or on all.

    Σ_t (E[(w_t ψ_t)²] / p(x_t:T | x_1:t-1)² - 1), with z_t-1 from the filtering law, z_t from q and
    ψ_t(z_t) = p(x_t+1:T | z_t): what the future will say of z_t weighs the error of step t.
    """
    steps = list(_steps(model, proposal, series))[:length]
    remaining = np.cumsum(_log_evidences(model, series)[:length][::-1])[::-1]
    future, total = np.zeros_like(steps[0].joint), 0.0
    for step, log_evidence in zip(reversed(steps), reversed(remaining), strict=True):
        placed = step.placed(future, step.after)
        total += np.expm1(log_integral(step.history + step.powers(2) + 2 * placed) - 2 * log_evidence)
        future = integrated(step.joint + placed, step.after)
    return float(total)


def path_relative_variances(model: LinearGaussian, proposal: AffineGaussian, series: Series) -> np.ndarray:
    """V[Π_s≤t w_s] / p(x_1:t)² for t = 1..T, of paths that are never resampled; it may be infinite."""
    squares, carried = [], np.zeros((1, 1))
    for step in _steps(model, proposal, series):
        joined = step.powers(2) + step.placed(carried, step.before)
        squares.append(log_integral(joined))
        carried = integrated(joined, step.before)
    return np.expm1(np.array(squares) - 2 * np.cumsum(_log_evidences(model, series)))


def _steps(model: LinearGaussian, proposal: AffineGaussian, series: Series) -> Iterator[Step]:
    if series.observed is not None or series.length is not None:
        raise ValueError("The moments are known for complete series only. Cut gaps and padding off first.")
    size = model.latent_size
    one, zero = np.eye(size), np.zeros((size, size))
    filtered = kalman_filter(model, series).filtered
    means, covariances = _numbers(filtered.mean), _numbers(filtered.covariance)
    transition, emission = _numbers(model.transition_matrix), _numbers(model.emission_matrix)
    transition_noise, emission_noise = _numbers(model.transition_noise.matrix), _numbers(model.emission_noise.matrix)
    transition_offset = zero[0] if model.transition_offset is None else _numbers(model.transition_offset)
    emission_offset = 0.0 if model.emission_offset is None else _numbers(model.emission_offset)
    for time, observation in enumerate(_numbers(series.observations)):
        before = 0 if time == 0 else size
        now = np.hstack([zero[:, :before], one])
        if time == 0:
            history = np.zeros((size + 1, size + 1))
            prior = log_gaussian(_numbers(model.initial_mean), now, _numbers(model.initial_noise.matrix))
            mean = _numbers(proposal.initial_weight) @ observation + _numbers(proposal.initial_offset)
            proposed = log_gaussian(mean, now, _numbers(proposal.initial_noise.matrix))
        else:
            history = log_gaussian(means[time - 1], np.hstack([one, zero]), covariances[time - 1])
            prior = log_gaussian(-transition_offset, np.hstack([transition, -one]), transition_noise)
            mean = _numbers(proposal.observation_weight) @ observation + _numbers(proposal.offset)
            drift = -_numbers(proposal.latent_weight)
            proposed = log_gaussian(mean, np.hstack([drift, one]), _numbers(proposal.noise.matrix))
        joint = prior + log_gaussian(observation - emission_offset, emission @ now, emission_noise)
        yield Step(history, joint, proposed, np.arange(before), np.arange(before, before + size))


def _log_evidences(model: LinearGaussian, series: Series) -> np.ndarray:
    return _numbers(kalman_filter(model, series).log_evidences)


def _numbers(array) -> np.ndarray:
    return np.asarray(array, np.float64)
