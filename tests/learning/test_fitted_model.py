"""What a fitted object says of itself, beside statsmodels' numbers; its data frames, its figures, its page."""

import re

import jax
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import mcfo
from mcfo.data.residual_tests import ResidualTest, ResidualTests
from mcfo.errors import InputError
from mcfo.inference.appending import appended
from mcfo.inference.datasets import named_series
from mcfo.reports.summary import FitSummary, ParameterRow
from support.real_series import AIRLINE

ci = pytest.mark.ci
TESTS = ResidualTests(131, 24, ResidualTest(90.0, 5.6e-14), ResidualTest(4.0, 1e-5), ResidualTest(1.0, 0.6))


def frame(start, values):
    return pd.Series(values, index=pd.date_range(start, periods=len(values), freq="MS"), name="passengers")


@pytest.fixture(scope="module")
def passengers():
    return frame("1949-01-01", AIRLINE[:120])


@pytest.fixture(scope="module")
def fitted(passengers):
    return mcfo.fit("structural", passengers, season=12, trend="local", transform="log", seeds=(3,))


def summary(**changes):
    about = {"title": "structural (season 12)", "data": "passengers, 144 steps", "log_likelihood": -580.0}
    about |= {"log_likelihood_error": None, "exact": True, "observations": 140, "steps": 144, "learned": 4}
    rows = (ParameterRow("irregular <scale>", 0.0114), ParameterRow("damping", 0.9))
    about |= {"diffuse": 13, "tests": {"passengers": TESTS}, "notes": (), "parameters": rows}
    return FitSummary(**(about | changes))


def test_criteria_count_diffuse_states_and_all_steps():
    assert summary().aic == 2 * 580 + 2 * 17
    assert summary().bic == pytest.approx(2 * 580 + 17 * np.log(144))


def test_a_summary_draws_conclusions_in_words():
    text = str(summary())
    assert "p = 5.6e-14" in text
    assert re.search(r"forecast errors of passengers are autocorrelated", text)
    assert re.search(r"larger at the end", text)
    assert "not normal" not in text
    quiet = summary(tests={"passengers": TESTS._replace(serial=ResidualTest(9.0, 0.5), heteroscedasticity=TESTS[4])})
    assert quiet.conclusions == []


def test_standard_errors_have_columns_where_they_are_known():
    assert "std. error" not in str(summary())
    known = summary(parameters=(ParameterRow("level scale", 0.2, 0.05, 0.1, 0.3), ParameterRow("other", 1.0)))
    assert re.search(r"level scale\s+0.2000\s+0.05000\s+0.1000\s+0.3000", str(known))
    assert re.search(r"other\s+1.000\s+–\s+–\s+–", str(known))
    assert "irregular &lt;scale&gt;" in summary()._repr_html_()


def test_new_rows_continue_the_known_ones(passengers):
    known = named_series(passengers)
    whole, lengths = appended(known, named_series(frame("1959-03-01", AIRLINE[122:130])))
    values = whole.series_list[0].values()[:, 0]
    assert lengths == [120]
    assert np.isnan(values[120:122]).all(), "two months are absent"
    np.testing.assert_array_equal(values[122:], AIRLINE[122:130])
    assert whole.moments[0][-1] == np.datetime64("1959-10-01")
    superset, lengths = appended(known, named_series(frame("1949-01-01", AIRLINE)))
    assert (lengths, superset.series_list[0].steps) == ([120], 144)
    again, lengths = appended(known, known)
    assert (lengths, again.series_list[0].steps) == ([120], 120)
    two = named_series(mcfo.Series.from_values(np.ones((3, 2))))
    with pytest.raises(InputError, match="learned from 1 columns of values"):
        appended(known, two)


@ci
def test_likelihood_criteria_and_residuals_are_those_of_statsmodels(passengers):
    # Dummies, because statsmodels has one variance for them too.
    options = {"season": 12, "season_kind": "dummy", "trend": "local", "transform": "log"}
    fitted = mcfo.fit("structural", passengers, **options, seeds=(3,))
    ours = fitted.summary()
    model = sm.tsa.UnobservedComponents(
        np.log(passengers.to_numpy()), "local linear trend", seasonal=12, use_exact_diffuse=True
    )
    m = fitted.model
    variances = m.irregular_scale, m.trend.level_scale, m.trend.slope_scale, m.seasons[0].scale
    theirs = model.smooth([float(one) ** 2 for one in variances])
    jacobian = -float(np.sum(np.log(passengers)))
    assert ours.log_likelihood == pytest.approx(theirs.llf + jacobian, rel=1e-8)
    assert (ours.learned, ours.diffuse, ours.steps) == (4, theirs.k_diffuse_states, theirs.nobs)
    assert ours.aic == pytest.approx(theirs.aic - 2 * jacobian, rel=1e-8)
    assert ours.bic == pytest.approx(theirs.bic - 2 * jacobian, rel=1e-8)
    tests = ours.tests["passengers"]
    serial = theirs.test_serial_correlation("ljungbox")[0][:, -1]
    assert theirs.test_serial_correlation("ljungbox").shape[-1] == tests.lags
    np.testing.assert_allclose(tests.serial, serial, rtol=1e-6)
    np.testing.assert_allclose(tests.heteroscedasticity, theirs.test_heteroskedasticity("breakvar")[0], rtol=1e-6)
    np.testing.assert_allclose(tests.normality, theirs.test_normality("jarquebera")[0][:2], rtol=1e-6)


@ci
@pytest.mark.parametrize("form", ["dates", "periods", "zone", "wide", "long"])
def test_frames_come_back_as_they_went_in_and_dates_continue(fitted, passengers, form):
    dates = passengers.index
    data, index = {
        "dates": (passengers, pd.date_range("1959-01-01", periods=3, freq="MS")),
        "periods": (passengers.to_period("M"), pd.period_range("1959-01", periods=3, freq="M")),
        "zone": (passengers.tz_localize("UTC"), pd.date_range("1959-01-01", periods=3, freq="MS", tz="UTC")),
        "wide": (passengers.rename_axis("month").to_frame(), pd.date_range("1959-01-01", periods=3, freq="MS")),
        "long": (pd.DataFrame({"unique_id": "air", "ds": dates, "y": passengers.to_numpy()}), None),
    }[form]
    future = fitted.predict(3, data=data, levels=(0.1, 0.9))
    if index is None:
        assert list(future.columns) == ["unique_id", "ds", "mean", "q10", "q90"]
        assert future["ds"].dtype == data["ds"].dtype
        assert list(future["ds"]) == list(pd.date_range("1959-01-01", periods=3, freq="MS"))
    else:
        pd.testing.assert_index_equal(future.index, index.rename(data.index.name), exact=True)
        assert list(future.columns) == ["mean", "q10", "q90"]
    table = mcfo.read_series(data).to_frame()
    (pd.testing.assert_series_equal if data.ndim == 1 else pd.testing.assert_frame_equal)(table, data)


@ci
def test_it_remembers_its_data(fitted, passengers):
    pd.testing.assert_frame_equal(fitted.predict(2), fitted.predict(2, data=passengers))
    assert fitted.filter().attrs["exact"] == 1
    assert repr(fitted).startswith("<Fitted structural (season 12, trend local, transform log); passengers, 120 steps")
    assert "Array" not in repr(fitted) + repr(fitted.best)
    in_sample, held_out = fitted.score(), fitted.score(frame("1959-01-01", AIRLINE[120:]))
    assert list(held_out.index.get_level_values("forecast")) == ["model", "naive", "seasonal naive"]
    assert (held_out["forecasts"] == 24).all()
    assert in_sample.loc[("model", 1), "forecasts"] == 118 - 11  # without those that find the start
    model = fitted.model
    whole = mcfo.Series.from_values(AIRLINE)
    by_hand = mcfo.evaluate_rolling(model, fitted.proposal, whole, last=24).scores[0]
    assert held_out.loc[("model", 1), "crps"] == pytest.approx(by_hand.crps, rel=1e-9)


@ci
def test_figures_and_the_page_of_a_notebook(fitted):
    import matplotlib.pyplot as plt

    figures = fitted.plot(), fitted.plot_components(), fitted.plot_forecast(6)
    assert [len(one.axes) for one in figures] == [1, 3, 1]
    assert {axis.get_title(loc="left") for axis in figures[1].axes} == {"level", "slope", "season 12"}
    assert plt.get_fignums() == [], "pyplot manages none of them"
    assert figures[0]._repr_png_().startswith(b"\x89PNG")
    page = fitted._repr_html_()
    assert page.startswith("<iframe")
    assert "level scale of trend" in page
    assert "scale of first season" in page
    assert page.count("data:image/png;base64") == 2


@pytest.mark.slow
def test_counts_have_the_same_methods():
    counts = np.random.default_rng(0).poisson(np.exp(1 + 0.5 * np.sin(np.arange(48) * np.pi / 6)))
    data = pd.Series(counts, index=pd.period_range("2020-01", periods=48, freq="M"), name="visits")
    fitted = mcfo.fit("structural", data, season=12, emission="poisson", steps=5)
    ours = fitted.summary()
    assert not ours.exact
    assert ours.log_likelihood_error > 0
    assert ours.tests["visits"].size == 48
    assert "±" in str(ours)
    future = fitted.predict(2, particles=50)
    assert list(future.index.astype(str)) == ["2024-01", "2024-02"]
    assert len(fitted.plot_components(particles=50).axes) == 2


@ci
def test_a_saved_run_answers_like_the_fit(fitted, passengers, tmp_path):
    from support.commands import invoke

    path = tmp_path / "air.csv"
    passengers.rename_axis("month").to_csv(path)
    words = [
        "fit",
        "structural",
        "--data",
        path,
        "--out",
        tmp_path / "run",
        "--no-checks",
        "--seed",
        "3",
        "--devices",
        1,
    ]
    options = [word for one in ("season=12", "trend=local", "transform=log") for word in ("--set", one)]
    assert invoke(*words, *options).exit_code == 0
    run = mcfo.load_run(tmp_path / "run")
    ours, saved = fitted.summary(), run.summary()
    assert saved.title == ours.title
    assert saved.aic == pytest.approx(ours.aic, rel=1e-9)
    np.testing.assert_allclose(saved.tests["passengers"].serial, ours.tests["passengers"].serial, rtol=1e-5)
    np.testing.assert_allclose(run.predict(4)["mean"], fitted.predict(4)["mean"], rtol=1e-6)
    assert "SavedRun" in repr(run)
    assert "Array" not in repr(run) + repr(run.seeds[0])
    path.unlink()
    gone = mcfo.load_run(tmp_path / "run")
    assert "not at hand" in str(gone.summary())
    with pytest.raises(InputError, match="not there any more"):
        gone.predict(4)
    assert len(gone.predict(4, data=passengers)) == 4


@ci
def test_a_fit_from_series_and_from_a_batch_remembers_them():
    model = mcfo.models.LinearGaussian.scalar(0.5, 1.0)
    proposal = mcfo.proposals.LocallyOptimal(model)
    series = [mcfo.Series.from_values(np.random.default_rng(n).normal(size=12)) for n in range(2)]
    for data in (series, mcfo.stack(series), [mcfo.stack(series)]):
        fitted = mcfo.fit(model, proposal, data, fixed=("model.initial_mean", "model.initial_noise"), steps=3)
        assert [len(one.values()) for one in fitted.history.series_list] == [12, 12]
        future = fitted.predict(2)
    assert list(future.index) == [("1", 12), ("1", 13), ("2", 12), ("2", 13)]
    assert jax.numpy.isfinite(future.to_numpy()).all()
