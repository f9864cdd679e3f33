"""What gradient samples say: means and spreads beside the exact values, verdicts, the paper's errata in numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mcfo.experiments.gradient_sampling import METHODS, PARAMETERS, PHI, SETTINGS, SWEEPS, THETA
from mcfo.experiments.gradient_summary import Summary, draw_figures
from mcfo.experiments.outcomes import ROUNDING, SIGMAS, Claim, Row, at_most, result_rows, stated, unbiased
from mcfo.experiments.study import Figure, Outcomes, TextTable

DISPLACED = {
    "filter-score-reparameterized": "reparameterized", "fisher-dreg": "dreg", "fisher-lag-stl": "sticking-the-landing",
}  # fmt: skip
"""The programs whose rules for phi are also compared away from the optimal proposal, and these rules."""
SMALL = ("fivo-full", "next-increment", "fivo-truncated")
PIMH_PARTICLES = 5


class GradientOutcomes(Outcomes):
    """Samples of each setting, method and K, their summary, and that of the errata."""

    shown = ("setting", "method", "K", "worst", "bias", "in s.e.", "verdict")

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
        self.found, self.errata = Summary(), Summary()
        for setting in SETTINGS:
            for name, method in METHODS.items():
                for count in size.particles:
                    if method.only in (None, count) and f"{method.theta}-{count}" in blocks:
                        # Theta's columns come from one program, phi's from another.
                        theta, phi = (
                            blocks[f"{one}-{count}"][setting] for one in (method.theta, method.phi or method.theta)
                        )
                        values = np.concatenate([theta[:, : len(THETA)], phi[:, len(THETA) :]], axis=1)
                        self.samples[setting, name, count] = values
                        self.found.add(setting, name, count, values, exact[setting])
        for count in size.long_particles:
            for method in ("mcfo-smc", "mcfo-fisher"):
                self.errata.add("long", method, count, blocks[f"long-{method}-{count}"]["long"], exact["long"])
        for method in SMALL:
            self.errata.add("small", method, 2, blocks[f"small-{method}"]["small"], exact["small"])
        for method in ("fresh-noise", "reused-noise"):
            self.errata.add("r1", method, PIMH_PARTICLES, blocks[f"pimh-{method}"]["r1"], exact["r1"])
        for count in size.particles:
            # The reparameterized rule is unbiased here and has no exact value: others are compared with it in pairs.
            reference = None
            for program, method in DISPLACED.items() if count > 1 else ():
                values = blocks[f"{program}-{count}"]["displaced"].copy()
                values[:, : len(THETA)] = np.nan
                self.errata.add("displaced", method, count, values, np.full(len(PARAMETERS), np.nan))
                if reference is None:
                    reference = values
                else:
                    about = "displaced", f"{method} minus reparameterized", count
                    self.errata.add(*about, values - reference, np.zeros(len(PARAMETERS)))

    def files(self) -> Any:
        analytic = [
            Row(setting, f"appendix-{method}", 0, parameter, quantity, value, math.nan)
            for setting, values in self.analytic.items()
            for method in ("printed", "corrected")
            for quantity, source in (("value", method), ("exact", "exact"))
            for parameter, value in zip(THETA, values[source].tolist(), strict=True)
        ]
        rows, errata = self.found.rows(), [*self.errata.rows(), *analytic]
        return {"results.csv": result_rows(rows), "errata.csv": result_rows(errata)}

    def claims(self) -> list[Claim]:
        found = []

        def gap(text: str, summary: Summary, about: tuple[str, str], names: tuple[str, ...], **options: Any) -> None:
            worst = summary.worst(*about, names)
            if worst is not None:
                count, name, gradient = worst
                found.append(unbiased(text, gradient.bias, setting=f"{about[0]}, {name}, K = {count}", **options))

        for setting in SETTINGS:
            for method, text, names, options in (
                ("mcfo-smc", "theta gradient near the exact score", THETA, {"source": "erratum"}),
                ("aesmc", "theta gradient near the exact score", THETA, {"source": "erratum"}),
                ("iwae", "theta gradient deviates", THETA, {"source": "erratum", "wanted": False}),
                ("mcfo-fisher", "theta gradient near it", THETA, {"source": "ours"}),
                ("mcfo-smc", "phi gradient zero at the optimum", PHI, {}),
            ):
                gap(f"{method}: {text}", self.found, (setting, method), names, **options)
            slopes = [self.found.slope(setting, "mcfo-smc", name) for name in PHI]
            far = max(slopes, key=lambda slope: abs(slope + 0.5))
            holds, text = None if math.isnan(far) else abs(far + 0.5) < 0.1, "mcfo-smc: phi spread falls as K^-1/2"
            found.append(stated(text, holds, far, "within 0.1", setting=setting, paper=-0.5))
        for method, source in (("mcfo-smc", "erratum"), ("mcfo-fisher", "ours")):
            gap(f"{method}: theta gradient near it, T = 50", self.errata, ("long", method), THETA, source=source)
        for method, source in (("printed", "erratum"), ("corrected", "ours")):
            gaps = [float(abs(values[method] - values["exact"]).max()) for values in self.analytic.values()]
            found.append(at_most(f"the analytic gradient, {method}, is exact", max(gaps), 1e-6, source=source))
        terms = ("reward to go", "next increment alone (Table 1)", "no term")
        for method, text, source in zip(SMALL, terms, ("theorem", "erratum", "ours"), strict=True):
            gap(f"resampling term, {text}: unbiased", self.errata, ("small", method), PARAMETERS, source=source)
        for text, about, wanted in (
            ("dreg estimates what reparameterized does", ("displaced", "dreg minus reparameterized"), True),
            ("sticking-the-landing estimates something else",
             ("displaced", "sticking-the-landing minus reparameterized"), False),
            ("mcfo-pimh, fresh noise: phi gradient unbiased", ("r1", "fresh-noise"), True),
            ("mcfo-pimh, reused noise: phi gradient biased", ("r1", "reused-noise"), False),
        ):  # fmt: skip
            gap(text, self.errata, about, PHI, source="ours", wanted=wanted)
        return [*found, *self._spread_claims()]

    def _spread_claims(self) -> list[Claim]:
        largest = max(self.size.particles)

        def ratios(summary: Summary, setting: str, one: str, other: str, count: int, names: Any) -> list[float]:
            pairs = [[summary[setting, method, count, name].std for method in (one, other)] for name in names]
            return [ours / theirs for ours, theirs in pairs]

        at_optimum = [ratios(self.found, setting, "mcfo-dreg", "mcfo-smc", largest, PHI) for setting in SETTINGS]
        text, where = "mcfo-dreg: no phi spread at the optimum, beside mcfo-smc's", f"K = {largest}"
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

    def warnings(self) -> list[str]:
        if self.size.costly_particles >= max(self.size.particles):
            return []
        return [
            f"The full FIVO gradient and MCFO-PIMH were run with up to {self.size.costly_particles} particles only: "
            f"one searches its ancestors by bisection, the other runs {SWEEPS + 1} filters and saves their histories."
        ]

    def text(self) -> list[str]:
        size = self.size
        return [
            f"Every objective's gradient was estimated {size.replicates} times on one simulated series, T = "
            f"{size.steps}, K = {', '.join(map(str, size.particles))}, and compared with the exact one: for theta the "
            "score of log p(x), from the Kalman filter; for phi zero, because phi is the locally optimal proposal, "
            "which maximizes the bound of each step.",
            f"A bias is seen where the mean is more than {SIGMAS:g} of its standard errors away from the exact value "
            f"at the method's largest K; gaps below {ROUNDING:g} are rounding. It shrinks if the gap is less than half "
            "of that at the K before, where a bias was seen too. A method may miss the exact value by estimating "
            "something else: the table says what. All methods saw one series with the same random numbers. Settings: "
            "r1, theta = (0.9, 10), R = 1; r0.01, R = 0.01; off-optimum, theta = (0.6, 8) on the data of r1. float64.",
        ]

    def tables(self) -> list[TextTable]:
        return [self._verdicts(), *(self._means(setting) for setting in SETTINGS)]

    def _verdicts(self) -> TextTable:
        rows, marked = [], set()
        for setting in SETTINGS:
            for method, about in METHODS.items():
                for names, estimand in ((THETA, about.theta_estimand), (PHI, about.phi_estimand)):
                    worst = self.found.worst(setting, method, names)
                    if worst is not None:
                        count, name, gradient = worst
                        marked |= {(len(rows), 6)} if gradient.biased else set()
                        slope = self.found.slope(setting, method, name)
                        rows.append([
                            setting, method, str(count), name, gradient.bias.text(), f"{gradient.bias.sigmas:.1f}",
                            self.found.verdict(setting, method, name), "–" if math.isnan(slope) else f"{slope:.2f}",
                            estimand,
                        ])  # fmt: skip
        header = ["setting", "method", "K", "worst", "bias", "in s.e.", "verdict", "spread ~ K^", "estimates"]
        caption = "Of theta and of phi the parameter farthest from its exact value, at each method's largest K."
        return TextTable(header, rows, caption, frozenset(marked))

    def _means(self, setting: str) -> TextTable:
        rows, marked = [], set()
        for count in self.size.particles:
            for method in METHODS:
                known = [name for name in PARAMETERS if count in self.found.particles(setting, method, name)]
                cells = [""] * len(PARAMETERS)
                for index in map(PARAMETERS.index, known):
                    gradient = self.found[setting, method, count, PARAMETERS[index]]
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
        return draw_figures(folder, self.samples, self.exact, self.found)


def _number(value: float) -> str:
    """Two digits for numbers of ordinary size; zero up to rounding is 0."""
    if abs(value) < ROUNDING:
        return "0"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.2f}" if abs(value) >= 0.01 else f"{value:.1e}"
