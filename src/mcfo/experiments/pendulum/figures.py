"""The pictures of the pendulum experiment: curves, film strips, latents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from mcfo.experiments.pendulum.prediction import Followed
from mcfo.experiments.pendulum.problem import Problem
from mcfo.experiments.pendulum.summary import Outcomes
from mcfo.experiments.pendulum.videos import SIZE
from mcfo.reports.image_plots import show_strip

_COLOURS = {
    "aesmc": "#d55e00",
    "nasmc": "#999999",
    "mcfo-smc": "#0072b2",
    "mcfo-pimh": "#56b4e9",
    "mcfo-dreg": "#009e73",
    "mcfo-lag": "#cc79a7",
}
_PANELS = {
    "prediction": "one-step prediction error",
    "ess_at_test": "effective sample size",
    "nll": "NLL of a video, nats",
}
_STYLES = (":", (0, (1, 3)), "--", "-.", (0, (5, 1)))
_STRIP = 10
"""Frames of a film strip, every other one of twenty."""


def draw_curves(path: Path, outcomes: Outcomes, baselines: dict[str, float]) -> Path:
    """The paper's figure 3, left and middle: evaluations on test videos while learning, one row for each K."""
    sizes = sorted({particles for _, particles in outcomes.places})
    figure, axes = plt.subplots(
        len(sizes), len(_PANELS), figsize=(10, 2.9 * len(sizes) + 0.6), layout="constrained", squeeze=False
    )
    handles: dict[str, Any] = {}
    for row, particles in zip(axes, sizes, strict=True):
        for axis, (metric, title) in zip(row, _PANELS.items(), strict=True):
            for method, count in outcomes.places:
                if count == particles:
                    _curve(axis, outcomes, method, particles, metric)
            if metric == "prediction":
                for (name, value), style in zip(baselines.items(), _STYLES, strict=True):
                    axis.axhline(value, color="black", lw=0.9, ls=style, label=name, zorder=0)
                axis.set_ylim(bottom=0)
            axis.set_title(f"{title}, K = {particles}", fontsize=9, loc="left")
            axis.spines[["top", "right"]].set_visible(False)
            axis.tick_params(labelsize=8)
            axis.set_xlabel("iteration", fontsize=9)
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside upper center",
        ncols=(len(handles) + 1) // 2,
        fontsize=8,
        frameon=False,
    )
    return _save(figure, path)


def _curve(axis: Any, outcomes: Outcomes, method: str, particles: int, metric: str) -> None:
    curves = [one.curve(metric) for one in outcomes.runs(method, particles)]
    # An evaluation that was not finite has no point.
    steps = np.array(sorted(set.intersection(*(set(at.tolist()) for at, _ in curves))), int)
    values = np.stack([values[np.isin(at, steps)] for at, values in curves])
    color = _COLOURS[method]
    axis.plot(steps, values.mean(0), color=color, lw=1.4, marker="o", ms=2.5, label=method)
    if len(values) > 1:
        axis.fill_between(steps, values.min(0), values.max(0), color=color, alpha=0.15, lw=0)


def draw_frames(path: Path, problem: Problem, followed: dict[str, list[Followed]], videos: list[int]) -> Path:
    """The paper's figures 3, right, and 10: frames, one-step predictions and absolute differences, in rows."""
    rows = 2 + 2 * len(followed)
    figure, axes = plt.subplots(
        rows,
        len(videos),
        figsize=(5.4 * len(videos) + 0.9, 0.62 * rows),
        layout="constrained",
        squeeze=False,
    )
    shown = np.linspace(1, problem.gray.shape[1] - 1, _STRIP).round().astype(int)
    for column, video in enumerate(videos):
        gray = np.asarray(problem.gray[video])
        strips = {
            "gray frame": gray[shown],
            "observed": np.asarray(problem.test.observations[video])[shown],
        }
        for method, found in followed.items():
            predicted = np.asarray(found[column].at_mean)
            strips[method] = predicted[shown - 1]
            strips[f"{method}, difference"] = np.abs(predicted - gray[1:])[shown - 1]
        for axis, (label, frames) in zip(axes[:, column], strips.items(), strict=True):
            show_strip(axis, frames.reshape(-1, SIZE, SIZE))
            if column == 0:
                axis.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=8)
        axes[0, column].set_title(f"test video {video + 1}, frames {shown[0] + 1} to {shown[-1] + 1}", fontsize=9)
    return _save(figure, path)


def draw_latents(path: Path, problem: Problem, followed: dict[str, Followed], size: int) -> Path:
    """The paper's figure 11: latents of all test videos, filtered and predicted, colored by the true angle.

    `followed` has one more axis in front, over the videos; of its latents the first ones, so many, are no traces.
    """
    figure = plt.figure(figsize=(3.4 * len(followed), 6.4), layout="constrained")
    angles = np.mod(problem.angles, 2 * np.pi)
    mappable = None
    for column, (method, found) in enumerate(followed.items()):
        for row, (kind, latents, at) in enumerate(
            (("filtered", found.filtered, angles), ("predicted", found.predicted, angles[:, 1:]))
        ):
            points = np.asarray(latents)[:, :, :6]
            colors = np.repeat(at[:, :, None], points.shape[2], axis=2)
            deep = {"projection": "3d", "computed_zorder": False} if size > 2 else {}
            axis: Any = figure.add_subplot(2, len(followed), row * len(followed) + column + 1, **deep)
            shown = list(points.reshape(-1, points.shape[-1]).T[: min(size, 3)])
            if size == 1:
                shown.append(colors.ravel())
            mappable = axis.scatter(
                *shown, c=colors.ravel(), cmap="twilight", vmin=0, vmax=2 * np.pi, s=1.5 if size > 2 else 3, lw=0
            )
            axis.set_title(f"{method}, {kind}", fontsize=9)
            axis.tick_params(labelsize=6, pad=-2 if size > 2 else 2)
            axis.set_xlabel("z₁", fontsize=8, labelpad=-8 if size > 2 else 1)
            axis.set_ylabel("z₂" if size > 1 else "angle", fontsize=8, labelpad=-8 if size > 2 else 1)
            if size > 2:
                axis.set_zlabel("z₃", fontsize=8, labelpad=-8)
    if mappable is not None:
        bar = figure.colorbar(mappable, ax=figure.axes, shrink=0.5, ticks=[0, np.pi, 2 * np.pi], location="bottom")
        bar.ax.set_xticklabels(["up", "down", "up"])
        bar.set_label("true angle of the pendulum", fontsize=8)
    return _save(figure, path)


def _save(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path
