"""`mcfo evaluate --rolling`: the numbers of Python, a picture, and what it refuses."""

import json

import jax
import pytest
from PIL import Image

import mcfo
from mcfo.data.tables import read_series, write_series
from support.commands import invoke, refused
from support.learning import make_series

FEW = ["--rolling", "--horizon", "2", "--from", "4", "--origins", "5", "--particles", "100", "--draws", "200"]


@pytest.fixture(scope="module")
def numbers(classical_run, tmp_path_factory):
    """A folder with three longer series, and a run on shorter ones."""
    folder = tmp_path_factory.mktemp("rolling")
    write_series(folder / "series.csv", make_series(3, steps=20), ["level"])
    (folder / "run").symlink_to(classical_run / "run")
    return folder


@pytest.mark.ci
def test_numbers_and_picture(numbers, tmp_path):
    common = ("evaluate", numbers / "run", "--data", numbers / "series.csv", *FEW)
    result = invoke(*common, "--json", "--out", tmp_path / "s.json", "--plot", tmp_path / "s.png")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout) == json.loads((tmp_path / "s.json").read_text())
    found = json.loads(result.stdout)["seeds"][0]
    saved = mcfo.load_run(numbers / "run").seeds[0]
    here = mcfo.evaluate_rolling(
        saved.model,
        saved.proposal,
        read_series(numbers / "series.csv").series_list,
        horizon=2,
        first=4,
        origins=5,
        particles=100,
        draws=200,
        key=jax.random.key(0),
    )
    assert found["scores"] == [one.as_data() for one in here.scores]
    assert found["scores"][0]["forecasts"] == 15
    with Image.open(tmp_path / "s.png") as picture:
        assert picture.width > 500
    table = invoke(*common)
    assert table.exit_code == 0
    for word in ("log score", "CRPS", "in 90%", f"{here.scores[1].log_score:.4f}"):
        assert word in table.stdout


def test_what_cannot_be_done_is_refused(numbers, tmp_path):
    common = ("evaluate", numbers / "run", "--data", numbers / "series.csv")
    for flag, value in (
        ("--horizon", 2),
        ("--from", 3),
        ("--origins", 2),
        ("--draws", 9),
        ("--plot", tmp_path / "p.png"),
    ):
        assert refused(invoke(*common, flag, value), f"{flag} is about forecasts. Add --rolling")
    assert refused(invoke(*common, "--rolling", "--from", 5000), "There is nothing to score 1 ahead")
    assert refused(invoke(*common, "--rolling", "--plot", tmp_path / "p.gif"), "must end in .png")
    (tmp_path / "p.png").write_text("mine")
    assert refused(invoke(*common, "--rolling", "--plot", tmp_path / "p.png"), "exists already")
    assert (tmp_path / "p.png").read_text() == "mine"
