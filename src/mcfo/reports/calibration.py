"""Forecasts beside what came, and whether their probabilities can be trusted."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # a picture in a file, also where there is no screen

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import MaxNLocator, PercentFormatter
from scipy.stats import binom

from mcfo.files import write_atomically
from mcfo.inference.rolling_evaluation import BINS, RollingEvaluation

_BLUE, _ORANGE, _GREY = "#08519c", "#c2570c", "#4d4d4d"
_SHOWN = 250
"""Steps of a series that a picture shows, the last ones."""
_PANELS = 3
"""Columns of the data that are drawn."""
_STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


def draw_rolling(path: Path, result: RollingEvaluation, *, columns: Sequence[str], names: Sequence[str]) -> Path:
    """A PNG picture: the forecasts one step ahead of the first series, and the calibration of all."""
    with plt.rc_context(_STYLE):
        rows = min(len(columns), _PANELS)
        figure = plt.figure(figsize=(7.5, 2.1 * rows + 2.4), layout="constrained")
        above, below = np.ravel(figure.subfigures(2, 1, height_ratios=(2.1 * rows, 2.4), squeeze=False))
        axes = above.subplots(rows, 1, squeeze=False, sharex=True)[:, 0]
        place = _first_with_forecasts(result)
        for number, axis in enumerate(axes):
            _bands(axis, result, place, number)
            title = columns[number] if len(names) == 1 else f"{columns[number]}, series {names[place]}"
            axis.set_title(title, loc="left", parse_math=False)
        axes[-1].set_xlabel("step")
        above.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=4)
        left, right = below.subplots(1, 2)
        _histogram(left, result)
        if len(result.scores) > 1:
            _by_distance(right, result)
        else:
            _reliability(right, result.pit())
        return _saved(figure, path)


def _first_with_forecasts(result: RollingEvaluation) -> int:
    return next(place for place, one in enumerate(result.series) if np.isfinite(one.crps[:, 0]).any())


def _bands(axis: Any, result: RollingEvaluation, place: int, column: int) -> None:
    """What was expected one step before, and what came; values outside of nine tenths stand out."""
    quantiles = result.series[place].quantiles[:, 0, :, column]
    values, pit = result.observations[place][:, column], result.series[place].pit[:, 0, column]
    forecast = np.flatnonzero(np.isfinite(quantiles[:, 0]))[-_SHOWN:]
    steps = np.arange(1, len(values) + 1)
    shown = slice(forecast[0], forecast[-1] + 1)
    for low, high, shade, label in ((0, 4, 0.18, "90 %"), (1, 3, 0.3, "50 %")):
        axis.fill_between(
            steps[shown], quantiles[shown, low], quantiles[shown, high], color=_BLUE, alpha=shade, lw=0, label=label
        )
    size = 3.5 if len(forecast) < 120 else 2.2
    axis.plot(steps[shown], values[shown], ".", color="black", ms=size, label="observed")
    outside = np.flatnonzero(np.abs(pit[shown] - 0.5) > 0.45) + shown.start
    axis.plot(steps[outside], values[outside], "o", mfc="none", mec=_ORANGE, ms=4.5, mew=1, label="outside of 90 %")
    axis.margins(x=0.01)
    axis.xaxis.set_major_locator(MaxNLocator(8, integer=True))


def _histogram(axis: Any, result: RollingEvaluation) -> None:
    counts = np.array(result.scores[0].pit)
    total = counts.sum()
    edges = np.linspace(0, 1, BINS + 1)
    axis.bar(edges[:-1], counts / total * BINS, width=1 / BINS, align="edge", color=_BLUE, ec="white", zorder=1)
    low, high = binom.ppf([0.025, 0.975], total, 1 / BINS) / total * BINS
    axis.axhspan(low, high, color=_GREY, alpha=0.2, lw=0, label="95 % if calibrated", zorder=0)
    axis.axhline(1, color=_ORANGE, lw=1.2, zorder=2)
    axis.set(xlabel="probability integral transform", ylabel="density", xlim=(0, 1))
    axis.set_title("Where values fell in their forecasts", loc="left")
    axis.set_ylim(0, 1.25 * max(high, counts.max() / total * BINS))
    axis.legend(loc="upper right")


def _reliability(axis: Any, pit: np.ndarray) -> None:
    """The share inside of central intervals of every size."""
    nominal = np.linspace(0.02, 0.98, 49)
    distance = 2 * np.abs(pit - 0.5)
    found = np.array([np.mean(distance <= share) for share in nominal])
    spread = 1.96 * np.sqrt(nominal * (1 - nominal) / len(pit))
    axis.fill_between(
        nominal, nominal - spread, nominal + spread, color=_GREY, alpha=0.2, lw=0, label="95 % if calibrated"
    )
    axis.plot([0, 1], [0, 1], color=_GREY, lw=1)
    axis.plot(nominal, found, color=_BLUE, lw=1.6, label="found")
    axis.set(xlabel="probability of the interval", ylabel="values inside", xlim=(0, 1), ylim=(0, 1))
    for which in (axis.xaxis, axis.yaxis):
        which.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axis.set_title("Coverage of central intervals", loc="left")
    axis.legend(loc="upper left")


def _by_distance(axis: Any, result: RollingEvaluation) -> None:
    """How coverage holds and how the score grows with the distance."""
    ahead = [one.ahead for one in result.scores]
    marker = "o" if len(ahead) <= 30 else None
    for wanted, found, color in (
        (0.5, [one.coverage_50 for one in result.scores], _ORANGE),
        (0.9, [one.coverage_90 for one in result.scores], _BLUE),
    ):
        axis.axhline(wanted, color=color, lw=0.9, ls="--")
        axis.plot(ahead, found, color=color, marker=marker, ms=3.5, lw=1.4, label=f"in {wanted:.0%}")
    axis.set(xlabel="steps ahead", ylim=(0, 1.02))
    axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axis.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axis.set_title("Coverage (left) and CRPS (right, gray)", loc="left")
    other = axis.twinx()
    other.spines["right"].set_visible(True)
    other.plot(ahead, [one.crps for one in result.scores], color=_GREY, lw=1.4, marker=marker, ms=3, mfc="white")
    other.set_ylim(bottom=0)
    other.tick_params(colors=_GREY)
    axis.legend(loc="lower left", ncols=2)


def _saved(figure: Any, path: Path) -> Path:
    content = io.BytesIO()
    figure.savefig(content, dpi=160, format="png")
    plt.close(figure)
    write_atomically(path, content.getvalue())
    return path
