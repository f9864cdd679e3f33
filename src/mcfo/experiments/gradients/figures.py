"""Figures of gradient samples: distributions as in the paper, spread against K, gaps in standard errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("Agg")  # a picture in a file, also where there is no screen

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import NullFormatter

from mcfo.experiments.gradients.samples import METHODS, PARAMETERS, PHI, THETA
from mcfo.experiments.gradients.summary import ROUNDING, SIGMAS, Summary

Samples = dict[tuple[str, str, int], np.ndarray]

_COLOURS = {
    "elbo": "#7f7f7f",
    "iwae": "#1f77b4",
    "aesmc": "#d62728",
    "fivo-full": "#8c564b",
    "alternating": "#bcbd22",
    "rws": "#17becf",
    "nasmc": "#e377c2",
    "bootstrap": "#555555",
    "mcfo-smc": "#2ca02c",
    "mcfo-pimh": "#9467bd",
    "mcfo-dreg": "#00441b",
    "mcfo-stl": "#fdae6b",
    "mcfo-fisher": "#ff7f0e",
    "mcfo-fisher-lag": "#a6761d",
}
_SHOWN = {
    "theta": ("iwae", "rws", "aesmc", "nasmc", "mcfo-smc", "mcfo-pimh", "mcfo-fisher", "mcfo-fisher-lag"),
    "phi": ("iwae", "rws", "aesmc", "nasmc", "mcfo-smc", "mcfo-pimh", "mcfo-dreg"),
}
"""Methods in the figures of distributions. Those with by far the widest spread (the full FIVO gradient, the bootstrap
filter) would hide the others."""
_LINES = {
    "theta": ("iwae", "rws", "fivo-full", "bootstrap", "mcfo-smc", "mcfo-pimh", "mcfo-fisher", "mcfo-fisher-lag"),
    "phi": ("iwae", "rws", "aesmc", "fivo-full", "nasmc", "mcfo-smc", "mcfo-pimh", "mcfo-dreg"),
}
"""Methods in the figures against K: those with the same theta gradient, or nearly, are drawn once."""


class Picture(NamedTuple):
    """A figure's file and what it shows."""

    path: Path
    setting: str
    caption: str
    alt: str


def draw_figures(folder: Path, samples: Samples, exact: dict[str, np.ndarray], summary: Summary) -> list[Picture]:
    """All figures, in the order of the report."""
    pictures = []
    for setting in dict.fromkeys(place[0] for place in samples):
        for side, parameters in (("theta", THETA), ("phi", PHI)):
            pictures.append(_distributions(folder, samples, exact[setting], setting, side, parameters))
        pictures.append(_against_particles(folder, summary, setting, "spread"))
        pictures.append(_against_particles(folder, summary, setting, "gap"))
    return pictures


def _symbol(parameter: str) -> str:
    letter, index = parameter.split("_")
    return rf"$\{letter}_{index}$"


def _distributions(
    folder: Path, samples: Samples, exact: np.ndarray, setting: str, side: str, parameters: tuple[str, ...]
) -> Picture:
    """A row for each parameter, a column for each K, in each a violin for each method."""
    counts = sorted({place[2] for place in samples if place[0] == setting})
    methods = [method for method in _SHOWN[side] if any(place[1] == method for place in samples)]
    figure, axes = plt.subplots(
        len(parameters),
        len(counts),
        figsize=(2.7 * len(counts) + 0.8, 0.24 * len(methods) * len(parameters) + 1.6),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    for row, parameter in enumerate(parameters):
        place = PARAMETERS.index(parameter)
        for column, particles in enumerate(counts):
            axis = axes[row, column]
            _violins(axis, samples, setting, methods, particles, place)
            axis.axvline(exact[place], color="black", lw=1.0, ls="--", zorder=3)
            axis.set_yticks(range(len(methods)), methods, fontsize=7.5)
            axis.tick_params(axis="y", length=0)
            axis.tick_params(axis="x", labelsize=7.5)
            axis.locator_params(axis="x", nbins=4)
            axis.spines[["top", "right", "left"]].set_visible(False)
            if row == 0:
                axis.set_title(f"K = {particles}", fontsize=10)
            if column == 0:
                axis.set_ylabel(_symbol(parameter), fontsize=12, rotation=0, labelpad=12, va="center")
    axes[0, 0].invert_yaxis()
    handles = [
        Line2D([], [], color="black", lw=1.0, ls="--", label="exact"),
        Line2D([], [], color="0.25", lw=0, marker="|", ms=8, mew=1.8, label="mean of the samples"),
    ]
    figure.legend(handles=handles, loc="outside upper right", ncols=2, frameon=False, fontsize=9)
    figure.supxlabel("gradient estimate", fontsize=9)
    path = folder / f"distributions-{setting}-{side}.png"
    _save(figure, path)
    truth = "the exact score" if side == "theta" else "zero, the derivative at the locally optimal proposal"
    return Picture(
        path,
        setting,
        f"Setting {setting}: distributions of the {side} gradient. Each violin holds the samples of one method between "
        f"their 0.5 and 99.5 percentiles; the tick is the mean, the dashed line {truth}. The scale differs from panel "
        "to panel.",
        f"Violins of {side} gradient samples by method, parameter and number of particles in setting {setting}.",
    )


def _violins(axis: Any, samples: Samples, setting: str, methods: list[str], particles: int, place: int) -> None:
    for height, method in enumerate(methods):
        found = samples.get((setting, method, particles))
        if found is None:
            continue
        values = found[:, place]
        color = _COLOURS[method]
        low, high = np.percentile(values, [0.5, 99.5])
        if high - low > ROUNDING:
            inside = values[(values >= low) & (values <= high)]
            bodies = axis.violinplot(
                inside, [height], orientation="horizontal", widths=0.85, showextrema=False, points=60
            )["bodies"]
            for body in bodies:  # pyright: ignore[reportGeneralTypeIssues]
                body.set(facecolor=color, alpha=0.55, linewidth=0)
        axis.plot(values.mean(), height, color=color, marker="|", ms=7, mew=1.8, zorder=4)


def _against_particles(folder: Path, summary: Summary, setting: str, quantity: str) -> Picture:
    """A panel for each parameter: the spread, or the gap in standard errors, as K grows."""
    figure, axes = plt.subplots(2, 4, figsize=(11, 5.4), layout="constrained")
    shown: dict[str, Line2D] = {}
    for axis, parameter in zip(axes.flat, PARAMETERS, strict=False):
        side = "theta" if parameter in THETA else "phi"
        for method in _LINES[side]:
            counts = summary.particles(setting, method, parameter)
            found = [summary.at(setting, method, count, parameter) for count in counts]
            values = np.array([one.std if quantity == "spread" else abs(one.sigmas) for one in found])
            if quantity == "spread":
                values = np.where(values > ROUNDING, values, np.nan)
            if np.isnan(values).all() or not len(values):
                continue
            (line,) = axis.plot(counts, values, color=_COLOURS[method], marker="o", ms=3, lw=1.2, label=method)
            shown.setdefault(method, line)
        counts = np.array(summary.particles(setting, "mcfo-smc", parameter))
        if quantity == "spread":
            start = summary.at(setting, "mcfo-smc", int(counts[0]), parameter).std
            (guide,) = axis.plot(counts, start * (counts / counts[0]) ** -0.5, color="0.6", ls=":", lw=1.4)
            shown["slope -1/2"] = guide
            axis.set_yscale("log")
        else:
            axis.axhspan(0, SIGMAS, color="0.9", lw=0, zorder=0)
            axis.set_yscale("symlog", linthresh=SIGMAS)
            axis.set_ylim(bottom=0)
        axis.set_xscale("log")
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.yaxis.set_minor_formatter(NullFormatter())
        axis.set_title(_symbol(parameter), fontsize=11)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel("standard deviation" if quantity == "spread" else "|gap| in standard errors")
    axes[1, 0].set_ylabel("standard deviation" if quantity == "spread" else "|gap| in standard errors")
    figure.supxlabel("particles K", fontsize=9)
    axes[1, 3].axis("off")
    order = [name for name in (*METHODS, "slope -1/2") if name in shown]
    axes[1, 3].legend([shown[name] for name in order], order, loc="center", frameon=False, fontsize=9)
    path = folder / f"{quantity}-{setting}.png"
    _save(figure, path)
    same = "nasmc, mcfo-dreg, mcfo-stl, aesmc and alternating have the theta gradient of mcfo-smc"
    if quantity == "spread":
        caption = (
            f"Setting {setting}: standard deviation of one estimate against the number of particles; {same}. "
            "Where mcfo-dreg is missing its spread is zero up to rounding."
        )
    else:
        caption = (
            f"Setting {setting}: distance of the mean from the exact value in standard errors of the mean; {same}. In "
            f"the gray band, up to {SIGMAS:g}, no bias is seen. A constant bias rises as the square root of K, because "
            "the standard errors fall."
        )
    alt = f"{quantity} of the gradient estimates against the number of particles in setting {setting}."
    return Picture(path, setting, caption, alt.capitalize())


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=120)
    plt.close(figure)
