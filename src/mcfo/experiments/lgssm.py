"""`mcfo reproduce lgssm`: the paper's figures 2, 7, 8 and 9, learning linear Gaussian models beside the optimum."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from mcfo.experiments import lgssm_problem as paper
from mcfo.experiments.jobs import Job
from mcfo.experiments.lgssm_problem import PHI, THETA, Preset, Problem, build_problem, evaluated, parameters
from mcfo.experiments.outcomes import Claim, LearningRow, SummaryRow, at_most, stated
from mcfo.experiments.runs import Cell, Column, LearningOutcomes, Run, cost, learning, seed_curves, seed_lines
from mcfo.experiments.study import Study, TextTable
from mcfo.inference.evaluation import exact_nll_per_step
from mcfo.objectives.objective import Objective
from mcfo.proposals.base import Bootstrap
from mcfo.reports.figures import Chart, Figure, Line, draw_charts

LEVELS = (0.95, 0.99)
"""Shares of K that the effective sample size is timed to."""
NEAR, NEAR_NLL = 0.02, 0.01
"""Distances that count as having arrived: of theta, phi_3 and phi_4, and of the NLL."""
_JUDGED = (*THETA, "phi_3", "phi_4")
_FINE, _COARSE = 500, 100
"""results.csv has every line up to the former step, then those at multiples of the latter and of the last tenth."""
_BINS = 50
_BY_PARTICLES = ("aesmc", "iwae", "nasmc", "mcfo-smc", "mcfo-dreg")
_LEAST_GAP = 1e-4
"""The least NLL above the exact one that is drawn, on a logarithmic axis."""


class LgssmOutcomes(LearningOutcomes):
    """Where each method ends, beside the exact optimum."""

    shown = ("method", "K", "ESS", "exact NLL", "theta_1", "theta_2", "phi_4", "95%", "99%")
    columns: ClassVar[dict[str, Column]] = {
        "ess": Column("ESS", 2, 1),
        "exact_nll_per_step": Column("exact NLL", 4, 1),
        **{name: Column(name, 3, 1) for name in (*THETA, *PHI)},
        **{f"steps_to_ess_{share:.2f}": Column(f"{share:.0%}", 0) for share in LEVELS},
        "seconds": Column("seconds", 0),
    }
    curves: ClassVar = {
        **{name: name for name in (*THETA, *PHI, "log_evidence_per_step", "ess", "grad_norm_theta", "grad_norm_phi")},
        "test_nll_per_step": "validation_nll_per_step",
        "test_ess": "validation_ess",
        "exact_nll_per_step": "exact_nll_per_step",
    }

    def __init__(self, size: Preset, problem: Problem, results: Mapping[str, Sequence[Run]]):
        super().__init__(size, problem, results)
        self.optimum, self.ideal, self.watched = problem.optimum, problem.ideal, problem.ideal_watched
        ideal = {name: getattr(self.ideal, name) for name in ("ess", "nll_per_step", "exact_nll_per_step")}
        self.targets: dict[str, Any] = {**self.optimum, **ideal}

    def steps_to(self, cell: Cell, share: float) -> float:
        """The first evaluation at which the effective sample size, its mean over the seeds, is at least that share of
        the particles; infinite if it never is. A seed without one, after a collapse, keeps the mean from it."""
        steps, ess = seed_curves(self.at(cell), "validation_ess")
        reached = np.flatnonzero(ess.mean(0) >= share * self.size.evaluation_particles) if len(steps) else []
        return float(steps[reached[0]]) if len(reached) else math.inf

    def worst(self, cell: Cell, metrics: tuple[str, ...]) -> float:
        """The largest distance from the optimum over the seeds."""
        exact = {**self.targets, "nll_per_step": self.ideal.exact_nll_per_step}
        return max(float(np.max(np.abs(self.of(cell, name).values - exact[name]))) for name in metrics)

    def arrived(self, cell: Cell) -> bool:
        """Whether every seed ends near theta*, the optimal phi_3 and phi_4 and the exact NLL, with a good proposal."""
        likely = self.worst(cell, ("exact_nll_per_step", "nll_per_step")) <= NEAR_NLL
        good = self.of(cell, "ess").values.min() >= LEVELS[0] * self.size.evaluation_particles
        return bool(self.worst(cell, _JUDGED) <= NEAR and likely and good)

    def rows(self) -> Iterator[LearningRow]:
        """The curves, thinned in the middle; as `averaged_...` at the last step, what the parameters averaged over the
        last tenth give on all test series; and the exact values beside both."""
        for cell in self.cells:
            runs = self.at(cell)
            last = max(line["step"] for line in runs[0].lines)
            for row in self.curve_rows(runs):
                if not (_FINE < row.step <= 0.9 * last and row.step % _COARSE):
                    yield row
            for metric in runs[0].numbers:
                for run in runs:
                    value = float(run.numbers[metric][0])
                    yield LearningRow(run.method, run.particles, run.seed, last, f"averaged_{metric}", value)
        exact: dict[str, Any] = {
            **self.optimum,
            "test_ess": self.watched.ess,
            "exact_nll_per_step": self.watched.exact_nll_per_step,
            "averaged_ess": self.ideal.ess,
            "averaged_exact_nll_per_step": self.ideal.exact_nll_per_step,
        }
        for metric, value in exact.items():
            yield LearningRow("exact", self.size.evaluation_particles, 0, 0, metric, value)

    def extras(self, cell: Cell) -> dict[str, float]:
        reached = {f"steps_to_ess_{share:.2f}": self.steps_to(cell, share) for share in LEVELS}
        return {**reached, "seconds": sum(run.seconds for run in self.at(cell))}

    def references(self) -> list[SummaryRow]:
        return [SummaryRow("exact", self.size.evaluation_particles, *number) for number in self.targets.items()]

    def claims(self) -> list[Claim]:
        main = self.size.main
        where: dict[str, Any] = {"setting": f"K = {main}"}
        have = {method: ("", method, main) for _, method, count in self.cells if count == main}
        found = []
        test = f"theta, phi_3, phi_4 within {NEAR}, NLL {NEAR_NLL}, ESS {LEVELS[0]:.0%}"
        for method, wanted in (("mcfo-smc", True), ("nasmc", True), ("aesmc", False)):
            if method in have:
                text = f"{method} {'converges to' if wanted else 'does not reach'} the exact optimum"
                worst = self.worst(have[method], _JUDGED)
                found.append(stated(text, self.arrived(have[method]) == wanted, worst, test, **where))
        for method, other in product(("mcfo-smc", "nasmc"), ("aesmc", "iwae", "bootstrap")):
            if have.keys() >= {method, other}:
                text = f"ESS of {method} above {other}'s"
                found.append(self.compare(text, have[method], have[other], "ess", **where))
        for method in ("iwae", "bootstrap"):
            if method in have:
                off, test = self.worst(have[method], THETA), f"a seed more than {NEAR} off"
                found.append(stated(f"{method} fails to reach theta", off > NEAR, off, test, **where))
        if have.keys() >= {"aesmc", "mcfo-smc"}:
            one, other = (self.of(have[name], "exact_nll_per_step").mean for name in ("aesmc", "mcfo-smc"))
            found.append(at_most("NLL of aesmc like mcfo-smc's", abs(one - other), NEAR_NLL, **where))
        for method, source in (("nasmc", "paper"), ("mcfo-dreg", "ours")):
            for share in LEVELS if have.keys() >= {method, "mcfo-smc"} else ():
                found.append(self._sooner(have[method], have["mcfo-smc"], share, source=source, **where))
        if "mcfo-fisher" in have:
            off = self.worst(have["mcfo-fisher"], THETA)
            found.append(at_most("mcfo-fisher reaches theta", off, NEAR, source="ours", **where))
        return [*found, *self._pimh_claims(), *self._particle_claims()]

    def _sooner(self, one: Cell, other: Cell, share: float, *, source: str, **where: Any) -> Claim:
        """The paper says faster; of DReG we want no more than that it costs nothing."""
        ours, theirs = (self.steps_to(cell, share) for cell in (one, other))
        holds = ours < theirs or (source == "ours" and ours == theirs < math.inf)
        text = f"{one[1]} has {share:.0%} ESS {'before' if source == 'paper' else 'no later than'} {other[1]}"
        steps = ", ".join(f"{count:.0f}".replace("inf", "never") for count in (ours, theirs))
        return stated(text, holds, ours - theirs, f"steps: {steps}", source=source, **where)

    def _pimh_claims(self) -> list[Claim]:
        def overshoot(cell: Cell) -> float:
            steps, values = seed_curves(self.at(cell), "theta_2")
            early = steps <= max(steps[0], steps[-1] / 3)
            return float(np.max(values.mean(0)[early]) - self.optimum["theta_2"])

        where, smc = f"K = {self.size.pimh_particles}", ("", "mcfo-smc", self.size.pimh_particles)
        pimh = [cell for cell in self.cells if cell[1].startswith("mcfo-pimh")]
        found = []
        for cell in pimh if smc in self.cells else ():
            gap = overshoot(cell) - overshoot(smc)
            text = f"{cell[1]} overshoots theta_2 less than mcfo-smc"
            found.append(stated(text, gap < 0, gap, "mean over the seeds, first third of the steps", setting=where))
        if len(pimh) > 1:
            gap = abs(self.of(pimh[-1], "ess").mean - self.of(pimh[0], "ess").mean)
            limit = (1 - LEVELS[1]) * self.size.evaluation_particles
            found.append(at_most("more sweeps change the ESS little", gap, limit, setting=where))
        return found

    def _particle_claims(self) -> list[Claim]:
        several = sorted((cell for cell in self.cells if cell[1] == "mcfo-smc"), key=lambda cell: cell[2])
        if len(several) < 2:
            return []
        few, many = several[0], several[-1]
        where = f"K = {few[2]} to {many[2]}, mcfo-smc"
        nearer = self.worst(many, THETA) - self.worst(few, THETA)
        later = self.steps_to(many, LEVELS[0]) - self.steps_to(few, LEVELS[0])
        test = f"largest distance falls, by less than {NEAR}"
        slower = None if math.isnan(later) else later > 0
        return [
            stated("more particles help theta marginally", -NEAR < nearer < 0, nearer, test, setting=where),
            stated("more particles make phi slower", slower, later, f"steps to {LEVELS[0]:.0%}", setting=where),
        ]

    def figures(self, folder: Path) -> list[Figure]:
        size = self.size
        pimh = [run for run in self.runs if run.method.startswith("mcfo-pimh")]
        main = [run for run in self.runs if run.particles == size.main and not run.method.startswith("mcfo-pimh")]
        found = [
            draw_charts(
                folder / "learning.png", self.learning_charts(main),
                f"The paper's figure 2: learning with K = {size.main}. Lines: mean over the seeds; bands: their range. "
                "Steps are averaged over bins.", columns=2, width=9.0, height=2.9,
            ),
            draw_charts(
                folder / "parameters.png", self.parameter_charts(main, (*THETA, *PHI)),
                "The paper's figure 7: theta and phi during the same runs. Dashed: the exact optimum.", columns=4,
            ),
        ]  # fmt: skip
        if len(size.particles) > 1:
            charts = []
            for count in size.particles:
                chosen = [run for run in self.runs if run.particles == count and run.method in _BY_PARTICLES]
                charts += self.parameter_charts(chosen, (*THETA, "phi_3", "phi_4"), f", K = {count}")
            caption = "The paper's figure 8: the same for each number of particles."
            found.append(draw_charts(folder / "particles.png", charts, caption, columns=4))
        if pimh:
            count = size.pimh_particles
            both = [*self.at(("", "mcfo-smc", count)), *pimh]
            charts = self.parameter_charts(both, (*THETA, "phi_1", "phi_3", "phi_4"))
            caption = f"The paper's figure 9: MCFO-SMC and MCFO-PIMH, K = {count}, by the number of sweeps."
            found.append(draw_charts(folder / "pimh.png", charts, caption, columns=3))
        return found

    def learning_charts(self, runs: list[Run]) -> list[Chart]:
        """NLL, norms of the gradient and ESS of the runs with the K of the claims."""
        assert self.watched.ess is not None  # it was evaluated by particles
        gap = _lines(runs, "exact_nll_per_step", self.watched.exact_nll_per_step)
        return [
            Chart("exact NLL per step on test data, above that of the truth", gap, log="xy"),
            Chart("norm of the gradient by theta", _lines(runs, "grad_norm_theta"), log="xy"),
            Chart("norm of the gradient by phi", _lines(runs, "grad_norm_phi"), log="xy"),
            Chart(
                f"effective sample size of {self.size.main} on test data", _lines(runs, "validation_ess"), log="x",
                levels={"exact optimum": self.watched.ess}, y_range=(0, 1.03 * self.size.main),
            ),
        ]  # fmt: skip

    def parameter_charts(self, runs: list[Run], names: tuple[str, ...], label: str = "") -> list[Chart]:
        """A panel for each parameter, in a window that no method which runs away decides."""
        charts = []
        for name in names:
            best = self.optimum[name]
            starts = [abs(float(values[0]) - best) for run in runs if len(values := run.curve(name)[1])]
            reach = 1.3 * max([*starts, 0.05])
            options = {"levels": {"exact optimum": best}, "y_range": (best - reach, best + reach), "formula": True}
            charts.append(Chart(rf"$\{name}${label}", _lines(runs, name), log="x", **options))
        return charts

    def warnings(self) -> list[str]:
        collapsed = list(dict.fromkeys(run.method for run in self.runs if run.details))
        text = f"The filter collapsed on test series with what was learned by {', '.join(collapsed)}."
        return [*super().warnings(), *([text] if collapsed else [])]

    def text(self) -> list[str]:
        size = self.size
        return [
            f"A scalar model z_t = θ_1 z_t-1 + N(0, 1), x_t = θ_2 z_t + N(0, 0.01) with θ = {paper.TRUTH} is learned "
            f"from {size.series} series of {size.length} steps, together with its affine proposal. The exact optimum "
            "is known, so every curve has its end beside it.",
            "The paper leaves T, the batch size and the start open; the settings say what they are here, for all "
            f"methods. The start is θ = {paper.START} and a proposal that takes x_t for z_t (φ_1 = φ_4 = 1, others 0). "
            "The variances are fixed, those of the proposal at their optimum. Runs are followed on "
            f"{size.watched} of {size.test_series} test series and evaluated on all.",
        ]

    def tables(self) -> list[TextTable]:
        caption = (
            "Where each method ends: mean ± standard deviation over the seeds, parameters averaged over the last tenth "
            f"of the steps. ESS: of {self.size.evaluation_particles} particles, resampled before every step, on all "
            "test series. Exact NLL: per step, by the Kalman filter. 95%, 99%: steps until the ESS, followed while "
            "learning, reaches that share of K. Bold: the nearest to the exact optimum, which is the last row."
        )
        return [self.method_table(caption)]


def _lines(runs: Sequence[Run], metric: str, above: float | None = None) -> list[Line]:
    """The curves of all methods; where `above` is given, how far they lie above it."""

    def binned(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means over bins of equal width on a logarithmic axis: late steps would otherwise crowd each other."""
        shown = values if above is None else np.maximum(values - above, _LEAST_GAP)
        bins = np.digitize(steps, np.geomspace(steps[0], steps[-1], _BINS))
        means = [np.mean(shown[:, bins == index], axis=1) for index in np.unique(bins)]
        return np.array([np.mean(steps[bins == index]) for index in np.unique(bins)]), np.stack(means, axis=1)

    return seed_lines(runs, metric, binned)


class Lgssm(Study):
    """Learning a scalar linear Gaussian model and its affine proposal."""

    name = "lgssm"
    title = "Learning linear Gaussian models"
    presets: ClassVar = {
        "quick": Preset(),
        "paper": Preset(particles=(10, 100, 1000), sweeps=(1, 5, 10), steps=5000, watched=200),
    }
    outcomes = LgssmOutcomes

    def settings(self) -> dict[str, Any]:
        start = {"theta": paper.START, "phi_1": 1.0, "phi_4": 1.0, "others": 0.0}
        known = {"truth": paper.TRUTH, "start": start, "emission_variance": paper.EMISSION_VARIANCE}
        return {**known, "fixed": paper.FIXED, "optimizer": "adam"}

    def prepare(self) -> Problem:
        return build_problem(self.size, self.seed)

    def jobs(self, problem: Problem) -> dict[str, Job]:
        return {
            f"{method}-{particles}": self.job(problem, method, objective)
            for (method, particles), objective in self.size.objectives().items()
        }

    def job(self, problem: Problem, method: str, objective: Objective, devices: int | None = 1) -> Job:
        """One method, all seeds in one program, and what it learned, evaluated on all test series."""
        size, learns_proposal = self.size, objective.phi is not None
        cell = "", method, objective.theta.sampler.particles

        def watch(model: Any, proposal: Any) -> dict[str, Any]:
            return {**parameters(model, proposal), "exact_nll_per_step": exact_nll_per_step(model, problem.watched)}

        def numbers(one: Any, fitted: Any) -> tuple[dict[str, Any], int]:
            tested = evaluated(one.model, one.proposal, problem.test, size, self.seed)
            found = {
                **parameters(one.model, one.proposal),
                "ess": tested.ess,
                "nll_per_step": tested.nll_per_step,
                "exact_nll_per_step": math.nan if tested.exact_nll_per_step is None else tested.exact_nll_per_step,
                "skipped": one.skipped,
            }
            return found, tested.collapsed

        proposal = problem.proposal if learns_proposal else Bootstrap()
        fixed = tuple(name for name in paper.FIXED if learns_proposal or name.startswith("model"))
        # To start takes as long as so many particles.
        return learning(
            500 + cost(objective), cell, lambda: (problem.model, proposal, fixed), problem.train,
            numbers=numbers, objective=objective, validation=problem.watched, watch=watch, steps=size.steps,
            batch=size.batch, seeds=size.seeds, learning_rate=size.learning_rate, log_every=size.log_every,
            evaluate_every=size.log_every, evaluation_particles=size.evaluation_particles, select="average",
            devices=devices,
        )  # fmt: skip


STUDY = Lgssm
