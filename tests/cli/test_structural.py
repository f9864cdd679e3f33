"""Structural models on the command line: what is refused, components in files, and scores that are right."""

import csv
import json

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.stats import lognorm

import mcfo
from support.commands import invoke, refused
from support.real_series import FOLDER

ALONE = ["--devices", "1", "--no-checks"]
AIRLINE = FOLDER / "airline.csv"


@pytest.mark.parametrize(
    ("cells", "options", "message"),
    [
        ("112,118,132,129,121", ["--set", "season=12"], "A season of 12 steps does not fit in the longest series"),
        ("112,118,0,129,121", ["--set", "transform=log"], "0 has no logarithm: values must lie above 0."),
        ("3,1,0,4,2", ["--set", "emission=binomial"], "A binomial emission needs the number of trials. Give trials=N"),
        (
            "3,1,0,4,2",
            ["--calendar", "HOLIDAYS"],
            "holidays.csv, line 3: '25th of December' is not an ISO date",
        ),
    ],
    ids=["season too long", "log of zero", "no trials", "holidays"],
)
def test_bad_input_ends_with_one_message(tmp_path, cells, options, message):
    dates = [f"2020-0{month}-01" for month in range(1, 6)]
    rows = [f"{date},{cell}" for date, cell in zip(dates, cells.split(","), strict=True)]
    (tmp_path / "data.csv").write_text("\n".join(["date,x", *rows]) + "\n")
    (tmp_path / "holidays.csv").write_text("name,date\nEaster,2020-04-12\nChristmas,25th of December\n")
    options = [str(tmp_path / "holidays.csv") if one == "HOLIDAYS" else one for one in options]
    command = ["fit", "structural", "--data", tmp_path / "data.csv", "--out", tmp_path / "run", *ALONE]
    assert refused(invoke(*command, *options), message)
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run on the airline passengers without the last two years, scored on those."""
    folder = tmp_path_factory.mktemp("structural") / "run"
    words = ["--set", "trend=local", "--set", "season=12", "--set", "transform=log", "--holdout-steps", 24]
    result = invoke("fit", "structural", "--data", AIRLINE, "--out", folder, *ALONE, *words)
    assert result.exit_code == 0, result.output
    return folder


@pytest.mark.ci
@pytest.mark.filterwarnings("ignore::statsmodels.tools.sm_exceptions.ConvergenceWarning")
def test_printed_rolling_scores_equal_those_of_statsmodels_at_every_horizon(run):
    """Their forecasts are Gaussian in the logarithm, so that those of the passengers are log-normal."""
    horizon, first = 12, 121
    command = ["evaluate", run, "--data", AIRLINE, "--rolling", "--horizon", horizon, "--from", first, "--json"]
    scores = json.loads(invoke(*command).stdout)["seeds"][0]["scores"]
    model = mcfo.load_run(run).choose().model
    values = np.loadtxt(AIRLINE, delimiter=",", skiprows=1, usecols=1)
    waves = {"freq_seasonal": [{"period": 12}], "use_exact_diffuse": True}
    theirs = sm.tsa.UnobservedComponents(np.log(values), "local linear trend", **waves)
    scales = (model.irregular_scale, model.trend.level_scale, model.trend.slope_scale, model.seasons[0].scale)
    result = theirs.smooth([float(scale) ** 2 for scale in scales])
    origins = range(first - 1, len(values) - horizon + 1)
    expected = np.zeros((len(origins), horizon))
    for row, origin in enumerate(origins):
        ahead = result.get_prediction(origin, origin + horizon - 1, dynamic=True)
        law = lognorm(np.sqrt(ahead.var_pred_mean), scale=np.exp(ahead.predicted_mean))
        expected[row] = law.logpdf(values[origin : origin + horizon])
    found = np.array([one["log_score"] for one in scores])
    np.testing.assert_allclose(found, expected.mean(axis=0), rtol=1e-6)
    assert [one["log_score_error"] for one in scores] == [0.0] * horizon
    # Without the Jacobian of the logarithm the scores are far off.
    assert not np.allclose(found + np.log(values[first:]).mean(), expected.mean(axis=0), rtol=1e-2)


@pytest.mark.ci
def test_smooth_writes_the_components(run, tmp_path):
    command = ["smooth", run, "--data", AIRLINE]
    result = invoke(*command, "--out", tmp_path / "s.csv")
    assert result.exit_code == 0, result.output
    rows = [row for row in csv.DictReader((tmp_path / "s.csv").read_text().splitlines()) if row["kind"] == "component"]
    assert {row["name"] for row in rows} == {"level", "slope", "season 12"}
    assert len(rows) == 3 * 144
    smoothed = mcfo.load_run(run).smooth(AIRLINE)
    for row in rows[:6]:
        own = smoothed.isel(series=0, time=int(row["time"]) - 1).sel(component=row["name"])
        np.testing.assert_allclose(float(row["mean"]), own["component_mean"], rtol=1e-5)
        np.testing.assert_allclose(float(row["q95"]), own["component_quantiles"].sel(quantile=0.95), rtol=1e-5)


@pytest.mark.ci
def test_a_report_shows_the_scores_of_what_was_held_out(run):
    page = (run / "report.html").read_text()
    for text in ("held out", "seasonal naive", "log score", "CRPS"):
        assert text in page
    results = json.loads((run / "results.json").read_text())["holdout"]
    assert results["steps"] == 24
    assert f"{results['seeds'][0]['scores'][0]['crps']:.3g}" in page
