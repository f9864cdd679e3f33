"""Curves of runs as charts: the color of each method, bands over the seeds, and the figure of a study that learns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mcfo.experiments.runs import Run, seed_curves
from mcfo.reports.figures import Chart, Line, draw_charts

COLORS = {
    "bootstrap": "#7f7f7f", "elbo": "#bcbd22", "iwae": "#e69f00", "fivo": "#d55e00", "aesmc": "#d62728",
    "fivo-full": "#8c564b", "alternating": "#c49c00", "rws": "#17becf", "nasmc": "#999999", "mcfo": "#0072b2",
    "mcfo-smc": "#0072b2", "mcfo-exact": "#08306b", "mcfo-pimh": "#56b4e9", "mcfo-dreg": "#009e73",
    "mcfo-stl": "#fdae6b", "mcfo-fisher": "#9467bd", "mcfo-fisher-lag": "#a6761d", "mcfo-lag": "#cc79a7",
}  # fmt: skip
"""A method has one color in all experiments."""
_SPARE = ("#56b4e9", "#c49c00", "#7f3b08", "#40004b")


def color(method: str) -> str:
    """The color of a method; `mcfo-pimh-3` and its like have one by their number."""
    return COLORS.get(method) or _SPARE[sum(map(ord, method)) % len(_SPARE)]


def by_cell(runs: Sequence[Run]) -> list[list[Run]]:
    """The seeds of each data set, method and K."""
    return [[run for run in runs if run.cell == cell] for cell in dict.fromkeys(run.cell for run in runs)]


def seed_lines(
    runs: Sequence[Run],
    metric: str,
    change: Callable[[np.ndarray, np.ndarray], tuple[Any, Any]] = lambda steps, values: (steps, values),
    **look: Any,
) -> list[Line]:
    """A curve for each cell that has the metric: the mean over the seeds, and around it the range. `change` is applied
    to the steps and the values, (seeds, steps), first."""
    lines = []
    for group in by_cell(runs):
        steps, values = seed_curves(group, metric)
        if len(steps):
            x, y = change(steps, values)
            method = group[0].method
            band = (y.min(0), y.max(0)) if len(y) > 1 else None
            lines.append(Line(x, y.mean(0), color(method), band, look={"label": method, **look}))
    return lines


def draw_learning(
    path: Path,
    runs: Sequence[Run],
    metrics: Mapping[str, str],
    levels: Callable[[str, str], Mapping[str, float]],
    *,
    rings: str | None = None,
) -> Path:
    """Curves of all methods, a row of panels for each data set and K.

    **Arguments:**

    - `metrics`: the title of each metric's panel.
    - `levels`: what needs no learning, by data set and metric.
    - `rings`: the metric in whose panel the `best_step` of each run is marked.
    """
    charts = []
    for data, particles in dict.fromkeys((run.data, run.particles) for run in runs):
        chosen = [run for run in runs if (run.data, run.particles) == (data, particles)]
        for metric, text in metrics.items():
            lines = seed_lines(chosen, metric, marker="o", ms=2)
            for run in chosen if metric == rings else ():
                steps, values = run.curve(metric)
                best = [int(np.argmin(np.abs(steps - run.numbers["best_step"][0])))]
                ring = {"marker": "o", "ms": 5, "mfc": "white", "mew": 1.3}
                lines.append(Line(steps[best], values[best], color(run.method), look=ring))
            title = f"{f'{data}, ' if data else ''}K = {particles}, {text}"
            charts.append(Chart(title, lines, levels=levels(data, metric)))
    return draw_charts(path, charts, columns=len(metrics), height=2.9)
