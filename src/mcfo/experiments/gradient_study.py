"""`mcfo reproduce gradients`: the paper's figures 1, 4, 5 and 6 and its Table 4, with the exact answer beside them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np

from mcfo.experiments import gradient_sampling as programs
from mcfo.experiments.gradient_sampling import METHODS, PARAMETERS, PHI, SETTINGS, THETA, Problem, Summary
from mcfo.experiments.gradient_theory import analytic_score, expected_bound_gradient, next_increment
from mcfo.experiments.jobs import Job, Samples, Share, sampling
from mcfo.experiments.outcomes import ROUNDING, SIGMAS, Claim, Row, at_most, stated, unbiased
from mcfo.experiments.runs import SWEEPS, cost
from mcfo.experiments.study import Outcomes, Study, TextTable
from mcfo.gradients.rules import Reparameterized
from mcfo.gradients.score import FilterScore, Fisher
from mcfo.objectives.named import fivo, vsmc
from mcfo.objectives.objective import Estimator, Objective
from mcfo.proposals.base import Bootstrap
from mcfo.reports.figures import Figure
from mcfo.smc.filter import SMC
from mcfo.smc.pimh import PIMH
from mcfo.smc.resampling import Always

DISPLACED = {
    "filter-score-reparameterized": "reparameterized", "fisher-dreg": "dreg", "fisher-lag-stl": "sticking-the-landing",
}  # fmt: skip
"""The programs whose rules for phi are also compared away from the optimal proposal, and these rules."""
SMALL: dict[str, Callable[[int], Objective]] = {
    "fivo-full": lambda particles: fivo(particles, full=True),
    "next-increment": next_increment,
    "fivo-truncated": vsmc,
}
"""The resampling terms of the case whose answer is known without sampling."""
_COSTLY = ("fivo-full", "pimh")


@dataclass(frozen=True)
class Preset:
    """The size of the experiment.

    - `particles`: each K; `costly_particles`: the largest K of the full FIVO gradient and of PIMH.
    - `long_particles`, `long_replicates`: of the series of 50 steps.
    - `small_replicates`: of the case with three steps and two particles whose answer is known without sampling.
    - `pimh_replicates`: of PIMH with fresh and with reused noise, five particles.
    """

    particles: tuple[int, ...]
    costly_particles: int
    replicates: int = 1000
    steps: int = 10
    long_particles: tuple[int, ...] = (100, 1000)
    long_replicates: int = 200
    small_replicates: int = 400_000
    pimh_replicates: int = 40_000


def errata(size: Preset) -> dict[tuple[str, str, int], tuple[Objective, int]]:
    """What the errata need besides the settings of the paper: objectives and replicates by setting, method and K."""
    found = {}
    for count, (method, rule) in product(size.long_particles, (("mcfo-smc", FilterScore()), ("mcfo-fisher", Fisher()))):
        objective = Objective(Estimator(SMC(count, criterion=Always()), rule))
        found["long", method, count] = objective, size.long_replicates
    found |= {("small", method, 2): (build(2), size.small_replicates) for method, build in SMALL.items()}
    for method, reuse in (("fresh-noise", False), ("reused-noise", True)):
        sampler = PIMH(SMC(5, criterion=Always()), SWEEPS, reuse)
        objective = Objective(Estimator(sampler, FilterScore()), Estimator(sampler, Reparameterized()))
        found["r1", method, 5] = objective, size.pimh_replicates
    return found


class GradientOutcomes(Outcomes):
    """Samples of each setting, method and K, their summary, and that of the errata."""

    shown = ("setting", "method", "K", "worst", "bias", "in s.e.", "verdict")

    def __init__(self, size: Preset, problem: Mapping[str, Problem], results: Mapping[str, Samples]):
        super().__init__(size, problem, results)
        blocks = {name: result.arrays for name, result in results.items()}
        self.analytic = {
            (setting, method): analytic_score(problem[setting], as_printed=method == "printed")
            for setting in (*SETTINGS, "long")
            for method in ("printed", "corrected")
        }
        self.exact = exact = {name: one.exact() for name, one in problem.items()}
        exact["small"] = expected_bound_gradient(problem["small"])
        self.samples: dict[tuple[str, str, int], np.ndarray] = {}
        self.found, self.errata = Summary(), Summary()
        for setting, (name, method), count in product(SETTINGS, METHODS.items(), size.particles):
            if method.only in (None, count) and f"{method.theta}-{count}" in blocks:
                # Theta's columns come from one program, phi's from another.
                theta, phi = (blocks[f"{one}-{count}"][setting] for one in (method.theta, method.phi or method.theta))
                values = np.concatenate([theta[:, : len(THETA)], phi[:, len(THETA) :]], axis=1)
                self.samples[setting, name, count] = values
                self.found.add(setting, name, count, values, exact[setting])
        for setting, method, count in errata(size):
            self.errata.add(setting, method, count, blocks[f"{setting}-{method}-{count}"][setting], exact[setting])
        reference, only_phi = next(iter(DISPLACED)), np.array([math.nan] * len(THETA) + [1.0] * len(PHI))
        for count, (program, method) in product(size.particles, DISPLACED.items()):
            if count > 1:
                values, first = (blocks[f"{one}-{count}"]["displaced"] * only_phi for one in (program, reference))
                self.errata.add("displaced", method, count, values, np.full(len(PARAMETERS), math.nan))
                # The reparameterized rule is unbiased here and has no exact value: others are compared in pairs.
                if program != reference:
                    about = "displaced", f"{method} minus reparameterized", count
                    self.errata.add(*about, values - first, np.zeros(len(PARAMETERS)))

    def files(self) -> Any:
        analytic = [
            Row(setting, f"appendix-{method}", 0, parameter, quantity, float(value))
            for (setting, method), score in self.analytic.items()
            for quantity, values in (("value", score), ("exact", self.exact[setting]))
            for parameter, value in zip(THETA, values, strict=False)
        ]
        errata = [*self.errata.rows(), *analytic]
        return {"results.csv": (Row._fields, self.found.rows()), "errata.csv": (Row._fields, errata)}

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
            scores = [(setting, score) for (setting, one), score in self.analytic.items() if one == method]
            gaps = [float(abs(score - self.exact[setting][: len(THETA)]).max()) for setting, score in scores]
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
        count = max(self.found.by_particles("r1", "fivo-full", THETA[0]))
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
        for setting, (method, about) in product(SETTINGS, METHODS.items()):
            for names, estimand in ((THETA, about.theta_estimand), (PHI, about.phi_estimand)):
                worst = self.found.worst(setting, method, names)
                if worst is not None:
                    count, name, gradient = worst
                    marked |= {(len(rows), 6)} if gradient.biased else set()
                    slope = self.found.slope(setting, method, name)
                    verdict = self.found.verdict(setting, method, name)
                    bias = gradient.bias.text(), f"{gradient.bias.sigmas:.1f}"
                    spread = "–" if math.isnan(slope) else f"{slope:.2f}"
                    rows.append([setting, method, str(count), name, *bias, verdict, spread, estimand])
        header = ["setting", "method", "K", "worst", "bias", "in s.e.", "verdict", "spread ~ K^", "estimates"]
        caption = "Of theta and of phi the parameter farthest from its exact value, at each method's largest K."
        return TextTable(header, rows, caption, frozenset(marked))

    def _means(self, setting: str) -> TextTable:
        rows, marked = [], set()
        for count, method in product(self.size.particles, METHODS):
            known = [self.found.get((setting, method, count, name)) for name in PARAMETERS]
            marked |= {(len(rows), place) for place, one in enumerate(known, 2) if one is not None and one.biased}
            cells = ["" if one is None else f"{_number(one.mean)} ± {_number(one.std)}" for one in known]
            if any(cells):
                rows.append([method, str(count), *cells])
        rows.append(["exact", "", *(_number(value) for value in self.exact[setting])])
        caption = (
            f"Setting {setting}: mean ± standard deviation of the gradient estimates, as in the paper's Table 4. Bold: "
            f"the mean is more than {SIGMAS:g} standard errors from the exact value, which is the last row."
        )
        return TextTable(["method", "K", *PARAMETERS], rows, caption, frozenset(marked))

    def figures(self, folder: Path) -> list[Figure]:
        return programs.draw_figures(folder, self)


def _number(value: float) -> str:
    """Two digits for numbers of ordinary size; zero up to rounding is 0."""
    if abs(value) < ROUNDING:
        return "0"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.2f}" if abs(value) >= 0.01 else f"{value:.1e}"


class Gradients(Study):
    """Gradient estimates of all objectives beside the exact ones."""

    name = "gradients"
    title = "Gradient estimates on a linear Gaussian model"
    presets: ClassVar = {
        "quick": Preset((1, 10, 100, 1000), 1000),
        "paper": Preset((1, 10, 100, 1000, 10_000, 100_000), 10_000),
    }
    outcomes = GradientOutcomes
    # Exact statements are compared exactly.
    double = True

    def settings(self) -> dict[str, Any]:
        settings = {name: setting._asdict() for name, setting in SETTINGS.items()}
        return {"settings": settings, "sweeps": SWEEPS, "lag": programs.LAG}

    def prepare(self) -> dict[str, Problem]:
        return programs.build_problems(self.size.steps, self.seed)

    def jobs(self, problem: dict[str, Problem]) -> dict[str, Job]:
        """All samples that the tables, the figures and the errata need."""
        size, jobs = self.size, {}

        def add(name: str, objective: Objective, chosen: dict[str, Problem], replicates: int) -> None:
            steps = sum(one.series.steps for one in chosen.values())

            def draw(share: Share) -> dict[str, np.ndarray]:
                key = jax.random.fold_in(jax.random.key(self.seed), 1)
                return programs.sample(objective, chosen, replicates, share, key=key)

            # Compiling takes as long as some twenty million particle steps.
            jobs[name] = sampling(replicates * steps * cost(objective) + 6e7, draw)

        for particles, (name, build) in product(size.particles, programs.PROGRAMS.items()):
            if name in _COSTLY and particles > size.costly_particles:
                continue
            objective = build(particles)
            chosen = {setting: problem[setting] for setting in SETTINGS}
            if name in DISPLACED and particles > 1:
                chosen["displaced"] = problem["displaced"]
            if objective.phi is None:
                chosen = {setting: Problem(one.model, Bootstrap(), one.series) for setting, one in chosen.items()}
            add(f"{name}-{particles}", objective, chosen, size.replicates)
        for (setting, method, particles), (objective, replicates) in errata(size).items():
            add(f"{setting}-{method}-{particles}", objective, {setting: problem[setting]}, replicates)
        return jobs


STUDY = Gradients
