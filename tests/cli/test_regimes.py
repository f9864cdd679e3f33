"""`mcfo fit hmm` and `mcfo fit switching` from a table to regimes, forecasts and a report."""

import csv
import json

import numpy as np
import pytest
from statsmodels.tsa.regime_switching.markov_regression import MarkovRegression

import mcfo
from support.commands import invoke, refused
from support.regime_data import counts, levels, volatilities


def write(path, values):
    path.write_text("y\n" + "\n".join("" if np.isnan(one) else f"{one:.6g}" for one in values) + "\n")
    return path


def rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def probabilities(path, name):
    return np.array([float(row["mean"]) for row in rows(path) if row["name"] == name])


@pytest.mark.ci
def test_a_hidden_markov_model_reaches_the_maximum(tmp_path):
    path, values = volatilities()
    data, run = write(tmp_path / "y.csv", values), tmp_path / "run"
    result = invoke("fit", "hmm", "--data", data, "--out", run, "--no-checks", "--devices", "1")
    assert result.exit_code == 0, result.output
    fitted = json.loads((run / "results.json").read_text())["seeds"][0]
    readable = fitted["readable"]
    (calm, _), (wild, _) = (
        readable["model.chain.transition_probabilities"][0],
        (readable["model.chain.transition_probabilities"][1]),
    )
    # The same likelihood by a filter that shares no code, at the same parameters and at its own maximum.
    trusted = MarkovRegression(np.loadtxt(data, skiprows=1), k_regimes=2, switching_variance=True)
    means, scales = (np.ravel(readable[f"model.emissions.{name}"]) for name in ("mean", "standard_deviation"))
    own = trusted.loglike([calm, wild, *means, *scales**2])
    assert fitted["evaluation"]["log_evidence"] == pytest.approx(own, abs=1e-5)
    best = trusted.fit(disp=0).llf
    assert fitted["evaluation"]["log_evidence"] > best - 0.01
    assert trusted.loglike([calm, wild, *means, *(1.2 * scales) ** 2]) < best - 0.01
    assert scales[0] < scales[1]
    for task, more in (("smooth", []), ("forecast", ["--steps", "3"])):
        result = invoke(task, run, "--data", data, "--out", tmp_path / f"{task}.csv", *more)
        assert result.exit_code == 0, result.output
        assert "exact" in result.output
    found = probabilities(tmp_path / "smooth.csv", "regime 2")
    assert np.mean((found > 0.5) == (path == 1)) > 0.9
    assert len(rows(tmp_path / "forecast.csv")) == 3
    assert "standard deviation" in (run / "report.html").read_text()


@pytest.mark.ci
def test_counts_with_gaps_and_three_states(tmp_path):
    _, values = counts()
    data, run = write(tmp_path / "y.csv", values), tmp_path / "run"
    options = ["--set", "states=3", "--set", "emission=poisson", "--no-checks", "--devices", "1"]
    assert invoke("fit", "hmm", "--data", data, "--out", run, *options).exit_code == 0
    model = mcfo.load_run(run).choose().model
    assert (np.diff(model.emissions.rate[:, 0]) > 0).all()
    assert invoke("smooth", run, "--data", data, "--out", tmp_path / "s.csv").exit_code == 0
    filled = [row for row in rows(tmp_path / "s.csv") if row["kind"] == "observation" and not row["observed"]]
    assert len(filled) == 3
    bad = write(tmp_path / "bad.csv", np.array([1.0, 2.5]))
    assert refused(invoke("fit", "hmm", "--data", bad, "--out", tmp_path / "no", *options), "2.5 is not a count")


@pytest.mark.slow
def test_switching_runs_from_a_table_to_its_regimes(tmp_path):
    path, values = levels()
    values[20:23] = np.nan
    data, run = write(tmp_path / "y.csv", values), tmp_path / "run"
    few = ["--steps", "4", "--particles", "30", "--log-every", "2", "--devices", "1"]
    result = invoke("fit", "switching", "--data", data, "--out", run, *few)
    assert result.exit_code == 0, result.output
    assert "emission offset of regimes" in result.output
    assert (run / "report.html").exists()
    common = ["--data", data, "--particles", "100", "--out"]
    assert invoke("smooth", run, *common, tmp_path / "s.csv").exit_code == 0
    found = probabilities(tmp_path / "s.csv", "regime 2")
    assert np.mean((found > 0.5) == (path == 1)) > 0.9
    assert invoke("forecast", run, *common, tmp_path / "f.csv", "--steps", "3").exit_code == 0
    assert invoke("evaluate", run, "--data", data, "--particles", "50").exit_code == 0
