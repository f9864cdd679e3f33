"""The full FIVO gradient against the derivative of the expected bound, which is exact for two particles and few steps.

Ancestors are enumerated and the noise is integrated by Gauss-Hermite quadrature, in code that shares nothing with the
library. The truncated gradient, and the paper's Table 1, which rewards an ancestor by the next step alone, must fail.
"""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mcfo
from mcfo import SMC, Estimator, Objective, Series, stack
from mcfo.models import LinearGaussian
from mcfo.resampling import Always, Multinomial
from mcfo.rules import ResamplingScore
from support.gradients import ascent, flat, off_optimum
from support.means import assert_mean, standard_errors

MODEL = LinearGaussian.scalar(0.9, 1.2)
PROPOSAL = off_optimum(MODEL)
VALUES = np.array([3.0, 0.5, -3.0])  # the third step is unkind to what the first one favoured
NODES = 10
SAMPLES = 100_000


def normal(value, mean, variance):
    return -0.5 * ((value - mean) ** 2 / variance + jnp.log(2 * jnp.pi * variance))


def expected_bound(parameters, observations, nodes=NODES):
    """E Σ_t log R_t for K = 2 and multinomial resampling before every step, exactly up to the quadrature."""
    theta_1, theta_2, phi_1, phi_2, phi_3, phi_4, phi_5 = parameters
    first_variance, variance = PROPOSAL.initial_noise.matrix[0, 0], PROPOSAL.noise.matrix[0, 0]
    points, weights = np.polynomial.hermite_e.hermegauss(nodes)
    weights = weights / weights.sum()
    steps = len(observations)
    grid = jnp.asarray(list(itertools.product(range(nodes), repeat=2 * (steps - 1))))

    def step(time, histories, noise):
        """log R_t and log v_t of two particles."""
        x = observations[time]
        if time == 0:
            mean, prior, spread, prior_variance = phi_1 * x + phi_2, 0.5, first_variance, 1.0
        else:
            mean, prior = phi_3 * histories + phi_4 * x + phi_5, theta_1 * histories
            spread, prior_variance = variance, 1.0
        z = mean + jnp.sqrt(spread) * noise
        log_weight = normal(z, prior, prior_variance) + normal(x, theta_2 * z, 1.0) - normal(z, mean, spread)
        log_total = jax.nn.logsumexp(log_weight) - jnp.log(2.0)
        return z, log_total, jax.nn.log_softmax(log_weight)

    def onwards(time, histories, noises):
        z, bound, log_v = step(time, histories, noises[0])
        if time + 1 == steps:
            return bound
        # Two particles are exchangeable, so (0, 1) and (1, 0) lead to the same.
        for pair, copies in (((0, 0), 1.0), ((0, 1), 2.0), ((1, 1), 1.0)):
            chosen = jnp.array(pair)
            probability = copies * jnp.exp(jnp.sum(log_v[chosen]))
            bound = bound + probability * onwards(time + 1, z[chosen], noises[1:])
        return bound

    points, weights = jnp.asarray(points), jnp.asarray(weights)

    def of_first(first):
        def of_node(rest):
            index = jnp.concatenate([first, rest]).reshape(steps, 2)
            return jnp.prod(weights[index]) * onwards(0, None, points[index])

        return jnp.sum(jax.vmap(of_node)(grid))

    pairs = jnp.asarray(list(itertools.product(range(nodes), repeat=2)))
    return jnp.sum(jax.lax.map(jax.checkpoint(of_first), pairs))


class NextStepOnly(mcfo.rules.PathRule):
    """The paper's Table 1: the score of an ancestor times the increment of the next step alone."""

    name = "next-step-only"
    flow = ResamplingScore.flow
    learns = ("theta", "phi")

    def start(self, log_weights):
        return None

    def extend(self, carried, step):
        score = jnp.where(step.resampled, jnp.sum(step.parents[step.ancestors]), 0.0)
        return None, step.increment + jax.lax.stop_gradient(step.increment) * score

    def finish(self, carried, log_weights):
        return jnp.zeros(())


@pytest.mark.slow
@pytest.mark.parametrize("steps", [2, 3])
def test_the_full_gradient_is_the_derivative_of_the_bound(steps):
    series = Series.from_values(VALUES[:steps])
    truth = jax.jit(jax.grad(expected_bound))(flat(MODEL, PROPOSAL), jnp.asarray(VALUES[:steps]))
    sampler = SMC(2, Multinomial(), Always())
    rules = [ResamplingScore(), ResamplingScore(baseline=None), mcfo.rules.Pathwise(), NextStepOnly()]

    @eqx.filter_jit
    def draw(key):
        def one(key):
            both = [Estimator(sampler, rule) for rule in rules]
            return jnp.stack([flat(*ascent(Objective(e, e), MODEL, PROPOSAL, series, key)[0]) for e in both])

        return jax.lax.map(one, jax.random.split(key, SAMPLES), batch_size=5000)

    full, without_baseline, truncated, next_only = np.asarray(draw(jax.random.key(6))).swapaxes(0, 1)
    assert_mean(full, truth, sigmas=4.0)
    assert_mean(without_baseline, truth, sigmas=4.0)
    assert np.max(standard_errors(truncated, truth)) > 10
    if steps == 2:
        np.testing.assert_allclose(next_only, without_baseline)  # there is nothing after the next step
    else:
        assert np.max(standard_errors(next_only, truth)) > 10


@pytest.mark.slow
def test_replicates_are_a_baseline():
    """Unbiased too, and with several runs of the same series far less noisy."""
    one = Series.from_values(VALUES[:2])
    truth = jax.jit(jax.grad(expected_bound))(flat(MODEL, PROPOSAL), jnp.asarray(VALUES[:2]))
    batch = stack([one] * 8)

    @eqx.filter_jit
    def draw(baseline, key):
        objective = mcfo.objectives.fivo(2, full=True, baseline=baseline)
        keys = jax.random.split(key, 5000)
        return jax.lax.map(lambda key: flat(*ascent(objective, MODEL, PROPOSAL, batch, key)[0]), keys, batch_size=1000)

    ours, none = (np.asarray(draw(baseline, jax.random.key(8))) for baseline in ("others", None))
    assert_mean(ours, truth, sigmas=4.0)
    assert_mean(none, truth, sigmas=4.0)
    taught_by_ancestors = slice(1, 4)  # theta_2, phi_1 and phi_2 decide who is resampled before the last step
    assert np.all(ours.std(axis=0)[taught_by_ancestors] < 0.7 * none.std(axis=0)[taught_by_ancestors])


@pytest.mark.slow
def test_the_quadrature_has_converged():
    values = jnp.asarray(VALUES)
    fine, coarse = (
        jax.jit(jax.grad(lambda p, nodes=nodes: expected_bound(p, values, nodes)))(flat(MODEL, PROPOSAL))
        for nodes in (NODES, NODES - 2)
    )
    np.testing.assert_allclose(fine, coarse, atol=1e-3)
