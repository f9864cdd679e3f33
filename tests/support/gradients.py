"""Gradient samples of the paper's scalar model and affine proposal, in the order of its tables."""

import equinox as eqx
import jax
import jax.numpy as jnp

from mcfo.kalman import log_evidence
from mcfo.models import LinearGaussian
from mcfo.proposals import AffineGaussian

PARAMETERS = ("theta_1", "theta_2", "phi_1", "phi_2", "phi_3", "phi_4", "phi_5")
THETA, PHI = slice(0, 2), slice(2, 7)


def flat(model, proposal):
    """theta_1, theta_2, phi_1..phi_5 of a model and a proposal, or of gradients with respect to them."""
    theta = [model.transition_matrix, model.emission_matrix]
    phi = [
        proposal.initial_weight,
        proposal.initial_offset,
        proposal.latent_weight,
        proposal.observation_weight,
        proposal.offset,
    ]
    return jnp.stack([jnp.reshape(array, ()) for array in (*theta, *phi)])


def ascent(objective, model, proposal, batch, key):
    """The gradient that an objective follows, and its run."""
    gradients, run = eqx.filter_grad(lambda both: objective.loss(*both, batch, key=key), has_aux=True)(
        (model, proposal)
    )
    return jax.tree.map(jnp.negative, gradients), run


@eqx.filter_jit
def samples(objective, model, proposal, series, key, count, chunk=100):
    """Independent gradient estimates, (count, 7)."""

    def one(key):
        gradients, _ = ascent(objective, model, proposal, series, key)
        return flat(*gradients)

    return jax.lax.map(one, jax.random.split(key, count), batch_size=chunk)


def exact_score(model, series):
    """The derivative of log p(x_1:T) by theta_1 and theta_2."""
    score = eqx.filter_jit(eqx.filter_grad(log_evidence))(model, series)
    return jnp.stack([score.transition_matrix[0, 0], score.emission_matrix[0, 0]])


def off_optimum(model: LinearGaussian) -> AffineGaussian:
    """A proposal with every parameter, the variances too, away from the optimum."""
    best = AffineGaussian.optimal(model)
    return AffineGaussian(
        initial_weight=best.initial_weight + 0.1,
        initial_offset=best.initial_offset - 0.2,
        initial_noise=1.4 * best.initial_noise.matrix,
        latent_weight=best.latent_weight - 0.15,
        observation_weight=best.observation_weight - 0.1,
        offset=best.offset + 0.2,
        covariance=1.3 * best.noise.matrix,
    )
