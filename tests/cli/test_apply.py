"""`mcfo filter` and `mcfo smooth`: numbers, pictures, files that other programs open, and what they refuse."""

import csv
import json
import shutil
import subprocess
import sys
import warnings

import numpy as np
import pytest
import xarray
from PIL import Image

import mcfo
from mcfo.data.tables import write_series
from support.commands import invoke, refused
from support.learning import make_series

pytestmark = pytest.mark.xdist_group("states")  # its fixture takes long: one worker makes it

FEW = ["--particles", "30"]


@pytest.fixture(scope="module")
def folder(classical_run, tmp_path_factory):
    """A folder with three series of different lengths, one of them with a gap, and a run on such series."""
    folder = tmp_path_factory.mktemp("states")
    write_series(folder / "series.csv", make_series(3), ["level"])
    (folder / "run").symlink_to(classical_run / "run")
    return folder


@pytest.mark.ci
@pytest.mark.parametrize("task", ["filter", "smooth"])
def test_files_and_pictures(folder, tmp_path, task):
    more = ["--paths", "20"] if task == "smooth" else []
    common = [task, folder / "run", "--data", folder / "series.csv", *FEW, *more]
    result = invoke(*common, "--draws", "7", "--out", tmp_path / "f.nc", "--plot", tmp_path / "f.png")
    assert result.exit_code == 0, result.output
    assert "log-likelihood" in result.output
    with Image.open(tmp_path / "f.png") as picture:
        assert picture.width > 500
    with xarray.open_dataset(tmp_path / "f.nc") as found:
        assert found.sizes == {"series": 3, "time": 6, "quantile": 5, "dimension": 1, "latent": 1}
        assert found["dimension"].values.tolist() == ["level"]
        assert found["length"].values.tolist() == [6, 5, 4]
        assert found.attrs["kind"] == task
        for kind in ("latent", "observation"):
            quantiles = found[f"{kind}_quantiles"].transpose("quantile", ...).values
            known = np.isfinite(quantiles)
            assert (np.diff(quantiles, axis=0)[known[1:]] >= 0).all()
            assert known.sum() == 5 * (6 + 5 + 4)
        np.testing.assert_allclose(found["log_evidence"], found["log_predictive"].sum("time"), rtol=1e-12)
        assert np.isnan(found["observation"].values[1, 1, 0])
        # The same from Python, by the methods of a saved run.
        options = {"particles": 30, "draws": 7} | ({"paths": 20} if task == "smooth" else {})
        again = getattr(mcfo.load_run(folder / "run"), task)(folder / "series.csv", **options)
        np.testing.assert_array_equal(found["latent_mean"], again["latent_mean"])
        np.testing.assert_array_equal(found["observation_quantiles"], again["observation_quantiles"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ArviZ announces its next version
        import arviz

        opened = arviz.from_netcdf(tmp_path / "f.nc")
        assert opened.posterior["state"].dims == ("chain", "draw", "series", "time", "latent")
        assert opened.posterior_predictive["observation"].shape == (1, 7, 3, 6, 1)
        assert len(arviz.summary(opened.posterior.isel(series=0), var_names=["state"], kind="stats")) == 6
    assert invoke(*common, "--out", tmp_path / "f.csv").exit_code == 0
    rows = list(csv.DictReader((tmp_path / "f.csv").read_text().splitlines()))
    assert len(rows) == 2 * (6 + 5 + 4)
    first = rows[0]
    assert list(first)[:6] == ["series", "time", "kind", "name", "observed", "mean"]
    assert float(first["q05"]) <= float(first["q50"]) <= float(first["q95"])
    assert float(first["ess"]) <= 30
    gap = next(row for row in rows if (row["series"], row["time"], row["kind"]) == ("2", "2", "observation"))
    assert gap["observed"] == ""
    assert gap["mean"]


def test_one_series_and_other_quantiles(folder, tmp_path):
    common = ["filter", folder / "run", "--data", folder / "series.csv", *FEW, "--only", "2", "--quantiles", "0.1,0.9"]
    assert invoke(*common, "--out", tmp_path / "f.nc").exit_code == 0
    with xarray.open_dataset(tmp_path / "f.nc") as found:
        assert found["series"].values.tolist() == ["2"]
        assert found["quantile"].values.tolist() == [0.1, 0.9]
        assert found.sizes["time"] == 5


def test_what_cannot_be_done_is_refused(folder, tmp_path):
    (tmp_path / "there.nc").write_text("mine")
    for task in ("filter", "smooth"):
        common = [task, folder / "run", "--data", folder / "series.csv"]
        assert refused(invoke(*common), "Nothing would be saved")
        assert refused(invoke(*common, "--out", tmp_path / "there.nc"), "exists already")
        assert refused(invoke(*common, "--out", tmp_path / "f.xlsx"), "must end in .nc or .csv")
        assert refused(invoke(*common, "--plot", tmp_path / "f.pdf"), "must end in .png or .gif")
        assert refused(invoke(*common, "--out", tmp_path / "no" / "f.nc"), "There is no folder")
        assert refused(invoke(*common, "--plot", tmp_path / "f.gif"), "no series of images")
        assert refused(invoke(*common, "--out", tmp_path / "f.nc", "--only", "six"), "no series 'six'")
        assert refused(invoke(*common, "--out", tmp_path / "f.nc", "--quantiles", "0.9,0.1"), "increasing numbers")
        assert refused(invoke(*common, "--out", tmp_path / "f.nc", "--run-seed", "9"), "no seed 9")
        assert refused(
            invoke(task, tmp_path, "--data", folder / "series.csv", "--out", tmp_path / "f.nc"), "holds no run"
        )
    smooth = ["smooth", folder / "run", "--data", folder / "series.csv", "--out", tmp_path / "f.nc"]
    assert refused(invoke(*smooth, "--paths", "5", "--draws", "6"), "more than --paths 5")
    assert (tmp_path / "there.nc").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["there.nc"]


@pytest.mark.parametrize("task", ["filter", "smooth"])
def test_runs_that_do_not_fit_are_refused(folder, tmp_path, task):
    (tmp_path / "two.csv").write_text("a,b\n1,2\n3,4\n2,1\n")
    out = ["--out", tmp_path / "f.nc"]
    assert refused(
        invoke(task, folder / "run", "--data", tmp_path / "two.csv", *out), "learned from 1 columns of values"
    )
    shutil.copytree(folder / "run", tmp_path / "unfinished")
    (tmp_path / "unfinished" / "results.json").unlink()
    assert refused(invoke(task, tmp_path / "unfinished", "--data", folder / "series.csv", *out), "has not ended")
    assert refused(invoke(task, folder / "run", "--data", tmp_path / "none.csv", *out), "There is no file")
    assert not (tmp_path / "f.nc").exists()


def test_help_waits_for_nothing_heavy():
    code = (
        "import sys; from mcfo.cli.main import app; print([m for m in ('jax', 'xarray', 'pandas') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(result.stdout.replace("'", '"')) == []
