"""What the paper prints and what is true: its analytic gradient, its resampling term, and noise that was chosen.

Each is computed beside an exact value: automatic differentiation of the Kalman filter, or a sum over all ancestors
with Gauss-Hermite quadrature over the noise.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mcfo.experiments.gradient_sampling import Problem
from mcfo.experiments.lgssm_problem import parameters
from mcfo.gradients.replay import Step
from mcfo.gradients.score import ResamplingScore
from mcfo.objectives.objective import Estimator, Objective
from mcfo.smc.filter import SMC
from mcfo.smc.resampling import Always, Multinomial
from mcfo.smc.step import prior_and_proposed
from mcfo.smc.step_scan import frame_at, frames
from mcfo.types import Scalar


class NextIncrementScore(ResamplingScore):
    """[`Pathwise`][] plus Σ_t log R_t+1 Σ_i log v_t^{A_i}: the resampling term as the paper's Table 1 has it.

    Each ancestor's score is multiplied by the next increment alone, though the choice of ancestors changes all that
    come after: biased from the third step on.
    """

    def extend(self, carried: Any, step: Step) -> tuple[Any, Scalar]:
        # As if this were the first resampling: earlier scores are forgotten, and later rewards never reach this one.
        _, surrogate = super().extend(self.start(step.log_weights), step)
        return carried, surrogate


def next_increment(particles: int) -> Objective:
    """FIVO with the resampling term of the paper's Table 1."""
    estimator = Estimator(SMC(particles, Multinomial(), Always()), NextIncrementScore())
    return Objective(estimator, estimator, name="next-increment")


def analytic_score(problem: Problem, *, as_printed: bool) -> np.ndarray:
    """∇_θ log p(x_1:T) of the scalar model by the recursion in the paper's appendix.

    As printed, the last term of ∇ log p(x_t | x_1:t-1) is -v_t / S_t and ∇P_t begins with 2 ∇P_t⁻. Corrected, they are
    -v_t ∇v_t / S_t and ∇P_t⁻.
    """
    model = problem.model
    theta_1, theta_2 = float(model.transition_matrix[0, 0]), float(model.emission_matrix[0, 0])
    noise, emission_noise = float(model.transition_noise.matrix[0, 0]), float(model.emission_noise.matrix[0, 0])
    along_1, along_2 = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    mean, variance = float(model.initial_mean[0]), float(model.initial_noise.matrix[0, 0])
    d_mean = d_variance = np.zeros(2)
    total = np.zeros(2)
    for step, observation in enumerate(np.asarray(problem.series.observations)[:, 0]):
        if step:
            d_mean = along_1 * mean + theta_1 * d_mean
            d_variance = along_1 * 2 * theta_1 * variance + theta_1**2 * d_variance
            mean, variance = theta_1 * mean, theta_1**2 * variance + noise
        residual = observation - theta_2 * mean
        d_residual = -along_2 * mean - theta_2 * d_mean
        spread = theta_2**2 * variance + emission_noise
        d_spread = d_variance * theta_2**2 + along_2 * 2 * variance * theta_2
        last = residual / spread * (1.0 if as_printed else d_residual)
        total = total - 0.5 * d_spread / spread + 0.5 * d_spread * residual**2 / spread**2 - last
        gain = theta_2 * variance / spread
        d_gain = (theta_2 * d_variance + along_2 * variance) / spread - theta_2 * variance * d_spread / spread**2
        d_mean, mean = d_mean + residual * d_gain + gain * d_residual, mean + gain * residual
        factor = 2.0 if as_printed else 1.0
        d_variance = factor * d_variance - 2 * gain * spread * d_gain - gain**2 * d_spread
        variance = variance - gain**2 * spread
    return total


def expected_bound_gradient(problem: Problem, *, nodes: int = 10) -> np.ndarray:
    """∇ E[Σ_t log R_t] for two particles and multinomial resampling at every step, without sampling.

    The expectation over ancestors is a sum over all four pairs at each step, that over the noise a Gauss-Hermite sum
    over pairs: 4^(T-1) nodes^(2T) terms, so three steps are what one can afford.
    """
    nodes_at, shares = np.polynomial.hermite_e.hermegauss(nodes)
    shares = shares / shares.sum()
    grid = jnp.asarray(np.stack(np.meshgrid(nodes_at, nodes_at, indexing="ij"), -1).reshape(-1, 2))
    weights = jnp.asarray(np.outer(shares, shares).reshape(-1))
    pairs = jnp.asarray([[0, 0], [0, 1], [1, 0], [1, 1]])

    def rest(modules: Any, step: int, memory: Float[Array, "2 latent"] | None, noise: Float[Array, " 2"]) -> Scalar:
        """log R of this step at this noise, and the expectation of all that follows."""
        model, proposal = modules
        frame = frame_at(frames(proposal, problem.series), step)

        def extend(memory: Any, noise: Scalar) -> tuple[Array, Scalar]:
            if step == 0:
                memory = model.start(frame.inputs)
            prior, law = prior_and_proposed(model, proposal, memory, frame, first=step == 0)
            latent = law.mean + jnp.sqrt(law.variance) * noise
            emission = model.emission(memory, latent, frame.inputs)
            log_weight = prior.log_prob(latent) + emission.log_prob(frame.observation) - law.log_prob(latent)
            return latent, log_weight

        latents, log_weights = jax.vmap(extend, in_axes=(None if memory is None else 0, 0))(memory, noise)
        increment = jax.nn.logsumexp(log_weights) - jnp.log(2.0)
        if step + 1 == problem.series.steps:
            return increment
        chances = jax.nn.softmax(log_weights)

        def after(pair: Array) -> Scalar:
            later = jax.vmap(lambda noise: rest(modules, step + 1, latents[pair], noise))(grid)
            return chances[pair[0]] * chances[pair[1]] * jnp.dot(weights, later)

        return increment + jnp.sum(jax.vmap(after)(pairs))

    @jax.jit
    def all_nodes(model: Any, proposal: Any) -> Any:
        each = jax.lax.map(
            lambda noise: eqx.filter_grad(lambda modules: rest(modules, 0, None, noise))((model, proposal)), grid
        )
        return jax.tree.map(lambda array: jnp.tensordot(weights, array, axes=1), each)

    return np.array([float(part) for part in parameters(*all_nodes(problem.model, problem.proposal)).values()])
