"""One style for the figures of all experiments: colors, panels, curves with bands, legends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # figures go to files, also where there is no screen

import matplotlib.pyplot as plt
import numpy as np

from mcfo.experiments.runs import Run, seed_curves

COLORS = {
    "bootstrap": "#7f7f7f",
    "elbo": "#bcbd22",
    "iwae": "#e69f00",
    "fivo": "#d55e00",
    "aesmc": "#d62728",
    "fivo-full": "#8c564b",
    "alternating": "#c49c00",
    "rws": "#17becf",
    "nasmc": "#999999",
    "mcfo-smc": "#0072b2",
    "mcfo-exact": "#08306b",
    "mcfo-pimh": "#56b4e9",
    "mcfo-dreg": "#009e73",
    "mcfo-stl": "#fdae6b",
    "mcfo-fisher": "#9467bd",
    "mcfo-fisher-lag": "#a6761d",
    "mcfo-lag": "#cc79a7",
}
"""A method has one color in all experiments."""
_STYLES = (":", (0, (1, 3)), "--", "-.", (0, (5, 1)))
_SPARE = ("#56b4e9", "#c49c00", "#7f3b08", "#40004b")


def color(method: str) -> str:
    """The color of a method; `mcfo-pimh-3` and its like have one by their number."""
    if method in COLORS:
        return COLORS[method]
    return _SPARE[sum(map(ord, method)) % len(_SPARE)]


def panels(rows: int, columns: int, *, width: float = 10.0, height: float = 2.9, **options: Any) -> tuple[Any, Any]:
    """A figure of panels, as a two-dimensional array of axes."""
    size = (width, height * rows + 0.5)
    return plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False, **options)


def title(axis: Any, text: str, *, x: str = "step", size: float = 9.0) -> None:
    """The plain frame of a panel, with its title and the name of its x axis."""
    axis.set_title(text, fontsize=size, loc="left")
    axis.set_xlabel(x, fontsize=9)
    axis.tick_params(labelsize=8)
    axis.spines[["top", "right"]].set_visible(False)


def level(axis: Any, value: float, label: str, style: Any = "--") -> None:
    """A horizontal line at a known value."""
    axis.axhline(value, color="black", lw=0.9, ls=style, label=label, zorder=0)


def band(
    axis: Any, steps: np.ndarray, values: np.ndarray, method: str, *, label: str | None = None, **options: Any
) -> None:
    """The mean over the seeds, and around it the range."""
    if not len(steps):
        return
    axis.plot(steps, values.mean(0), color=color(method), lw=1.3, label=label or method, **options)
    if len(values) > 1:
        axis.fill_between(steps, values.min(0), values.max(0), color=color(method), alpha=0.15, lw=0, zorder=1)


def legend(figure: Any, axes: Any, *, columns: int = 6) -> None:
    """One legend for all panels, above them."""
    handles: dict[str, Any] = {}
    for axis in np.ravel(axes):
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    ncols = min(columns, len(handles)) or 1
    figure.legend(handles.values(), handles.keys(), loc="outside upper center", ncols=ncols, fontsize=8, frameon=False)


def save(figure: Any, path: Path) -> Path:
    """Writes the figure as PNG and closes it."""
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


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
    rows = list(dict.fromkeys((run.data, run.particles) for run in runs))
    figure, axes = panels(len(rows), len(metrics))
    for row, (data, particles) in zip(axes, rows, strict=True):
        chosen = [run for run in runs if (run.data, run.particles) == (data, particles)]
        for axis, (metric, text) in zip(row, metrics.items(), strict=True):
            for method in dict.fromkeys(run.method for run in chosen):
                group = [run for run in chosen if run.method == method]
                band(axis, *seed_curves(group, metric), method, marker="o", ms=2)
                for run in group if metric == rings else ():
                    steps, values = run.curve(metric)
                    best = int(np.argmin(np.abs(steps - run.numbers["best_step"][0])))
                    axis.plot(steps[best], values[best], "o", ms=5, mfc="white", mec=color(method), mew=1.3)
            for (name, value), style in zip(levels(data, metric).items(), _STYLES, strict=False):
                level(axis, value, name, style)
            title(axis, f"{f'{data}, ' if data else ''}K = {particles}, {text}", size=8.5)
    legend(figure, axes)
    return save(figure, path)
