"""`mcfo posterior`, and what averages over its draws."""

import json

import numpy as np
import pytest
import xarray

from mcfo.data.run_record import read_run
from support.commands import invoke, refused

SHORT = ["--draws", "60", "--warmup", "100", "--chains", "3"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A local level, fitted exactly, and draws of its parameters."""
    folder = tmp_path_factory.mktemp("posterior")
    rng = np.random.default_rng(0)
    values = np.cumsum(rng.normal(size=40)) + rng.normal(size=40)
    (folder / "x.csv").write_text("x\n" + "\n".join(f"{one:.4f}" for one in values) + "\n")
    prior = ["--prior", "emission_noise=half-normal:2"]
    data = ["--data", folder / "x.csv"]
    result = invoke("fit", "local-level", *data, "--out", folder / "run", *prior, "--no-checks", "--devices", "1")
    assert result.exit_code == 0, result.output
    assert "std. error" in result.stdout
    result = invoke("posterior", folder / "run", *data, *SHORT)
    assert result.exit_code == 0, result.output
    assert "R-hat" in result.stdout
    return folder


@pytest.mark.ci
def test_results_hold_standard_errors(run):
    content = json.loads((run / "run" / "results.json").read_text())
    rows = content["seeds"][0]["uncertainty"]["parameters"]
    assert [row["name"] for row in rows] == [
        "transition_noise.standard_deviation",
        "emission_noise.standard_deviation",
    ]
    assert all(row["low"] < row["estimate"] < row["high"] for row in rows)
    assert "95 % interval" in (run / "run" / "report.html").read_text()
    assert read_run(run / "run").config["settings"]["priors"] == {"emission_noise": "half-normal:2"}


@pytest.mark.ci
def test_draws_and_page(run):
    folder = run / "run" / "posterior"
    draws = xarray.open_dataset(folder / "draws.nc", group="posterior", engine="h5netcdf")
    assert draws["emission_noise.standard_deviation"].shape == (3, 60, 1)
    assert (draws["emission_noise.standard_deviation"] > 0).all()
    # The prior is that of the run.
    assert json.loads((folder / "config.json").read_text())["priors"] == {"emission_noise": "half-normal:2"}
    assert "figures" in {path.name for path in folder.iterdir()}
    assert "How the chains moved" in (folder / "report.html").read_text()


@pytest.mark.ci
def test_answers_average_over_the_draws(run):
    draws = ["--posterior", run / "run" / "posterior" / "draws.nc"]
    data = ["--data", run / "x.csv"]
    for command, options in (("forecast", ["--steps", "2"]), ("smooth", [])):
        out = run / f"{command}.nc"
        result = invoke(command, run / "run", *data, *draws, "--out", out, *options)
        assert result.exit_code == 0, result.output
        assert "averaged over 100 draws" in " ".join(result.stdout.split())
        assert xarray.open_dataset(out, engine="h5netcdf").attrs["posterior_draws"] == 100
    result = invoke("evaluate", run / "run", *data, *draws, "--rolling", "--from", "30", "--json")
    assert result.exit_code == 0, result.output
    assert np.isfinite(json.loads(result.stdout)["seeds"][0]["scores"][0]["log_score"])
    assert refused(invoke("evaluate", run / "run", *data, *draws), "--posterior is about forecasts. Add --rolling")


@pytest.mark.ci
def test_bad_input_is_refused(run):
    data = ["--data", run / "x.csv"]
    again = ["posterior", run / "run", *data]
    assert refused(invoke(*again), "exists already")
    again += ["--out", run / "other"]
    assert refused(invoke(*again, "--chains", "1"), "R-hat compares chains")
    assert refused(invoke(*again, "--prior", "emision_noise=half-normal:1"), "Did you mean")
    assert refused(invoke(*again, "--prior", "emission_noise=uniform:-2,-1"), "lies outside the range")
    forecast = ["forecast", run / "run", *data, "--out", run / "no.csv", "--posterior"]
    assert refused(invoke(*forecast, run / "x.csv"), "is no posterior of mcfo")
    assert refused(invoke(*forecast, run / "no.nc"), "There is no file")
    assert not (run / "other").exists()
