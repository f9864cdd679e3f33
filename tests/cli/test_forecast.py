"""`mcfo forecast` and `mcfo simulate`: numbers, pictures, and what they refuse."""

import csv
import json

import jax
import numpy as np
import pytest
import xarray
from PIL import Image

import mcfo
from mcfo.data.tables import read_series
from support.commands import invoke, refused

pytestmark = pytest.mark.xdist_group("forecast")  # its fixtures take long: one worker makes them

FEW = ["--steps", "3", "--particles", "20", "--draws", "10"]


@pytest.fixture
def numbers(classical_run):
    """A folder with series of different lengths, and a run of two seeds on them."""
    return classical_run


@pytest.fixture
def pictures(deep_run):
    """Videos of 4 x 5 pixels, and a run on them."""
    return deep_run


@pytest.mark.ci
def test_numbers_of_a_forecast(numbers, tmp_path):
    result = invoke(
        *("forecast", numbers / "run", "--data", numbers / "series.csv", *FEW),
        *("--out", tmp_path / "f.csv", "--plot", tmp_path / "f.png"),
    )
    assert result.exit_code == 0, result.output
    rows = list(csv.DictReader((tmp_path / "f.csv").read_text().splitlines()))
    assert list(rows[0]) == ["series", "time", "kind", "name", "mean", "q05", "q25", "q50", "q75", "q95", "moment"]
    assert [(row["series"], row["time"], row["kind"], row["name"]) for row in rows[:4]] == [
        ("1", "1", "observation", "level"),
        ("1", "2", "observation", "level"),
        ("1", "3", "observation", "level"),
        ("2", "1", "observation", "level"),
    ]
    assert len(rows) == 15
    for row in rows:
        quantiles = [float(row[name]) for name in ("q05", "q25", "q50", "q75", "q95")]
        assert quantiles == sorted(quantiles)
        assert quantiles[0] < float(row["mean"]) < quantiles[-1]
    # The same from Python, with the seed of the run that has the lowest NLL.
    results = json.loads((numbers / "run" / "results.json").read_text())
    best = min(results["seeds"], key=lambda one: one["evaluation"]["nll_per_step"])["seed"]
    saved = mcfo.load_run(numbers / "run").choose()
    assert saved.seed == best
    one = mcfo.inference.forecast_series(
        saved.model,
        saved.proposal,
        read_series(numbers / "series.csv").series_list[0],
        steps=3,
        sampler=mcfo.SMC(20),
        draws=10,
        key=jax.random.key(0),
    )
    assert float(rows[0]["mean"]) == pytest.approx(float(one.mean[0, 0]), rel=1e-5)
    with Image.open(tmp_path / "f.png") as picture:
        assert picture.width > 500


def test_figures_number_the_steps_of_the_series(numbers, tmp_path, monkeypatch):
    """Also where only the end of a long one is shown."""
    (tmp_path / "long.csv").write_text("level\n" + "0.5\n1.5\n" * 60)
    drawn = []
    monkeypatch.setattr("mcfo.reports.series_plots.draw_panels", lambda path, panels, **_: drawn.extend(panels) or path)
    common = ["forecast", numbers / "run", "--data", tmp_path / "long.csv", *FEW, "--plot", tmp_path / "f.png"]
    assert invoke(*common).exit_code == 0
    (panel,) = drawn
    assert (panel.x[0], panel.x[-1], len(panel.observed)) == (21, 120, 100)
    assert panel.estimate.x.tolist() == [121, 122, 123]


def test_one_series_and_one_seed(numbers, tmp_path):
    common = ["forecast", numbers / "run", "--data", numbers / "series.csv", *FEW, "--only", "2"]
    found = []
    for seed in (0, 1):
        out = tmp_path / f"{seed}.npz"
        assert invoke(*common, "--run-seed", seed, "--out", out).exit_code == 0
        with np.load(out) as arrays:
            assert arrays["mean"].shape == (1, 3, 1)
            assert arrays["quantiles"].shape == (5, 1, 3, 1)
            assert arrays["series"].tolist() == ["2"]
            found.append(arrays["mean"])
    assert not np.allclose(*found)
    assert refused(invoke(*common, "--run-seed", 7, "--out", tmp_path / "7.npz"), "no seed 7, but 0, 1")


def test_simulated_series_can_be_read_again(numbers, tmp_path):
    result = invoke(
        *("simulate", numbers / "run", "--steps", "7", "--count", "3"),
        *("--out", tmp_path / "s.csv", "--plot", tmp_path / "s.png"),
    )
    assert result.exit_code == 0, result.output
    table = read_series(tmp_path / "s.csv")
    assert table.columns == ["level"]
    assert [one.steps for one in table.series_list] == [7, 7, 7]
    assert not np.allclose(table.series_list[0].observations, table.series_list[1].observations)
    assert (tmp_path / "s.png").exists()


def test_netcdf_of_forecasts_and_simulated_series(numbers, tmp_path):
    common = ["forecast", numbers / "run", "--data", numbers / "series.csv", *FEW]
    for name in ("f.nc", "f.csv"):
        result = invoke(*common, "--out", tmp_path / name)
        assert result.exit_code == 0, result.output
    rows = list(csv.DictReader((tmp_path / "f.csv").read_text().splitlines()))
    with xarray.open_dataset(tmp_path / "f.nc") as found:
        assert found.sizes == {"series": 5, "time": 3, "quantile": 5, "dimension": 1, "latent": 1}
        means = found["observation_mean"].values.ravel()
        np.testing.assert_allclose(means, [float(row["mean"]) for row in rows], rtol=1e-5)
        assert found["length"].values.tolist() == [6, 5, 4, 6, 5]
    with xarray.open_dataset(tmp_path / "f.nc", group="predictions") as found:
        assert found["observation"].shape == (1, 10, 5, 3, 1)
    assert invoke("simulate", numbers / "run", "--out", tmp_path / "s.nc", "--steps", "7").exit_code == 0
    with xarray.open_dataset(tmp_path / "s.nc") as found:
        assert found["observation"].dims == ("series", "time", "dimension")
        assert found["latent_state"].shape == (4, 7, 1)


@pytest.mark.slow
def test_films(pictures, tmp_path):
    common = ["forecast", pictures / "run", "--data", pictures / "videos.npz", *FEW]
    for name in ("f.png", "f.gif"):
        result = invoke(*common, "--plot", tmp_path / name)
        assert result.exit_code == 0, result.output
    with Image.open(tmp_path / "f.gif") as film:
        assert film.n_frames == 6 + 3
        film.seek(0)
        observed = np.asarray(film.convert("RGB"))
        assert tuple(observed[0, 0]) == (120, 120, 120)
        # Three videos, two rows, every pixel as a square between borders of four.
        height, width = observed.shape[0] // 2, observed.shape[1] // 3
        scale = (height - 8) // 4
        first = read_series(pictures / "videos.npz").series_list[0].observations[0].reshape(4, 5)
        cell = observed[4 : 4 + 4 * scale, 4 : 4 + 5 * scale, 0][scale // 2 :: scale, scale // 2 :: scale]
        np.testing.assert_array_equal(cell < 128, first == 1)
        assert width == 5 * scale + 8
        film.seek(6)
        assert tuple(np.asarray(film.convert("RGB"))[0, 0]) == (0, 114, 178)
    for name in ("s.png", "s.gif"):
        assert invoke("simulate", pictures / "run", "--plot", tmp_path / name, "--steps", "3").exit_code == 0
    assert invoke("simulate", pictures / "run", "--out", tmp_path / "s.npz", "--steps", "3").exit_code == 0
    table = read_series(tmp_path / "s.npz")
    assert table.image == (4, 5)
    assert len(table.series_list) == 4


def test_what_cannot_be_done_is_refused(numbers, pictures, tmp_path):
    forecast = ["forecast", numbers / "run", "--data", numbers / "series.csv"]
    (tmp_path / "there.csv").write_text("mine")
    assert refused(invoke(*forecast), "Nothing would be saved")
    assert refused(invoke(*forecast, "--out", tmp_path / "there.csv"), "exists already")
    assert refused(invoke(*forecast, "--out", tmp_path / "f.xlsx"), "must end in .csv or .npz")
    assert refused(invoke(*forecast, "--plot", tmp_path / "no" / "f.png"), "There is no folder")
    assert refused(invoke(*forecast, "--plot", tmp_path / "f.gif"), "no series of images")
    assert refused(invoke(*forecast, "--out", tmp_path / "f.csv", "--only", "six"), "no series 'six'")
    other = ["forecast", pictures / "run", "--data", numbers / "series.csv", "--out", tmp_path / "f.csv"]
    assert refused(invoke(*other), "learned from 20 columns")
    assert refused(invoke("simulate", numbers / "run"), "Nothing would be saved")
    assert refused(invoke("simulate", tmp_path, "--out", tmp_path / "s.csv"), "holds no run")
    assert (tmp_path / "there.csv").read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["there.csv"]
