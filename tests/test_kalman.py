"""The Kalman code against statsmodels, which shares nothing with it."""

import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import statsmodels.api as sm
from statsmodels.tools.sm_exceptions import OutputWarning
from statsmodels.tsa.statespace.initialization import Initialization
from statsmodels.tsa.statespace.kalman_smoother import KalmanSmoother

from mcfo import MarkovModel, Series, kalman_filter, kalman_forecast, kalman_smoother, simulate, stack
from mcfo.exact import is_exact, log_evidence
from mcfo.kalman import draw_paths
from mcfo.models import GaussianStructural, LinearGaussian, PoissonCounts, Trend
from mcfo.models.base import InitialForm, LinearForm
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


class TwoViews(MarkovModel):
    """A trend seen twice with correlated noise; its slope has none, and both start diffuse."""

    log_scales: jax.Array

    def initial(self, memory, inputs):
        raise NotImplementedError

    def transition(self, memory, inputs):
        raise NotImplementedError

    def emission(self, memory, latent, inputs):
        raise NotImplementedError

    def linear_form(self, inputs):
        level, first, second = jnp.exp(self.log_scales)
        noise = jnp.array([[first**2, 0.4 * first * second], [0.4 * first * second, second**2]])
        return LinearForm(
            jnp.array([[1.0, 1.0], [0.0, 1.0]]),
            jnp.array([0.1, 0.0]),
            jnp.diag(jnp.array([level**2, 0.0])),
            jnp.array([[1.0, 0.0], [0.5, 2.0]]),
            jnp.array([0.3, -0.2]),
            noise,
        )

    def initial_form(self, inputs):
        return InitialForm(jnp.array([1.0, 2.0]), jnp.zeros((2, 2)), jnp.eye(2))


@pytest.fixture(scope="module")
def two_views():
    """The model, a series with gaps, and what statsmodels makes of it."""
    model = TwoViews(jnp.log(jnp.array([0.4, 0.8, 0.5])))
    generator = np.random.default_rng(7)
    level = np.cumsum(generator.normal(size=25))
    values = np.stack([level, 0.5 * level], 1) + generator.normal(size=(25, 2))
    values[[0, 1], [1, 0]] = np.nan
    values[[9, 10]] = np.nan
    values[17, 0] = np.nan
    form = model.linear_form(None)
    theirs = KalmanSmoother(2, 2, loglikelihood_burn=0)
    theirs.bind(values)
    names = ("transition", "state_intercept", "state_cov", "design", "obs_intercept", "obs_cov")
    for name, array in zip(names, form, strict=True):
        theirs[name] = np.array(array)[:, None] if array.ndim == 1 else np.array(array)
    theirs["selection"] = np.eye(2)
    start = Initialization(2)
    start.set(None, "diffuse")
    # Their diffuse start has mean zero; where it lies changes nothing.
    theirs.initialize(start)
    with warnings.catch_warnings():
        # They say that they decorrelate the noise, as we do.
        warnings.simplefilter("ignore", OutputWarning)
        return model, Series.from_values(values), theirs.smooth()


def test_diffuse_vectors_with_gaps_equal_statsmodels(two_views):
    model, series, result = two_views
    ours, smoothed = kalman_filter(model, series), kalman_smoother(model, series)
    np.testing.assert_allclose(ours.log_evidence, result.llf_obs.sum(), rtol=1e-9)
    np.testing.assert_allclose(ours.filtered.mean[3:].T, result.filtered_state[:, 3:], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(smoothed.mean.T, result.smoothed_state, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(np.moveaxis(smoothed.covariance, 0, -1), result.smoothed_state_cov, rtol=1e-6, atol=1e-9)
    assert np.isinf(ours.predicted.variance()[0]).all()
    assert np.isfinite(ours.filtered.variance()[2:]).all()


def test_score_equals_finite_differences(two_views):
    model, series, _ = two_views
    score = jax.grad(lambda model: log_evidence(model, series))(model).log_scales
    for index in range(3):
        values = [log_evidence(TwoViews(model.log_scales.at[index].add(h)), series) for h in (1e-5, -1e-5)]
        np.testing.assert_allclose(score[index], (values[0] - values[1]) / 2e-5, rtol=1e-6, atol=1e-7)


@pytest.mark.ci
def test_padding_batches_and_precision_change_nothing(two_views):
    model, series, _ = two_views
    whole, whole_smoothed = kalman_filter(model, series), kalman_smoother(model, series)
    exact, short = float(whole.log_evidence), series.window(0, 16)
    batch = stack([series, eqx.tree_at(lambda s: s.series_id, short, jnp.int32(1))])
    found = jax.vmap(lambda one: kalman_filter(model, one).log_evidence)(batch)
    np.testing.assert_allclose(found, [exact, kalman_filter(model, short).log_evidence], rtol=1e-12)
    smoothed = jax.vmap(lambda one: kalman_smoother(model, one).mean)(batch)
    np.testing.assert_allclose(smoothed[1, :16], kalman_smoother(model, short).mean, rtol=1e-9, atol=1e-12)
    with jax.enable_x64(False):
        low = Series.from_values(series.values())
        single = TwoViews(jnp.asarray(np.asarray(model.log_scales), jnp.float32))
        result = kalman_filter(single, low)
        assert result.log_evidence.dtype == jnp.float32
        np.testing.assert_allclose(result.log_evidence, exact, rtol=1e-5)
        np.testing.assert_allclose(kalman_smoother(single, low).mean, whole_smoothed.mean, atol=1e-3)


def test_forecasts_are_missing_steps(two_views):
    """Beyond the end the filter of a series with missing values is a forecast."""
    model, series, _ = two_views
    longer = kalman_filter(model, Series.from_values(np.concatenate([series.values(), np.full((6, 2), np.nan)])))
    last = jax.tree.map(lambda array: array[-1], kalman_filter(model, series).filtered)
    forecast = kalman_forecast(model, last, 6)
    np.testing.assert_allclose(forecast.latent.mean, longer.filtered.mean[-6:], rtol=1e-10)
    np.testing.assert_allclose(forecast.latent.covariance, longer.filtered.covariance[-6:], rtol=1e-10)
    form = model.linear_form(None)
    expected = form.emission_matrix @ forecast.latent.covariance[3] @ form.emission_matrix.T + form.emission_covariance
    np.testing.assert_allclose(forecast.observation.covariance[3], expected, rtol=1e-10)
    np.testing.assert_allclose(
        forecast.observation.mean[3], form.emission_matrix @ forecast.latent.mean[3] + form.emission_offset
    )
    with pytest.raises(ValueError, match="Ask for at least one"):
        kalman_forecast(model, last, 0)


def test_innovations_are_those_of_statsmodels():
    dataset = sm.datasets.nile.load_pandas().data["volume"].to_numpy(float).copy()
    dataset[[5, 6]] = np.nan
    theirs = sm.tsa.UnobservedComponents(dataset, "local level", use_exact_diffuse=True).smooth([15_099.0, 1469.1])
    model = GaussianStructural(trend=Trend(level_scale=1469.1**0.5), irregular_scale=15_099.0**0.5)
    ours = kalman_filter(model, Series.from_values(dataset)).innovations[:, 0]
    expected = theirs.filter_results.standardized_forecasts_error[0]
    expected[[0, 5, 6]] = np.nan
    np.testing.assert_allclose(ours, expected, rtol=1e-8)


@pytest.mark.ci
def test_paths_follow_the_smoothing_law(two_views):
    """Their means and covariances are the smoother's, though the noise of the state is singular."""
    model, series, _ = two_views
    smoothed = kalman_smoother(model, series)
    draws = np.asarray(draw_paths(model, series, 20_000, key=jax.random.key(0)))
    assert_mean(draws, smoothed.mean)
    centered = draws - np.asarray(smoothed.mean)
    assert_mean(np.einsum("nti,ntj->ntij", centered, centered), smoothed.covariance)
    # A slope without noise is the same at every step of a path, which independent draws at each step are not.
    np.testing.assert_allclose(draws[:, 5, 1], draws[:, 20, 1], rtol=1e-6)
    apart = np.asarray(smoothed.sample(100, key=jax.random.key(1)))
    assert np.abs(apart[5, :, 1] - apart[20, :, 1]).max() > 0.01


def test_a_subclass_with_another_emission_is_not_exact():
    class Heavy(LinearGaussian):
        def emission(self, memory, latent, inputs):
            return dist.StudentT(4.0, self.emission_mean(latent, inputs)).to_event(1)

    class Renamed(LinearGaussian):
        pass

    scalar = LinearGaussian.scalar(0.9, 1.0)
    arguments = {
        "initial_mean": 0.0,
        "initial_noise": 1.0,
        "transition_matrix": 0.9,
        "transition_noise": 1.0,
        "emission_matrix": 1.0,
        "emission_noise": 1.0,
    }
    assert is_exact(scalar)
    assert is_exact(Renamed(**arguments))
    assert not is_exact(Heavy(**arguments))
    assert not is_exact(PoissonCounts())
    with pytest.raises(TypeError, match=r"got Heavy\. Use SMC"):
        kalman_filter(Heavy(**arguments), Series.from_values([1.0, 2.0]))
    with pytest.raises(TypeError, match="PoissonCounts has no exact form"):
        log_evidence(PoissonCounts(), Series.from_values([1, 2]))
    with pytest.raises(ValueError, match="has 1 observed dimensions, but the series has 2"):
        kalman_filter(scalar, Series.from_values([[1.0, 2.0]]))
