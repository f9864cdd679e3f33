"""`mcfo simulate` and `mcfo forecast` on music: what is heard, what is seen, what is refused."""

import mido
import numpy as np
import pytest
from PIL import Image

from mcfo.data.piano_rolls import read_midi, write_midi
from mcfo.data.tables import read_series
from support.commands import SMALL, invoke, refused

pytestmark = [pytest.mark.xdist_group("listening"), pytest.mark.ci]  # its fixtures take long: one worker makes them

FEW = ["--steps", "5", "--particles", "8", "--draws", "4"]
NARROW = ("latent=2", "transition_units=3", "emission_units=3", "encoder_units=3", "proposal_units=3")


@pytest.fixture
def music(recurrent_run):
    """Two pieces of different lengths, and a run on them."""
    return recurrent_run


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    """As many columns, but other numbers."""
    folder = tmp_path_factory.mktemp("numbers")
    np.savez(folder / "pieces.npz", one=np.random.default_rng(0).normal(size=(6, 88)))
    result = invoke(
        *("fit", "deep", "--data", folder / "pieces.npz", "--out", folder / "run", *SMALL),
        *(word for size in NARROW for word in ("--set", size)),
    )
    assert result.exit_code == 0, result.output
    return folder


@pytest.mark.ci
def test_what_is_heard_is_what_was_drawn(music, tmp_path):
    simulate = ["simulate", music / "run", "--steps", "30"]
    result = invoke(*simulate, "--count", 2, "--out", tmp_path / "s.npz", "--midi", tmp_path / "s.mid")
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s-1.mid", "s-2.mid", "s.npz"]
    drawn = [np.asarray(one.observations) for one in read_series(tmp_path / "s.npz").series_list]
    for number, roll in enumerate(drawn, 1):
        write_midi(tmp_path / f"own-{number}.mid", roll)
        assert (tmp_path / f"s-{number}.mid").read_bytes() == (tmp_path / f"own-{number}.mid").read_bytes()
    assert (tmp_path / "s-1.mid").read_bytes() != (tmp_path / "s-2.mid").read_bytes()


def test_the_same_seed_is_the_same_piece(music, tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        result = invoke(
            *("simulate", music / "run", "--steps", "9", "--count", 1, "--seed", seed, "--steps-per-quarter", 1),
            *("--midi", tmp_path / f"{name}.MID"),
        )
        assert result.exit_code == 0, result.output
    one, same, other = ((tmp_path / f"{name}.MID").read_bytes() for name in "abc")
    assert one == same != other
    assert mido.MidiFile(tmp_path / "a.MID").length == pytest.approx(9 * 0.6)  # a quarter note each


def test_a_piece_goes_on(music, tmp_path):
    common = ["forecast", music / "run", "--data", music / "pieces.npz", *FEW, "--only", "a"]
    result = invoke(*common, "--midi", tmp_path / "a.mid", "--plot", tmp_path / "a.png", "--out", tmp_path / "a.npz")
    assert result.exit_code == 0, result.output
    piece = np.asarray(read_series(music / "pieces.npz").series_list[0].observations)
    found = read_midi(tmp_path / "a.mid")
    np.testing.assert_array_equal(found[:6], piece)
    assert found[6:].any(), "something comes after it"
    assert mido.MidiFile(tmp_path / "a.mid").length == pytest.approx((6 + 5) * 0.3)
    # From a MIDI file of the same piece, in other steps: the same music in their time.
    write_midi(tmp_path / "given.mid", piece, steps_per_quarter=4)
    again = ["forecast", music / "run", "--data", tmp_path / "given.mid", *FEW, "--steps-per-quarter", 4]
    result = invoke(*again, "--midi", tmp_path / "again.mid")
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(read_midi(tmp_path / "again.mid", steps_per_quarter=4)[:6], piece)
    assert refused(invoke(*again, "--columns", "x1", "--plot", tmp_path / "b.png"), "are about CSV files")
    assert invoke(*common, "--seed", 1, "--midi", tmp_path / "other.mid").exit_code == 0
    assert (tmp_path / "other.mid").read_bytes() != (tmp_path / "a.mid").read_bytes()


@pytest.mark.ci
def test_pictures_of_music_are_rolls(music, numbers, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("mcfo.reports.series_plots.draw_rolls", lambda path, rolls: seen.append(rolls) or path)
    assert invoke("simulate", music / "run", "--steps", 7, "--plot", tmp_path / "s.png").exit_code == 0
    forecast = ["--data", music / "pieces.npz", *FEW, "--plot", tmp_path / "f.png"]
    assert invoke("forecast", music / "run", *forecast).exit_code == 0
    drawn, coming = seen
    assert [roll.title for roll in drawn] == ["draw 1", "draw 2", "draw 3", "draw 4"]
    assert [roll.first for roll in coming] == [6, 8]
    assert [len(roll.notes) for roll in coming] == [6 + 5, 8 + 5]
    for roll in (*drawn, *coming):
        assert set(np.unique(roll.notes)) == {0, 1}
        assert roll.probabilities.shape == (len(roll.notes) - roll.first, 88)
        assert 0 < roll.probabilities.min() < roll.probabilities.max() < 1
    monkeypatch.undo()
    assert invoke("simulate", music / "run", "--steps", 7, "--plot", tmp_path / "s.png").exit_code == 0
    with Image.open(tmp_path / "s.png") as picture:
        assert picture.width > 1000
    # Other numbers are lines, as before.
    monkeypatch.setattr("mcfo.reports.series_plots.draw_panels", lambda path, panels, **_: seen.append(panels) or path)
    assert invoke("simulate", numbers / "run", "--plot", tmp_path / "n.png").exit_code == 0
    assert len(seen) == 3


def test_what_is_no_music_is_refused(music, numbers, tmp_path):
    (tmp_path / "there.mid").write_text("mine")
    (tmp_path / "there-2.mid").write_text("mine")
    new = ["--midi", tmp_path / "new.mid"]
    simulate = ["simulate", music / "run"]
    forecast = ["forecast", music / "run", "--data", music / "pieces.npz", *FEW]
    assert refused(invoke(*simulate, "--count", 1, "--midi", tmp_path / "there.mid"), "there.mid exists already")
    assert refused(invoke(*simulate, "--midi", tmp_path / "there.mid"), "there-2.mid exists already")
    assert refused(invoke(*simulate, "--midi", tmp_path / "new.mp3"), "must end in .mid or .midi")
    assert refused(invoke(*simulate, "--midi", "."), "must end in .mid or .midi")
    assert refused(invoke(*simulate, "--plot", tmp_path / "x.gif"), "no series of images")
    assert refused(invoke(*forecast, "--midi", tmp_path / "there.mid", "--only", "a"), "exists already")
    assert refused(invoke(*forecast, *new), "--midi is for one piece, but there are 2. Choose one: --only a.")
    assert refused(invoke("simulate", numbers / "run", *new), "has 88 columns of other numbers")
    own = ["forecast", numbers / "run", "--data", numbers / "pieces.npz", *FEW]
    assert refused(invoke(*own, *new), "pieces.npz has 88 columns of other numbers")
    # The piece is music, but what the model makes is not.
    mixed = ["forecast", numbers / "run", "--data", music / "pieces.npz", "--only", "a", *FEW]
    assert refused(invoke(*mixed, *new, "--out", tmp_path / "new.csv"), "run has 88 columns of other numbers")
    nowhere = ["forecast", music / "run", "--data", tmp_path / "nowhere.mid", *new]
    assert refused(invoke(*nowhere), "nowhere.mid: No such file")
    for steps in (0, 49, "two"):
        result = invoke(*simulate, *new, "--steps-per-quarter", steps)
        assert result.exit_code == 2
        assert "--steps-per-quarter" in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there-2.mid", "there.mid"]
    assert (tmp_path / "there.mid").read_text() == "mine"
