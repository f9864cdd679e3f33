"""Series of images as film strips and moving films, and piano-rolls: what the extra mcfo[music] is for."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.collections import PatchCollection
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from mcfo.data.piano_rolls import LOWEST
from mcfo.errors import InputError
from mcfo.files import write_atomically
from mcfo.reports.figures import BLACK, BLUE, INCHES, save_figure, set_title, stacked, styled, subplots

_STRIP = 20
_LEAST_PIXELS = 128
_MILLISECONDS = 120
_PAST, _FUTURE = (120, 120, 120), tuple(round(255 * part) for part in to_rgb(BLUE))
_OCTAVE = 12
_KEY_INCHES = 0.045
_PROBABLE = LinearSegmentedColormap.from_list("probable", [(0.0, "white"), (0.4, "#a8d8f4"), (1.0, "#56b4e9")])


class Film(NamedTuple):
    """Images of one series: rows of frames by name, (frames, height, width) each, of one length.

    `first` is the first frame that is forecast; 0 where all are drawn by the model.
    """

    title: str
    rows: dict[str, np.ndarray]
    first: int = 0


def strip(frames: np.ndarray, gap: int = 1) -> np.ndarray:
    """Frames side by side, with a thin line between them; (frames, height, width)."""
    framed = np.pad(np.asarray(frames, float), ((0, 0), (0, 0), (0, gap)), constant_values=np.nan)
    return np.concatenate(list(framed), axis=1)[:, : -gap or None]


def show_strip(axis: Any, frames: np.ndarray, *, low: float = 0.0, high: float = 1.0) -> None:
    """Draws a strip: dark where the values are high, gray lines between the frames."""
    colors = colormaps["gray_r"].with_extremes(bad="0.65")
    axis.imshow(strip(frames), cmap=colors, vmin=low, vmax=high, interpolation="nearest", aspect="equal")
    axis.set(xticks=[], yticks=[])
    for spine in axis.spines.values():
        spine.set(visible=True, linewidth=0.4)


def draw_films(path: Path, films: Sequence[Film]) -> Path:
    """A moving film where the name ends in .gif, else strips."""
    return (_draw_gif if path.suffix.lower() == ".gif" else _draw_strips)(path, films)


@styled
def _draw_strips(path: Path, films: Sequence[Film]) -> Path:
    """A PNG figure: the rows of each film below each other, at most twenty frames of each."""
    rows = [(film, name, frames) for film in films for name, frames in film.rows.items()]
    low, high = _value_range(films)
    size = (1.5 * INCHES, 0.62 * len(rows) + 0.25 * len(films))
    figure, axes = subplots(len(rows), 1, figsize=size, squeeze=False)
    for axis, (film, name, frames) in zip(axes[:, 0], rows, strict=True):
        shown = np.unique(np.linspace(0, len(frames) - 1, _STRIP).round().astype(int))
        show_strip(axis, frames[shown], low=low, high=high)
        axis.set_ylabel(name, rotation=0, ha="right", va="center")
        if 0 < film.first < len(frames):
            width = frames.shape[2] + 1
            axis.axvline(int(np.sum(shown < film.first)) * width - 1, color=BLUE, lw=2)
        if name == next(iter(film.rows)):
            set_title(axis, film.title)
    return save_figure(figure, path)


def _draw_gif(path: Path, films: Sequence[Film]) -> Path:
    """The series side by side, their rows below each other; forecast frames have a blue border."""
    try:
        from PIL import Image
    except ImportError:
        raise InputError("Films need the package pillow: pip install 'mcfo[music]'. Or draw a .png.") from None

    low, high = _value_range(films)
    scale = max(1, -(-_LEAST_PIXELS // min(next(iter(films[0].rows.values())).shape[1:])))
    count = max(len(frames) for film in films for frames in film.rows.values())
    images = []
    for time in range(count):
        columns = []
        for film in films:
            cells = []
            for frames in film.rows.values():
                shares = (frames[min(time, len(frames) - 1)] - low) / (high - low)
                gray = 255 * (1 - np.nan_to_num(shares, nan=0.35))
                large = np.kron(np.clip(gray, 0, 255), np.ones((scale, scale)))
                cell = np.full((large.shape[0] + 8, large.shape[1] + 8, 3), _FUTURE if time >= film.first else _PAST)
                cell[4:-4, 4:-4] = large[:, :, None]
                cells.append(cell)
            columns.append(np.concatenate(cells))
        images.append(Image.fromarray(np.concatenate(columns, axis=1).astype(np.uint8)))
    content = io.BytesIO()
    images[0].save(content, format="GIF", save_all=True, append_images=images[1:], duration=_MILLISECONDS, loop=0)
    write_atomically(path, content.getvalue())
    return path


def _value_range(films: Sequence[Film]) -> tuple[float, float]:
    """From 0 to 1 where all values lie there, else their range."""
    values = np.concatenate([frames[np.isfinite(frames)] for film in films for frames in film.rows.values()])
    low, high = (values.min(), values.max()) if values.size else (0.0, 1.0)
    if low >= 0 and high <= 1:
        return 0.0, 1.0
    return float(low), float(high if high > low else low + 1)


class Roll(NamedTuple):
    """One piece.

    - `notes`: (steps, 88), zeros and ones; NaN where nothing is known.
    - `first`: the first step that the model drew.
    - `probabilities`: of the notes from there on.
    """

    title: str
    notes: np.ndarray
    first: int = 0
    probabilities: np.ndarray | None = None


@styled
def draw_rolls(path: Path, rolls: Sequence[Roll]) -> Path:
    """A PNG figure: one panel for each piece, over the octaves that are used."""
    low, high = note_range(rolls)
    figure, axes = stacked(len(rolls), max(1.3, _KEY_INCHES * (high - low)) + 0.25, sharex=True)
    shades = None
    for axis, roll in zip(axes, rolls, strict=True):
        shades = _draw_roll(axis, roll) or shades
        octaves = range(low, high + 1, _OCTAVE)
        axis.set_yticks([note - 0.5 for note in octaves], [f"C{note // _OCTAVE - 1}" for note in octaves])
        axis.grid(axis="y", color="0.85", lw=0.6)
        axis.set_axisbelow(True)
        axis.set(ylim=(low - 1.5, high + 0.5), xlim=(0.5, max(len(one.notes) for one in rolls) + 0.5))
        set_title(axis, roll.title)
        axis.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    axes[-1].set_xlabel("step")
    names = {"observed": BLACK, "drawn": BLUE} if any(roll.first for roll in rolls) else {"drawn": BLUE}
    handles = [Rectangle((0, 0), 1, 1, color=color, lw=0, label=name) for name, color in names.items()]
    figure.legend(handles=handles, loc="outside upper left", ncols=2, handleheight=0.4)
    if shades is not None:
        bar = figure.colorbar(shades, ax=axes, fraction=0.02, pad=0.01, aspect=20 * len(rolls))
        bar.set_label("probability")
        bar.outline.set_visible(False)
    return save_figure(figure, path)


def _draw_roll(axis: Any, roll: Roll) -> Any:
    """The probabilities as shades, over them the notes as bars."""
    shades = None
    if roll.probabilities is not None:
        steps, keys = roll.probabilities.shape
        extent = (roll.first + 0.5, roll.first + steps + 0.5, LOWEST - 0.5, LOWEST + keys - 0.5)
        look = {"cmap": _PROBABLE, "vmin": 0.0, "vmax": 1.0, "interpolation": "nearest"}
        shades = axis.imshow(roll.probabilities.T, origin="lower", aspect="auto", extent=extent, **look)
    for color, part in ((BLACK, slice(0, roll.first)), (BLUE, slice(roll.first, None))):
        bars = [
            Rectangle((part.start + start + 0.5, LOWEST + key - 0.38), end - start, 0.76)
            for start, end, key in held_notes(roll.notes[part])
        ]
        axis.add_collection(PatchCollection(bars, facecolor=color, lw=0, snap=False))
    if 0 < roll.first < len(roll.notes):
        axis.axvline(roll.first + 0.5, color=BLUE, lw=1.2)
    return shades


def held_notes(notes: np.ndarray) -> list[tuple[int, int, int]]:
    """Start, end and key of each note."""
    changes = np.diff(np.pad((notes == 1).astype(np.int8), ((1, 1), (0, 0))), axis=0).T
    keys, starts = np.nonzero(changes == 1)
    _, ends = np.nonzero(changes == -1)
    return list(zip(starts.tolist(), ends.tolist(), keys.tolist(), strict=True))


def note_range(rolls: Sequence[Roll]) -> tuple[int, int]:
    """The C below the lowest note and the C above the highest; around middle C where there are no notes."""
    used = LOWEST + np.flatnonzero(np.any([np.any(roll.notes == 1, axis=0) for roll in rolls], axis=0))
    low, high = (used[0], used[-1]) if len(used) else (60, 60)
    return int(low) // _OCTAVE * _OCTAVE, (int(high) // _OCTAVE + 1) * _OCTAVE
