"""Exact answers against the joint Gaussian of all states and observations, and against statsmodels."""

import jax
import numpy as np
import pytest
import statsmodels.api as sm
from scipy.integrate import quad
from scipy.stats import lognorm, norm

import mcfo
from mcfo.errors import InputError
from mcfo.inference.exact_laws import rolling_laws
from mcfo.inference.observation_laws import ObservationLaws
from mcfo.models.linear_gaussian import LinearGaussian
from mcfo.proposals.base import Bootstrap
from mcfo.proposals.gaussian import LocallyOptimal
from mcfo.series import Series
from mcfo.transforms import read_transform
from support.means import assert_mean
from support.real_series import AIRLINE

STEPS, HORIZON = 12, 4


def two_columns(noise=1.0):
    return LinearGaussian(
        initial_mean=[1.0, -1.0],
        initial_noise=[2.0, 1.0],
        transition_matrix=[[0.8, 0.3], [0.0, 0.9]],
        transition_noise=[[0.5, 0.1], [0.1, 0.3]],
        transition_offset=[0.2, 0.1],
        emission_matrix=[[1.0, 0.0], [0.5, 1.0]],
        emission_noise=[[0.4 * noise, 0.2 * noise], [0.2 * noise, 0.6 * noise]],
        emission_offset=[3.0, -2.0],
    )


def gapped_series(model):
    values = np.array(mcfo.simulate(model, STEPS, key=jax.random.key(3))[1])
    values[4] = np.nan
    values[7, 0] = np.nan
    return Series.from_values(values)


def joint(model, steps):
    """Mean and covariance of (z_1:T, x_1:T), written out with numpy."""
    a, q, c, r = (
        np.asarray(array)
        for array in (
            model.transition_matrix,
            model.transition_noise.matrix,
            model.emission_matrix,
            model.emission_noise.matrix,
        )
    )
    size, means = len(a), [np.asarray(model.initial_mean)]
    covariance = np.zeros((steps * size, steps * size))
    now = np.asarray(model.initial_noise.matrix)
    for step in range(steps):
        if step:
            means.append(a @ means[-1] + np.asarray(model.transition_offset))
            now = a @ now @ a.T + q
        covariance[step * size : (step + 1) * size, step * size : (step + 1) * size] = now
        for later in range(step + 1, steps):
            power = np.linalg.matrix_power(a, later - step)
            covariance[later * size : (later + 1) * size, step * size : (step + 1) * size] = power @ now
            covariance[step * size : (step + 1) * size, later * size : (later + 1) * size] = (power @ now).T
    sees = np.kron(np.eye(steps), c)
    mean = np.concatenate(means)
    seen_mean = sees @ mean + np.tile(np.asarray(model.emission_offset), steps)
    seen = sees @ covariance @ sees.T + np.kron(np.eye(steps), r)
    cross = covariance @ sees.T
    return np.concatenate([mean, seen_mean]), np.block([[covariance, cross], [cross.T, seen]])


def given(mean, covariance, wanted, known, values):
    """The distribution of the entries `wanted` given those in `known`."""
    gain = np.linalg.solve(covariance[np.ix_(known, known)], covariance[np.ix_(known, wanted)]).T
    return (
        mean[wanted] + gain @ (values - mean[known]),
        covariance[np.ix_(wanted, wanted)] - gain @ covariance[np.ix_(known, wanted)],
    )


def forecast_log_scores(model, series):
    """log p(x_t+s | x_1:t) for every origin and horizon, each from the joint Gaussian; NaN without an observation."""
    values, steps = series.values(), series.steps
    mean, covariance = joint(model, steps)
    size, offset = values.shape[1], steps * 2
    scores = np.full((steps, HORIZON), np.nan)
    for origin in range(steps):
        known = [offset + t * size + i for t in range(origin) for i in range(size) if not np.isnan(values[t, i])]
        for ahead in range(HORIZON):
            step = origin + ahead
            if step >= steps or np.isnan(values[step]).all():
                continue
            there = [i for i in range(size) if not np.isnan(values[step, i])]
            wanted = [offset + step * size + i for i in there]
            flat = values.ravel()[np.array(known, int) - offset] if known else np.zeros(0)
            center, spread = given(mean, covariance, wanted, known, flat)
            gap = values[step, there] - center
            scores[origin, ahead] = -0.5 * (
                gap @ np.linalg.solve(spread, gap) + np.linalg.slogdet(spread)[1] + len(there) * np.log(2 * np.pi)
            )
    return scores


def test_rolling_log_scores_are_those_of_the_joint_gaussian_at_every_horizon():
    model = two_columns()
    series = gapped_series(model)
    truth = forecast_log_scores(model, series)
    result = mcfo.evaluate_rolling(model, Bootstrap(), series, horizon=HORIZON)
    assert result.exact
    assert result.particles is None
    scored = ~np.isnan(result.series[0].log_score)
    np.testing.assert_allclose(result.series[0].log_score[scored], truth[scored], rtol=1e-6)
    for ahead, scores in enumerate(result.scores):
        np.testing.assert_allclose(scores.log_score, np.nanmean(truth[: STEPS - HORIZON + 1, ahead]), rtol=1e-6)
        assert scores.log_score_error == 0.0
    # A model with a hundredth more noise is told apart.
    other = mcfo.evaluate_rolling(two_columns(1.01), Bootstrap(), series, horizon=HORIZON)
    assert not np.allclose(other.series[0].log_score[scored], truth[scored], rtol=1e-6)


@pytest.mark.ci
def test_particles_score_as_the_exact_distributions_within_their_printed_errors():
    model = two_columns()
    series = gapped_series(model)
    exact = mcfo.evaluate_rolling(model, Bootstrap(), series, horizon=HORIZON)
    by_particles = mcfo.evaluate_rolling(
        model, Bootstrap(), series, horizon=HORIZON, particles=2000, draws=2000, key=jax.random.key(1)
    )
    assert not by_particles.exact
    for one, other in zip(exact.scores, by_particles.scores, strict=True):
        assert 0 < other.log_score_error < 0.1
        assert abs(one.log_score - other.log_score) < 3 * other.log_score_error
    wrong = mcfo.evaluate_rolling(two_columns(1.5), Bootstrap(), series, horizon=HORIZON)
    assert any(
        abs(one.log_score - other.log_score) > 3 * other.log_score_error
        for one, other in zip(wrong.scores, by_particles.scores, strict=True)
    )


@pytest.mark.ci
def test_narrow_emissions_are_scored_by_draws_of_the_proposal():
    """The local trend of the logarithms of airline passengers has hardly any noise in what is seen."""
    model = LinearGaussian(
        initial_mean=[4.7, 0.01],
        initial_noise=[0.1, 0.001],
        transition_matrix=[[1.0, 1.0], [0.0, 1.0]],
        transition_noise=[0.01, 1e-6],
        emission_matrix=[[1.0, 0.0]],
        emission_noise=1e-10,
    )
    series = Series.from_values(np.log(AIRLINE))
    options = {"horizon": 6, "first": 121, "particles": 1000, "draws": 1000, "key": jax.random.key(0)}
    exact = mcfo.evaluate_rolling(model, Bootstrap(), series, horizon=6, first=121)
    good, blind = (mcfo.evaluate_rolling(model, one, series, **options) for one in (LocallyOptimal(model), Bootstrap()))
    for one, other in zip(exact.scores, good.scores, strict=True):
        assert abs(one.log_score - other.log_score) < 3 * other.log_score_error < 0.1
    # Draws of the transition alone miss what came: their scores are dashes.
    assert np.isnan([one.log_score for one in blind.scores[1:]]).all()


@pytest.mark.ci
def test_a_log_score_that_a_few_draws_decide_is_not_a_number():
    model = LinearGaussian.scalar(1.0, 1.0, transition_variance=1.0, emission_variance=1e-8)
    series = Series.from_values(np.cumsum(np.full(8, 3.5)))
    result = mcfo.evaluate_rolling(model, Bootstrap(), series, horizon=2, particles=20, draws=20, key=jax.random.key(0))
    assert np.isnan(result.scores[1].log_score)
    assert result.scores[1].as_data()["log_score"] is None
    exact = mcfo.evaluate_rolling(model, Bootstrap(), series, horizon=2)
    assert np.isfinite(exact.scores[1].log_score)


@pytest.mark.parametrize("task", ["filter", "smooth"])
def test_states_are_those_of_the_joint_gaussian(task):
    model = two_columns()
    series = gapped_series(model)
    values = series.values()
    mean, covariance = joint(model, STEPS)
    dataset = getattr(mcfo, task)(model, Bootstrap(), series, levels=(0.05, 0.5, 0.95))
    assert dataset.attrs["exact"] == 1
    assert np.isnan(dataset["ess"]).all()
    offset = 2 * STEPS
    for step in range(STEPS):
        last = step if task == "filter" else STEPS - 1
        known = [offset + 2 * t + i for t in range(last + 1) for i in range(2) if not np.isnan(values[t, i])]
        flat = values.ravel()[np.array(known) - offset]
        center, spread = given(mean, covariance, [2 * step, 2 * step + 1], known, flat)
        np.testing.assert_allclose(dataset["latent_mean"][0, step], center, rtol=1e-8)
        upper = center + norm.ppf(0.95) * np.sqrt(np.diag(spread))
        np.testing.assert_allclose(dataset["latent_quantiles"][0, step, 2], upper, rtol=1e-8)
        if task == "smooth" and np.isnan(values[step]).any():
            lost = [offset + 2 * step + i for i in range(2) if np.isnan(values[step, i])]
            filled, around = given(mean, covariance, lost, known, flat)
            columns = [index - offset - 2 * step for index in lost]
            np.testing.assert_allclose(dataset["filled"][0, step, columns], filled, rtol=1e-8)
            upper = filled + norm.ppf(0.95) * np.sqrt(np.diag(around))
            np.testing.assert_allclose(dataset["observation_quantiles"][0, step, 2, columns], upper, rtol=1e-8)
    np.testing.assert_allclose(dataset["log_evidence"][0], mcfo.kalman_filter(model, series).log_evidence)
    wrong = getattr(mcfo, task)(two_columns(1.01), Bootstrap(), series)
    assert not np.allclose(wrong["latent_mean"], dataset["latent_mean"], rtol=1e-8)


@pytest.mark.ci
@pytest.mark.parametrize("task", ["filter", "smooth"])
def test_draws_have_the_exact_distribution(task):
    model = two_columns()
    series = gapped_series(model)
    dataset = getattr(mcfo, task)(model, Bootstrap(), series, draws=4000, seed=1)
    for step in (0, 4, STEPS - 1):
        for entry in range(2):
            assert_mean(
                dataset["latent_draws"][0, step, :, entry].values, float(dataset["latent_mean"][0, step, entry])
            )
            assert_mean(
                dataset["observation_draws"][0, step, :, entry].values,
                float(mcfo.filter(model, Bootstrap(), series)["observation_mean"][0, step, entry])
                if task == "filter"
                else float(_new_mean(model, dataset, step)[entry]),
            )


def _new_mean(model, dataset, step):
    return np.asarray(model.emission_matrix) @ dataset["latent_mean"][0, step].values + np.asarray(
        model.emission_offset
    )


def test_a_structural_model_filters_smooths_and_forecasts_as_statsmodels_does():
    values = sm.datasets.nile.load_pandas().data["volume"].to_numpy().copy()
    values[30:33] = np.nan
    fitted = mcfo.fit("structural", values)
    scales = [float(fitted.model.irregular_scale), float(fitted.model.trend.level_scale)]
    peer = sm.tsa.UnobservedComponents(values, "llevel", use_exact_diffuse=True).smooth([one**2 for one in scales])
    np.testing.assert_allclose(fitted.evaluation.log_evidence, peer.llf, rtol=1e-9)
    smoothed = fitted.smooth(values)
    np.testing.assert_allclose(smoothed["latent_mean"][0, :, 0], peer.smoothed_state[0], rtol=1e-8)
    filtered = fitted.filter(values)
    np.testing.assert_allclose(filtered["latent_mean"][0, :, 0], peer.filtered_state[0], rtol=1e-8)
    ahead = fitted.forecast(values, 10, levels=(0.05, 0.95))
    theirs = peer.get_forecast(10)
    np.testing.assert_allclose(ahead["observation_mean"][0, :, 0], theirs.predicted_mean, rtol=1e-8)
    np.testing.assert_allclose(ahead["observation_quantiles"][0, :, :, 0], theirs.conf_int(alpha=0.1), rtol=1e-8)
    other = sm.tsa.UnobservedComponents(values, "llevel", use_exact_diffuse=True).smooth([one**2.01 for one in scales])
    assert not np.allclose(smoothed["latent_mean"][0, :, 0], other.smoothed_state[0], rtol=1e-8)


def test_forecast_paths_have_the_exact_distribution():
    model = two_columns()
    series = gapped_series(model)
    ahead = mcfo.forecast(model, Bootstrap(), series, 3, draws=4000, seed=2)
    for step in range(3):
        for column in range(2):
            draws = ahead["observation_draws"][0, step, :, column].values
            assert_mean(draws, float(ahead["observation_mean"][0, step, column]))
            low, high = (float(ahead["observation_quantiles"][0, step, index, column]) for index in (0, 4))
            assert_mean(((draws > low) & (draws < high)).astype(float), 0.9)


def test_a_log_normal_distribution_has_the_scores_of_a_log_normal():
    mean, scale = np.array([[0.3]]), 0.7
    laws = ObservationLaws(mean, np.full((1, 1, 1), scale**2), np.ones((1, 1), bool), read_transform("log"))
    truth = lognorm(scale, scale=np.exp(0.3))
    for value in (0.2, 1.0, 9.0):
        values = np.array([[value]])
        np.testing.assert_allclose(laws.log_density(values), truth.logpdf(value), rtol=1e-12)
        np.testing.assert_allclose(laws.below(values), truth.cdf(value), rtol=1e-12)
        below = quad(lambda x: truth.cdf(x) ** 2, 0, value)[0]
        above = quad(lambda x: truth.sf(x) ** 2, value, 200, limit=200)[0]
        np.testing.assert_allclose(laws.crps(values), below + above, rtol=1e-6)
    np.testing.assert_allclose(laws.means(), truth.mean(), rtol=1e-9)
    np.testing.assert_allclose(laws.quantiles((0.1, 0.9))[0, :, 0], truth.ppf([0.1, 0.9]), rtol=1e-10)


def test_the_crps_of_a_gaussian_is_its_integral():
    laws = ObservationLaws(np.array([[1.0]]), np.array([[[4.0]]]), np.ones((1, 1), bool), None)
    below = quad(lambda x: norm.cdf(x, 1.0, 2.0) ** 2, -40, 2.5)[0]
    above = quad(lambda x: norm.sf(x, 1.0, 2.0) ** 2, 2.5, 40)[0]
    np.testing.assert_allclose(laws.crps(np.array([[2.5]])), below + above, rtol=1e-8)


def test_nothing_is_scored_before_a_diffuse_start_is_found():
    fitted = mcfo.fit("structural", sm.datasets.nile.load_pandas().data["volume"].to_numpy()[:40])
    laws, _ = rolling_laws(fitted.model, Series.from_values(np.arange(5.0)), 2)
    np.testing.assert_array_equal(laws.proper[:, 0, 0], [False, True, True, True, True])
    result = mcfo.evaluate_rolling(fitted.model, fitted.proposal, Series.from_values(np.arange(5.0)))
    assert result.scores[0].forecasts == 4


def test_double_precision_whatever_the_session_is():
    model, values = two_columns(), np.array(mcfo.simulate(two_columns(), 30, key=jax.random.key(0))[1]) + 1e6
    shifted = LinearGaussian(
        **{name: getattr(model, name) for name in ("initial_mean", "transition_matrix", "transition_offset")},
        initial_noise=model.initial_noise.matrix,
        transition_noise=model.transition_noise.matrix,
        emission_matrix=model.emission_matrix,
        emission_noise=model.emission_noise.matrix,
        emission_offset=np.array([3.0, -2.0]) + 1e6,
    )
    series = Series.from_values(values)
    double = mcfo.evaluate(shifted, Bootstrap(), series).log_evidence
    with jax.enable_x64(False):
        assert mcfo.evaluate(shifted, Bootstrap(), Series.from_values(values)).log_evidence == double
        rough = float(mcfo.kalman_filter(jax.tree.map(lambda a: np.float32(a), shifted), series).log_evidence)
    assert abs(rough - double) > 1e-3


@pytest.mark.ci
def test_what_cannot_be_answered_exactly_is_refused():
    model = two_columns()
    series = gapped_series(model)
    with pytest.raises(InputError, match=r"There is no method 'exakt'. Did you mean 'exact'"):
        mcfo.filter(model, Bootstrap(), series, method="exakt")
    with pytest.raises(InputError, match="need no particles"):
        mcfo.filter(model, Bootstrap(), series, method="exact", particles=10)
    counts = mcfo.initialize("poisson-counts", Series.from_values([1, 2, 3, 2]))
    with pytest.raises(InputError, match="not known exactly"):
        mcfo.filter(counts.model, counts.proposal, Series.from_values([1, 2]), method="exact")
    assert mcfo.filter(model, Bootstrap(), series, method="particles").attrs["particles"] == 1000
