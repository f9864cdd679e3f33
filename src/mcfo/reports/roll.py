"""Piano-rolls: which keys sound, and how probable each was."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from mcfo.data.piano_rolls import LOWEST
from mcfo.files import write_atomically

_COLOURS = {"observed": "black", "drawn": "#0072b2"}
_PROBABLE = LinearSegmentedColormap.from_list("probable", [(0.0, "white"), (0.4, "#a8d8f4"), (1.0, "#56b4e9")])
_OCTAVE = 12
_INCHES = 0.045
"""The height of a key."""


class Roll(NamedTuple):
    """One piece.

    - `notes`: (steps, 88), zeros and ones; NaN where nothing is known.
    - `begins`: the first step that the model made.
    - `probabilities`: of the notes from there on.
    """

    title: str
    notes: np.ndarray
    begins: int = 0
    probabilities: np.ndarray | None = None


def draw_rolls(path: Path, rolls: Sequence[Roll]) -> Path:
    """A PNG picture: one panel for each piece, over the octaves that are used."""
    low, high = _range(rolls)
    height = max(1.3, _INCHES * (high - low)) + 0.25
    figure, axes = plt.subplots(
        *(len(rolls), 1), figsize=(7.5, height * len(rolls) + 0.6), layout="constrained", squeeze=False, sharex=True
    )
    shades = None
    for axis, roll in zip(axes[:, 0], rolls, strict=True):
        shades = _draw(axis, roll) or shades
        octaves = range(low, high + 1, _OCTAVE)
        axis.set_yticks([note - 0.5 for note in octaves], [f"C{note // _OCTAVE - 1}" for note in octaves])
        axis.grid(axis="y", color="0.85", lw=0.6)
        axis.set_axisbelow(True)
        axis.set_ylim(low - 1.5, high + 0.5)
        axis.set_xlim(0.5, max(len(one.notes) for one in rolls) + 0.5)
        axis.set_title(roll.title, fontsize=9, loc="left")
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
        axis.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    axes[-1, 0].set_xlabel("step", fontsize=9)
    names = ("observed", "drawn") if any(roll.begins for roll in rolls) else ("drawn",)
    handles = [Rectangle((0, 0), 1, 1, color=_COLOURS[name], lw=0, label=name) for name in names]
    figure.legend(handles=handles, loc="outside upper center", ncols=2, fontsize=8, frameon=False, handleheight=0.4)
    if shades is not None:
        bar = figure.colorbar(shades, ax=axes, fraction=0.02, pad=0.01, aspect=20 * len(rolls))
        bar.set_label("probability", fontsize=8)
        bar.ax.tick_params(labelsize=7)
        bar.outline.set_visible(False)
    content = io.BytesIO()
    figure.savefig(content, dpi=150, format="png")
    plt.close(figure)
    write_atomically(path, content.getvalue())
    return path


def _draw(axis: Any, roll: Roll) -> Any:
    """The probabilities as shades, over them the notes as bars."""
    shades = None
    if roll.probabilities is not None:
        steps, keys = roll.probabilities.shape
        shades = axis.imshow(
            roll.probabilities.T,
            cmap=_PROBABLE,
            vmin=0.0,
            vmax=1.0,
            origin="lower",
            aspect="auto",
            interpolation="nearest",
            extent=(roll.begins + 0.5, roll.begins + steps + 0.5, LOWEST - 0.5, LOWEST + keys - 0.5),
        )
    for name, part in {"observed": slice(0, roll.begins), "drawn": slice(roll.begins, None)}.items():
        bars = [
            Rectangle((part.start + begin + 0.5, LOWEST + key - 0.38), end - begin, 0.76)
            for begin, end, key in _held(roll.notes[part])
        ]
        axis.add_collection(PatchCollection(bars, facecolor=_COLOURS[name], lw=0, snap=False))
    if 0 < roll.begins < len(roll.notes):
        axis.axvline(roll.begins + 0.5, color=_COLOURS["drawn"], lw=1.2)
    return shades


def _held(notes: np.ndarray) -> list[tuple[int, int, int]]:
    """When each note begins and ends, and its key."""
    changes = np.diff(np.pad((notes == 1).astype(np.int8), ((1, 1), (0, 0))), axis=0).T
    keys, begins = np.nonzero(changes == 1)
    _, ends = np.nonzero(changes == -1)
    return list(zip(begins.tolist(), ends.tolist(), keys.tolist(), strict=True))


def _range(rolls: Sequence[Roll]) -> tuple[int, int]:
    """From which C to which one the notes lie; around the middle one where there are none."""
    used = LOWEST + np.flatnonzero(np.any([np.any(roll.notes == 1, axis=0) for roll in rolls], axis=0))
    low, high = (used[0], used[-1]) if len(used) else (60, 60)
    return int(low) // _OCTAVE * _OCTAVE, (int(high) // _OCTAVE + 1) * _OCTAVE
