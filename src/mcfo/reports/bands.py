"""Series of numbers with what is known of them at each step: dots, lines and bands."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np

from mcfo.files import write_atomically
from mcfo.reports.axes import axis_title, mark_dates

_OBSERVED, _OF_STATES, _OF_OBSERVATIONS = "black", "#d55e00", "#0072b2"


class Bands(NamedTuple):
    """One dimension of one series.

    - `observed`: what was observed, NaN where nothing was; None for a state.
    - `mean`: of every step.
    - `bands`: (low, high) of every step with their probability, the widest first.
    - `gaps`: whether the missing values stand out.
    - `places`: where the steps stand, dates or numbers; their own numbers if it is None.
    """

    title: str
    mean: np.ndarray
    bands: tuple[tuple[float, np.ndarray, np.ndarray], ...]
    observed: np.ndarray | None = None
    gaps: bool = False
    places: np.ndarray | None = None


def draw_bands(path: Path, panels: Sequence[Bands]) -> Path:
    """A PNG picture: one panel for each dimension of each series."""
    height = 1.9 * len(panels) + 0.5
    figure, axes = plt.subplots(len(panels), 1, figsize=(7.5, height), layout="constrained", squeeze=False)
    labels: dict[str, Any] = {}
    for axis, panel in zip(axes[:, 0], panels, strict=True):
        times = np.arange(1, len(panel.mean) + 1) if panel.places is None else panel.places
        color = _OF_STATES if panel.observed is None else _OF_OBSERVATIONS
        what = "state" if panel.observed is None else "observation"
        for number, (probability, low, high) in enumerate(panel.bands):
            axis.fill_between(
                times, low, high, color=color, alpha=0.16 + 0.12 * number, lw=0, label=f"{what}, {probability:.0%}"
            )
        axis.plot(times, panel.mean, color=color, lw=1.2, label=f"{what}, mean")
        if panel.observed is not None:
            if panel.gaps and np.isnan(panel.observed).any():
                gaps = np.where(np.isnan(panel.observed), panel.mean, np.nan)
                axis.plot(times, gaps, "o", mfc="white", color=color, ms=3.5, mew=0.9, label="filled")
            axis.plot(times, panel.observed, ".", color=_OBSERVED, ms=3, label="observed")
        axis.set_title(panel.title, fontsize=9, loc="left")
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
        axis.margins(x=0.01)
        mark_dates(axis, times)
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            labels.setdefault(label, handle)
    axes[-1, 0].set_xlabel(axis_title(panels[-1].places), fontsize=9)
    figure.legend(list(labels.values()), list(labels), loc="outside upper center", ncols=4, fontsize=8, frameon=False)
    content = io.BytesIO()
    figure.savefig(content, dpi=130, format="png")
    plt.close(figure)
    write_atomically(path, content.getvalue())
    return path


def panels_of(dataset, places: Sequence[int], *, gaps: bool) -> list[Bands]:
    """The observations of each series, then its states, from a data set of `filter` or `smooth`."""
    levels = [float(level) for level in dataset["quantile"].values]
    pairs = [(place, len(levels) - 1 - place) for place in range(len(levels) // 2)]
    found = []
    for place in places:
        one = dataset.isel(series=place, time=slice(0, int(dataset["length"].values[place])))
        when = one["moment"].values if "moment" in one.coords else None
        of_series = "" if dataset.sizes["series"] == 1 else f", series {one['series'].item()}"
        for kind, dimension in (("observation", "dimension"), ("latent", "latent")):
            for number, name in enumerate(one[dimension].values):
                quantiles = one[f"{kind}_quantiles"].values[:, :, number]
                bands = tuple(
                    (round(levels[high] - levels[low], 6), quantiles[:, low], quantiles[:, high]) for low, high in pairs
                )
                observed = one["observation"].values[:, number] if kind == "observation" else None
                title = f"{name}{of_series}"
                found.append(Bands(title, one[f"{kind}_mean"].values[:, number], bands, observed, gaps, when))
    return found
