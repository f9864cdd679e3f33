"""Series as they are, over their times, with what is missing marked."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np

from mcfo.files import write_atomically
from mcfo.reports.axes import mark_dates

_LINE, _MISSING = "#0072b2", "#d55e00"


class Panel(NamedTuple):
    """One column of one series: values with NaN where they are missing, and where on the axis they stand."""

    title: str
    places: np.ndarray
    values: np.ndarray


def draw_overview(path: Path, panels: Sequence[Panel], *, axis: str) -> Path:
    """A PNG picture: one panel for each column of each series; `axis` is what runs from left to right."""
    figure, axes = plt.subplots(
        len(panels), 1, figsize=(7.5, 1.7 * len(panels) + 0.5), layout="constrained", squeeze=False
    )
    gaps = False
    for place, (area, panel) in enumerate(zip(axes[:, 0], panels, strict=True)):
        few = len(panel.values) <= 400
        area.plot(panel.places, panel.values, color=_LINE, lw=1.0, marker="." if few else None, ms=3, label="observed")
        missing = np.isnan(panel.values)
        if missing.any():
            label = None if gaps else "missing"
            area.plot(
                panel.places[missing],
                np.zeros(int(missing.sum())),
                transform=area.get_xaxis_transform(),
                color=_MISSING,
                marker="|",
                ls="",
                ms=6,
                clip_on=False,
                label=label,
            )
            gaps = True
        area.set_title(panel.title, fontsize=9, loc="left")
        area.spines[["top", "right"]].set_visible(False)
        area.tick_params(labelsize=8)
        mark_dates(area, panel.places)
        if place == len(panels) - 1:
            area.set_xlabel(axis, fontsize=9)
    found = dict(pair[::-1] for area in axes[:, 0] for pair in zip(*area.get_legend_handles_labels(), strict=True))
    figure.legend([*found.values()], [*found], loc="outside upper right", ncols=len(found), fontsize=8, frameon=False)
    content = io.BytesIO()
    figure.savefig(content, dpi=150, format="png")
    plt.close(figure)
    write_atomically(path, content.getvalue())
    return path
