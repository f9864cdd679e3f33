"""Rolling forecasts: scores against those of the exact predictive law, calibration, and wrong models that do worse."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.stats import kstest, norm

from mcfo import Series, evaluate_rolling, simulate
from mcfo.errors import InputError
from mcfo.inference.scoring import crps, ordered_quantiles, probability_below, rank_transform
from mcfo.kalman import kalman_filter
from mcfo.models import LinearGaussian, PoissonCounts
from mcfo.models.base import Model
from mcfo.proposals import Bootstrap, LocallyOptimal
from support.means import assert_mean, standard_errors
from support.problems import data, scalar_model

HORIZON, DRAWS = 3, 10
MODEL = LinearGaussian.scalar(0.9, 1.2, emission_variance=0.5)


def gaussian_crps(mean, deviation, value):
    """Gneiting and Raftery (2007), equation 21."""
    z = (value - mean) / deviation
    return deviation * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))


def exact_forecasts(model, series, ahead):
    """Mean and standard deviation of x_t+s given x_1:t, at place t as in `Rolling`; NaN past the end."""
    filtered = kalman_filter(model, series)
    transition, noise = float(model.transition_matrix[0, 0]), float(model.transition_noise.matrix[0, 0])
    weight, measured = float(model.emission_matrix[0, 0]), float(model.emission_noise.matrix[0, 0])
    mean, variance = (
        np.asarray(filtered.predicted.mean[:, 0]),
        np.asarray(filtered.predicted.covariance[:, 0, 0]),
    )
    for _ in range(ahead - 1):
        mean, variance = transition * mean, transition**2 * variance + noise
    return weight * mean, np.sqrt(weight**2 * variance + measured)


@pytest.fixture(scope="module")
def gaussian():
    """A series with gaps, and its scores by forty keys; so few draws that the plain CRPS would be far off."""
    values = np.array(simulate(MODEL, 40, key=jax.random.key(3))[1])
    values[10:13] = np.nan
    series = Series.from_values(values)
    found = [
        evaluate_rolling(
            MODEL,
            LocallyOptimal(MODEL),
            series,
            horizon=HORIZON,
            particles=400,
            draws=DRAWS,
            key=jax.random.key(seed),
        )
        for seed in range(40)
    ]
    return values[:, 0], series, found


@pytest.mark.parametrize("ahead", range(1, HORIZON + 1))
def test_scores_are_those_of_the_exact_law(gaussian, ahead):
    values, series, found = gaussian
    mean, deviation = exact_forecasts(MODEL, series, ahead)
    origins = np.arange(len(values) - HORIZON + 1)
    came = values[origins + ahead - 1]
    known = ~np.isnan(came)
    mean, deviation, came = mean[origins], deviation[origins], came
    expected = gaussian_crps(mean, deviation, came)
    np.testing.assert_array_equal(np.isnan(found[0].series[0].crps[origins, ahead - 1, 0]), ~known)
    assert_mean([one.scores[ahead - 1].crps for one in found], expected[known].mean())
    exact = norm.logpdf(came, mean, deviation)[known]
    log_scores = np.array([one.series[0].log_score[origins, ahead - 1][known] for one in found])
    if ahead == 1:
        assert_mean(log_scores.mean(axis=1), exact.mean())
        assert found[0].scores[0].forecasts == len(origins) - 3
    else:
        # The mean of densities at ten draws is unbiased; its logarithm is not.
        assert_mean(np.exp(log_scores - exact).mean(axis=1), 1.0)
    # A transform that averages distribution functions: near the exact one, value by value.
    pit = np.mean([one.series[0].pit[origins, ahead - 1, 0] for one in found], axis=0)
    np.testing.assert_allclose(pit[known], norm.cdf((came - mean) / deviation)[known], atol=0.1)
    # The plain estimator, which takes the spread of few draws for that of the law, fails the same test.
    plain = [one.scores[ahead - 1].crps + deviation.mean() / np.sqrt(np.pi) / DRAWS for one in found]
    assert standard_errors(plain, expected[known].mean()) > 5


@pytest.mark.ci
def test_a_right_model_is_calibrated_and_a_wrong_one_is_not():
    series = [
        Series.from_values(simulate(MODEL, 100, key=jax.random.key(seed))[1], series_id=seed) for seed in range(10)
    ]
    wrong = LinearGaussian.scalar(0.9, 1.2, emission_variance=0.02, transition_variance=0.3)
    right, worse = (
        evaluate_rolling(model, LocallyOptimal(model), series, particles=200, draws=100, key=jax.random.key(0))
        for model in (MODEL, wrong)
    )
    for one, wanted in ((right.scores[0].coverage_50, 0.5), (right.scores[0].coverage_90, 0.9)):
        assert abs(one - wanted) < 4 * np.sqrt(wanted * (1 - wanted) / 1000)
    assert kstest(right.pit(), "uniform").pvalue > 1e-4
    assert kstest(worse.pit(), "uniform").pvalue < 1e-6
    assert worse.scores[0].coverage_90 < 0.8
    assert worse.scores[0].log_score < right.scores[0].log_score - 0.1
    assert worse.scores[0].crps > right.scores[0].crps
    assert sum(right.scores[0].pit) == 1000


@pytest.mark.ci
def test_counts_have_a_randomised_transform():
    model = PoissonCounts(level=0.3, persistence=0.8, scale=0.5)
    series = [
        Series.from_values(simulate(model, 100, key=jax.random.key(seed))[1], series_id=seed) for seed in range(8)
    ]
    found = evaluate_rolling(model, Bootstrap(), series, horizon=2, particles=200, draws=100, key=jax.random.key(0))
    for ahead in (1, 2):
        assert kstest(found.pit(ahead), "uniform").pvalue > 1e-4
        scores = found.scores[ahead - 1]
        assert abs(scores.coverage_90 - 0.9) < 4 * np.sqrt(0.09 / scores.values)


@pytest.mark.ci
def test_padding_order_and_origins_change_nothing():
    long, short = (
        data(scalar_model(), steps, seed=steps, series_id=series_id) for series_id, steps in enumerate((12, 7))
    )
    common = {"horizon": 2, "particles": 50, "draws": 20, "key": jax.random.key(0)}
    model, proposal = scalar_model(), Bootstrap()
    both = evaluate_rolling(model, proposal, [short, long], **common)
    alone = evaluate_rolling(model, proposal, [long], **common)
    few = evaluate_rolling(model, proposal, [long], first=3, origins=4, **common)
    assert [len(one.log_score) for one in both.series] == [12, 7]
    for one, other in zip(jax.tree.leaves(both.series[0]), jax.tree.leaves(alone.series[0]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
    begun = np.flatnonzero(~np.isnan(few.series[0].log_score[:, 0]))
    np.testing.assert_array_equal(begun, [2, 5, 7, 10])
    np.testing.assert_allclose(few.series[0].crps[begun], alone.series[0].crps[begun], rtol=1e-9)


class Remembering(Model):
    """A memory that reads what was observed, and an emission without a distribution function for each dimension."""

    def start(self, inputs):
        return jnp.zeros(2)

    def initial(self, memory, inputs):
        return dist.Normal(memory[:1] + inputs, 1.0).to_event(1)

    def transition(self, memory, inputs):
        return self.initial(memory, inputs)

    def emission(self, memory, latent, inputs):
        return dist.MultivariateNormal(jnp.concatenate([latent, memory[1:]]), jnp.array([[1.0, 0.5], [0.5, 1.0]]))

    def advance(self, memory, latent, observation):
        return 0.5 * observation


@pytest.mark.ci
def test_memories_inputs_and_missing_dimensions():
    model, inputs = Remembering(), np.linspace(-1, 1, 60)[:, None]
    values = np.array(simulate(model, 60, key=jax.random.key(0), inputs=jnp.asarray(inputs))[1])
    values[5, 0] = values[7] = np.nan
    series = Series.from_values(values, inputs=inputs)
    found = evaluate_rolling(model, Bootstrap(), series, horizon=2, particles=60, draws=80, key=jax.random.key(0))
    assert not found.collapsed
    assert np.isnan(found.series[0].crps[5, 0]).tolist() == [True, False]
    assert np.isnan(found.series[0].crps[5, 1]).tolist() == [False, False]
    assert np.isnan(found.series[0].log_score[7, 0])
    assert found.scores[0].forecasts == 58
    assert found.scores[0].values == 115
    assert kstest(found.pit(), "uniform").pvalue > 1e-4
    assert found.scores[0].rmse < 2


def test_a_collapsed_filter_is_counted():
    found = evaluate_rolling(
        scalar_model(),
        Bootstrap(),
        [Series.from_values([0.0, 1e160, 0.0]), Series.from_values([0.0, 1.0, 0.5], series_id=1)],
        particles=5,
        draws=4,
        key=jax.random.key(0),
    )
    assert found.collapsed == 1
    assert found.as_data()["scores"][0]["log_score"] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"horizon": 0}, "horizon must be at least 1"),
        ({"first": 0}, "first must be at least 1"),
        ({"draws": 1}, "draws must be at least 2"),
        ({"origins": 0}, "origins must be at least 1"),
        ({"first": 6}, "nothing to score"),
        ({"horizon": 6}, "nothing to score"),
    ],
)
def test_what_cannot_be_scored_is_refused(options, message):
    common = {"particles": 5, "draws": 4, "key": jax.random.key(0)}
    with pytest.raises(InputError, match=message):
        evaluate_rolling(scalar_model(), Bootstrap(), data(scalar_model(), 5), **common | options)


def test_small_scores_by_hand():
    draws, value = jnp.array([[0.0, 1.0], [2.0, 1.0], [5.0, 1.0]]), jnp.array([1.0, 1.0])
    # Mean distances to the value, 6 / 3, less half of those between pairs, 10 / 6.
    np.testing.assert_allclose(crps(draws, value), [2 - 10 / 6, 0.0], atol=1e-12)
    np.testing.assert_allclose(rank_transform(draws, value, jnp.array([0.5, 0.25])), [1.5 / 4, 1 / 4])
    np.testing.assert_allclose(ordered_quantiles(draws, (0.0, 0.25, 1.0))[:, 0], [0.0, 1.0, 5.0])
    law = dist.Poisson(jnp.array([2.0, 2.0])).to_event(1)
    below = probability_below(law, jnp.array([0, 1]), jnp.array([0.5, 0.0]))
    np.testing.assert_allclose(below, [0.5 * np.exp(-2), np.exp(-2)], rtol=1e-6)
    assert probability_below(dist.MultivariateNormal(jnp.zeros(2), jnp.eye(2)), value, value) is None
    assert probability_below(dist.Bernoulli(jnp.array([0.5])).to_event(1), jnp.array([1]), value[:1]) is None
