"""Regime switching with the linear Gaussian part integrated out, against sums over all paths of regimes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import logsumexp

from mcfo import SMC, Series, simulate
from mcfo.models import LinearGaussian, SwitchingLinearGaussian
from mcfo.proposals import Bootstrap, OptimalRegimes
from mcfo.resampling import Always
from support.means import assert_mean, standard_errors
from support.regimes import PlainSwitching, enumerated_switching, gappy, switching

PARTICLES, RUNS, STEPS = 20, 2000, 5


def ratios(model, proposal, series, exact, *, runs=RUNS, particles=PARTICLES):
    """p̂ / p of independent filters."""
    sampler = SMC(particles, criterion=Always())
    run = jax.jit(jax.vmap(lambda key: sampler(model, proposal, series, key=key).log_evidence))
    return np.exp(np.asarray(run(jax.random.split(jax.random.key(0), runs))) - exact)


@pytest.mark.ci
@pytest.mark.parametrize("dimensions", [1, 2])
def test_the_evidence_is_unbiased_and_gaps_are_left_out_exactly(dimensions):
    model = switching(dimensions)
    series = gappy(model, STEPS)
    exact = float(logsumexp(enumerated_switching(model, series).log_joint))
    bootstrap = ratios(model, Bootstrap(), series, exact)
    optimal = ratios(model, OptimalRegimes(), series, exact)
    assert_mean(bootstrap, 1.0)
    assert_mean(optimal, 1.0)
    assert optimal.var() < bootstrap.var()
    # The same filter fails where a gap is taken for a value.
    filled = Series.from_values(np.where(np.isnan(series.values()), 0.0, series.values()))
    assert np.max(standard_errors(ratios(model, OptimalRegimes(), filled, exact), 1.0)) > 5


@pytest.mark.ci
def test_with_every_path_the_evidence_is_exact():
    """With one regime nothing is random: the memory is the Kalman filter, gaps included."""
    one = switching(2)
    model = SwitchingLinearGaussian(
        [jax.tree.map(lambda array: array[0], one.regimes)], transition_probabilities=[[1.0]]
    )
    series = gappy(one, STEPS)
    exact = float(logsumexp(enumerated_switching(model, series).log_joint))
    found = SMC(2)(model, Bootstrap(), series, key=jax.random.key(0)).log_evidence
    np.testing.assert_allclose(found, exact, atol=1e-10)


@pytest.mark.ci
def test_the_variance_is_ten_times_below_that_of_the_plain_filter():
    model = switching()
    series = gappy(model, STEPS)
    exact = float(logsumexp(enumerated_switching(model, series).log_joint))
    plain = ratios(PlainSwitching(model), Bootstrap(), series, exact)
    assert_mean(plain, 1.0)
    marginalized = ratios(model, OptimalRegimes(), series, exact)
    assert marginalized.var() * 10 < plain.var(), (marginalized.var(), plain.var())
    # More particles alone do not do it: the plain filter with twice as many is not ten times better.
    assert ratios(PlainSwitching(model), Bootstrap(), series, exact, particles=2 * PARTICLES).var() * 10 > plain.var()


def test_a_mixture_of_noises_has_the_evidence_of_the_mixture():
    """Independent levels: log p is then a sum over steps of a mixture of two Gaussians, written out."""
    level = LinearGaussian(
        initial_mean=0.5,
        initial_noise=0.7,
        transition_matrix=0.0,
        transition_noise=0.7,
        transition_offset=[0.5],
        emission_matrix=1.0,
        emission_noise=1.0,
    )
    values = np.array([0.3, 6.0, -1.0, 0.9])
    noises, weights = np.array([0.2, 9.0]), np.array([0.8, 0.2])
    model = SwitchingLinearGaussian.with_mixed_noise(level, list(noises), weights)
    variances = 0.7 + noises
    densities = np.exp(-0.5 * (values[:, None] - 0.5) ** 2 / variances) / np.sqrt(2 * np.pi * variances)
    exact = float(np.sum(np.log(densities @ weights)))
    # The optimal proposal sums over both noises, so that nothing is left to chance here.
    series = Series.from_values(values)
    found = SMC(3)(model, OptimalRegimes(), series, key=jax.random.key(0)).log_evidence
    np.testing.assert_allclose(found, exact, atol=1e-10)
    # One Gaussian with the mixture's variance is another model.
    alone = np.sum(-0.5 * (values - 0.5) ** 2 / (weights @ variances) - 0.5 * np.log(2 * np.pi * (weights @ variances)))
    assert abs(alone - exact) > 0.5


@pytest.mark.ci
def test_inputs_reach_the_memory():
    def model(inputs):
        arguments = {"initial_mean": 0.0, "initial_noise": 1.0, "emission_matrix": 1.0, "transition_noise": 0.5}
        shift = {"transition_inputs": [[1.0]]} if inputs else {"transition_offset": [1.5]}
        return SwitchingLinearGaussian(
            [LinearGaussian(**arguments, **shift, transition_matrix=a, emission_noise=0.3) for a in (0.9, 0.1)],
            transition_probabilities=[[0.9, 0.1], [0.2, 0.8]],
        )

    _, values = simulate(model(False), 6, key=jax.random.key(1))

    def evidence(inputs):
        series = Series.from_values(values, inputs=inputs)
        trace = SMC(50)(model(inputs is not None), OptimalRegimes(), series, key=jax.random.key(2))
        return float(trace.log_evidence)

    evidences = [evidence(None), evidence(np.full(6, 1.5)), evidence(np.zeros(6))]
    assert evidences[0] == pytest.approx(evidences[1], abs=1e-10)
    assert abs(evidences[0] - evidences[2]) > 0.1


def test_labels_ascend_and_the_distribution_stays():
    model = switching()
    order = jnp.asarray([1, 0])
    flipped = SwitchingLinearGaussian(
        [jax.tree.map(lambda array, k=k: array[k], model.regimes) for k in order],
        transition_probabilities=model.chain.transition_probabilities[order][:, order],
        initial_probabilities=model.chain.initial_probabilities[order],
    )
    series = gappy(model, STEPS)
    found, wanted = flipped.canonical(), model.canonical()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-12), found, wanted)
    evidence = [float(logsumexp(enumerated_switching(one, series).log_joint)) for one in (flipped, found)]
    assert evidence[0] == pytest.approx(evidence[1], abs=1e-10)
    assert float(flipped.regimes.emission_offset[0, 0]) != float(found.regimes.emission_offset[0, 0])


def test_what_is_refused():
    one, other = LinearGaussian.scalar(0.9, 1.0), jax.tree.map(lambda array: array[0], switching(2).regimes)
    with pytest.raises(ValueError, match="The 2 regimes have 2 different shapes"):
        SwitchingLinearGaussian([one, other], transition_probabilities=[[0.9, 0.1], [0.1, 0.9]])
    with pytest.raises(ValueError, match="There are 1 regimes, but 2 rows"):
        SwitchingLinearGaussian([one], transition_probabilities=[[0.9, 0.1], [0.1, 0.9]])
    with pytest.raises(ValueError, match="must be positive and sum to one"):
        SwitchingLinearGaussian([one, one], transition_probabilities=[[0.9, 0.2], [0.1, 0.9]])
    with pytest.raises(TypeError, match="OptimalRegimes proposes regimes"):
        SMC(2)(one, OptimalRegimes(), Series.from_values([1.0, 2.0]), key=jax.random.key(0))
