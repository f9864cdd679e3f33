"""Rules for discrete latents against the exact score, and against the exact filter score."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree
from jax.scipy.special import logsumexp

from mcfo.forward_algorithm import forward_filter, log_evidence, trellis
from mcfo.models import GaussianEmission, HiddenMarkov
from mcfo.objectives import mcfo, nasmc
from mcfo.proposals import Bootstrap, OptimalRegimes
from support.means import assert_mean, standard_errors
from support.regimes import TRANSITION, enumerated_switching, gappy, switching

PARTICLES, RUNS, STEPS = 1000, 100, 6


def gradients(objective, model, proposal, series):
    """Independent estimates of what the model's gradient is, flat."""

    @jax.jit
    def one(key):
        gradient = eqx.filter_grad(lambda model: objective.loss(model, proposal, series, key=key)[0])(model)
        return -flat(gradient)

    return np.asarray(jax.lax.map(one, jax.random.split(jax.random.key(0), RUNS)))


def flat(gradient):
    """All entries, but the least standard deviation of Gaussian emissions, which is zero and stays it."""
    if isinstance(gradient, HiddenMarkov):
        gradient = eqx.tree_at(lambda m: m.emissions.least, gradient, None)
    return ravel_pytree(eqx.filter(gradient, eqx.is_inexact_array))[0]


@eqx.filter_jit
@eqx.filter_grad
def filter_score(model, series):
    """Σ_t E[∇ log p(x_t, z_t | z_t-1) | x_1:t], by the exact filter of pairs."""
    table, forward = trellis(model, series), jax.lax.stop_gradient(forward_filter(model, series))
    first = jnp.sum(jnp.exp(forward.log_filtered[0]) * table.first)
    log_pairs = forward.log_filtered[:-1, :, None] + table.steps - forward.log_evidences[1:, None, None]
    return first + jnp.sum(jax.lax.stop_gradient(jnp.exp(log_pairs)) * table.steps)


@pytest.fixture(scope="module")
def problem():
    # Regimes that overlap: one that is hardly ever drawn has no standard error.
    emissions = GaussianEmission([-0.5, 0.0, 0.8], [1.0, 1.5, 0.8])
    model = HiddenMarkov(emissions, transition_probabilities=TRANSITION, initial_probabilities=[0.5, 0.2, 0.3])
    series = gappy(model, STEPS, seed=2)
    score = eqx.filter_jit(eqx.filter_grad(log_evidence))(model, series)
    return model, series, flat(score), flat(filter_score(model, series))


@pytest.mark.ci
@pytest.mark.parametrize("proposal", [Bootstrap(), OptimalRegimes()], ids=lambda one: type(one).__name__)
def test_fisher_agrees_with_the_exact_score(problem, proposal):
    model, series, score, _ = problem
    found = gradients(mcfo(PARTICLES, theta="fisher"), model, proposal, series)
    assert_mean(found, score)


@pytest.mark.ci
def test_nasmc_agrees_with_the_exact_filter_score_and_misses_the_score(problem):
    model, series, score, of_filter = problem
    found = gradients(nasmc(PARTICLES), model, OptimalRegimes(), series)
    assert_mean(found, of_filter)
    assert np.max(standard_errors(found, score)) > 20


@pytest.mark.ci
def test_fisher_agrees_with_the_exact_score_of_a_switching_model():
    model = switching()
    series = gappy(model, 4)
    exact = eqx.filter_grad(lambda model: logsumexp(enumerated_switching(model, series).log_joint))(model)
    found = gradients(mcfo(PARTICLES, theta="fisher"), model, OptimalRegimes(), series)
    assert_mean(found, flat(exact))
    filtered = gradients(mcfo(PARTICLES, theta="filter-score"), model, OptimalRegimes(), series)
    assert np.max(standard_errors(filtered, flat(exact))) > 20
