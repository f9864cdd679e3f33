"""Gradients beside the exact ones: means and spreads, verdicts, and figures of both."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float
from matplotlib.ticker import NullFormatter

from mcfo.experiments.figures import color, legend, panels, save, title
from mcfo.experiments.gradient_sampling import PARAMETERS, PHI, THETA
from mcfo.experiments.outcomes import ROUNDING, SIGMAS, Estimate, Row
from mcfo.experiments.study import Figure

Samples: TypeAlias = Mapping[tuple[str, str, int], np.ndarray]
"""By setting, method and K."""
_DRAWN = {
    "theta": ("iwae", "rws", "aesmc", "nasmc", "mcfo-smc", "mcfo-pimh", "mcfo-fisher", "mcfo-fisher-lag"),
    "phi": ("iwae", "rws", "aesmc", "nasmc", "mcfo-smc", "mcfo-pimh", "mcfo-dreg"),
}
"""Methods in the figures. Those with by far the widest spread (the full FIVO gradient, bootstrap) would hide others."""


class Gradient(NamedTuple):
    """One parameter's gradient by one method, and the exact one."""

    mean: float
    stderr: float
    std: float
    exact: float

    @property
    def bias(self) -> Estimate:
        return Estimate(self.mean - self.exact, self.stderr)

    @property
    def biased(self) -> bool:
        return not abs(self.bias.sigmas) <= SIGMAS


def rows_of(
    setting: str,
    method: str,
    particles: int,
    samples: Float[np.ndarray, "replicates parameters"],
    exact: Float[np.ndarray, " parameters"],
) -> list[Row]:
    """Mean and standard deviation of each parameter's samples with their standard errors, and the exact value."""
    count = len(samples)
    rows = []
    for index, parameter in enumerate(PARAMETERS):
        values = samples[:, index]
        if np.isnan(values).all():
            continue
        std = float(values.std(ddof=1))
        about = (setting, method, particles, parameter)
        rows.append(Row(*about, "mean", float(values.mean()), std / math.sqrt(count)))
        rows.append(Row(*about, "std", std, std / math.sqrt(2 * (count - 1))))
        rows.append(Row(*about, "exact", float(exact[index]), math.nan))
    return rows


class Summary:
    """All gradients of a run, by setting, method, number of particles and parameter."""

    def __init__(self, rows: Iterable[Row]):
        found: dict[tuple[str, str, int, str], dict[str, Row]] = {}
        for row in rows:
            found.setdefault(row[:4], {})[row.quantity] = row
        self._gradients = {
            about: Gradient(*named["mean"][-2:], named["std"].value, named["exact"].value)
            for about, named in found.items()
            if named.keys() >= {"mean", "std", "exact"}
        }

    def at(self, setting: str, method: str, particles: int, parameter: str) -> Gradient:
        """One gradient."""
        return self._gradients[setting, method, particles, parameter]

    def particles(self, setting: str, method: str, parameter: str) -> list[int]:
        """The numbers of particles with which a method was run, ascending; none if it does not learn the parameter."""
        return sorted(k[2] for k in self._gradients if (k[0], k[1], k[3]) == (setting, method, parameter))

    def worst(self, setting: str, method: str, parameters: Iterable[str]) -> tuple[int, str, Gradient] | None:
        """The largest K, the parameter that is there most standard errors away from its exact value, and its gradient;
        None if no parameter is learned."""
        found = [
            (counts[-1], name, self.at(setting, method, counts[-1], name))
            for name in parameters
            if (counts := self.particles(setting, method, name))
        ]
        return max(found, key=lambda one: abs(one[2].bias.sigmas), default=None)

    def verdict(self, setting: str, method: str, parameter: str) -> str:
        """Whether the mean misses the exact value at the largest K, and whether the gap shrinks as K grows."""
        gradients = [self.at(setting, method, k, parameter) for k in self.particles(setting, method, parameter)]
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
        spreads = [self.at(setting, method, count, parameter).std for count in counts]
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
            caption = f"Setting {setting}: {what} against K. Gray: slope -1/2, or the band in which no bias is seen."
            path = _against_particles(folder / f"{quantity}-{setting}.png", found, setting, quantity)
            figures.append(Figure(path, caption))
    return figures


def _distributions(
    path: Path, samples: Samples, exact: np.ndarray, setting: str, side: str, names: tuple[str, ...]
) -> Path:
    counts = sorted({about[2] for about in samples if about[0] == setting})
    methods = [method for method in _DRAWN[side] if any(about[1] == method for about in samples)]
    height = 0.24 * len(methods) + 0.2
    figure, axes = panels(len(names), len(counts), width=2.7 * len(counts) + 0.8, height=height, sharey=True)
    for row, name in zip(axes, names, strict=True):
        index = PARAMETERS.index(name)
        for axis, count in zip(row, counts, strict=True):
            for level, method in enumerate(methods):
                if (setting, method, count) in samples:
                    _violin(axis, samples[setting, method, count][:, index], level, color(method))
            axis.axvline(exact[index], color="black", lw=1.0, ls="--", zorder=3)
            axis.set_yticks(range(len(methods)), methods)
            title(axis, rf"$\{name}$, K = {count}", x="")
            axis.locator_params(axis="x", nbins=4)
    axes[0, 0].invert_yaxis()
    return save(figure, path)


def _against_particles(path: Path, found: Summary, setting: str, quantity: str) -> Path:
    figure, axes = panels(2, 4, height=2.6)
    for axis, name in zip(axes.flat, PARAMETERS, strict=False):
        for method in _DRAWN["theta" if name in THETA else "phi"]:
            counts = found.particles(setting, method, name)
            gradients = [found.at(setting, method, count, name) for count in counts]
            spread = quantity == "spread"
            values = np.array([one.std if spread else abs(one.bias.sigmas) for one in gradients])
            shown = np.where(values > ROUNDING, values, np.nan) if spread else values
            if np.isfinite(shown).any():
                axis.plot(counts, shown, color=color(method), marker="o", ms=3, lw=1.2, label=method)
            if method == "mcfo-smc" and spread:
                axis.plot(counts, values[0] * (np.array(counts) / counts[0]) ** -0.5, color="0.6", ls=":", lw=1.4)
        axis.set_xscale("log")
        if quantity == "spread":
            axis.set_yscale("log")
        else:
            axis.axhspan(0, SIGMAS, color="0.9", lw=0, zorder=0)
            axis.set_yscale("symlog", linthresh=SIGMAS)
        axis.xaxis.set_minor_formatter(NullFormatter())
        axis.yaxis.set_minor_formatter(NullFormatter())
        title(axis, rf"$\{name}$", x="particles K", size=11.0)
    axes.flat[-1].remove()
    legend(figure, axes.flat[:-1])
    return save(figure, path)


def _violin(axis: Any, values: np.ndarray, level: int, shade: str) -> None:
    low, high = np.percentile(values, [0.5, 99.5])
    if high - low > ROUNDING:
        inside = values[(values >= low) & (values <= high)]
        options: Any = {"orientation": "horizontal", "widths": 0.85, "showextrema": False, "points": 60}
        bodies: Any = axis.violinplot(inside, [level], **options)["bodies"]
        for body in bodies:
            body.set(facecolor=shade, alpha=0.55, linewidth=0)
    axis.plot(values.mean(), level, color=shade, marker="|", ms=7, mew=1.8, zorder=4)
