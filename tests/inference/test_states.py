"""Filtered and smoothed summaries against the exact ones, and what becomes of gaps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from mcfo import Series, fit, kalman_filter, kalman_smoother, simulate
from mcfo.inference.datasets import named_series
from mcfo.inference.filtering import filter
from mcfo.inference.forecasting import forecast
from mcfo.inference.quantiles import weighted_mean, weighted_quantiles
from mcfo.inference.smoothing import smooth
from mcfo.models import PoissonCounts
from mcfo.objectives import mcfo
from mcfo.proposals import Bootstrap, LocallyOptimal
from support.learning import TRUTH, make_series, start
from support.memory import Remembering
from support.problems import vector_model

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


def gappy(model, steps, *, seed=0, share=0.2):
    """A simulated series without a share of its values, and those values."""
    values = np.array(simulate(model, steps, key=jax.random.key(seed))[1])
    gone = np.random.default_rng(seed).random(values.shape) < share
    gone[0] = False
    return np.where(gone, np.nan, values), values


def test_quantiles_of_weighted_particles():
    values = jnp.array([[3.0, 10.0], [1.0, jnp.nan], [2.0, 30.0], [4.0, 20.0]])
    log_weights = jnp.log(jnp.array([0.2, 0.0, 0.7, 0.1]))
    found = weighted_quantiles(values, log_weights, jnp.array([0.05, 0.69, 0.75, 0.95]))
    np.testing.assert_array_equal(found[:, 0], [2.0, 2.0, 3.0, 4.0])
    np.testing.assert_array_equal(found[:, 1], [10.0, 30.0, 30.0, 30.0])
    np.testing.assert_allclose(weighted_mean(values, log_weights), [2.4, 25.0])


@pytest.mark.ci
def test_filter_and_smoother_against_the_exact_ones_with_gaps():
    """A fifth of the values, single dimensions of two, are missing; 5 standard errors of the particles."""
    model = vector_model()
    values, _ = gappy(model, 40)
    assert 10 < np.isnan(values).sum() < 25
    series = Series.from_values(values)
    exact, exact_smoother = kalman_filter(model, series), kalman_smoother(model, series)
    particles = 4000
    found = filter(model, LocallyOptimal(model), values, particles=particles)
    deviation = np.sqrt(np.asarray(exact.filtered.variance()))
    error = deviation / np.sqrt(found["ess"].values[0])[:, None]
    assert (np.abs(found["latent_mean"].values[0] - exact.filtered.mean) < 5 * error).all()
    assert float(found["log_evidence"][0]) == pytest.approx(float(exact.log_evidence), abs=0.15)
    # Each quantile has the probability that it should, by the exact law: binomial errors of the effective particles.
    reached = stats.norm(exact.filtered.mean[:, None], deviation[:, None]).cdf(found["latent_quantiles"].values[0])
    levels = np.array(LEVELS)[:, None]
    spread = np.sqrt(levels * (1 - levels) / found["ess"].values[0][:, None, None])
    assert (np.abs(reached - levels) < 5 * spread).all()
    # What was predicted of the observations, before they came.
    predicted = exact.predicted.mean @ model.emission_matrix.T + model.emission_offset
    noise = model.emission_matrix @ exact.predicted.covariance @ model.emission_matrix.T + model.emission_noise.matrix
    scale = np.sqrt(np.asarray(jnp.diagonal(noise, axis1=1, axis2=2)))
    reached = stats.norm(predicted[:, None], scale[:, None]).cdf(found["observation_quantiles"].values[0])
    assert (np.abs(reached - levels) < 6 * np.sqrt(levels * (1 - levels) / (particles / 4))).all()

    paths = 2000
    found = smooth(model, LocallyOptimal(model), values, particles=1000, paths=paths)
    deviation = np.sqrt(np.asarray(exact_smoother.variance()))
    gap = np.abs(found["latent_mean"].values[0] - exact_smoother.mean)
    assert (gap < 6 * deviation / np.sqrt(400)).all()
    # A missing dimension is filled given the other one of the same step, which is correlated with it.
    filled, mean, covariance = found["filled"].values[0], *_exact_filling(model, values, exact_smoother)
    missing = np.isnan(values)
    np.testing.assert_array_equal(filled[~missing], values[~missing])
    assert (np.abs(filled - mean)[missing] < 6 * np.sqrt(covariance / 400)[missing]).all()
    reached = stats.norm(mean, np.sqrt(covariance)).cdf(found["observation_quantiles"].values[0].swapaxes(0, 1))
    levels = np.array(LEVELS)[:, None]
    assert (np.abs(reached[:, missing] - levels) < 6 * np.sqrt(levels * (1 - levels) / 400)).all()


def _exact_filling(model, values, smoother):
    """Mean and variance of every x_t given all that was observed, missing ones given the rest of their step."""
    emission, noise = np.asarray(model.emission_matrix), np.asarray(model.emission_noise.matrix)
    offset = np.asarray(model.emission_offset)
    means, variances = np.zeros(values.shape), np.ones(values.shape)
    for step, row in enumerate(values):
        mean, covariance = np.asarray(smoother.mean[step]), np.asarray(smoother.covariance[step])
        for one in np.flatnonzero(np.isnan(row)):
            seen = np.flatnonzero(~np.isnan(row))
            # x_one = C z + c + noise, and of the noise what the other dimension tells, which is known given z.
            gain = noise[one, seen] @ np.linalg.inv(noise[np.ix_(seen, seen)]) if len(seen) else np.zeros(0)
            map_, rest = emission[one] - gain @ emission[seen], noise[one, one] - gain @ noise[seen, one]
            means[step, one] = map_ @ mean + offset[one] + gain @ (row[seen] - offset[seen])
            variances[step, one] = map_ @ covariance @ map_ + rest
    return means, variances


@pytest.mark.slow
def test_intervals_of_filled_gaps_are_calibrated():
    """200 series, 20 % of the values removed: 90 % and 50 % intervals cover within 3 points; the filter's would not."""
    model, proposal = TRUTH, LocallyOptimal(TRUTH)
    both = [gappy(model, 50, seed=seed) for seed in range(200)]
    data = [Series.from_values(values, series_id=place) for place, (values, _) in enumerate(both)]
    found = smooth(model, proposal, data, particles=300, paths=300)
    missing = np.stack([np.isnan(values) for values, _ in both])
    truth = np.stack([values for _, values in both])
    assert missing.sum() > 1500
    low, quarter, _, three, high = found["observation_quantiles"].transpose("quantile", ...).values
    for inside, wanted in (((low <= truth) & (truth <= high), 0.9), ((quarter <= truth) & (truth <= three), 0.5)):
        coverage = inside[missing].mean()
        assert abs(coverage - wanted) < 0.03, f"{wanted:.0%} intervals cover {coverage:.1%}"
    # Negative control: intervals of the states' law alone, without the noise of the observation, cover too little.
    scale = float(model.emission_matrix[0, 0])
    low, *_, high = scale * found["latent_quantiles"].transpose("quantile", ...).values
    assert ((low <= truth) & (truth <= high))[missing].mean() < 0.87


def test_a_model_that_remembers_fills_gaps_from_its_genealogy():
    """Binary observations: the share of ones among the filled draws against the filter's own imputed values."""
    model = Remembering()
    values = np.array([[1, 0], [np.nan, 0], [1, np.nan], [0, 1.0]])
    found = smooth(model, Bootstrap(), values, particles=4000, paths=4000, draws=50)
    exact = _enumerated(model, values)
    np.testing.assert_allclose(found["filled"].values[0][np.isnan(values)], exact, atol=0.04)
    assert set(np.unique(found["observation_draws"].values)) <= {0.0, 1.0}


def _enumerated(model, values):
    """P(x = 1 | the rest) for each missing value, by the sum over everything."""
    from support.memory import exact_log_evidence

    whole = exact_log_evidence(model, values)
    found = []
    for place in np.argwhere(np.isnan(values)):
        filled = values.copy()
        filled[tuple(place)] = 1.0
        found.append(float(jnp.exp(exact_log_evidence(model, filled) - whole)))
    return found


def test_quantiles_of_counts_are_counts():
    model = PoissonCounts(level=1.0, persistence=0.8, scale=0.3)
    counts = np.asarray(simulate(model, 12, key=jax.random.key(0))[1])
    found = filter(model, Bootstrap(), counts, particles=50)
    quantiles = found["observation_quantiles"].values
    np.testing.assert_array_equal(quantiles, np.round(quantiles))


@pytest.mark.slow
def test_what_was_fitted_filters_smooths_and_forecasts(tmp_path):
    model, proposal = start()
    fitted = fit(model, proposal, make_series(3), objective=mcfo(5), steps=2, batch=2, devices=1)
    data = make_series(2)
    filtered = fitted.filter(data, particles=20)
    assert filtered.sizes["series"] == 2
    smoothed = fitted.smooth(data, particles=20, paths=10)
    assert "filled" in smoothed
    future = fitted.forecast(data, 3, particles=20, draws=10)
    assert future["observation_quantiles"].dims == ("series", "time", "quantile", "dimension")
    assert future["time"].values.tolist() == [1, 2, 3]
    assert future["finite"].values.all()
    with pytest.raises(ValueError, match="increasing levels"):
        fitted.filter(data, levels=[0.9, 0.1])


def test_data_come_in_many_forms(tmp_path):
    (tmp_path / "f.csv").write_text("series,a\nx,1.5\nx,\ny,2.5\n")
    from_file = named_series(tmp_path / "f.csv")
    assert (from_file.names, from_file.columns) == (["x", "y"], ["a"])
    assert named_series(np.arange(3.0)).columns == ["x1"]
    assert named_series(from_file).names == ["x", "y"]
    assert len(named_series(make_series(3)).series_list) == 3


@pytest.mark.ci
def test_padding_and_company_change_nothing():
    alone, others = make_series(2)[1], make_series(2)
    first = filter(TRUTH, LocallyOptimal(TRUTH), others, particles=41)
    second = filter(TRUTH, LocallyOptimal(TRUTH), [alone], particles=41)  # no level of a quantile is a multiple of 1/41
    steps = alone.steps
    for name in ("latent_mean", "latent_quantiles", "observation_quantiles", "ess"):
        np.testing.assert_allclose(first[name].values[1, :steps], second[name].values[0, :steps], rtol=1e-10)
    assert np.isnan(first["latent_mean"].values[1, steps:]).all()


def test_forecasts_begin_where_the_filter_ends():
    values = np.array(simulate(TRUTH, 20, key=jax.random.key(3))[1])
    exact = kalman_filter(TRUTH, Series.from_values(values)).filtered
    found = forecast(TRUTH, LocallyOptimal(TRUTH), values, 2, particles=2000, draws=4000)
    expected = 1.2 * 0.9 * float(exact.mean[-1, 0])
    assert float(found["observation_mean"][0, 0, 0]) == pytest.approx(expected, abs=6 / np.sqrt(2000))
