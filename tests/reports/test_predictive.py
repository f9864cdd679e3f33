"""Residuals and simulated series: what they say of a right and of a wrong model, and how they come into the report."""

import re

import jax
import numpy as np
import pytest
from scipy.stats import kstest

from mcfo import Series, simulate
from mcfo.data.inspection import STATISTICS, statistics
from mcfo.data.residual_tests import autocorrelation
from mcfo.data.tables import write_series
from mcfo.errors import InputError
from mcfo.inference import predictive_checks
from mcfo.inference.predictive_checks import write_checks
from mcfo.models import LinearGaussian, PoissonCounts
from mcfo.proposals import Bootstrap, LocallyOptimal
from mcfo.reports.run_page import write_run_report
from support.commands import SMALL, invoke, refused
from support.learning import make_series
from support.runs import make_lines, make_results, make_seed, write_folder

MODEL = LinearGaussian.scalar(0.9, 1.2, emission_variance=0.5)
SIZES = {"particles": 200, "draws": 100, "simulations": 60, "key": jax.random.key(0)}


def drawn(model, count=4, steps=120):
    return [Series.from_values(simulate(model, steps, key=jax.random.key(n))[1], series_id=n) for n in range(count)]


@pytest.mark.ci
def test_a_right_model_leaves_white_noise_and_a_wrong_one_does_not():
    data = drawn(MODEL)
    forgetful = LinearGaussian.scalar(0.0, 1.2, emission_variance=3.0, transition_variance=2.0)
    right, wrong = (predictive_checks(one, LocallyOptimal(one), data, **SIZES) for one in (MODEL, forgetful))
    pooled = np.concatenate(right.residuals)[:, 0]
    assert kstest(pooled, "norm").pvalue > 1e-4
    of_right, of_wrong = (autocorrelation([one[:, 0] for one in each.residuals], 1)[0][0] for each in (right, wrong))
    assert abs(of_right) < 4 / np.sqrt(len(pooled))
    assert of_wrong > 0.5
    place = STATISTICS.index("autocorrelation")
    low, high = np.quantile(right.simulated[:, place, 0], [0.01, 0.99])
    assert low < right.observed[place, 0] < high
    assert wrong.observed[place, 0] > wrong.simulated[:, place, 0].max()


@pytest.mark.ci
def test_counts_gaps_and_lengths():
    model = PoissonCounts(level=0.5, persistence=0.8, scale=0.4)
    data = [one.observations.astype(float) for one in drawn(model, 3, 100)]
    data = [Series.from_values(np.where(np.arange(100)[:, None] % 7 == 0, np.nan, one)) for one in data]
    data[1] = data[1].window(0, 60)
    found = predictive_checks(model, Bootstrap(), data, **SIZES)
    assert [len(one) for one in found.residuals] == [100, 60, 100]
    residuals = np.concatenate(found.residuals)[:, 0]
    assert np.isnan(residuals).sum() == np.isnan(np.concatenate(found.values)).sum() > 30
    assert kstest(residuals[~np.isnan(residuals)], "norm").pvalue > 1e-4
    assert found.paths.shape == (3, 100, 1)


def test_statistics_by_hand():
    values = np.array([[[1.0], [2.0], [np.nan], [5.0]], [[0.0], [np.nan], [np.nan], [np.nan]]])
    found = dict(zip(STATISTICS, statistics(values)[:, 0], strict=True))
    assert found["mean"] == 2.0
    assert found["standard deviation"] == pytest.approx(np.sqrt(14 / 4))
    assert (found["smallest"], found["largest"]) == (0.0, 5.0)
    assert found["autocorrelation"] == pytest.approx(0.0)
    assert found["skewness"] == pytest.approx((27 - 8 - 1) / 4 / 3.5**1.5)
    assert np.isnan(statistics(np.full((1, 3, 1), np.nan))).all()


@pytest.fixture
def folder(tmp_path):
    """A finished run, made up, with checks of two columns."""
    model = LinearGaussian(
        initial_mean=[0.0, 0.0],
        initial_noise=[1.0, 1.0],
        transition_matrix=[[0.9, 0.0], [0.0, 0.5]],
        transition_noise=[0.3, 0.5],
        emission_matrix=[[1.0, 0.0], [0.0, 1.0]],
        emission_noise=[0.2, 0.2],
    )
    path = write_folder(tmp_path / "run", None, make_lines(0, steps=50), make_results(make_seed(0)))
    checks = predictive_checks(model, LocallyOptimal(model), drawn(model, 2, 80), **SIZES)
    write_checks(path / "checks.npz", checks, ["wind $5", "sun"])
    return path


@pytest.mark.ci
def test_the_page_shows_them(folder):
    page = write_run_report(folder).read_text()
    assert "Does the model generate series like these?" in page
    assert {path.name for path in (folder / "figures").iterdir()} >= {
        "residuals.png",
        "statistics.png",
        "simulated.png",
    }
    text = re.sub(r"<[^>]*>", " ", re.sub(r"base64,[^\"]*", "", page))
    assert "wind $5" in text
    assert "Ljung and Box" in text
    assert text.count("excess kurtosis") == 2
    first = (folder / "report.html").read_bytes()
    assert write_run_report(folder).read_bytes() == first


@pytest.mark.ci
def test_forecasts_and_concerns_are_said_first(tmp_path):
    """A right model gives no cause for concern; one without memory and with too little noise does."""
    data = drawn(MODEL)
    forgetful = LinearGaussian.scalar(0.0, 1.2, emission_variance=0.5, transition_variance=0.3)
    pages = {}
    for name, model in {"right": MODEL, "wrong": forgetful}.items():
        path = write_folder(tmp_path / name, None, make_lines(0, steps=50), make_results(make_seed(0)))
        checks = predictive_checks(model, LocallyOptimal(model), data, season=4, **SIZES)
        # One page is about the data that the run learned from, the other about others.
        digest = "0123456789abcdef" * 4 if name == "right" else "another"
        write_checks(path / "checks.npz", checks, ["level"], digest=digest)
        page = re.sub(r"base64,[^\"]*", "", write_run_report(path).read_text())
        pages[name] = " ".join(re.sub(r"<[^>]*>", " ", page).split())
    assert re.search(r"Forecasts of level one step ahead miss it by \d\.\d+ \(RMSE\), \d+% less", pages["right"])
    assert "Nothing stands out" in pages["right"]
    assert ["In-sample" in pages[name] for name in ("right", "wrong")] == [True, False]
    assert all("the value one season before" in page for page in pages.values())
    assert re.search(r"(\d) warnings below", pages["wrong"])[1] in "345"
    for text in ("90% intervals do not hold 90% of the values: level", "forecast errors are autocorrelated: level"):
        assert text in pages["wrong"]
        assert text not in pages["right"]


def test_damaged_checks_are_refused(folder):
    with np.load(folder / "checks.npz") as stored:
        arrays = dict(stored)
    for change in ({"lengths": np.array([3])}, {"simulated": np.zeros((2, 2))}, {"columns": np.array([])}):
        np.savez(folder / "checks.npz", **arrays | change)
        with pytest.raises(InputError, match=r"checks\.npz is damaged\. Delete it"):
            write_run_report(folder)
    (folder / "checks.npz").write_bytes(b"no")
    with pytest.raises(InputError, match="damaged"):
        write_run_report(folder)


@pytest.mark.slow
def test_the_commands_make_them(tmp_path):
    write_series(tmp_path / "series.csv", make_series(3), ["level"])
    fit = ("fit", "linear-gaussian", "--data", tmp_path / "series.csv", "--out", tmp_path / "run", *SMALL)
    assert invoke(*fit).exit_code == 0
    assert not (tmp_path / "run" / "checks.npz").exists()
    result = invoke("report", tmp_path / "run", "--data", tmp_path / "series.csv")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "run" / "figures" / "residuals.png").exists()
    fit = [word if word != tmp_path / "run" else tmp_path / "other" for word in fit if word != "--no-checks"]
    assert invoke(*fit).exit_code == 0
    assert (tmp_path / "other" / "checks.npz").exists()
    assert refused(invoke("report", tmp_path / "run", "--data", tmp_path / "none.csv"), "There is no file")


def test_the_binomial_test_is_that_of_scipy():
    from scipy.stats import binomtest

    from mcfo.reports.predictive import _binomial_test

    for trials in (5, 40):
        for successes in range(trials + 1):
            wanted = binomtest(successes, trials, 0.9).pvalue
            np.testing.assert_allclose(_binomial_test(successes, trials, 0.9), wanted, rtol=1e-9)
