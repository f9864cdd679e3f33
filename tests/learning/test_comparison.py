"""Models side by side: the same holdout for all, the ranking that the data call for, and what is refused."""

import json

import numpy as np
import pandas as pd
import pytest

import mcfo
from mcfo.errors import InputError
from mcfo.inference.naive import naive_rolling
from mcfo.learning.statsmodels_forecasts import RIVALS, rival_rolling
from support.commands import invoke, refused
from support.real_series import AIRLINE

ci = pytest.mark.ci


def seasonal(years=9):
    steps = 4 * years
    rng = np.random.default_rng(0)
    values = 10 + 3 * np.tile([1.0, -1.0, 2.0, -2.0], years) + 0.3 * rng.normal(size=steps)
    return pd.Series(values, index=pd.period_range("2010Q1", periods=steps, freq="Q"), name="sales")


@ci
@pytest.mark.parametrize("name", RIVALS)
@pytest.mark.filterwarnings("ignore")
def test_forecasts_of_statsmodels_are_those_of_its_own_methods(name):
    from statsmodels.tsa.statespace.exponential_smoothing import ExponentialSmoothing
    from statsmodels.tsa.statespace.sarimax import SARIMAX

    values = np.cumsum(np.random.default_rng(1).normal(size=40)) + 20
    origins = np.arange(40) == 36
    found = rival_rolling(name, values, origins, 2, season=None, logarithm=False)
    first = values[:36]
    smoothing = {"trend": True, "damped_trend": True, "concentrate_scale": False}
    model = ExponentialSmoothing(first, **smoothing) if "ETS" in name else SARIMAX(first, order=(1, 1, 1))
    ahead = model.fit(disp=False).get_forecast(2)
    np.testing.assert_allclose(found.mean[36, :, 0], ahead.predicted_mean, rtol=1e-6)
    error = values[36:38] - ahead.predicted_mean
    density = -0.5 * (np.log(2 * np.pi * ahead.var_pred_mean) + error**2 / ahead.var_pred_mean)
    np.testing.assert_allclose(found.log_score[36], density, rtol=1e-6)
    assert np.isnan(np.delete(found.crps, 36, axis=0)).all()


def test_a_holdout_must_leave_something_and_hold_the_horizon():
    data = seasonal()
    with pytest.raises(InputError, match="must have the horizon in it"):
        mcfo.compare(data, holdout=2, horizon=4)
    with pytest.raises(InputError, match="leaves 1 to learn from"):
        mcfo.compare(data, holdout=35)
    with pytest.raises(InputError, match="one column, but there are 2"):
        mcfo.compare(pd.DataFrame({"a": data, "b": data}))
    with pytest.raises(InputError, match="has no option 'seson'"):
        mcfo.compare(data, models=["structural:seson=4"])
    with pytest.raises(InputError, match="no model 'locallevel'"):
        mcfo.compare(data, models=["locallevel"])


def test_the_command_refuses_before_it_reads(tmp_path):
    assert refused(invoke("compare", tmp_path / "gone.csv"), "There is no file")
    assert refused(invoke("compare", tmp_path / "x.csv", "--season", "x"), "--season 'x' must be a number of steps")
    assert refused(invoke("compare", tmp_path / "x.csv", "--out", tmp_path / "a.txt"), "must end in .csv or .json")


@ci
def test_a_season_wins_where_there_is_one(tmp_path, monkeypatch):
    data, told = seasonal(), []
    options = {"models": ["local-level", "structural:season=4,season_noise=fixed"], "horizon": 2, "season": 4}
    found = mcfo.compare(data, holdout=8, progress=told.append, **options)
    frame = found.to_frame()
    ours = "structural (season=4, season_noise=fixed)"
    assert set(frame.index) == {"local-level", ours, "naive", "seasonal naive", *RIVALS}
    assert told[:2] == ["local-level", ours]
    assert frame.loc[ours, "crps"] < 0.3 * min(frame.loc["naive", "crps"], frame.loc["local-level", "crps"])
    assert found.scores == sorted(found.scores, key=lambda one: one.crps)
    assert found.forecasts == 7 * 2, "seven origins, two steps ahead, for every one of them"
    # The same number by the functions that it is made of.
    values = data.to_numpy()
    fitted = mcfo.fit("local-level", values[:-8])
    by_hand = mcfo.evaluate_rolling(fitted.model, fitted.proposal, mcfo.Series.from_values(values), horizon=2, last=8)
    assert frame.loc["local-level", "crps"] == pytest.approx(np.mean([one.crps for one in by_hand.scores]), rel=1e-6)

    data.rename_axis("quarter").to_csv(tmp_path / "sales.csv")
    words = ["compare", tmp_path / "sales.csv", "--holdout-steps", 8, "--model", "local-level", "--season", 4]
    monkeypatch.setattr("mcfo.learning.comparison.installed", lambda: False)
    result = invoke(*words, "--out", tmp_path / "scores.json")
    assert result.exit_code == 0, result.output
    assert "seasonal naive" in result.stdout
    assert "statsmodels is not installed" in result.stdout
    content = json.loads((tmp_path / "scores.json").read_text())
    assert content["models"][0]["name"] == "seasonal naive"
    assert content["holdout"] == 8


def test_a_model_without_a_forecast_is_left_out_and_named(monkeypatch):
    data = seasonal().iloc[:16]

    def nothing(name, values, origins, horizon, **options):
        found = naive_rolling(values[:, None], origins, horizon)
        return type(found)(**{key: np.full_like(value, np.nan) for key, value in vars(found).items()})

    monkeypatch.setattr("mcfo.learning.comparison.rival_rolling", nothing)
    found = mcfo.compare(data, models=[], holdout=4, season=4)
    assert [one.name for one in found.scores] == ["seasonal naive", "naive"]
    assert [note for note in found.notes if "none of its forecasts" in note] == [
        f"{name} was left out: none of its forecasts of the held-out values is finite." for name in RIVALS
    ]


@pytest.mark.slow
def test_airline_by_default():
    index = pd.period_range("1949-01", periods=144, freq="M")
    found = mcfo.compare(pd.Series(AIRLINE, index=index, name="passengers"), horizon=12)
    assert found.season == 12
    frame = found.to_frame()
    ours = next(name for name in frame.index if "transform=log" in name)
    assert frame.loc[ours, "crps"] < 0.6 * frame.loc["seasonal naive", "crps"]


@pytest.mark.slow
def test_counts_and_returns_bring_models_of_their_own():
    rng = np.random.default_rng(3)
    visits = pd.Series(rng.poisson(np.exp(1 + np.convolve(rng.normal(size=130), np.ones(10) / 10, mode="valid"))))
    assert any("counts" in one.name for one in mcfo.compare(visits, season=None).scores)
