"""The style, the palette and the file format that all figures share."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib import rc_context
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure as BaseFigure
from matplotlib.ticker import NullFormatter

from mcfo.files import write_atomically
from mcfo.reports.formatting import shortened

BLUE, ORANGE, GRAY, BLACK = "#0072b2", "#d55e00", "#4d4d4d", "#000000"
"""Model, data that stand out, reference, data. Told apart by the color-blind too (Okabe and Ito)."""
INCHES = 6.0
PIXELS = 660
"""Width on paper and on a wide screen, where the letters then have the size of the text."""
_DPI = 200
_LEVELS = ("--", ":", (0, (1, 3)), "-.", (0, (5, 1)))

STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.xmargin": 0.01,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}
styled: Any = rc_context(STYLE)
"""The style as a decorator of a function that draws."""


class Drawing(BaseFigure):
    """A figure that needs no screen and leaves pyplot's backend alone; a notebook shows it."""

    def _repr_png_(self) -> bytes:
        return png(self)


def subplots(rows: int = 1, columns: int = 1, *, figsize: tuple[float, float], **options: Any) -> tuple[Any, Any]:
    """As pyplot's, but of a figure that pyplot does not manage."""
    figure = Drawing(figsize=figsize)
    return figure, figure.subplots(rows, columns, **options)


def png(figure: Any) -> bytes:
    """A figure as a PNG file."""
    content = io.BytesIO()
    with warnings.catch_warnings():
        # A name in letters that the font lacks is drawn with boxes; the page has it in full.
        warnings.filterwarnings("ignore", "Glyph .* missing")
        figure.savefig(content, dpi=_DPI, format="png")
    return content.getvalue()


def save_figure(figure: Any, path: Path) -> Path:
    """Writes a figure as PNG, whole or not at all."""
    write_atomically(path, png(figure))
    return path


class Figure(NamedTuple):
    """A figure's file and what it shows."""

    path: Path
    caption: str


class Line(NamedTuple):
    """A curve of a chart. `band` is what lies around it, as (low, high); `bars` are its errors; `look` is for
    matplotlib: a label, a marker, a style."""

    x: Any
    y: Any
    color: str
    band: tuple[Any, Any] | None = None
    bars: Any = None
    look: Mapping[str, Any] = {}


class Chart(NamedTuple):
    """One panel of a figure of curves. `levels` are horizontal lines by their labels; `log` names the logarithmic axes,
    as in "xy". The title is a `formula` or plain text, in which a dollar sign of a file's name is a dollar sign."""

    title: str
    lines: Sequence[Line]
    x_label: str = "step"
    levels: Mapping[str, float] = {}
    log: str = ""
    y_range: tuple[float, float] | None = None
    formula: bool = False


def draw_chart(axis: Any, chart: Chart) -> None:
    """Draws the curves of a chart, each with its band or its bars."""
    for line in chart.lines:
        look = {"lw": 1.3, **line.look}
        if line.bars is None:
            axis.plot(line.x, line.y, color=line.color, **look)
        else:
            axis.errorbar(line.x, line.y, line.bars, color=line.color, **look)
        if line.band is not None:
            axis.fill_between(line.x, *line.band, color=line.color, alpha=0.15, lw=0, zorder=1)
    for (label, value), style in zip(chart.levels.items(), _LEVELS, strict=False):
        axis.axhline(value, color=BLACK, lw=0.9, ls=style, label=label, zorder=0)
    for name in chart.log:
        getattr(axis, f"set_{name}scale")("log")
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_xlabel(chart.x_label)
    axis.set_title(chart.title, parse_math=chart.formula)
    if chart.y_range is not None:
        axis.set_ylim(*chart.y_range)


@styled
def draw_charts(
    path: Path,
    charts: Sequence[Chart],
    caption: str,
    *,
    columns: int,
    width: float = 10.0,
    height: float = 2.6,
    **options: Any,
) -> Figure:
    """A PNG figure of panels in rows, under one legend; `options` are those of `subplots`."""
    rows = -(-len(charts) // columns)
    figure, axes = subplots(rows, columns, figsize=(width, height * rows + 0.5), squeeze=False, **options)
    for axis, chart in zip(axes.flat, charts, strict=False):
        draw_chart(axis, chart)
    for axis in axes.flat[len(charts) :]:
        axis.remove()
    legend_above(figure, axes.flat[: len(charts)], most=6)
    return Figure(save_figure(figure, path), caption)


def stacked(panels: int, height: float, **options: Any) -> tuple[Any, np.ndarray]:
    """A figure with panels below each other, each of this height in inches."""
    figure, axes = subplots(panels, 1, figsize=(INCHES, height * panels + 0.5), squeeze=False, **options)
    return figure, axes[:, 0]


def legend_above(figure: Any, axes: Any, *, most: int = 4) -> None:
    """One legend over all panels, each entry once."""
    entries = {label: handle for axis in axes for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    if entries:
        figure.legend([*entries.values()], [*entries], loc="outside upper left", ncols=min(most, len(entries)))


def set_title(axis: Any, title: str) -> None:
    """A title in which a dollar sign of a name from a file is a dollar sign."""
    axis.set_title(shortened(title, 100), parse_math=False)


def mark_dates(axis: Any, x: np.ndarray) -> None:
    """Marks a few dates in as few letters as they need, where `x` are dates."""
    if x.dtype.kind == "M":
        locator = AutoDateLocator(minticks=3, maxticks=8)
        axis.xaxis.set_major_locator(locator)
        axis.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def axis_title(x: np.ndarray | None) -> str:
    """What the numbers on the horizontal axis are; None stands for steps."""
    if x is None:
        return "step"
    return "date" if x.dtype.kind == "M" else "time"
