"""The forward algorithm against sums over all paths, written out."""

from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from jax.scipy.special import logsumexp

from mcfo import MarkovModel, Series, forward_backward, forward_filter, stack, viterbi
from mcfo.forward_algorithm import log_evidence, predictive
from mcfo.models import LinearGaussian, MarkovChain
from support.regimes import EMISSIONS, enumerated, gappy, hidden_markov

INITIAL = [0.5, 0.2, 0.3]
STEPS = 5


@pytest.fixture(params=EMISSIONS, scope="module")
def problem(request):
    model = hidden_markov(request.param, initial=INITIAL if request.param == "poisson" else None)
    return model, gappy(model, STEPS)


def prefix(series, steps):
    return Series.from_values(series.values()[:steps])


def test_the_likelihood_is_the_sum_over_all_paths(problem):
    model, series = problem
    exact = logsumexp(enumerated(model, series).log_joint)
    np.testing.assert_allclose(log_evidence(model, series), exact, rtol=0, atol=1e-10)
    # What is missing matters, and so does the order of the steps.
    backwards = Series.from_values(series.values()[::-1])
    full = Series.from_values(np.where(np.isnan(series.values()), 1.0, series.values()))
    assert abs(log_evidence(model, full) - exact) > 1e-3
    assert abs(log_evidence(model, backwards) - exact) > 1e-6


@pytest.mark.ci
def test_ragged_series_and_padding_change_nothing(problem):
    model, series = problem
    others = [series, prefix(series, 3), gappy(model, 4, seed=1)]
    batch = stack([eqx.tree_at(lambda s: s.series_id, one, jnp.int32(k)) for k, one in enumerate(others)])
    exact = [float(logsumexp(enumerated(model, one).log_joint)) for one in others]
    found = jax.vmap(lambda one: log_evidence(model, one))(batch)
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-10)
    padded = forward_backward(model, others[1].pad(7))
    np.testing.assert_allclose(padded.log_states[:3], forward_backward(model, others[1]).log_states, atol=1e-10)
    np.testing.assert_array_equal(viterbi(model, others[1].pad(7))[:3], viterbi(model, others[1]))
    gradient = eqx.filter_grad(log_evidence)(model, others[1].pad(7))
    alone = eqx.filter_grad(log_evidence)(model, others[1])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-10), gradient, alone)


def test_filter_smoother_and_best_path_are_those_of_the_enumeration(problem):
    model, series = problem
    paths, log_joint = enumerated(model, series)
    posterior = np.exp(log_joint - logsumexp(log_joint))

    def marginals(posterior, time):
        return [posterior[paths[: len(posterior), time] == state].sum() for state in range(3)]

    smoothed = np.exp(forward_backward(model, series).log_states)
    np.testing.assert_allclose(smoothed, [marginals(posterior, t) for t in range(STEPS)], atol=1e-10)
    pairs = np.exp(forward_backward(model, series).log_pairs)
    exact = [
        [[posterior[(paths[:, t] == i) & (paths[:, t + 1] == j)].sum() for j in range(3)] for i in range(3)]
        for t in range(STEPS - 1)
    ]
    np.testing.assert_allclose(pairs, exact, atol=1e-10)
    np.testing.assert_array_equal(viterbi(model, series), paths[np.argmax(log_joint)])
    filtered = np.exp(forward_filter(model, series).log_filtered)
    for steps in (3, 2):
        shorter = enumerated(model, prefix(series, steps))
        weights = np.exp(shorter.log_joint - logsumexp(shorter.log_joint))
        exact = [weights[shorter.paths[:, -1] == state].sum() for state in range(3)]
        np.testing.assert_allclose(filtered[steps - 1], exact, atol=1e-10)
    assert np.abs(smoothed[1] - exact).max() > 1e-3  # at the gap the filter is not the smoother


def test_the_best_path_is_not_that_of_the_best_states():
    model = hidden_markov()
    found = [gappy(model, 8, seed=seed) for seed in range(20)]
    differ = [
        not np.array_equal(viterbi(model, one), np.argmax(forward_backward(model, one).log_states, axis=1))
        for one in found
    ]
    assert any(differ)
    for one in (series for series, other in zip(found, differ, strict=True) if other):
        paths, log_joint = enumerated(model, one)
        np.testing.assert_array_equal(viterbi(model, one), paths[np.argmax(log_joint)])


def test_the_gradient_is_that_of_finite_differences(problem):
    model, series = problem
    arrays, static = eqx.partition(model, eqx.is_inexact_array)
    flat, unravel = jax.flatten_util.ravel_pytree(arrays)

    @jax.jit
    def value(flat):
        return log_evidence(eqx.combine(unravel(flat), static), series)

    gradient, size = jax.grad(value)(flat), 1e-5
    differences = jax.vmap(lambda d: (value(flat + size * d) - value(flat - size * d)) / (2 * size))(jnp.eye(len(flat)))
    np.testing.assert_allclose(gradient, differences, rtol=0, atol=1e-8)
    assert np.abs(gradient).max() > 0.1
    one_sided = (value(flat.at[0].add(0.1)) - value(flat)) / 0.1
    assert abs(one_sided - gradient[0]) > 1e-5  # a coarse difference fails the same tolerance


def test_forecasts_are_the_probabilities_of_a_longer_series(problem):
    model, series = problem
    coming = series.values()[:1]
    densities = predictive(model, series, 3).log_prob(jnp.broadcast_to(coming, (3, 2)))
    for horizon in (1, 3):
        gap = np.full((horizon - 1, 2), np.nan)
        longer = Series.from_values(np.concatenate([series.values(), gap, coming]))
        exact = log_evidence(model, longer) - log_evidence(model, series)
        np.testing.assert_allclose(densities[horizon - 1], exact, atol=1e-10)
    assert abs(densities[0] - densities[2]) > 1e-6


def test_quantiles_are_where_the_distribution_function_says(problem):
    model, series = problem
    found, levels = predictive(model, series, 2), jnp.asarray([0.05, 0.5, 0.9])
    discrete = not isinstance(model.emissions, type(EMISSIONS["gaussian"]()))
    quantiles = found.quantiles(levels, discrete=discrete)
    for index, level in enumerate(levels):
        reached = found.cdf(quantiles[:, index])
        if discrete:
            assert (reached >= level).all()
            assert (found.cdf(quantiles[:, index] - 1) < level).all()
        else:
            np.testing.assert_allclose(reached, level, atol=1e-12)

    @jax.jit
    def draw(key):
        of_state, of_value = jax.random.split(key)
        state = jax.random.categorical(of_state, found.log_states[0])
        return model.emission(None, state, None).sample(of_value)

    values = jax.vmap(draw)(jax.random.split(jax.random.key(1), 20000))
    error = np.std(values, axis=0) / 20000**0.5
    assert (np.abs(np.mean(values, axis=0) - found.mean[0]) < 5 * error).all()


def test_the_stationary_distribution_is_stationary():
    chain = MarkovChain.from_probabilities([[0.98, 0.02, 0.0], [0.3, 0.3, 0.4], [0.0, 1e-9, 1 - 1e-9]])
    matrix = np.asarray(chain.transition_probabilities)
    np.testing.assert_allclose(chain.initial_probabilities @ matrix, chain.initial_probabilities, rtol=1e-9)
    assert np.abs(np.full(3, 1 / 3) @ matrix - 1 / 3).max() > 0.01


class Own(MarkovModel):
    """A user's own: numpyro's distributions, and a number of states."""

    jumps: bool = False
    finite_states = 2

    def initial(self, memory, inputs):
        return dist.Categorical(jnp.asarray([0.3, 0.7]))

    def transition(self, memory, inputs):
        return dist.Categorical(jnp.asarray([[0.9, 0.1], [0.2, 0.8]])[memory])

    def emission(self, memory, latent, inputs):
        jump = latent - memory if self.jumps and memory is not None else 0.0
        return dist.Laplace(jnp.atleast_1d(latent + jump), 0.5).to_event(1)


def test_a_model_of_ones_own_is_exact_too():
    values = np.array([0.2, 2.5, 1.1, -2.0])
    start, matrix = np.array([0.3, 0.7]), np.array([[0.9, 0.1], [0.2, 0.8]])
    total = 0.0
    for path in np.ndindex(2, 2, 2, 2):
        probability = start[path[0]] * np.prod([matrix[a, b] for a, b in pairwise(path)])
        total += probability * np.prod(np.exp(-2 * np.abs(values - np.array(path))))
    np.testing.assert_allclose(log_evidence(Own(), Series.from_values(values)), np.log(total), atol=1e-10)
    with pytest.raises(ValueError, match="The emission of Own reads the last state"):
        log_evidence(Own(jumps=True), Series.from_values(values))


def test_other_models_are_refused():
    with pytest.raises(TypeError, match="whose `finite_states` are known, but got LinearGaussian"):
        forward_filter(LinearGaussian.scalar(0.9, 1.0), Series.from_values([1.0, 2.0]))
    with pytest.raises(TypeError, match="One Series is wanted"):
        forward_filter(hidden_markov(), stack([gappy(hidden_markov())]))
