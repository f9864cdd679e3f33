"""What gradient samples say: means and spreads beside the exact values, verdicts, the paper's errata in numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from matplotlib.ticker import NullFormatter

from mcfo.experiments.figures import color, legend, panels, save, title
from mcfo.experiments.gradient_sampling import METHODS, PARAMETERS, PHI, SETTINGS, SWEEPS, THETA
from mcfo.experiments.outcomes import (
    ROUNDING,
    SIGMAS,
    Claim,
    Estimate,
    Row,
    at_most,
    result_rows,
    stated,
    unbiased,
)
from mcfo.experiments.study import Figure, Outcomes, TextTable, add_figures, add_table
from mcfo.reports.page import Report

DISPLACED = {
    "filter-score-reparameterized": "reparameterized", "fisher-dreg": "dreg", "fisher-lag-stl": "sticking-the-landing",
}  # fmt: skip
"""The programs whose rules for phi are also compared away from the optimal proposal, and these rules."""
SMALL = ("fivo-full", "next-increment", "fivo-truncated")
PIMH_PARTICLES = 5
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


class GradientOutcomes(Outcomes):
    """Samples of each setting, method and K, their summary, and that of the errata."""

    def __init__(
        self,
        size: Any,
        blocks: Mapping[str, Mapping[str, np.ndarray]],
        exact: Mapping[str, np.ndarray],
        analytic: Mapping[str, Mapping[str, np.ndarray]],
        seconds: float,
    ):
        self.size, self.exact, self.analytic, self.seconds = size, exact, analytic, seconds
        self.samples: dict[tuple[str, str, int], np.ndarray] = {}
        for setting in SETTINGS:
            for name, method in METHODS.items():
                for count in size.particles:
                    if method.only in (None, count) and f"{method.theta}-{count}" in blocks:
                        # Theta's columns come from one program, phi's from another.
                        theta, phi = (
                            blocks[f"{one}-{count}"][setting] for one in (method.theta, method.phi or method.theta)
                        )
                        columns = [theta[:, : len(THETA)], phi[:, len(THETA) :]]
                        self.samples[setting, name, count] = np.concatenate(columns, axis=1)
        self.rows = [row for about, values in self.samples.items() for row in rows_of(*about, values, exact[about[0]])]
        self.errata_rows = self._errata_rows(blocks)
        self.found, self.errata = Summary(self.rows), Summary(self.errata_rows)

    def _errata_rows(self, blocks: Mapping[str, Mapping[str, np.ndarray]]) -> list[Row]:
        rows = []
        for count in self.size.long_particles:
            for method in ("mcfo-smc", "mcfo-fisher"):
                rows += rows_of("long", method, count, blocks[f"long-{method}-{count}"]["long"], self.exact["long"])
        for method in SMALL:
            rows += rows_of("small", method, 2, blocks[f"small-{method}"]["small"], self.exact["small"])
        for method in ("fresh-noise", "reused-noise"):
            rows += rows_of("r1", method, PIMH_PARTICLES, blocks[f"pimh-{method}"]["r1"], self.exact["r1"])
        for count in self.size.particles:
            # The reparameterized rule is unbiased here and has no exact value: others are compared with it in pairs.
            reference = None
            for program, method in DISPLACED.items() if count > 1 else ():
                values = blocks[f"{program}-{count}"]["displaced"].copy()
                values[:, : len(THETA)] = np.nan
                rows += rows_of("displaced", method, count, values, np.full(len(PARAMETERS), np.nan))
                if reference is None:
                    reference = values
                else:
                    about = "displaced", f"{method} minus reparameterized", count
                    rows += rows_of(*about, values - reference, np.zeros(len(PARAMETERS)))
        return rows + [
            Row(setting, f"appendix-{method}", 0, parameter, quantity, value, math.nan)
            for setting, values in self.analytic.items()
            for method in ("printed", "corrected")
            for quantity, source in (("value", method), ("exact", "exact"))
            for parameter, value in zip(THETA, values[source].tolist(), strict=True)
        ]

    def tables(self) -> Any:
        return {"results.csv": result_rows(self.rows), "errata.csv": result_rows(self.errata_rows)}

    def claims(self) -> list[Claim]:
        found = []

        def gap(text: str, summary: Summary, about: tuple[str, str], names: tuple[str, ...], **options: Any) -> None:
            worst = summary.worst(*about, names)
            if worst is not None:
                count, name, gradient = worst
                found.append(unbiased(text, gradient.bias, setting=f"{about[0]}, {name}, K = {count}", **options))

        for setting in SETTINGS:
            for method in ("mcfo-smc", "aesmc"):
                text = f"{method}: theta gradient near the exact score"
                gap(text, self.found, (setting, method), THETA, source="erratum")
            gap("iwae: theta gradient deviates", self.found, (setting, "iwae"), THETA, source="erratum", wanted=False)
            gap("mcfo-fisher: theta gradient near it", self.found, (setting, "mcfo-fisher"), THETA, source="ours")
            gap("mcfo-smc: phi gradient zero at the optimum", self.found, (setting, "mcfo-smc"), PHI)
            slopes = [self.found.slope(setting, "mcfo-smc", name) for name in PHI]
            far = max(slopes, key=lambda slope: abs(slope + 0.5))
            holds = None if math.isnan(far) else abs(far + 0.5) < 0.1
            found.append(
                stated("mcfo-smc: phi spread falls as K^-1/2", holds, far, "within 0.1", setting=setting, paper=-0.5)
            )
        for method, source in (("mcfo-smc", "erratum"), ("mcfo-fisher", "ours")):
            gap(f"{method}: theta gradient near it, T = 50", self.errata, ("long", method), THETA, source=source)
        for method, source in (("printed", "erratum"), ("corrected", "ours")):
            gaps = [float(abs(values[method] - values["exact"]).max()) for values in self.analytic.values()]
            found.append(at_most(f"the analytic gradient, {method}, is exact", max(gaps), 1e-6, source=source))
        for method, text, source in zip(
            SMALL,
            ("reward to go", "next increment alone (Table 1)", "no term"),
            ("theorem", "erratum", "ours"),
            strict=True,
        ):
            gap(f"resampling term, {text}: unbiased", self.errata, ("small", method), PARAMETERS, source=source)
        for method, wanted in (("dreg", True), ("sticking-the-landing", False)):
            text = f"{method} estimates what reparameterized does" if wanted else f"{method} estimates something else"
            about = "displaced", f"{method} minus reparameterized"
            gap(text, self.errata, about, PHI, source="ours", wanted=wanted)
        for method, wanted in (("fresh", True), ("reused", False)):
            text = f"mcfo-pimh, {method} noise: phi gradient {'un' if wanted else ''}biased"
            gap(text, self.errata, ("r1", f"{method}-noise"), PHI, source="ours", wanted=wanted)
        return [*found, *self._spread_claims()]

    def _spread_claims(self) -> list[Claim]:
        largest = max(self.size.particles)

        def ratios(summary: Summary, setting: str, one: str, other: str, count: int, names: Any) -> list[float]:
            pairs = [[summary.at(setting, method, count, name).std for method in (one, other)] for name in names]
            return [ours / theirs for ours, theirs in pairs]

        at_optimum = [ratios(self.found, setting, "mcfo-dreg", "mcfo-smc", largest, PHI) for setting in SETTINGS]
        where = f"K = {largest}"
        text = "mcfo-dreg: no phi spread at the optimum, beside mcfo-smc's"
        found = [at_most(text, float(np.max(at_optimum)), 1e-6, setting=where, source="ours")]
        for count in self.size.particles:
            if count > 1:
                shares = ratios(self.errata, "displaced", "dreg", "reparameterized", count, PHI)
                text, where = "dreg spreads no more than reparameterized", f"displaced, K = {count}"
                found.append(at_most(text, max(shares), 1.0, setting=where, source="ours"))
        count = self.found.particles("r1", "fivo-full", THETA[0])[-1]
        least = min(ratios(self.found, "r1", "fivo-full", "aesmc", count, PARAMETERS))
        text, where = "fivo-full spreads more than aesmc, least ratio", f"r1, K = {count}"
        return [*found, stated(text, least > 1, least, "more than 1", setting=where, source="ours")]

    def summary(self) -> str:
        return (
            f"Every objective's gradient was estimated {self.size.replicates} times on one simulated series of "
            f"{self.size.steps} steps, K = {', '.join(map(str, self.size.particles))}, and compared with the exact one: "
            "for theta the score of log p(x), from the Kalman filter; for phi zero, because phi is the locally optimal "
            "proposal, which maximizes the bound of each step."
        )

    def warnings(self) -> list[str]:
        if self.size.costly_particles >= max(self.size.particles):
            return []
        return [
            f"The full FIVO gradient and MCFO-PIMH were run with up to {self.size.costly_particles} particles only: one "
            f"searches its ancestors by bisection, the other runs {SWEEPS + 1} filters and saves their histories."
        ]

    def method(self) -> list[str]:
        return [
            f"A bias is seen where the mean is more than {SIGMAS:g} of its standard errors away from the exact value at "
            f"the method's largest K; gaps below {ROUNDING:g} are rounding. It shrinks if the gap is less than half of "
            "that at the K before, where a bias was seen too. A method may miss the exact value because it estimates "
            "something else: the table says what. All methods saw one series with the same random numbers. Settings: r1, "
            "theta = (0.9, 10), R = 1; r0.01, R = 0.01; off-optimum, theta = (0.6, 8) on the data of r1. float64."
        ]

    def _verdicts(self, settings: Iterable[str]) -> TextTable:
        rows, marked = [], set()
        for setting in settings:
            for method, about in METHODS.items():
                for names, estimand in ((THETA, about.theta_estimand), (PHI, about.phi_estimand)):
                    worst = self.found.worst(setting, method, names)
                    if worst is not None:
                        count, name, gradient = worst
                        marked |= {(len(rows), 6)} if gradient.biased else set()
                        cells = [name, gradient.bias.text(), f"{gradient.bias.sigmas:.1f}"]
                        verdict = self.found.verdict(setting, method, name)
                        slope = self.found.slope(setting, method, name)
                        exponent = "–" if math.isnan(slope) else f"{slope:.2f}"
                        rows.append([setting, method, str(count), *cells, verdict, exponent, estimand])
        header = ["setting", "method", "K", "worst", "bias", "in s.e.", "verdict", "spread ~ K^", "estimates"]
        caption = "Of theta and of phi the parameter farthest from its exact value, at each method's largest K."
        return TextTable(header, rows, caption, frozenset(marked))

    def terminal(self) -> TextTable:
        table = self._verdicts(["r1"])
        return table._replace(header=table.header[1:7], rows=[row[1:7] for row in table.rows])

    def sections(self, page: Report, figures: list[Figure]) -> None:
        page.heading("What is biased, for what, by how much")
        add_table(page, self._verdicts(SETTINGS))
        for setting in SETTINGS:
            page.heading(f"Setting {setting}")
            add_figures(page, [figure for figure in figures if f"Setting {setting}:" in figure.caption])
            add_table(page, self._means(setting))

    def _means(self, setting: str) -> TextTable:
        rows, marked = [], set()
        for count in self.size.particles:
            for method in METHODS:
                known = [name for name in PARAMETERS if count in self.found.particles(setting, method, name)]
                cells = [""] * len(PARAMETERS)
                for index in map(PARAMETERS.index, known):
                    gradient = self.found.at(setting, method, count, PARAMETERS[index])
                    cells[index] = f"{_number(gradient.mean)} ± {_number(gradient.std)}"
                    marked |= {(len(rows), index + 2)} if gradient.biased else set()
                if known:
                    rows.append([method, str(count), *cells])
        rows.append(["exact", "", *(_number(value) for value in self.exact[setting])])
        caption = (
            f"Setting {setting}: mean ± standard deviation of the gradient estimates, as in the paper's Table 4. Bold: "
            f"the mean is more than {SIGMAS:g} standard errors from the exact value, which is the last row."
        )
        return TextTable(["method", "K", *PARAMETERS], rows, caption, frozenset(marked))

    def figures(self, folder: Path) -> list[Figure]:
        figures = []
        for setting in dict.fromkeys(about[0] for about in self.samples):
            for side, names in (("theta", THETA), ("phi", PHI)):
                path = folder / f"distributions-{setting}-{side}.png"
                caption = (
                    f"Setting {setting}: the {side} gradient. Each violin holds one method's samples between their 0.5 "
                    "and 99.5 percentiles; the tick is the mean, the dashed line the exact value. Scales differ."
                )
                figures.append(Figure(self._distributions(path, setting, side, names), caption))
            for quantity in ("spread", "gap"):
                what = (
                    "standard deviation"
                    if quantity == "spread"
                    else "distance of the mean from the exact value in s.e."
                )
                caption = (
                    f"Setting {setting}: {what} against K. Gray: slope -1/2, or the band in which no bias is seen."
                )
                path = self._against_particles(folder / f"{quantity}-{setting}.png", setting, quantity)
                figures.append(Figure(path, caption))
        return figures

    def _distributions(self, path: Path, setting: str, side: str, names: tuple[str, ...]) -> Path:
        counts = sorted({about[2] for about in self.samples if about[0] == setting})
        methods = [method for method in _DRAWN[side] if any(about[1] == method for about in self.samples)]
        height = 0.24 * len(methods) + 0.2
        figure, axes = panels(len(names), len(counts), width=2.7 * len(counts) + 0.8, height=height, sharey=True)
        for row, name in zip(axes, names, strict=True):
            index = PARAMETERS.index(name)
            for axis, count in zip(row, counts, strict=True):
                for level, method in enumerate(methods):
                    if (setting, method, count) in self.samples:
                        _violin(axis, self.samples[setting, method, count][:, index], level, color(method))
                axis.axvline(self.exact[setting][index], color="black", lw=1.0, ls="--", zorder=3)
                axis.set_yticks(range(len(methods)), methods)
                title(axis, rf"$\{name}$, K = {count}", x="")
                axis.locator_params(axis="x", nbins=4)
        axes[0, 0].invert_yaxis()
        return save(figure, path)

    def _against_particles(self, path: Path, setting: str, quantity: str) -> Path:
        figure, axes = panels(2, 4, height=2.6)
        for axis, name in zip(axes.flat, PARAMETERS, strict=False):
            for method in _DRAWN["theta" if name in THETA else "phi"]:
                counts = self.found.particles(setting, method, name)
                gradients = [self.found.at(setting, method, count, name) for count in counts]
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
            title(axis, rf"$\{name}$", x="particles K", size=11)
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


def _number(value: float) -> str:
    """Two digits for numbers of ordinary size; zero up to rounding is 0."""
    if abs(value) < ROUNDING:
        return "0"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.2f}" if abs(value) >= 0.01 else f"{value:.1e}"
