"""Models against their definitions."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from mcfo import simulate
from mcfo.models import Covariance, LinearGaussian, PoissonCounts, StochasticVolatility
from support.means import assert_mean
from support.problems import vector_model


def scalar_arguments(**changes):
    return {
        "initial_mean": 0.0,
        "initial_noise": 1.0,
        "transition_matrix": 0.5,
        "transition_noise": 1.0,
        "emission_matrix": 1.0,
        "emission_noise": 1.0,
    } | changes


def test_linear_gaussian_densities():
    model = vector_model()
    latent, inputs = jnp.array([0.3, -1.0, 0.5]), None
    mean = model.transition_matrix @ latent + model.transition_offset
    after = jnp.array([0.1, 0.2, -0.4])
    expected = stats.multivariate_normal(mean, model.transition_noise.matrix).logpdf(after)
    np.testing.assert_allclose(model.transition(latent, inputs).log_prob(after), expected)
    mean = model.emission_matrix @ latent + model.emission_offset
    expected = stats.multivariate_normal(mean, model.emission_noise.matrix).logpdf(jnp.ones(2))
    np.testing.assert_allclose(model.emission(None, latent, inputs).log_prob(jnp.ones(2)), expected)


def test_stochastic_volatility_densities():
    model = StochasticVolatility(level=-1.0, persistence=0.9, scale=0.4)
    stationary = model.initial(None, None)
    np.testing.assert_allclose(stationary.variance, 0.16 / (1 - 0.81))
    np.testing.assert_allclose(model.transition(jnp.array([0.5]), None).mean, -1.0 + 0.9 * 1.5)
    expected = stats.norm(0, np.exp(0.25)).logpdf(1.3)
    np.testing.assert_allclose(model.emission(None, jnp.array([0.5]), None).log_prob(jnp.array([1.3])), expected)


def test_poisson_densities():
    emission = PoissonCounts().emission(None, jnp.array([0.7]), None)
    np.testing.assert_allclose(emission.log_prob(jnp.array([3])), stats.poisson(np.exp(0.7)).logpmf(3))


def test_simulation_follows_the_stationary_law():
    model = StochasticVolatility(level=[0.0, 1.0], persistence=0.8, scale=0.5)
    draw = jax.vmap(lambda key: simulate(model, 4, key=key)[0])
    latents = draw(jax.random.split(jax.random.key(0), 5000))
    assert_mean(latents, jnp.broadcast_to(jnp.array([0.0, 1.0]), (4, 2)))
    assert_mean((latents - jnp.array([0.0, 1.0])) ** 2, 0.25 / 0.36)


def test_simulation_of_nothing_is_refused():
    with pytest.raises(ValueError, match="Cannot simulate 0 steps"):
        simulate(vector_model(), 0, key=jax.random.key(0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"transition_noise": -1.0}, "Every variance of the transition_noise must be positive"),
        ({"emission_noise": [1.0, 2.0]}, "emission_noise is of size 2, but 1 is wanted"),
        ({"initial_mean": [0.0, 1.0]}, "initial_mean has shape (2,), but (1,) is wanted"),
        ({"emission_matrix": [[1.0, 2.0]]}, "emission_matrix has shape (1, 2)"),
        ({"transition_inputs": [[1.0], [2.0]]}, "transition_inputs has shape (2, 1), but 1 rows are wanted"),
        ({"initial_noise": [[1.0, 2.0]]}, "Give a square matrix"),
        ({"initial_noise": [[1.0, 2.0], [2.0, 1.0]]}, "is not positive definite"),
        ({"initial_noise": [[1.0, 0.5], [0.0, 1.0]]}, "is not symmetric"),
    ],
)
def test_linear_gaussian_models_that_make_no_sense_are_refused(changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        LinearGaussian(**scalar_arguments(**changes))


@pytest.mark.parametrize(("name", "value"), [("persistence", 1.0), ("scale", 0.0), ("scale", -1.0)])
def test_autoregressions_that_make_no_sense_are_refused(name, value):
    with pytest.raises(ValueError, match=name):
        StochasticVolatility(**{name: value})


@pytest.mark.ci
def test_models_can_be_made_while_tracing():
    """So that a loss may build its model from numbers that it differentiates."""

    def log_density(scale):
        noise = Covariance.from_matrix(jnp.eye(2) * scale)
        return StochasticVolatility(scale=scale).initial(None, None).log_prob(jnp.ones(1)) + noise.gaussian(
            jnp.zeros(2)
        ).log_prob(jnp.ones(2))

    assert np.isfinite(jax.grad(log_density)(0.5))


def test_covariances_read_what_they_wrote():
    matrix = np.array([[2.0, 0.3, 0.1], [0.3, 1.0, -0.2], [0.1, -0.2, 0.5]])
    np.testing.assert_allclose(Covariance.from_matrix(matrix).matrix, matrix)
    np.testing.assert_allclose(Covariance.from_matrix([2.0, 3.0]).matrix, np.diag([2.0, 3.0]))
    np.testing.assert_allclose(Covariance.from_matrix(4.0).factor, [[2.0]])
