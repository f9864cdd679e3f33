"""Figures of piano-rolls: every note where it belongs."""

import numpy as np
from PIL import Image

from mcfo.reports.image_plots import Roll, draw_rolls, held_notes, note_range


def test_notes_that_go_on_are_one_bar():
    notes = np.zeros((6, 88))
    notes[0:3, 39] = notes[4:6, 39] = notes[5, 87] = 1
    notes[1, 0] = np.nan
    assert held_notes(notes) == [(0, 3, 39), (4, 6, 39), (5, 6, 87)]
    assert held_notes(np.zeros((0, 88))) == []


def test_the_octaves_that_are_used():
    notes = np.zeros((2, 88))
    assert note_range([Roll("silent", notes)]) == (60, 72)
    notes[0, 60 - 21] = notes[1, 83 - 21] = 1
    assert note_range([Roll("silent", np.zeros((3, 88))), Roll("two octaves", notes)]) == (60, 84)
    notes[0, 0] = notes[0, 87] = 1  # A0 and C8
    assert note_range([Roll("all", notes)]) == (12, 120)


def drawn(path, *rolls):
    with Image.open(draw_rolls(path, rolls)) as picture:
        return np.asarray(picture.convert("RGB")).astype(int)


def pixels(picture, color):
    """Where a color is, below the legend, as shares of the height and the width."""
    below = picture[60:]
    rows, columns = np.nonzero(np.abs(below - np.array(color)).max(axis=2) < 12)
    return rows / below.shape[0], columns / below.shape[1]


def test_what_was_observed_comes_before_what_was_drawn(tmp_path):
    notes = np.zeros((20, 88), np.uint8)
    notes[:10, 60 - 21] = 1
    notes[10:, 80 - 21] = 1
    plain = drawn(tmp_path / "plain.png", Roll("piece", notes, 10))
    (low, left), (high, right) = pixels(plain, (0, 0, 0)), pixels(plain, (0, 114, 178))
    assert np.median(left) < 0.5 < np.median(right)
    assert np.median(low) > 0.5 > np.median(high), "80 stands above 60"
    later = drawn(tmp_path / "later.png", Roll("piece", notes, 15))
    assert len(pixels(later, (0, 114, 178))[0]) < 0.8 * len(right)


def test_probabilities_are_shades(tmp_path):
    notes = np.zeros((20, 88), np.uint8)
    notes[:, 60 - 21] = 1
    shares = {}
    for name, value in {"none": None, "small": 0.1, "large": 0.9}.items():
        probabilities = None if value is None else np.full((10, 88), value)
        picture = drawn(tmp_path / f"{name}.png", Roll("piece", notes, 10, probabilities))
        shares[name] = np.mean(255 - picture[..., 0])
        dark = np.mean(picture[: len(picture) // 2, 200:500] < 250)
        assert dark < 0.05, "nothing is said of what was observed"
    assert shares["none"] < shares["small"] < shares["large"]
