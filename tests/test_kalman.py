"""The Kalman code against statsmodels, which shares nothing with it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import statsmodels.api as sm
from statsmodels.tsa.statespace.kalman_smoother import KalmanSmoother

from mcfo import Series, kalman_filter, kalman_smoother, simulate
from mcfo.models import LinearGaussian
from support.means import assert_mean
from support.problems import vector_model


def local_level(emission_variance, transition_variance, mean, variance):
    return LinearGaussian(
        initial_mean=mean,
        initial_noise=variance,
        transition_matrix=1.0,
        transition_noise=transition_variance,
        emission_matrix=1.0,
        emission_noise=emission_variance,
    )


@pytest.mark.parametrize("missing", [False, True], ids=["complete", "missing"])
def test_nile_equals_statsmodels(missing):
    dataset = sm.datasets.nile.load_pandas().data["volume"].to_numpy(float).copy()
    if missing:
        dataset[[0, 20, 21, 22, 60, 99]] = np.nan
    theirs = sm.tsa.UnobservedComponents(dataset, "local level")
    theirs.ssm.initialize_known(np.array([1000.0]), np.array([[50_000.0]]))
    theirs.ssm.loglikelihood_burn = 0
    result = theirs.smooth([15_099.0, 1469.1])

    model = local_level(15_099.0, 1469.1, 1000.0, 50_000.0)
    series = Series.from_values(dataset)
    ours, smoothed = kalman_filter(model, series), kalman_smoother(model, series)
    np.testing.assert_allclose(ours.log_evidence, result.llf, rtol=1e-6)
    np.testing.assert_allclose(ours.log_evidences, result.llf_obs, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(ours.filtered.mean[:, 0], result.filtered_state[0], rtol=1e-6)
    np.testing.assert_allclose(ours.filtered.variance()[:, 0], result.filtered_state_cov[0, 0], rtol=1e-6)
    np.testing.assert_allclose(ours.predicted.mean[:, 0], result.predicted_state[0, :-1], rtol=1e-6)
    np.testing.assert_allclose(smoothed.mean[:, 0], result.smoothed_state[0], rtol=1e-6)
    np.testing.assert_allclose(smoothed.variance()[:, 0], result.smoothed_state_cov[0, 0], rtol=1e-6)


def test_vectors_with_inputs_and_gaps_equal_statsmodels():
    base = vector_model()
    model = LinearGaussian(
        initial_mean=base.initial_mean,
        initial_noise=base.initial_noise.matrix,
        transition_matrix=base.transition_matrix,
        transition_noise=base.transition_noise.matrix,
        emission_matrix=base.emission_matrix,
        emission_noise=base.emission_noise.matrix,
        transition_offset=base.transition_offset,
        emission_offset=base.emission_offset,
        transition_inputs=[[0.5, 0.0], [0.0, -0.3], [0.2, 0.1]],
        emission_inputs=[[0.0, 0.4], [-0.6, 0.0]],
    )
    steps = 30
    inputs = np.random.default_rng(0).normal(size=(steps, 2))
    _, values = simulate(model, steps, key=jax.random.key(0), inputs=jnp.asarray(inputs))
    values = np.array(values)
    values[3] = np.nan
    values[7, 0] = np.nan
    values[29, 1] = np.nan

    theirs = KalmanSmoother(2, 3, loglikelihood_burn=0)
    theirs.bind(values)
    theirs["design"] = np.asarray(model.emission_matrix)
    theirs["transition"] = np.asarray(model.transition_matrix)
    theirs["selection"] = np.eye(3)
    theirs["obs_cov"] = np.asarray(model.emission_noise.matrix)
    theirs["state_cov"] = np.asarray(model.transition_noise.matrix)
    theirs["obs_intercept"] = np.asarray(model.emission_offset)[:, None] + np.asarray(model.emission_inputs) @ inputs.T
    # Their intercept of step t moves the state to t + 1; ours of step t moves it to t.
    moves = np.asarray(model.transition_offset)[:, None] + np.asarray(model.transition_inputs) @ inputs.T
    theirs["state_intercept"] = np.roll(moves, -1, axis=1)
    theirs.initialize_known(np.asarray(model.initial_mean), np.asarray(model.initial_noise.matrix))
    result = theirs.smooth()

    series = Series.from_values(values, inputs=inputs)
    ours, smoothed = kalman_filter(model, series), kalman_smoother(model, series)
    np.testing.assert_allclose(ours.log_evidences, result.llf_obs, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(ours.filtered.mean.T, result.filtered_state, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(
        np.moveaxis(ours.filtered.covariance, 0, -1), result.filtered_state_cov, rtol=1e-6, atol=1e-9
    )
    np.testing.assert_allclose(smoothed.mean.T, result.smoothed_state, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(np.moveaxis(smoothed.covariance, 0, -1), result.smoothed_state_cov, rtol=1e-6, atol=1e-9)


def test_padding_changes_nothing():
    model = vector_model()
    _, values = simulate(model, 12, key=jax.random.key(1))
    series = Series.from_values(np.where(np.arange(12)[:, None] == 5, np.nan, values))
    padded = series.pad(20)
    ours, longer = kalman_filter(model, series), kalman_filter(model, padded)
    np.testing.assert_allclose(longer.log_evidence, ours.log_evidence, rtol=1e-12)
    np.testing.assert_allclose(longer.filtered.mean[:12], ours.filtered.mean, rtol=1e-12)
    np.testing.assert_allclose(
        kalman_smoother(model, padded).mean[:12],
        kalman_smoother(model, series).mean,
        rtol=1e-10,
        atol=1e-12,
    )


def test_draws_follow_the_filtering_law():
    model = vector_model()
    _, values = simulate(model, 4, key=jax.random.key(2))
    filtered = kalman_filter(model, Series.from_values(values)).filtered
    draws = np.asarray(filtered.sample(20_000, key=jax.random.key(3)))
    assert_mean(np.moveaxis(draws, 1, 0), filtered.mean)
    centered = np.moveaxis(draws, 1, 0) - np.asarray(filtered.mean)
    assert_mean(np.einsum("nti,ntj->ntij", centered, centered), filtered.covariance)
