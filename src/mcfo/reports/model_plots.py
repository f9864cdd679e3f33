"""Figures of a learned model and its series: data, level and forecast; components with their intervals."""

from __future__ import annotations

from typing import Any

import numpy as np

from mcfo.data.outlook import CENTRAL, Outlook
from mcfo.reports.figures import (
    BLACK,
    BLUE,
    ORANGE,
    axis_title,
    legend_above,
    mark_dates,
    set_title,
    stacked,
    styled,
)

MOST_PANELS = 8
_PAST = 4
"""Observed steps that a figure of a forecast shows, for each step ahead."""
_SHOWN = 400
"""Steps from which on single observations are no longer marked."""
INTERVAL = f"{CENTRAL[1] - CENTRAL[0]:.0%}"


@styled
def draw_fit(outlook: Outlook) -> Any:
    """The data, the level that the model sees in them, and the forecast; a panel for each column."""
    columns = outlook.columns[:MOST_PANELS]
    figure, axes = stacked(len(columns), 2.6 if len(columns) == 1 else 1.9, sharex=True)
    for index, (axis, column) in enumerate(zip(axes, columns, strict=True)):
        mean, low, high = outlook.level[:, :, index].T
        label = outlook.level_name
        axis.fill_between(outlook.x, low, high, color=ORANGE, alpha=0.2, lw=0, label=f"{label}, {INTERVAL}")
        axis.plot(outlook.x, mean, color=ORANGE, lw=1.2, label=label)
        _draw_values(axis, outlook.x, outlook.values[:, index])
        _draw_future(axis, outlook, index)
        set_title(axis, column)
        mark_dates(axis, outlook.x)
    _finish(figure, axes, outlook)
    return figure


@styled
def draw_forecast(outlook: Outlook) -> Any:
    """The end of the data and the forecast; a panel for each column."""
    columns = outlook.columns[:MOST_PANELS]
    first = max(0, len(outlook.x) - max(20, _PAST * len(outlook.coming)))
    figure, axes = stacked(len(columns), 2.6 if len(columns) == 1 else 1.9, sharex=True)
    for index, (axis, column) in enumerate(zip(axes, columns, strict=True)):
        _draw_values(axis, outlook.x[first:], outlook.values[first:, index])
        _draw_future(axis, outlook, index)
        set_title(axis, column)
        mark_dates(axis, outlook.x[first:])
    _finish(figure, axes, outlook)
    return figure


@styled
def draw_components(outlook: Outlook) -> Any:
    """Each component, or each state, with its interval."""
    names = outlook.names[:MOST_PANELS]
    figure, axes = stacked(len(names), 1.4, sharex=True)
    for axis, name, (mean, low, high) in zip(
        axes, names, np.swapaxes(outlook.components[: len(names)], 1, 2), strict=True
    ):
        axis.fill_between(outlook.x, low, high, color=ORANGE, alpha=0.25, lw=0, label=INTERVAL)
        axis.plot(outlook.x, mean, color=ORANGE, lw=1.2, label="mean")
        set_title(axis, name)
        mark_dates(axis, outlook.x)
    _finish(figure, axes, outlook)
    return figure


def _draw_values(axis: Any, x: np.ndarray, values: np.ndarray) -> None:
    marker = "." if len(values) <= _SHOWN else None
    axis.plot(x, values, color=BLACK, lw=0.8, marker=marker, ms=2.5, label="observed")


def _draw_future(axis: Any, outlook: Outlook, index: int) -> None:
    if not len(outlook.coming):
        return
    levels, count = outlook.levels, len(outlook.levels)
    for pair in range(count // 2):
        low, high = (outlook.quantiles[:, at, index] for at in (pair, count - 1 - pair))
        label = f"forecast, {levels[count - 1 - pair] - levels[pair]:.0%}"
        axis.fill_between(outlook.coming, low, high, color=BLUE, alpha=0.17 + 0.12 * pair, lw=0, label=label)
    marker = "." if len(outlook.coming) == 1 else None
    axis.plot(outlook.coming, outlook.mean[:, index], color=BLUE, lw=1.3, marker=marker, label="forecast, mean")


def _finish(figure: Any, axes: Any, outlook: Outlook) -> None:
    axes[-1].set_xlabel(axis_title(outlook.x if outlook.dated else None))
    legend_above(figure, axes, most=4)
