"""Pictures of residuals and of simulated series beside the data."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # a picture in a file, also where there is no screen

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import MaxNLocator
from scipy.stats import beta, norm

from mcfo.data.inspection import STATISTICS
from mcfo.files import write_atomically

_BLUE, _ORANGE, _GREY = "#08519c", "#c2570c", "#4d4d4d"
_LAGS = 20
_MOST = 2000
"""Points that a panel shows."""
_STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def autocorrelation(of_series: Sequence[np.ndarray], lags: int) -> tuple[np.ndarray, int]:
    """At lags 1 to `lags`, pooled over series and over the pairs of which both are known; and how many are known."""
    everything = np.concatenate(of_series)
    known = everything[np.isfinite(everything)]
    found = np.full(lags, np.nan)
    if len(known) < 2 or known.std() == 0:
        return found, len(known)
    centered = [(one - known.mean()) / known.std() for one in of_series]
    for lag in range(1, lags + 1):
        products = np.concatenate([one[lag:] * one[:-lag] for one in centered if len(one) > lag] or [np.zeros(0)])
        products = products[np.isfinite(products)]
        if len(products):
            found[lag - 1] = products.sum() / len(known)
    return found, len(known)


def draw_residuals(path: Path, residuals: list[np.ndarray], columns: Sequence[str]) -> Path:
    """A row for each column: over time, autocorrelation, QQ plot."""
    with plt.rc_context(_STYLE):
        figure, axes = plt.subplots(
            len(columns),
            3,
            figsize=(7.2, 2.3 * len(columns) + 0.2),
            layout="constrained",
            squeeze=False,
            width_ratios=(1.6, 1, 1),
        )
        for place, (column, (time, lags, quantiles)) in enumerate(zip(columns, axes, strict=True)):
            of_series = [one[:, place] for one in residuals]
            _over_time(time, of_series[0])
            _autocorrelation(lags, of_series)
            _against_normal(quantiles, np.concatenate(of_series))
            time.set_ylabel(column if len(columns) > 1 else "residual", parse_math=False)
        for axis, title in zip(axes[0], ("One step ahead", "Autocorrelation", "Against normal"), strict=True):
            axis.set_title(title, loc="left")
        for axis, label in zip(axes[-1], ("step", "lag", "normal quantile"), strict=True):
            axis.set_xlabel(label)
        return _saved(figure, path)


def draw_statistics(path: Path, observed: np.ndarray, simulated: np.ndarray) -> Path:
    """A panel for each statistic: a histogram of the simulated ones, a line for the data's."""
    with plt.rc_context(_STYLE):
        figure, axes = plt.subplots(2, 4, figsize=(7.2, 3.6), layout="constrained")
        for axis, name, own, made in zip(axes.flat, STATISTICS, observed, simulated.T, strict=True):
            made = made[np.isfinite(made)]
            if len(made):
                # Beyond this a few wild data sets would squeeze the others together.
                low, high = np.quantile(made, [0.005, 0.995])
                axis.hist(np.clip(made, low, high), bins=20, color=_BLUE, alpha=0.55)
            if np.isfinite(own):
                axis.axvline(own, color=_ORANGE, lw=2)
            axis.set_title(name.replace("autocorrelation of |x − mean|", "autocorr. of |x − mean|"), loc="left")
            axis.yaxis.set_visible(False)
            axis.spines["left"].set_visible(False)
            axis.xaxis.set_major_locator(MaxNLocator(4))
        return _saved(figure, path)


def draw_paths(path: Path, values: np.ndarray, paths: np.ndarray, column: str) -> Path:
    """The first column of the data, and below it simulated ones."""
    with plt.rc_context(_STYLE):
        rows = [("data", values[:, 0], _ORANGE), *(("simulated", one[:, 0], _BLUE) for one in paths)]
        figure, axes = plt.subplots(
            len(rows), 1, figsize=(7.2, 1.05 * len(rows) + 0.4), layout="constrained", sharex=True, sharey=True
        )
        for axis, (name, line, color) in zip(axes, rows, strict=True):
            marker = "." if len(line) <= 60 else None
            axis.plot(np.arange(1, len(line) + 1), line, color=color, lw=0.8, marker=marker, ms=4)
            axis.set_title(f"{column}, {name}" if name == "data" else name, loc="left", parse_math=False)
            axis.margins(x=0.01)
        axes[-1].set_xlabel("step")
        return _saved(figure, path)


def _over_time(axis: Any, residuals: np.ndarray) -> None:
    shown = residuals[:_MOST]
    axis.axhspan(-1.96, 1.96, color=_GREY, alpha=0.15, lw=0)
    axis.plot(np.arange(1, len(shown) + 1), shown, ".", color=_BLUE, ms=3 if len(shown) < 300 else 1.5)
    axis.axhline(0, color=_GREY, lw=0.8)
    axis.margins(x=0.01)
    axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def _autocorrelation(axis: Any, of_series: list[np.ndarray]) -> None:
    lags = min(_LAGS, max(1, max(map(len, of_series)) - 2))
    found, count = autocorrelation(of_series, lags)
    bound = 1.96 / np.sqrt(max(1, count))
    axis.axhspan(-bound, bound, color=_GREY, alpha=0.15, lw=0)
    axis.vlines(np.arange(1, lags + 1), 0, found, color=_BLUE, lw=2)
    axis.axhline(0, color=_GREY, lw=0.8)
    reach = 1.3 * max(2.5 * bound, float(np.nanmax(np.abs(found), initial=0.0)))
    axis.set_ylim(-min(1.0, reach), min(1.0, reach))
    axis.xaxis.set_major_locator(MaxNLocator(4, integer=True))


def _against_normal(axis: Any, residuals: np.ndarray) -> None:
    """Quantiles with the band in which each order statistic of normal numbers lies in 95 of 100 cases."""
    ordered = np.sort(residuals[np.isfinite(residuals)])
    count = len(ordered)
    if not count:
        return
    ranks = np.arange(1, count + 1)
    # All of the tails, and as many of the rest as one can see.
    ends = np.concatenate([np.arange(min(count, 100)), np.arange(max(0, count - 100), count)])
    shown = np.unique(np.concatenate([ends, np.linspace(0, count - 1, min(count, _MOST)).astype(int)]))
    ranks, ordered = ranks[shown], ordered[shown]
    expected = norm.ppf((ranks - 0.5) / count)
    low, high = (norm.ppf(beta.ppf(share, ranks, count + 1 - ranks)) for share in (0.025, 0.975))
    axis.fill_between(expected, low, high, color=_GREY, alpha=0.2, lw=0)
    axis.axline((0, 0), slope=1, color=_GREY, lw=0.8)
    axis.plot(expected, ordered, ".", color=_BLUE, ms=3)


def _saved(figure: Any, path: Path) -> Path:
    content = io.BytesIO()
    figure.savefig(content, dpi=200, format="png")
    plt.close(figure)
    write_atomically(path, content.getvalue())
    return path
