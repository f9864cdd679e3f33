"""`mcfo fit --each` and the commands that apply what it learned."""

import json

import numpy as np
import pytest
import xarray
from typer.testing import CliRunner

from mcfo.cli.main import app
from support.commands import refused


def run(*words):
    return CliRunner().invoke(app, [*map(str, words)])


@pytest.fixture(scope="module")
def panel(tmp_path_factory):
    """Three noisy walks; the second is constant."""
    path, random = tmp_path_factory.mktemp("panel") / "panel.csv", np.random.default_rng(0)
    rows = [
        f"{name},{step},{2.0 if name == 'b' else value:.4f}"
        for name in "abc"
        for step, value in enumerate(np.cumsum(random.normal(size=25)) + random.normal(size=25))
    ]
    path.write_text("series,time,level\n" + "\n".join(rows) + "\n")
    return path


@pytest.mark.ci
def test_each_series_is_learned_and_forecast(panel, tmp_path):
    out = tmp_path / "run"
    result = run("fit", "local-level", "--data", panel, "--out", out, "--each", "--devices", 1)
    assert result.exit_code == 0, result.output
    text = " ".join(result.output.split())
    assert "2 of 3 series converged" in text
    assert "Not learned: 1" in text
    assert json.loads((out / "results.json").read_text())["unusable"].keys() == {"b"}
    assert xarray.load_dataset(out / "each.nc", engine="h5netcdf")["converged"].values.tolist() == [True, False, True]
    result = run("forecast", out, "--data", panel, "--steps", 3, "--out", tmp_path / "f.nc")
    assert result.exit_code == 0, result.output
    forecasts = xarray.load_dataset(tmp_path / "f.nc", engine="h5netcdf")
    assert forecasts["series"].values.tolist() == ["a", "c"]
    assert np.isfinite(forecasts["observation_mean"].values).all()
    assert "Left out, because they were not learned: b" in result.output
    result = run("evaluate", out, "--data", panel, "--rolling", "--from", 20, "--json")
    assert json.loads(result.stdout)["seeds"][0]["series"] == 2
    smoothed = run("smooth", out, "--data", panel, "--only", "a", "--out", tmp_path / "s.csv")
    assert smoothed.exit_code == 0, smoothed.output
    assert refused(run("evaluate", out, "--data", panel), "add --rolling")
    assert refused(run("report", out), 'has kind "fit-each"')
    assert refused(
        run("forecast", out, "--data", panel, "--only", "b", "--out", tmp_path / "g.csv"),
        "learned none of these series",
    )


def test_options_about_one_model_are_refused(panel, tmp_path):
    words = ["fit", "local-level", "--data", panel, "--out", tmp_path / "run", "--each"]
    assert refused(run(*words, "--holdout", 0.2), "--holdout is about one model for all series")
    assert refused(run(*words, "--seeds", 2), "--seeds is about one model for all series")
