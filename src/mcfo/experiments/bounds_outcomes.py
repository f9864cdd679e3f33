"""What the bounds say of Propositions 1 and 2: points, rows, claims, tables and figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from mcfo.experiments import bounds_sampling as draws
from mcfo.experiments import bounds_theory as theory
from mcfo.experiments.bounds_figures import draw_figures
from mcfo.experiments.bounds_sampling import GROWING, METHODS, SCAN, SCHEMES, STEPS, Point, Problem
from mcfo.experiments.jobs import Samples
from mcfo.experiments.outcomes import SIGMAS, Claim, Estimate, Row, at_most, positive, result_rows, stated, unbiased
from mcfo.experiments.study import Outcomes, TextTable
from mcfo.reports.figures import Figure
from mcfo.smc.resampling import Multinomial

_TOLERANCE = 0.05
"""How near K x gap must come to its limit at the largest K."""
_SMALL_GAP = 0.1
"""Nats below which a gap is described by limit / K: beyond it the next orders count as much."""
_EXACT = 1e-9
"""Below this a difference that is zero by the mathematics is rounding."""


class BoundsOutcomes(Outcomes):
    """Curves by setting and `method/proposal`, the scan around the optimal proposal, and differences that are zero."""

    shown = ("method", "K", "gap", "K × gap", "limit")

    def __init__(self, problem: Problem, size: Any, results: Mapping[str, Samples]):
        self.problem, self.size = problem, size
        self.seconds = sum(result.seconds for result in results.values())
        arrays = {name: result.arrays for name, result in results.items()}
        model, series, long, times = problem.model, problem.series, problem.long, size.growing_steps
        proposals = problem.proposals
        self.variances = {name: theory.relative_variances(model, q, series) for name, q in proposals.items()}
        self.second = {name: theory.second_order(model, q, series) for name, q in proposals.items()}
        curves: dict[tuple[str, str], list[Point]] = {}
        for name, variances in self.variances.items():
            found = draws.points_of_blocks(size.exact_particles, arrays[f"exact-{name}"], float(variances.sum() / 2))
            curves["exact-histories", f"mcfo-exact/{name}"] = found
        for method, scheme in SCHEMES.items():
            for name, q in proposals.items():
                known = isinstance(scheme, Multinomial)
                limit = theory.smc_relative_variance(model, q, series) / 2 if known else math.nan
                curves["smc-histories", f"{method}/{name}"] = [
                    draws.point_of_samples(count, arrays[f"{method}-{name}-{count}"]["log_ratio"][:, -1], limit)
                    for count in size.smc_replicates
                ]
        for name, q in proposals.items():
            limit = float(theory.path_relative_variances(model, q, series)[-1] / 2)
            found = draws.points_of_blocks(size.exact_particles, arrays[f"paths-{name}"], limit)
            curves["growing-k", f"iwae/{name}"] = found
        for method, *source in (("fivo", "smc-histories", "mcfo-smc"), ("mcfo-exact", "exact-histories", "mcfo-exact")):
            for name in proposals:
                curves["growing-k", f"{method}/{name}"] = curves[source[0], f"{source[1]}/{name}"]
        for name in GROWING:
            q, count = proposals[name], size.growing_particles
            limits = {
                "iwae": theory.path_relative_variances(model, q, long)[np.array(times) - 1],
                "fivo": [theory.smc_relative_variance(model, q, long, time) for time in times],
                "mcfo-exact": np.cumsum(theory.relative_variances(model, q, long))[np.array(times) - 1],
            }
            for method in METHODS:
                found, part = [], arrays[f"growing-{method}-{name}"]
                for time, limit in zip(times, (float(limit) / 2 for limit in limits[method]), strict=True):
                    if method == "mcfo-exact":
                        found.append(draws.point_of_first_steps(count, part, time, limit))
                    else:
                        found.append(draws.point_of_samples(count, part["log_ratio"][:, time - 1], limit))
                curves["growing-t", f"{method}/{name}"] = found
        self.curves = curves
        self._scan(arrays)
        smc = arrays[f"mcfo-smc-optimal-{size.smc_particles}"]["log_ratio"]
        best = arrays["scan-shift-0"]["square"]
        self.zeros = {
            ("optimal-t-1", "mcfo-exact/optimal"): float(np.sqrt(best[..., 0]).max()),
            ("optimal-theta_1-0", "mcfo-exact/optimal"): float(np.sqrt(arrays["no-memory-exact"]["square"]).max()),
            ("optimal-t-1", "mcfo-smc/optimal"): float(np.abs(smc[:, 0]).max()),
            ("optimal-theta_1-0", "mcfo-smc/optimal"): float(np.abs(arrays["no-memory-smc"]["log_ratio"][:, -1]).max()),
            ("smc-histories", "mcfo-smc-minus-fivo/bootstrap"): float(arrays["values"]["gap"].max()),
        }

    def _scan(self, arrays: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        """For each scanned proposal and K the gap, and how far its bound lies below that of the optimal one, paired on
        the same random numbers; and the limit of K x gap."""
        best = arrays["scan-shift-0"]
        self.gaps: dict[tuple[str, float, int], Estimate] = {}
        self.losses: dict[tuple[str, float, int], Estimate] = {}
        self.limits: dict[tuple[str, float], float] = {}
        for kind, amounts in SCAN.items():
            for amount in amounts:
                one = arrays[f"scan-{kind}-{amount:g}"]
                below, control = (best[name] - one[name] for name in ("log_ratio", "excess"))
                for place, count in enumerate(self.size.scan_particles):
                    gap = draws.controlled_mean(-one["log_ratio"][:, place], one["excess"][:, place])
                    self.gaps[kind, amount, count] = gap
                    self.losses[kind, amount, count] = draws.controlled_mean(below[:, place], control[:, place])
                q = draws.moved(self.problem.proposals["optimal"], **{kind: amount})
                variances = theory.relative_variances(self.problem.model, q, self.problem.series)
                self.limits[kind, amount] = float(variances.sum() / 2)

    def files(self) -> Any:
        return {"results.csv": result_rows(self._rows())}

    def _rows(self) -> Iterator[Row]:
        exact, totals = self.problem.log_evidence, self.problem.log_evidences.cumsum()
        for (setting, method), points in self.curves.items():
            for place, point in enumerate(points):
                where, whole = setting, exact
                if setting == "growing-t":
                    steps = self.size.growing_steps[place]
                    where, whole = f"growing-t-{steps}", float(totals[steps - 1])
                yield from _point_rows(where, method, point, whole)
            if setting == "exact-histories":
                name = method.split("/")[1]
                for point in points:
                    yield _row(setting, method, point.particles, "second_order", self.second[name])
                    largest = float(self.variances[name].max())
                    yield _row(setting, method, point.particles, "largest_relative_variance", largest)
        for (kind, amount, count), gap in self.gaps.items():
            about = "optimal", f"mcfo-exact/{kind}={amount:g}", count
            yield _row(*about, "mean", exact - gap.value, gap.stderr)
            yield _row(*about, "exact", exact)
            yield _row(*about, "gap", *gap)
            yield _row(*about, "loss", *self.losses[kind, amount, count])
            yield _row(*about, "limit", self.limits[kind, amount])
        for (setting, method), value in self.zeros.items():
            of_scan = method.startswith("mcfo-exact")
            count = self.size.scan_particles[-1] if of_scan else self.size.smc_particles
            yield _row(setting, method, count, "largest_difference", value)

    def _of(self, setting: str, method: str) -> dict[str, list[Point]]:
        """The curves of a method by proposal."""
        return {name: self.curves[setting, f"{method}/{name}"] for name in self.problem.proposals}

    def claims(self) -> list[Claim]:
        found = []
        exact = self._of("exact-histories", "mcfo-exact")
        smc, systematic = (self._of("smc-histories", method) for method in SCHEMES)
        kinds = {"exact histories": exact, "SMC, multinomial": smc, "SMC, systematic": systematic}
        for kind, curves in kinds.items():
            points = [point for curve in curves.values() for point in curve]
            gap = min((point.gap for point in points), key=lambda gap: gap.sigmas)
            found.append(positive("the objective is a lower bound (1a), least gap", gap, setting=kind))
            # Where log p̂ spreads by more than a nat, p̂ / p owes its mean to values that no sample shows.
            biases = [Estimate(p.ratio.value - 1, p.ratio.stderr) for p in points if p.spread < 1]
            worst = max(biases, key=lambda bias: abs(bias.sigmas), default=Estimate(0.0))
            found.append(unbiased("p̂ / p is one on average", worst, setting=kind, source="theorem"))
        increases = [p.increase for curve in exact.values() for p in curve if p.increase is not None]
        paired = min(increases, key=lambda increase: increase.sigmas)
        found.append(positive("the bound grows with K (1b), paired", paired, setting="exact histories"))
        steps = [pair for curves in (smc, systematic) for curve in curves.values() for pair in pairwise(curve)]
        unpaired = min((_gap(after, before) for before, after in steps), key=lambda step: step.sigmas)
        found.append(positive("the bound grows with K (1b)", unpaired, setting="SMC", source="paper"))
        for name, curve in exact.items():
            last, text = curve[-1], "K × gap → Σ V[w_t] / 2p² (1c, 1d)"
            where = f"{name}, K = {last.particles}"
            found.append(_near(text, last, last.limit, f"exact histories, {where}", "theorem"))
            log_evidences = self.problem.log_evidences[:STEPS]
            printed = np.sum(self.variances[name] * np.exp(2 * log_evidences) / (2 * log_evidences**2))
            found.append(_near("… with (log p)² for p², as in the appendix", last, float(printed), where, "erratum"))
            of_mean = last.limit / last.particles
            found.append(_near("… with the variance of the mean of K weights", last, of_mean, where, "erratum"))
            after = smc[name][-1]
            where = f"SMC, {name}, K = {after.particles}"
            found.append(_near(text, after, last.limit, where, "erratum"))
            found.append(_near("K × gap → half the asymptotic variance of p̂ / p", after, after.limit, where, "theorem"))
            text = "systematic resampling closes the gap further"
            found.append(positive(text, _gap(systematic[name][-1], after), setting=where, source="ours"))
        scanned = {about: loss for about, loss in self.losses.items() if loss.stderr > 0}
        kind, amount, count = min(scanned, key=lambda about: scanned[about].sigmas)
        where = f"nearest: {kind} {amount:g}, K = {count}"
        loss = scanned[kind, amount, count]
        found.append(positive("the optimal proposal maximizes the bound (2)", loss, setting=where))
        last = exact["optimal"][-1]
        where, text = f"exact histories, K = {last.particles}", "the bound is exact at the optimal proposal (2)"
        found.append(unbiased(text, last.gap, setting=where, source="erratum", paper=0.0))
        for setting, where in (("optimal-t-1", "T = 1"), ("optimal-theta_1-0", "theta_1 = 0")):
            value = max(value for (one, _), value in self.zeros.items() if one == setting)
            found.append(at_most("… where the history does not matter", value, _EXACT, setting=where, source="theorem"))
        value = self.zeros["smc-histories", "mcfo-smc-minus-fivo/bootstrap"]
        found.append(at_most("MCFO with SMC histories has FIVO's value", value, _EXACT, source="theorem"))
        for name in GROWING:
            paths, resampled = (self.curves["growing-t", f"{method}/{name}"] for method in ("iwae", "fivo"))
            pairs = zip(self.size.growing_steps, paths, resampled, strict=True)
            looser = [str(steps) for steps, one, other in pairs if _EXACT < one.limit < other.limit]
            test = f"closed forms; not at T = {', '.join(looser)}" if looser else "closed forms, every T"
            text, where = "FIVO is tighter than IWAE at every T", f"{name}, K = {self.size.growing_particles}"
            gap = _gap(resampled[-1], paths[-1])
            found.append(stated(text, not looser, gap.value, test, setting=where, source="ours", spread=gap.stderr))
        return found

    def figures(self, folder: Path) -> list[Figure]:
        return draw_figures(folder, self)

    def text(self) -> list[str]:
        return [
            "A Monte Carlo filtering objective is a lower bound of log p(x_1:T). On a linear Gaussian model, where log "
            "p and the filtering distribution are known, everything that the paper says about it can be checked.",
            "Model: z_1 ~ N(0.5, 1), z_t = 0.9 z_t-1 + N(0, 1), x_t = 1.2 z_t + N(0, 1); one simulated series, T = "
            f"{STEPS}, log p(x_1:T) = {self.problem.log_evidence:.4f}. Proposals: bootstrap, p(z_t | z_t-1); optimal, "
            "p(z_t | z_t-1, x_t); wide, the optimal mean with 1.5 times the optimal variance. With exact histories R_t "
            "is a mean of K independent weights and K × gap → Σ_t V[w_t] / (2 p(x_t | x_1:t-1)²). With SMC p̂ is "
            "unbiased, so the bound holds by Jensen's inequality; the limit for multinomial resampling is Σ_t V[w_t "
            "ψ_t] / (2 p(x_t:T | x_1:t-1)²) with ψ_t = p(x_t+1:T | z_t), for systematic none is known. The optimal "
            "proposal removes the variance of the weight given the history; what is left is p(x_t | z_t-1).",
            "SMC resamples before every step; with exact histories one set of weights serves for every K in disjoint "
            "blocks. The mean of log p̂ is corrected by the control variate p̂/p - 1 unless log p̂ spreads by more than "
            "a nat. ± is one standard error, bars in figures are two.",
        ]

    def tables(self) -> list[TextTable]:
        by_particles = [key for key in self.curves if key[0] != "growing-t" and key[1].split("/")[0] != "fivo"]
        unique = [key for key in by_particles if key[0] != "growing-k" or key[1].startswith("iwae")]
        steps = [f"t = {step}" for step in range(1, STEPS + 1)]
        variances = [[name, *(f"{value:.3f}" for value in abs(values))] for name, values in self.variances.items()]
        return [
            self._table(unique, "K", "The bounds as K grows; increase: since the K before, from the same weights."),
            self._table([key for key in self.curves if key[0] == "growing-t"], "T", "The bounds as T grows."),
            TextTable(["proposal", *steps], variances, "V[w_t] / p(x_t | x_1:t-1)² of one weight, closed form."),
        ]

    def _table(self, keys: list[tuple[str, str]], grows: str, caption: str) -> TextTable:
        rows = []
        for key in keys:
            points = self.curves[key]
            labels = self.size.growing_steps if grows == "T" else [point.particles for point in points]
            for label, point in zip(labels, points, strict=True):
                limit = "–" if math.isnan(point.limit) else f"{abs(point.limit):.4f}"
                increase = "–" if point.increase is None else point.increase.text()
                cells = [point.gap.text(), point.k_gap.text(), limit, point.ratio.text(), increase]
                rows.append([key[1], str(label), *cells])
        return TextTable(["method", grows, "gap", "K × gap", "limit", "mean of p̂/p", "increase"], rows, caption)


def _gap(one: Point, other: Point) -> Estimate:
    """How much smaller the gap of one is than that of the other, from independent runs."""
    return Estimate(other.gap.value - one.gap.value, math.hypot(one.gap.stderr, other.gap.stderr))


def _near(claim: str, point: Point, limit: float, setting: str, source: str) -> Claim:
    """K x gap within the tolerance of a limit; not decided where its error does not tell, or where K is too small for
    a limit to describe the gap."""
    value, error = point.k_gap
    beyond = abs(value - limit) - _TOLERANCE * abs(limit)
    small = point.limit / point.particles > _SMALL_GAP
    holds = None if small else True if beyond <= 0 else False if beyond > SIGMAS * error else None
    test = "none: K is too small" if small else f"within {_TOLERANCE:.0%}"
    return stated(claim, holds, value, test, setting=setting, source=source, paper=limit, spread=error)


def _point_rows(setting: str, method: str, point: Point, exact: float) -> Iterator[Row]:
    quantities: dict[str, tuple[float, ...] | None] = {
        "mean": (exact - point.gap.value, point.gap.stderr),
        "std": (point.spread,),
        "exact": (exact,),
        "gap": point.gap,
        "k_gap": point.k_gap,
        "limit": None if math.isnan(point.limit) else (point.limit,),
        "ratio": point.ratio,
        "increase": point.increase,
    }
    for quantity, numbers in quantities.items():
        if numbers is not None:
            yield _row(setting, method, point.particles, quantity, *numbers)


def _row(setting: str, method: str, particles: int, quantity: str, value: float, stderr: float = math.nan) -> Row:
    return Row(setting, method, particles, "log_evidence", quantity, value, stderr)
