"""Pendulum videos: the dynamics, the pictures, what is drawn from them, and the command."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from mcfo.cli.main import app
from mcfo.data.pendulum_videos import View, simulate_pendulum
from mcfo.data.tables import read_series
from mcfo.errors import InputError
from support.means import assert_mean


@pytest.fixture(scope="module")
def videos():
    return simulate_pendulum(200, seed=1)


def test_the_state_moves_as_the_paper_says(videos):
    angle, speed = videos.angles[:, :-1], videos.speeds[:, :-1]
    noise = np.stack(
        [
            videos.angles[:, 1:] - angle - 0.05 * speed,
            videos.speeds[:, 1:] - speed - 3 * 10 / 2 * np.sin(angle) * 0.05,
        ]
    )
    assert_mean(noise.reshape(2, -1).T, 0.0)
    np.testing.assert_allclose(noise.std(axis=(1, 2)), 0.1, rtol=0.05)
    assert abs(np.corrcoef(noise[0].ravel(), noise[1].ravel())[0, 1]) < 0.05
    # Negative control: semi-implicit Euler, as gymnasium's own steps are.
    wrong = videos.angles[:, 1:] - angle - 0.05 * videos.speeds[:, 1:]
    assert abs(np.corrcoef(wrong.ravel(), np.sin(angle).ravel())[0, 1]) > 0.1
    assert videos.angles[:, 0].min() < -3
    assert videos.angles[:, 0].max() > 3
    assert np.abs(videos.speeds[:, 0]).max() <= 1


def test_observations_are_drawn_from_the_grey_levels(videos):
    drawn, levels = videos.observations.ravel(), videos.gray.ravel().astype(float)
    assert set(np.unique(drawn)) == {0, 1}
    assert not drawn[levels == 0].any()
    assert drawn[levels == 255].all()
    between = (levels > 0) & (levels < 255)
    assert_mean(drawn[between] - levels[between] / 255, 0.0)
    # Negative control: levels that are three too high.
    with pytest.raises(AssertionError):
        assert_mean(drawn[between] - (levels[between] + 3) / 255, 0.0)


def test_the_same_seed_gives_the_same_bits(videos):
    again, other = simulate_pendulum(200, seed=1), simulate_pendulum(200, seed=2)
    for one, same, different in zip(videos, again, other, strict=True):
        assert one.tobytes() == same.tobytes()
        assert one.tobytes() != different.tobytes()


def test_the_rod_points_where_the_angle_says():
    """Up, left, down, right, and nothing beyond the rod."""
    up, left, down, right = View(2.2)(np.array([0.0, np.pi / 2, np.pi, -np.pi / 2])).astype(int)
    for turned, picture in ((1, left), (2, down), (3, right)):
        np.testing.assert_allclose(np.rot90(up, turned), picture, atol=1)
    assert up[10:14].max(axis=1).min() > 180
    assert up[:7].max() == 0
    assert up[20:].max() == 0


@pytest.mark.parametrize(
    ("half_extent", "states"),
    [(1.1, 100), pytest.param(1.1, 1000, marks=pytest.mark.slow), pytest.param(2.2, 1000, marks=pytest.mark.slow)],
)
def test_our_pictures_are_those_of_gymnasium(half_extent, states):
    pytest.importorskip("gymnasium", reason="gymnasium is not installed: pip install 'mcfo[gym]'")
    pytest.importorskip("pygame", reason="pygame is not installed: pip install 'mcfo[gym]'")
    angles = np.random.default_rng(0).uniform(-np.pi, np.pi, states)
    ours = View(half_extent, "gym")(angles) / 255
    theirs = View(half_extent, "gym", "gym")(angles) / 255
    gaps = np.abs(ours - theirs)
    assert gaps.mean() < 0.001
    assert gaps.max() < 0.1
    # Negative control: turned by two degrees.
    turned = np.abs(View(half_extent, "gym")(angles + np.radians(2)) / 255 - theirs)
    assert turned.mean() > 0.001
    assert turned.max() > 0.1


def test_the_default_view_is_as_hard_as_it_was_measured(videos):
    """Nats a frame: 19.7 if all gray levels were known, 159.8 for the best static picture."""
    gray = videos.gray / 255

    def entropy(probability):
        inside = np.clip(probability, 1e-12, 1 - 1e-12)
        return -(inside * np.log(inside) + (1 - inside) * np.log(1 - inside))

    assert entropy(gray).sum((2, 3)).mean() == pytest.approx(19.7, abs=0.5)
    assert entropy(gray.mean((0, 1))).sum() == pytest.approx(159.8, abs=4.0)


def test_what_cannot_be_shown_is_refused():
    for options, message in (
        ({"half_extent": 0.0}, "must be positive"),
        ({"half_extent": 2.3}, "at most 2.2"),
        ({"contrast": "ful"}, "'full' or 'gym', but got 'ful'"),
        ({"renderer": "opengl"}, "'capsule' or 'gym', but got 'opengl'"),
    ):
        with pytest.raises(InputError, match=message):
            View(**options)
    with pytest.raises(InputError, match="At least one series of one step"):
        simulate_pendulum(0, seed=0)


def test_the_command_writes_what_fit_reads(tmp_path):
    out = tmp_path / "videos"
    command = ["data", "pendulum", "--out", str(out), "--train", "3", "--test", "2", "--steps", "4", "--seed", "5"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "mcfo fit deep --data" in result.stdout
    train, test = (read_series(out / f"{part}.npz") for part in ("train", "test"))
    assert (len(train.series_list), len(test.series_list), train.image) == (3, 2, (32, 32))
    whole = simulate_pendulum(5, 4, seed=5)
    np.testing.assert_array_equal(train.series_list[2].observations, whole.observations[2].reshape(4, -1))
    np.testing.assert_array_equal(test.series_list[0].observations, whole.observations[3].reshape(4, -1))
    with np.load(out / "truth.npz") as truth:
        np.testing.assert_array_equal(truth["test_gray"], whole.gray[3:])
        np.testing.assert_array_equal(truth["train_angles"], whole.angles[:3])
    assert json.loads((out / "config.json").read_text())["half_extent"] == 1.1
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    refused = CliRunner().invoke(app, command)
    assert refused.exit_code == 2
    assert "exists already" in refused.stderr
    assert CliRunner().invoke(app, [*command, "--force"]).exit_code == 0
    assert before == {path.name: path.read_bytes() for path in out.iterdir()}, "to the bit"
    wrong = CliRunner().invoke(app, ["data", "pendulum", "--out", str(tmp_path / "other"), "--contrast", "none"])
    assert wrong.exit_code == 2
    assert "'full' or 'gym'" in wrong.stderr
    assert not Path(tmp_path / "other").exists()
