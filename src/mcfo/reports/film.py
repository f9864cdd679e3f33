"""Series of pictures as film strips and as films that move."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image

from mcfo.files import write_atomically

_STRIP = 20
_LEAST_PIXELS = 128
_MILLISECONDS = 120
_PAST, _FUTURE = (120, 120, 120), (0, 114, 178)


class Film(NamedTuple):
    """Pictures of one series: rows of frames by name, (frames, height, width) each, of one length.

    `begins` is the first frame that is forecast; 0 where all of them are made by the model.
    """

    title: str
    rows: dict[str, np.ndarray]
    begins: int = 0


def strip(frames: np.ndarray, gap: int = 1) -> np.ndarray:
    """Frames side by side, with a thin line between them; (frames, height, width)."""
    framed = np.pad(np.asarray(frames, float), ((0, 0), (0, 0), (0, gap)), constant_values=np.nan)
    return np.concatenate(list(framed), axis=1)[:, : -gap or None]


def show_strip(axis: Any, frames: np.ndarray, *, low: float = 0.0, high: float = 1.0) -> None:
    """Draws a strip: dark where the values are high, gray lines between the frames."""
    colors = plt.get_cmap("gray_r").with_extremes(bad="0.65")
    axis.imshow(strip(frames), cmap=colors, vmin=low, vmax=high, interpolation="nearest", aspect="equal")
    axis.set_xticks([])
    axis.set_yticks([])
    for spine in axis.spines.values():
        spine.set_linewidth(0.4)


def draw_films(path: Path, films: Sequence[Film]) -> Path:
    """A film that moves where the name ends in .gif, else strips."""
    return (draw_gif if path.suffix.lower() == ".gif" else draw_strips)(path, films)


def draw_strips(path: Path, films: Sequence[Film]) -> Path:
    """A PNG picture: one panel for each film, its rows below each other, at most twenty frames of each."""
    rows = [(film, name, frames) for film in films for name, frames in film.rows.items()]
    low, high = _range(films)
    figure, axes = plt.subplots(
        len(rows), 1, figsize=(9.5, 0.62 * len(rows) + 0.25 * len(films)), layout="constrained", squeeze=False
    )
    for axis, (film, name, frames) in zip(axes[:, 0], rows, strict=True):
        shown = np.unique(np.linspace(0, len(frames) - 1, _STRIP).round().astype(int))
        show_strip(axis, frames[shown], low=low, high=high)
        axis.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=8)
        if 0 < film.begins < len(frames):
            width = frames.shape[2] + 1
            axis.axvline(int(np.sum(shown < film.begins)) * width - 1, color=np.array(_FUTURE) / 255, lw=2)
        if name == next(iter(film.rows)):
            axis.set_title(film.title, fontsize=9, loc="left")
    content = io.BytesIO()
    figure.savefig(content, dpi=150, format="png")
    plt.close(figure)
    write_atomically(path, content.getvalue())
    return path


def draw_gif(path: Path, films: Sequence[Film]) -> Path:
    """A film that moves: the series side by side, their rows below each other; a blue frame is forecast."""
    low, high = _range(films)
    scale = max(1, -(-_LEAST_PIXELS // min(next(iter(films[0].rows.values())).shape[1:])))
    count = max(len(frames) for film in films for frames in film.rows.values())
    pictures = []
    for time in range(count):
        columns = []
        for film in films:
            cells = []
            for frames in film.rows.values():
                shares = (frames[min(time, len(frames) - 1)] - low) / (high - low)
                gray = 255 * (1 - np.nan_to_num(shares, nan=0.35))
                large = np.kron(np.clip(gray, 0, 255), np.ones((scale, scale)))
                cell = np.full((large.shape[0] + 8, large.shape[1] + 8, 3), _FUTURE if time >= film.begins else _PAST)
                cell[4:-4, 4:-4] = large[:, :, None]
                cells.append(cell)
            columns.append(np.concatenate(cells))
        pictures.append(Image.fromarray(np.concatenate(columns, axis=1).astype(np.uint8)))
    content = io.BytesIO()
    pictures[0].save(content, format="GIF", save_all=True, append_images=pictures[1:], duration=_MILLISECONDS, loop=0)
    write_atomically(path, content.getvalue())
    return path


def _range(films: Sequence[Film]) -> tuple[float, float]:
    """From 0 to 1 where all values lie there, else what they span."""
    values = [frames[np.isfinite(frames)] for film in films for frames in film.rows.values()]
    low = min((one.min() for one in values if one.size), default=0.0)
    high = max((one.max() for one in values if one.size), default=1.0)
    if low >= 0 and high <= 1:
        return 0.0, 1.0
    return float(low), float(high if high > low else low + 1)
