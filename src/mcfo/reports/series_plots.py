"""Series beside what a model says of them, of their states and of what follows: panels of numbers, films of images,
piano-rolls of music."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mcfo.data.piano_rolls import is_roll
from mcfo.inference.angles import Angle, angles_of
from mcfo.reports.figures import (
    BLACK,
    BLUE,
    ORANGE,
    axis_title,
    legend_above,
    mark_dates,
    save_figure,
    set_title,
    stacked,
    styled,
)
from mcfo.reports.image_plots import Film, Roll, draw_films, draw_rolls

SHOWN = 4
"""Series that a figure or a film shows."""
_PANELS = 2 * SHOWN
_PAST = 100
"""Observations before a forecast that a figure shows."""


class Estimate(NamedTuple):
    """What a model says at the steps `x`: the mean, central intervals as (probability, low, high), the widest first,
    and a few draws. `name` is what it speaks of: "observation", "state", "forecast"."""

    name: str
    x: np.ndarray
    mean: np.ndarray | None = None
    bands: tuple[tuple[float, np.ndarray, np.ndarray], ...] = ()
    draws: tuple[np.ndarray, ...] = ()


class Panel(NamedTuple):
    """One dimension of one series.

    - `x`: the steps of the observations, or their times.
    - `observed`: NaN where nothing was observed; None in a panel of states.
    - `joined`: draws lines between the observations.
    - `gaps`: marks what is missing: on the estimate's mean, or at the foot of the panel.
    - `angle`: the interval of the panel if it shows an angle, which goes around.
    """

    title: str
    x: np.ndarray
    observed: np.ndarray | None = None
    estimate: Estimate | None = None
    joined: bool = False
    gaps: bool = False
    angle: Angle | None = None


@styled
def draw_panels(path: Path, panels: Sequence[Panel], *, x_label: str) -> Path:
    """A PNG figure with the first panels below each other."""
    panels = panels[:_PANELS]
    figure, axes = stacked(len(panels), 1.7)
    for axis, panel in zip(axes, panels, strict=True):
        if panel.angle is not None:
            axis.set_ylim(panel.angle.lowest, panel.angle.lowest + panel.angle.period)
        if panel.estimate is not None:
            _draw_estimate(axis, panel.estimate, panel.angle)
        if panel.observed is not None:
            _draw_observed(axis, panel, panel.observed)
        set_title(axis, panel.title)
        mark_dates(axis, panel.x)
    axes[-1].set_xlabel(x_label)
    legend_above(figure, axes)
    return save_figure(figure, path)


def _draw_estimate(axis: Any, estimate: Estimate, angle: Angle | None) -> None:
    color = ORANGE if estimate.name == "state" else BLUE
    # What leaves the panel of an angle above comes in below.
    turns = (0.0,) if angle is None else (0.0, -angle.period, angle.period)
    for index, (probability, low, high) in enumerate(estimate.bands):
        for turn in turns:
            label = None if turn else f"{estimate.name}, {probability:.0%}"
            look = {"color": color, "alpha": 0.17 + 0.12 * index, "lw": 0, "label": label}
            axis.fill_between(estimate.x, low + turn, high + turn, **look)
    for index, draw in enumerate(estimate.draws):
        line = _line(estimate.x, draw, angle)
        axis.plot(*line, color=color, lw=0.7, alpha=0.6, label="draws" if index == 0 else None)
    if estimate.mean is not None:
        marker = "." if len(estimate.x) == 1 else None
        line = _line(estimate.x, estimate.mean, angle)
        axis.plot(*line, color=color, lw=1.3, marker=marker, label=f"{estimate.name}, mean")


def _line(x: np.ndarray, values: np.ndarray, angle: Angle | None) -> tuple[np.ndarray, np.ndarray]:
    """A line, which ends where an angle goes around and begins again on the other side."""
    if angle is None:
        return x, values
    values = angle.wrap(values)
    jumps = np.flatnonzero(np.abs(np.diff(values)) > angle.period / 2) + 1
    return np.insert(x, jumps, x[jumps]), np.insert(values, jumps, np.nan)


def _draw_observed(axis: Any, panel: Panel, observed: np.ndarray) -> None:
    missing = np.isnan(observed)
    if panel.gaps and missing.any():
        mean = None if panel.estimate is None else panel.estimate.mean
        if mean is None:
            foot = {"transform": axis.get_xaxis_transform(), "clip_on": False}
            axis.plot(panel.x[missing], np.zeros(missing.sum()), "|", color=ORANGE, ms=6, label="missing", **foot)
        else:
            axis.plot(panel.x[missing], mean[missing], "o", mfc="white", color=BLUE, ms=3.5, mew=0.9, label="filled")
    style = {"color": BLACK, "marker": "." if len(observed) <= 400 or not panel.joined else None, "ms": 3}
    line = _line(panel.x, observed, panel.angle)
    axis.plot(*line, lw=0.9 if panel.joined else 0, label="observed", **style)


def draw_states(path: Path, dataset: Any, image: tuple[int, int] | None) -> Path:
    """The observations of each series, then its states, from a data set of `filter` or `smooth`; films of images."""
    smoothed = "filled" in dataset
    panels, films, dated = [], [], "moment" in dataset.coords
    for index in range(min(dataset.sizes["series"], SHOWN)):
        one = dataset.isel(series=index, time=slice(0, int(dataset["length"].values[index])))
        observed = one["observation"].values
        if image is not None:
            model = "smoothed" if smoothed else "predicted"
            rows = {"observed": observed, model: one["observation_mean"].values}
            films.append(_film(f"series {one['series'].item()}", rows, image))
            continue
        steps = one["moment"].values if dated else np.arange(1, len(observed) + 1)
        for kind, name in (("observation", "observation"), ("latent", "state")):
            angles = angles_of(dataset, kind)
            for column, (title, mean, bands) in enumerate(_estimates(one, kind, dataset.sizes["series"] > 1)):
                shown, angle = observed[:, column] if kind == "observation" else None, angles.get(column)
                panels.append(
                    Panel(title, steps, shown, Estimate(name, steps, mean, bands), gaps=smoothed, angle=angle)
                )
    if image is not None:
        return draw_films(path, films)
    return draw_panels(path, panels, x_label=axis_title(dataset["moment"].values if dated else None))


def draw_forecasts(
    path: Path,
    dataset: Any,
    past: Sequence[np.ndarray],
    image: tuple[int, int] | None,
    moments: Sequence[np.ndarray] | None = None,
) -> Path:
    """The last observations of each series and what a data set of `forecast` says of the steps after: films of images,
    rolls of piano-rolls, panels of numbers, over the dates of the observations if `moments` has them."""
    shown = range(min(len(past), SHOWN))
    names, means = dataset["series"].values, dataset["observation_mean"].values
    drawn = dataset["observation_draws"].values[:, :, 0]
    if image is not None:
        films = []
        for index in shown:
            futures = {"expected": means[index], "one draw": drawn[index]}
            rows = {name: np.concatenate([past[index], future]) for name, future in futures.items()}
            films.append(_film(f"series {names[index]}", rows, image, first=len(past[index])))
        return draw_films(path, films)
    if all(is_roll(past[index]) and is_roll(drawn[index]) for index in shown):
        rolls = []
        for index in shown:
            before = past[index][-_PAST:]
            notes = np.concatenate([before, drawn[index]])
            rolls.append(Roll(f"piece {names[index]}", notes, len(before), means[index]))
        return draw_rolls(path, rolls)
    panels = []
    for index in shown:
        length, first = len(past[index]), max(0, len(past[index]) - _PAST)
        before, after = np.arange(first + 1, length + 1), length + dataset["time"].values
        if moments is not None:
            before, after = moments[index][first:], dataset["moment"].values[index]
        for column, (title, mean, bands) in enumerate(
            _estimates(dataset.isel(series=index), "observation", len(past) > 1)
        ):
            estimate = Estimate("forecast", after, mean, bands)
            angle = angles_of(dataset, "observation").get(column)
            panels.append(Panel(title, before, past[index][first:, column], estimate, joined=True, angle=angle))
    return draw_panels(path, panels, x_label=axis_title(None if moments is None else moments[0]))


def draw_simulated(
    path: Path, values: np.ndarray, means: np.ndarray | None, columns: Sequence[str], image: tuple[int, int] | None
) -> Path:
    """Simulated series, (series, steps, dimensions), with their means given the states where they are known."""
    values = values[:SHOWN]
    expected = [None] * len(values) if means is None else means[:SHOWN]
    drawn = [(f"draw {index}", *both) for index, both in enumerate(zip(values, expected, strict=True), 1)]
    if image is not None:
        named = (
            (title, {"drawn": one} if mean is None else {"expected": mean, "drawn": one}) for title, one, mean in drawn
        )
        return draw_films(path, [_film(title, rows, image) for title, rows in named])
    if is_roll(values):
        return draw_rolls(path, [Roll(title, one, probabilities=mean) for title, one, mean in drawn])
    steps = np.arange(1, values.shape[1] + 1)
    return draw_panels(
        path,
        [
            Panel(column, steps, estimate=Estimate("simulated", steps, draws=tuple(values[:, :, index])))
            for index, column in enumerate(columns)
        ],
        x_label="step",
    )


def _film(title: str, rows: dict[str, np.ndarray], image: tuple[int, int], first: int = 0) -> Film:
    return Film(title, {name: frames.reshape(-1, *image) for name, frames in rows.items()}, first)


def _estimates(one: Any, kind: str, several: bool) -> list[tuple[str, np.ndarray, Any]]:
    """Title, mean and central intervals of each dimension of a series; `kind` is "observation" or "latent"."""
    levels = [float(level) for level in one["quantile"].values]
    suffix = f", series {one['series'].item()}" if several else ""
    means, quantiles = one[f"{kind}_mean"].values, one[f"{kind}_quantiles"].values
    names = one["dimension" if kind == "observation" else "latent"].values
    return [
        (f"{name}{suffix}", means[:, index], _central_bands(levels, quantiles[:, :, index]))
        for index, name in enumerate(names)
    ]


def _central_bands(levels: Sequence[float], quantiles: np.ndarray) -> tuple[tuple[float, np.ndarray, np.ndarray], ...]:
    """Intervals between quantiles, (steps, levels), whose levels lie opposite each other; the widest first."""
    pairs = [(index, len(levels) - 1 - index) for index in range(len(levels) // 2)]
    return tuple((round(levels[high] - levels[low], 6), quantiles[:, low], quantiles[:, high]) for low, high in pairs)
