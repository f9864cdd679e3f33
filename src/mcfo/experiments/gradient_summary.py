"""Gradients beside the exact ones: means and spreads, verdicts, and figures of both."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import matplotlib.pyplot as plt
import numpy as np

from mcfo.experiments.gradient_sampling import PARAMETERS, PHI, THETA
from mcfo.experiments.outcomes import ROUNDING, SIGMAS, Estimate, Row
from mcfo.experiments.runs import color
from mcfo.reports.figures import Chart, Figure, Line, draw_charts, save_figure, styled

Samples: TypeAlias = Mapping[tuple[str, str, int], np.ndarray]
"""By setting, method and K."""
_DRAWN = {
    "theta": ("iwae", "rws", "aesmc", "nasmc", "mcfo-smc", "mcfo-pimh", "mcfo-fisher", "mcfo-fisher-lag"),
    "phi": ("iwae", "rws", "aesmc", "nasmc", "mcfo-smc", "mcfo-pimh", "mcfo-dreg"),
}
"""Methods in the figures. Those with by far the widest spread (the full FIVO gradient, bootstrap) would hide others."""
_LEAST = 0.1
"""Fewer standard errors than this are drawn as so many, on a logarithmic axis."""


class Gradient(NamedTuple):
    """One parameter's gradient by one method, from this many samples, and the exact one."""

    mean: float
    std: float
    exact: float
    replicates: int

    @property
    def bias(self) -> Estimate:
        return Estimate(self.mean - self.exact, self.std / math.sqrt(self.replicates))

    @property
    def biased(self) -> bool:
        return not abs(self.bias.sigmas) <= SIGMAS


class Summary(dict[tuple[str, str, int, str], Gradient]):
    """Gradients by setting, method, number of particles and parameter."""

    def add(self, setting: str, method: str, particles: int, samples: np.ndarray, exact: np.ndarray) -> None:
        """Adds what samples, (replicates, parameters), say of each parameter that the method learns."""
        for parameter, values, value in zip(PARAMETERS, samples.T, exact, strict=True):
            if not np.isnan(values).all():
                found = Gradient(float(values.mean()), float(values.std(ddof=1)), float(value), len(values))
                self[setting, method, particles, parameter] = found

    def rows(self) -> Iterator[Row]:
        """Mean and standard deviation of each with their standard errors, and the exact value."""
        for about, one in self.items():
            yield Row(*about, "mean", one.mean, one.bias.stderr)
            yield Row(*about, "std", one.std, one.std / math.sqrt(2 * (one.replicates - 1)))
            yield Row(*about, "exact", one.exact, math.nan)

    def particles(self, setting: str, method: str, parameter: str) -> list[int]:
        """The numbers of particles with which a method was run, ascending; none if it does not learn the parameter."""
        return sorted(k[2] for k in self if (k[0], k[1], k[3]) == (setting, method, parameter))

    def worst(self, setting: str, method: str, parameters: Iterable[str]) -> tuple[int, str, Gradient] | None:
        """The largest K, the parameter that is there most standard errors away from its exact value, and its gradient;
        None if no parameter is learned."""
        found = [
            (counts[-1], name, self[setting, method, counts[-1], name])
            for name in parameters
            if (counts := self.particles(setting, method, name))
        ]
        return max(found, key=lambda one: abs(one[2].bias.sigmas), default=None)

    def verdict(self, setting: str, method: str, parameter: str) -> str:
        """Whether the mean misses the exact value at the largest K, and whether the gap shrinks as K grows."""
        gradients = [self[setting, method, k, parameter] for k in self.particles(setting, method, parameter)]
        last = gradients[-1]
        if not last.biased:
            return "zero up to rounding" if abs(last.bias.value) < ROUNDING else "no bias seen"
        if len(gradients) < 2 or not gradients[-2].biased:
            return "biased, trend unknown"
        shrinks = abs(last.bias.value) < 0.5 * abs(gradients[-2].bias.value)
        return "biased, shrinks" if shrinks else "biased, does not shrink"

    def slope(self, setting: str, method: str, parameter: str) -> float:
        """The exponent of K in the spread, by least squares on logarithms over K >= 10; NaN if it has none."""
        counts = [count for count in self.particles(setting, method, parameter) if count >= 10]
        spreads = [self[setting, method, count, parameter].std for count in counts]
        if len(counts) < 2 or min(spreads) < ROUNDING:
            return math.nan
        return float(np.polyfit(np.log(counts), np.log(spreads), 1)[0])


def draw_figures(folder: Path, samples: Samples, exact: Mapping[str, np.ndarray], found: Summary) -> list[Figure]:
    """All figures, in the order of the page."""
    figures = []
    for setting in dict.fromkeys(about[0] for about in samples):
        for side, names in (("theta", THETA), ("phi", PHI)):
            path = folder / f"distributions-{setting}-{side}.png"
            caption = (
                f"Setting {setting}: the {side} gradient. Each violin holds one method's samples between their 0.5 "
                "and 99.5 percentiles; the tick is the mean, the dashed line the exact value. Scales differ."
            )
            figures.append(Figure(_distributions(path, samples, exact[setting], setting, side, names), caption))
        for quantity in ("spread", "gap"):
            what = "standard deviation" if quantity == "spread" else "distance of the mean from the exact value in s.e."
            caption = f"Setting {setting}: {what} against K. Dotted: slope -1/2; dashed: beyond it a bias is seen."
            path = _against_particles(folder / f"{quantity}-{setting}.png", found, setting, quantity)
            figures.append(Figure(path, caption))
    return figures


@styled
def _distributions(
    path: Path, samples: Samples, exact: np.ndarray, setting: str, side: str, names: tuple[str, ...]
) -> Path:
    counts = sorted({about[2] for about in samples if about[0] == setting})
    methods = [method for method in _DRAWN[side] if any(about[1] == method for about in samples)]
    height = 0.24 * len(methods) + 0.2
    shape = (2.7 * len(counts) + 0.8, height * len(names) + 0.5)
    figure, axes = plt.subplots(len(names), len(counts), figsize=shape, squeeze=False, sharey=True)
    for row, name in zip(axes, names, strict=True):
        index = PARAMETERS.index(name)
        for axis, count in zip(row, counts, strict=True):
            for level, method in enumerate(methods):
                if (setting, method, count) in samples:
                    _violin(axis, samples[setting, method, count][:, index], level, color(method))
            axis.axvline(exact[index], color="black", lw=1.0, ls="--", zorder=3)
            axis.set_yticks(range(len(methods)), methods)
            axis.set_title(rf"$\{name}$, K = {count}")
            axis.locator_params(axis="x", nbins=4)
    axes[0, 0].invert_yaxis()
    return save_figure(figure, path)


def _against_particles(path: Path, found: Summary, setting: str, quantity: str) -> Path:
    charts, spread = [], quantity == "spread"
    for name in PARAMETERS:
        lines = []
        for method in _DRAWN["theta" if name in THETA else "phi"]:
            counts = found.particles(setting, method, name)
            gradients = [found[setting, method, count, name] for count in counts]
            values = np.array([one.std if spread else max(abs(one.bias.sigmas), _LEAST) for one in gradients])
            shown = np.where(values > ROUNDING, values, np.nan)
            if np.isfinite(shown).any():
                lines.append(Line(counts, shown, color(method), look={"marker": "o", "ms": 3, "label": method}))
            if method == "mcfo-smc" and spread:
                slope = values[0] * (np.array(counts) / counts[0]) ** -0.5
                lines.append(Line(counts, slope, "0.6", look={"ls": ":"}))
        levels = {} if spread else {f"{SIGMAS:g} standard errors": SIGMAS}
        charts.append(Chart(rf"$\{name}$", lines, "particles K", levels, log="xy", formula=True))
    return draw_charts(path, charts, columns=4)


def _violin(axis: Any, values: np.ndarray, level: int, shade: str) -> None:
    low, high = np.percentile(values, [0.5, 99.5])
    if high - low > ROUNDING:
        inside = values[(values >= low) & (values <= high)]
        options: Any = {"orientation": "horizontal", "widths": 0.85, "showextrema": False, "points": 60}
        bodies: Any = axis.violinplot(inside, [level], **options)["bodies"]
        for body in bodies:
            body.set(facecolor=shade, alpha=0.55, linewidth=0)
    axis.plot(values.mean(), level, color=shade, marker="|", ms=7, mew=1.8, zorder=4)
