"""Film strips of the pendulum and its latents: the paper's figures 3, 10 and 11."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from mcfo.data.pendulum_videos import SIZE
from mcfo.experiments.pendulum_problem import Followed, Problem
from mcfo.reports.figures import save_figure, styled
from mcfo.reports.image_plots import show_strip

_STRIP = 10
"""Frames of a film strip, every other one of twenty."""


@styled
def draw_frames(path: Path, problem: Problem, followed: dict[str, Followed], videos: list[int]) -> Path:
    """The paper's figures 3, right, and 10: frames, one-step predictions and absolute differences, in rows."""
    rows, columns = 2 + 2 * len(followed), len(videos)
    figure, axes = plt.subplots(rows, columns, figsize=(5.4 * columns + 0.9, 0.62 * rows + 0.5), squeeze=False)
    shown = np.linspace(1, problem.gray.shape[1] - 1, _STRIP).round().astype(int)
    for column, video in enumerate(videos):
        gray = np.asarray(problem.gray[video])
        strips = {"gray frame": gray[shown], "observed": np.asarray(problem.test.observations[video])[shown]}
        for method, one in followed.items():
            predicted = np.asarray(one.at_mean[video])
            strips[method] = predicted[shown - 1]
            strips[f"{method}, difference"] = np.abs(predicted - gray[1:])[shown - 1]
        for axis, (label, frames) in zip(axes[:, column], strips.items(), strict=True):
            show_strip(axis, frames.reshape(-1, SIZE, SIZE))
            if column == 0:
                axis.set_ylabel(label, rotation=0, ha="right", va="center", fontsize=8)
        axes[0, column].set_title(f"test video {video + 1}, frames {shown[0] + 1} to {shown[-1] + 1}", fontsize=9)
    return save_figure(figure, path)


@styled
def draw_latents(path: Path, problem: Problem, followed: dict[str, Followed], size: int) -> Path:
    """The paper's figure 11: latents of all test videos, filtered and predicted, colored by the true angle.

    The first `size` latents are no traces.
    """
    figure = plt.figure(figsize=(3.4 * len(followed), 6.4))
    angles = np.mod(problem.angles, 2 * np.pi)
    deep = size > 2
    mappable = None
    for column, (method, one) in enumerate(followed.items()):
        for row, (kind, latents, at) in enumerate(
            (("filtered", one.filtered, angles), ("predicted", one.predicted, angles[:, 1:]))
        ):
            points = np.asarray(latents)[:, :, :6]
            colors = np.repeat(at[:, :, None], points.shape[2], axis=2)
            options = {"projection": "3d", "computed_zorder": False} if deep else {}
            axis: Any = figure.add_subplot(2, len(followed), row * len(followed) + column + 1, **options)
            shown = list(points.reshape(-1, points.shape[-1]).T[: min(size, 3)])
            if size == 1:
                shown.append(colors.ravel())
            mappable = axis.scatter(
                *shown, c=colors.ravel(), cmap="twilight", vmin=0, vmax=2 * np.pi, s=1.5 if deep else 3, lw=0
            )
            axis.set_title(f"{method}, {kind}", fontsize=9)
            axis.tick_params(labelsize=6, pad=-2 if deep else 2)
            names = ("z₁", "z₂" if size > 1 else "angle", "z₃")
            for name, set_label in zip(
                names, ("set_xlabel", "set_ylabel", "set_zlabel")[: 3 if deep else 2], strict=False
            ):
                getattr(axis, set_label)(name, fontsize=8, labelpad=-8 if deep else 1)
    if mappable is not None:
        bar = figure.colorbar(mappable, ax=figure.axes, shrink=0.5, ticks=[0, np.pi, 2 * np.pi], location="bottom")
        bar.ax.set_xticklabels(["up", "down", "up"])
        bar.set_label("true angle of the pendulum", fontsize=8)
    return save_figure(figure, path)
