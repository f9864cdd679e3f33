"""The optimal proposal against the paper's formulas and against Bayes' rule."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mcfo import Series
from mcfo.models import LinearGaussian
from mcfo.proposals import AffineGaussian, LocallyOptimal
from mcfo.smc.step_scan import frame_at, frames
from support.problems import vector_model


def test_the_papers_optimum():
    theta_1, theta_2, q, r, mean, variance = 0.9, 1.2, 0.7, 0.3, 0.5, 1.4
    model = LinearGaussian.scalar(
        theta_1, theta_2, transition_variance=q, emission_variance=r, initial_mean=mean, initial_variance=variance
    )
    found = AffineGaussian.optimal(model)
    first, later = r + theta_2**2 * variance, r + theta_2**2 * q
    np.testing.assert_allclose(found.initial_weight, theta_2 * variance / first)
    np.testing.assert_allclose(found.initial_offset, mean * r / first)
    np.testing.assert_allclose(found.latent_weight, theta_1 * r / later)
    np.testing.assert_allclose(found.observation_weight, theta_2 * q / later)
    np.testing.assert_allclose(found.offset, 0.0, atol=1e-12)
    np.testing.assert_allclose(found.initial_noise.matrix, variance * r / first)
    np.testing.assert_allclose(found.noise.matrix, q * r / later)


@pytest.mark.parametrize("proposal", [AffineGaussian.optimal, LocallyOptimal], ids=["affine", "locally-optimal"])
def test_the_weight_does_not_depend_on_the_draw(proposal):
    """p(z | h) p(x | z) / q(z | h, x) = p(x | h) for every z, if and only if q is the posterior."""
    model = vector_model()
    proposal = proposal(model)
    steps = frames(proposal, Series.from_values([[0.3, -0.7], [1.1, 0.4]]))
    past = jnp.array([0.2, -0.5, 1.0])

    def log_weight(prior, law, latent, time):
        emission = model.emission(None, latent, None)
        observation = frame_at(steps, time).observation
        return prior.log_prob(latent) + emission.log_prob(observation) - law.log_prob(latent)

    latents = jax.random.normal(jax.random.key(0), (10, 3))
    for time in (0, 1):
        context = frame_at(steps, time).context
        prior = model.initial(None, None) if time == 0 else model.transition(past, None)
        law = proposal.initial(prior, context) if time == 0 else proposal.step(prior, past, context)
        weights = jnp.stack([log_weight(prior, law, latent, time) for latent in latents])
        np.testing.assert_allclose(weights, weights[0], rtol=1e-10)


def test_a_missing_observation_leaves_the_prior():
    model = vector_model()
    past = jnp.array([0.2, -0.5, 1.0])
    prior = model.transition(past, None)
    for proposal in (AffineGaussian.optimal(model), LocallyOptimal(model)):
        steps = frames(proposal, Series.from_values([[0.3, -0.7], [np.nan, np.nan]]))
        law = proposal.step(prior, past, frame_at(steps, 1).context)
        np.testing.assert_allclose(law.mean, prior.mean, rtol=1e-10)
        np.testing.assert_allclose(law.variance, prior.variance, rtol=1e-10)
