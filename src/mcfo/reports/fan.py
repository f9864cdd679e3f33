"""Series of numbers with what is expected of them: lines and bands."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np

from mcfo.files import write_atomically

_OBSERVED, _FORECAST = "black", "#0072b2"


class Fan(NamedTuple):
    """One column of one series.

    - `past`: what was observed, with NaN where nothing was.
    - `mean`: what is expected after it.
    - `bands`: (low, high) of what comes after it, the widest first, with its probability.
    - `draws`: a few paths.
    - `begins`: the number of the first step that is shown.
    """

    title: str
    past: np.ndarray
    mean: np.ndarray | None = None
    bands: tuple[tuple[float, np.ndarray, np.ndarray], ...] = ()
    draws: tuple[np.ndarray, ...] = ()
    begins: int = 1


def draw_fans(path: Path, fans: Sequence[Fan]) -> Path:
    """A PNG picture: one panel for each column of each series."""
    figure, axes = plt.subplots(len(fans), 1, figsize=(7.5, 1.9 * len(fans) + 0.5), layout="constrained", squeeze=False)
    for axis, fan in zip(axes[:, 0], fans, strict=True):
        ends = fan.begins + len(fan.past)
        if len(fan.past):
            axis.plot(
                np.arange(fan.begins, ends), fan.past, color=_OBSERVED, lw=1.1, marker=".", ms=3, label="observed"
            )
        for number, (probability, low, high) in enumerate(fan.bands):
            times = np.arange(ends, ends + len(low))
            axis.fill_between(
                times, low, high, color=_FORECAST, alpha=0.18 + 0.12 * number, lw=0, label=f"{probability:.0%}"
            )
        for number, draw in enumerate(fan.draws):
            times = np.arange(ends, ends + len(draw))
            axis.plot(times, draw, color=_FORECAST, lw=0.7, alpha=0.6, label="draws" if number == 0 else None)
        if fan.mean is not None:
            times = np.arange(ends, ends + len(fan.mean))
            axis.plot(times, fan.mean, color=_FORECAST, lw=1.5, label="expected")
        axis.set_title(fan.title, fontsize=9, loc="left")
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    axes[-1, 0].set_xlabel("step", fontsize=9)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), fontsize=8, frameon=False)
    content = io.BytesIO()
    figure.savefig(content, dpi=150, format="png")
    plt.close(figure)
    write_atomically(path, content.getvalue())
    return path
