"""Naive forecasts: what they repeat, and how wide they are."""

import numpy as np
import pytest
from scipy.stats import norm

import mcfo
from mcfo.errors import InputError
from mcfo.inference.naive import naive_rolling
from mcfo.models.linear_gaussian import LinearGaussian
from mcfo.proposals.base import Bootstrap
from mcfo.series import Series

STEPS, SEASON = 30, 4


def seasonal():
    return (np.arange(STEPS) // SEASON + 10.0 * (np.arange(STEPS) % SEASON))[:, None]


def test_the_last_value_is_repeated():
    values = np.random.default_rng(0).normal(size=(STEPS, 1))
    origins = np.arange(STEPS) >= 20
    found = naive_rolling(values, origins & (np.arange(STEPS) <= STEPS - 3), 3)
    for ahead in range(3):
        np.testing.assert_array_equal(found.mean[20:28, ahead, 0], values[19:27, 0])
        early = values[1 + ahead : 20, 0] - values[: 19 - ahead, 0]
        scale = np.sqrt(np.mean(early**2))
        np.testing.assert_allclose(
            found.log_score[20:28, ahead], norm.logpdf(values[20 + ahead : 28 + ahead, 0], values[19:27, 0], scale)
        )
    assert np.isnan(found.log_score[:20]).all()


def test_a_season_is_repeated_also_beyond_its_length():
    values = seasonal()
    found = naive_rolling(values, np.arange(STEPS) == 20, 6, SEASON)
    # From step 20 on the values of steps 16 to 19 come again, and again.
    np.testing.assert_array_equal(found.mean[20, :, 0], values[[16, 17, 18, 19, 16, 17], 0])
    plain = naive_rolling(values, np.arange(STEPS) == 20, 6)
    assert np.nanmean(found.crps) < np.nanmean(plain.crps)


def test_a_gap_is_bridged_and_the_first_step_has_no_naive_forecast():
    values = seasonal()
    values[19] = np.nan
    found = naive_rolling(values, np.ones(STEPS, bool), 1)
    assert found.mean[20, 0, 0] == values[18, 0]
    assert np.isnan(found.log_score[0, 0])
    season = naive_rolling(values, np.ones(STEPS, bool), 1, SEASON)
    assert season.mean[23, 0, 0] == values[15, 0]


def test_naive_rows_stand_beside_the_scores_over_the_same_forecasts():
    model = LinearGaussian.scalar(0.9, 1.0)
    series = [Series.from_values(np.random.default_rng(seed).normal(size=STEPS)) for seed in range(2)]
    result = mcfo.evaluate_rolling(model, Bootstrap(), series, horizon=2, first=11, season=SEASON)
    for name in ("naive", "seasonal naive"):
        assert [one.forecasts for one in result.naive[name]] == [one.forecasts for one in result.scores]
    direct = np.concatenate([one.values()[10:29, 0] - one.values()[9:28, 0] for one in series])
    np.testing.assert_allclose(result.naive["naive"][0].rmse, np.sqrt(np.mean(direct**2)))
    assert set(mcfo.evaluate_rolling(model, Bootstrap(), series).naive) == {"naive"}
    with pytest.raises(InputError, match="A season has at least 2 steps"):
        mcfo.evaluate_rolling(model, Bootstrap(), series, season=1)
