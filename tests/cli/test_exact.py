"""Exact fits and answers on the command line: what they say, what they write, what they refuse."""

import json

import numpy as np
import pytest
import xarray

import mcfo
from mcfo import exact
from support.commands import invoke, refused

ALONE = ["--devices", "1", "--no-checks"]
"""JAX has started with one device here, so that no other number would do."""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Monthly data, and a run that did not learn from the last six months."""
    folder = tmp_path_factory.mktemp("exact")
    rng = np.random.default_rng(0)
    values = 20 + np.cumsum(rng.normal(size=48)) + rng.normal(size=48)
    dates = np.arange("2015-01", "2019-01", dtype="M8[M]").astype("M8[D]")
    rows = "\n".join(f"{date},{value:.6f}" for date, value in zip(dates, values, strict=True))
    (folder / "data.csv").write_text(f"date,x\n{rows}\n")
    result = fit(folder, "run", "--holdout-steps", 6)
    assert result.exit_code == 0, result.output
    return folder, " ".join(result.stdout.split())


def fit(folder, out, *options):
    return invoke("fit", "local-level", "--data", folder / "data.csv", "--out", folder / out, *ALONE, *options)


def test_an_exact_fit_says_how_it_ended_and_scores_what_was_held_out(place):
    folder, said = place
    assert "exact maximum likelihood converged" in said
    assert "log-likelihood, exact" in said
    assert "The last 6 steps, which were held out" in said
    assert "seasonal naive" in said
    results = json.loads((folder / "run" / "results.json").read_text())
    assert results["exact"] is True
    assert results["holdout"]["steps"] == 6
    scored = results["holdout"]["seeds"][0]
    assert scored["scores"][0]["forecasts"] == 6
    assert set(scored["naive"]) == {"naive", "seasonal naive"}
    config = json.loads((folder / "run" / "config.json").read_text())
    assert config["data"]["steps"] == 42
    # Held-out steps are scored by all that came before them.
    model = mcfo.load_run(folder / "run").choose().model
    values = mcfo.read_series(folder / "data.csv").series_list[0]
    whole, first = (float(exact.log_evidence(model, one)) for one in (values, values.window(0, 42)))
    np.testing.assert_allclose(scored["scores"][0]["log_score"], (whole - first) / 6, rtol=1e-9)


@pytest.mark.ci
def test_evaluations_are_exact_unless_particles_are_asked_for(place):
    folder, _ = place
    command = ["evaluate", folder / "run", "--data", folder / "data.csv", "--json"]
    found = json.loads(invoke(*command).stdout)
    assert (found["exact"], found["particles"], found["in_sample"]) == (True, None, False)
    model = mcfo.load_run(folder / "run").choose().model
    series = mcfo.read_series(folder / "data.csv").series_list[0]
    np.testing.assert_allclose(found["seeds"][0]["log_evidence"], float(exact.log_evidence(model, series)), rtol=1e-9)
    by_particles = json.loads(invoke(*command, "--particles", 20).stdout)
    assert (by_particles["exact"], by_particles["particles"]) == (False, 20)
    assert json.loads(invoke(*command, "--method", "particles").stdout)["particles"] == 500
    rolled = json.loads(invoke(*command, "--rolling", "--horizon", 3, "--from", 20).stdout)
    assert rolled["exact"] is True
    assert rolled["season"] == 12
    assert [one["log_score_error"] for one in rolled["seeds"][0]["scores"]] == [0.0] * 3
    shown = " ".join(invoke(*command[:-1], "--rolling").stdout.split())
    assert "forecasts (exact)" in shown
    assert "Naive forecasts repeat the last value" in shown


def test_in_sample_is_said(place, tmp_path):
    folder, _ = place
    assert fit(folder, "whole").exit_code == 0
    command = ["evaluate", folder / "whole", "--data", folder / "data.csv"]
    assert "In-sample: the model learned from these data" in " ".join(invoke(*command).stdout.split())
    assert json.loads(invoke(*command, "--json").stdout)["in_sample"] is True
    changed = (folder / "data.csv").read_text().splitlines()
    (tmp_path / "other.csv").write_text("\n".join(changed[:-1]) + "\n")
    other = invoke("evaluate", folder / "whole", "--data", tmp_path / "other.csv", "--json")
    assert json.loads(other.stdout)["in_sample"] is False


@pytest.mark.ci
def test_states_and_forecasts_are_exact_and_say_so(place, tmp_path):
    folder, _ = place
    for task, options in (("filter", []), ("smooth", []), ("forecast", ["--steps", 4])):
        out = tmp_path / f"{task}.nc"
        result = invoke(task, folder / "run", "--data", folder / "data.csv", "--out", out, *options)
        assert result.exit_code == 0, result.output
        assert "by exact distributions" in " ".join(result.stdout.split())
        with xarray.open_dataset(out) as dataset:
            assert dataset.attrs["exact"] == 1
    assert invoke("smooth", folder / "run", "--data", folder / "data.csv", "--out", tmp_path / "s.csv").exit_code == 0
    header, first = (tmp_path / "s.csv").read_text().splitlines()[:2]
    assert header.endswith("ess,log_predictive,moment")
    assert first.split(",")[-3] == ""
    sampled = invoke(
        "filter", folder / "run", "--data", folder / "data.csv", "--out", tmp_path / "p.nc", "--particles", 30
    )
    assert "with 30 particles" in " ".join(sampled.stdout.split())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--objective", "exact", "--particles", 5], "are about objectives by particles"),
        (["--objective", "exat"], "Did you mean 'exact'?"),
        (["--holdout-steps", 47], "leaves fewer than two steps to learn from: the shortest series has 48"),
        (["--fix", "model.transition"], "There is no parameter 'model.transition'"),
    ],
)
def test_what_an_exact_fit_refuses(place, options, message):
    folder, _ = place
    assert refused(fit(folder, "refused", *options), message)
    assert not (folder / "refused").exists()


def test_a_likelihood_that_is_not_known_is_not_maximized(tmp_path):
    (tmp_path / "counts.csv").write_text("n\n1\n2\n0\n3\n")
    command = ["fit", "poisson-counts", "--data", tmp_path / "counts.csv", "--out", tmp_path / "run", *ALONE]
    assert refused(invoke(*command, "--objective", "exact"), "The likelihood of poisson-counts is not known exactly")
