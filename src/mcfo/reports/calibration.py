"""Figures of forecasts beside what came: their intervals, their calibration, their residuals, simulated series."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import MaxNLocator, PercentFormatter
from scipy.special import betaincinv, ndtri

from mcfo.data.inspection import STATISTICS
from mcfo.data.residual_tests import autocorrelation
from mcfo.reports.figures import (
    BLACK,
    BLUE,
    GRAY,
    INCHES,
    ORANGE,
    Drawing,
    legend_above,
    save_figure,
    set_title,
    stacked,
    styled,
    subplots,
)

if TYPE_CHECKING:
    from mcfo.inference.rolling_evaluation import RollingEvaluation

_SHOWN = 250
"""Steps of a series that are drawn, the last ones."""
_PANELS = 3
"""Columns of the data that are drawn."""
_LAGS = 20
_POINTS = 2000
"""Residuals that a panel shows."""


@styled
def draw_rolling(path: Path, result: RollingEvaluation, *, columns: Sequence[str], names: Sequence[str]) -> Path:
    """A PNG figure: the forecasts one step ahead of the first series, and the calibration of all."""
    rows = min(len(columns), _PANELS)
    figure = Drawing(figsize=(INCHES, 1.9 * rows + 2.6))
    above, below = np.ravel(figure.subfigures(2, 1, height_ratios=(1.9 * rows, 2.6), squeeze=False))
    axes = above.subplots(rows, 1, squeeze=False, sharex=True)[:, 0]
    index = next(index for index, one in enumerate(result.series) if np.isfinite(one.crps[:, 0]).any())
    for column, axis in enumerate(axes):
        _draw_forecasts(axis, result, index, column)
        set_title(axis, columns[column] if len(names) == 1 else f"{columns[column]}, series {names[index]}")
    axes[-1].set_xlabel("step")
    legend_above(above, axes)
    left, right = below.subplots(1, 2)
    _draw_histogram(left, result)
    if len(result.scores) > 1:
        _draw_by_distance(right, result)
    else:
        _draw_reliability(right, result.pit())
    return save_figure(figure, path)


def _draw_forecasts(axis: Any, result: RollingEvaluation, index: int, column: int) -> None:
    """The intervals from one step before, and what came; values outside the 90% interval stand out."""
    quantiles = result.series[index].quantiles[:, 0, :, column]
    values, pit = result.observations[index][:, column], result.series[index].pit[:, 0, column]
    forecast = np.flatnonzero(np.isfinite(quantiles[:, 0]))[-_SHOWN:]
    steps = np.arange(1, len(values) + 1)
    shown = slice(forecast[0], forecast[-1] + 1)
    for low, high, shade, label in ((0, 4, 0.18, "90%"), (1, 3, 0.3, "50%")):
        bounds = quantiles[shown, low], quantiles[shown, high]
        axis.fill_between(steps[shown], *bounds, color=BLUE, alpha=shade, lw=0, label=label)
    size = 3.5 if len(forecast) < 120 else 2.2
    axis.plot(steps[shown], values[shown], ".", color=BLACK, ms=size, label="observed")
    outside = np.flatnonzero(np.abs(pit[shown] - 0.5) > 0.45) + shown.start
    axis.plot(steps[outside], values[outside], "o", mfc="none", mec=ORANGE, ms=4.5, mew=1, label="outside 90%")
    axis.xaxis.set_major_locator(MaxNLocator(8, integer=True))


def _draw_histogram(axis: Any, result: RollingEvaluation) -> None:
    counts = np.array(result.scores[0].pit)
    total, bins = counts.sum(), len(counts)
    edges = np.linspace(0, 1, bins + 1)
    axis.bar(edges[:-1], counts / total * bins, width=1 / bins, align="edge", color=BLUE, ec="white", zorder=1)
    from scipy.stats import binom  # it takes half a second to import, which most pages need not wait for

    low, high = binom.ppf([0.025, 0.975], total, 1 / bins) / total * bins
    axis.axhspan(low, high, color=GRAY, alpha=0.2, lw=0, label="95% if calibrated", zorder=0)
    axis.axhline(1, color=ORANGE, lw=1.2, zorder=2)
    axis.set(xlabel="probability integral transform", ylabel="density", xlim=(0, 1))
    axis.set_title("Where values fell in their forecasts")
    axis.set_ylim(0, 1.25 * max(high, counts.max() / total * bins))
    axis.legend(loc="upper right")


def _draw_reliability(axis: Any, pit: np.ndarray) -> None:
    """The share of values inside the central interval of each probability."""
    nominal = np.linspace(0.02, 0.98, 49)
    distance = 2 * np.abs(pit - 0.5)
    inside = np.array([np.mean(distance <= share) for share in nominal])
    spread = 1.96 * np.sqrt(nominal * (1 - nominal) / len(pit))
    bounds = nominal - spread, nominal + spread
    axis.fill_between(nominal, *bounds, color=GRAY, alpha=0.2, lw=0, label="95% if calibrated")
    axis.plot([0, 1], [0, 1], color=GRAY, lw=1)
    axis.plot(nominal, inside, color=BLUE, lw=1.6, label="measured")
    axis.set(xlabel="probability of the interval", ylabel="values inside", xlim=(0, 1), ylim=(0, 1))
    for which in (axis.xaxis, axis.yaxis):
        which.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axis.set_title("Coverage of central intervals")
    axis.legend(loc="upper left")


def _draw_by_distance(axis: Any, result: RollingEvaluation) -> None:
    """Coverage and score against the number of steps ahead."""
    ahead = [one.ahead for one in result.scores]
    marker = "o" if len(ahead) <= 30 else None
    for wanted, inside, color in (
        (0.5, [one.coverage_50 for one in result.scores], ORANGE),
        (0.9, [one.coverage_90 for one in result.scores], BLUE),
    ):
        axis.axhline(wanted, color=color, lw=0.9, ls="--")
        axis.plot(ahead, inside, color=color, marker=marker, ms=3.5, lw=1.4, label=f"in {wanted:.0%}")
    axis.set(xlabel="steps ahead", ylim=(0, 1.02))
    axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axis.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    axis.set_title("Coverage (left), CRPS (right, gray)")
    other = axis.twinx()
    other.spines["right"].set_visible(True)
    other.plot(ahead, [one.crps for one in result.scores], color=GRAY, lw=1.4, marker=marker, ms=3, mfc="white")
    other.set_ylim(bottom=0)
    other.tick_params(colors=GRAY)
    axis.legend(loc="lower left", ncols=2)


@styled
def draw_residuals(path: Path, residuals: Sequence[np.ndarray], columns: Sequence[str]) -> Path:
    """A row for each column: over time, autocorrelation, QQ plot."""
    columns = columns[:_PANELS]
    size = (INCHES, 2.0 * len(columns) + 0.2)
    figure, axes = subplots(len(columns), 3, figsize=size, squeeze=False, width_ratios=(1.5, 1, 1))
    for index, (column, (time, lags, quantiles)) in enumerate(zip(columns, axes, strict=True)):
        series = [one[:, index] for one in residuals]
        _draw_over_time(time, series[0])
        _draw_autocorrelation(lags, series)
        _draw_quantiles(quantiles, np.concatenate(series))
        time.set_ylabel(column if len(columns) > 1 else "residual", parse_math=False)
    for axis, title in zip(axes[0], ("One step ahead", "Autocorrelation", "Against normal"), strict=True):
        axis.set_title(title)
    for axis, label in zip(axes[-1], ("step", "lag", "normal quantile"), strict=True):
        axis.set_xlabel(label)
    return save_figure(figure, path)


@styled
def draw_statistics(path: Path, observed: np.ndarray, simulated: np.ndarray) -> Path:
    """A panel for each statistic: a histogram of the simulated ones, a line for the data's."""
    figure, axes = subplots(2, 4, figsize=(INCHES, 3.2))
    for axis, name, own, values in zip(axes.flat, STATISTICS, observed, simulated.T, strict=True):
        values = values[np.isfinite(values)]
        if len(values):
            # Beyond this a few wild data sets would squeeze the others together.
            axis.hist(np.clip(values, *np.quantile(values, [0.005, 0.995])), bins=20, color=BLUE, alpha=0.55)
        if np.isfinite(own):
            axis.axvline(own, color=ORANGE, lw=2)
        axis.set_title(name.replace("autocorrelation of |x − mean|", "autocorr. |x − mean|"), fontsize=8)
        axis.yaxis.set_visible(False)
        axis.spines["left"].set_visible(False)
        axis.xaxis.set_major_locator(MaxNLocator(3, prune="upper"))
    return save_figure(figure, path)


@styled
def draw_paths(path: Path, values: np.ndarray, paths: np.ndarray, column: str) -> Path:
    """A column of the data, and below it simulated ones, (paths, steps)."""
    rows = [(f"{column}, data", values, ORANGE), *(("simulated", one, BLUE) for one in paths)]
    figure, axes = stacked(len(rows), 1.0, sharex=True, sharey=True)
    for axis, (title, line, color) in zip(axes, rows, strict=True):
        marker = "." if len(line) <= 60 else None
        axis.plot(np.arange(1, len(line) + 1), line, color=color, lw=0.8, marker=marker, ms=4)
        set_title(axis, title)
    axes[-1].set_xlabel("step")
    return save_figure(figure, path)


def _draw_over_time(axis: Any, residuals: np.ndarray) -> None:
    shown = residuals[:_POINTS]
    axis.axhspan(-1.96, 1.96, color=GRAY, alpha=0.15, lw=0)
    axis.plot(np.arange(1, len(shown) + 1), shown, ".", color=BLUE, ms=3 if len(shown) < 300 else 1.5)
    axis.axhline(0, color=GRAY, lw=0.8)
    axis.xaxis.set_major_locator(MaxNLocator(4, integer=True))


def _draw_autocorrelation(axis: Any, series: list[np.ndarray]) -> None:
    lags = min(_LAGS, max(1, max(map(len, series)) - 2))
    correlations, count = autocorrelation(series, lags)
    bound = 1.96 / np.sqrt(max(1, count))
    axis.axhspan(-bound, bound, color=GRAY, alpha=0.15, lw=0)
    axis.vlines(np.arange(1, lags + 1), 0, correlations, color=BLUE, lw=2)
    axis.axhline(0, color=GRAY, lw=0.8)
    reach = min(1.0, 1.3 * max(2.5 * bound, float(np.nanmax(np.abs(correlations), initial=0.0))))
    axis.set_ylim(-reach, reach)
    axis.xaxis.set_major_locator(MaxNLocator(4, integer=True))


def _draw_quantiles(axis: Any, residuals: np.ndarray) -> None:
    """Quantiles with the band in which each order statistic of normal numbers lies in 95 of 100 cases."""
    ordered = np.sort(residuals[np.isfinite(residuals)])
    count = len(ordered)
    if not count:
        return
    # All of the tails, and as many of the rest as one can see.
    ends = np.concatenate([np.arange(min(count, 100)), np.arange(max(0, count - 100), count)])
    shown = np.unique(np.concatenate([ends, np.linspace(0, count - 1, min(count, _POINTS)).astype(int)]))
    ranks, ordered = shown + 1, ordered[shown]
    expected = ndtri((ranks - 0.5) / count)
    low, high = (ndtri(betaincinv(ranks, count + 1 - ranks, share)) for share in (0.025, 0.975))
    axis.fill_between(expected, low, high, color=GRAY, alpha=0.2, lw=0)
    axis.axline((0, 0), slope=1, color=GRAY, lw=0.8)
    axis.plot(expected, ordered, ".", color=BLUE, ms=3)
