"""What the bounds say of Propositions 1 and 2: points, rows, claims, tables and figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mcfo.experiments.bounds_sampling import STEPS, Blocks, Problem, controlled_mean, mean, moved
from mcfo.experiments.bounds_theory import (
    path_relative_variances,
    relative_variances,
    second_order,
    smc_relative_variance,
)
from mcfo.experiments.figures import legend, panels, save, title
from mcfo.experiments.jobs import Samples
from mcfo.experiments.outcomes import SIGMAS, Claim, Estimate, Row, at_most, positive, result_rows, stated, unbiased
from mcfo.experiments.study import Figure, Outcomes, TextTable, add_figures, add_table
from mcfo.reports.page import Report
from mcfo.smc.resampling import Multinomial, Systematic

SCAN = {
    "shift": (-1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0),
    "variance": (0.55, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 2.5, 3.0),
}
"""Proposals around the optimal one: its mean in standard deviations, and its variance by a factor."""
SCHEMES = {"mcfo-smc": Multinomial(), "mcfo-smc-systematic": Systematic()}
GROWING = ("bootstrap", "optimal")
METHODS = ("iwae", "fivo", "mcfo-exact")
_TOLERANCE = 0.05
"""How near K x gap must come to its limit at the largest K."""
_EXACT = 1e-9
"""Below this a difference that is zero by the mathematics is rounding."""
_COLORS = {
    "bootstrap": "#d94801", "wide": "#6a51a3", "optimal": "#08519c", "iwae": "#d94801", "fivo": "#238b45",
    "mcfo-exact": "#08519c",
}  # fmt: skip


class Point(NamedTuple):
    """A bound at one K and T.

    - `gap`: log p - E log p̂; `ratio`: the mean of p̂ / p, or of R_t / p over all steps with exact histories: one, up to
      its standard error.
    - `spread`: the standard deviation of one log p̂; `limit`: of K x gap, in closed form; NaN where none is known.
    - `increase`: how much the bound grew since the K before, paired; None where the K do not share their weights.
    """

    particles: int
    gap: Estimate
    ratio: Estimate
    spread: float
    limit: float
    increase: Estimate | None = None

    @property
    def k_gap(self) -> Estimate:
        return Estimate(*(self.particles * part for part in self.gap))


def points_of_blocks(sizes: tuple[int, ...], blocks: Mapping[str, np.ndarray], limit: float) -> list[Point]:
    """The points of each K from blocks of one estimate a step, or of one estimate a path."""
    log_ratio, excess, square = (blocks[name].reshape(*blocks[name].shape[:2], -1) for name in Blocks._fields)
    spreads = np.sqrt(np.sum(square.mean(0) - log_ratio.mean(0) ** 2, axis=-1))
    totals = log_ratio.sum(-1)
    return [
        Point(
            size,
            controlled_mean(-log_ratio[:, place], excess[:, place]),
            mean(1 + excess[:, place].mean(-1)),
            float(spreads[place]),
            limit,
            mean(totals[:, place] - totals[:, place - 1]) if place else None,
        )
        for place, size in enumerate(sizes)
    ]


def point_of_samples(particles: int, values: np.ndarray, limit: float) -> Point:
    """A point from independent values of log p̂ / p."""
    gap, ratio = controlled_mean(-values, np.expm1(values)), mean(np.exp(values))
    return Point(particles, gap, ratio, float(values.std(ddof=1)), limit)


class BoundsOutcomes(Outcomes):
    """Curves by setting and `method/proposal`, the scan around the optimal proposal, and differences that are zero."""

    def __init__(self, problem: Problem, size: Any, results: Mapping[str, Samples]):
        self.problem, self.size = problem, size
        self.seconds = sum(result.seconds for result in results.values())
        arrays = {name: result.arrays for name, result in results.items()}
        model, series, long, times = problem.model, problem.series, problem.long, size.growing_steps
        names = list(problem.proposals)
        self.variances = {name: relative_variances(model, q, series) for name, q in problem.proposals.items()}
        self.second = {name: second_order(model, q, series) for name, q in problem.proposals.items()}
        self.curves: dict[tuple[str, str], list[Point]] = {}
        for name in names:
            limit = float(self.variances[name].sum() / 2)
            points = points_of_blocks(size.exact_particles, arrays[f"exact-{name}"], limit)
            self.curves["exact-histories", f"mcfo-exact/{name}"] = points
        for method, scheme in SCHEMES.items():
            for name, q in problem.proposals.items():
                known = isinstance(scheme, Multinomial)
                limit = smc_relative_variance(model, q, series) / 2 if known else math.nan
                self.curves["smc-histories", f"{method}/{name}"] = [
                    point_of_samples(count, arrays[f"{method}-{name}-{count}"]["log_ratio"][:, -1], limit)
                    for count in size.smc_replicates
                ]
        for name, q in problem.proposals.items():
            limit = float(path_relative_variances(model, q, series)[-1] / 2)
            self.curves["growing-k", f"iwae/{name}"] = points_of_blocks(
                size.exact_particles, arrays[f"paths-{name}"], limit
            )
        for method, source in (("fivo", "smc-histories"), ("mcfo-exact", "exact-histories")):
            for name in names:
                found = "mcfo-smc" if method == "fivo" else method
                self.curves["growing-k", f"{method}/{name}"] = self.curves[source, f"{found}/{name}"]
        for name in GROWING:
            q, count = problem.proposals[name], size.growing_particles
            limits = {
                "iwae": path_relative_variances(model, q, long)[np.array(times) - 1],
                "fivo": [smc_relative_variance(model, q, long, time) for time in times],
                "mcfo-exact": np.cumsum(relative_variances(model, q, long))[np.array(times) - 1],
            }
            for method in METHODS:
                part, halves = arrays[f"growing-{method}-{name}"], [float(limit) / 2 for limit in limits[method]]
                exact = method == "mcfo-exact"
                self.curves["growing-t", f"{method}/{name}"] = [
                    _first_steps(count, part, time, limit)
                    if exact
                    else point_of_samples(count, part["log_ratio"][:, time - 1], limit)
                    for time, limit in zip(times, halves, strict=True)
                ]
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
                    gap = controlled_mean(-one["log_ratio"][:, place], one["excess"][:, place])
                    self.gaps[kind, amount, count] = gap
                    self.losses[kind, amount, count] = controlled_mean(below[:, place], control[:, place])
                q = moved(self.problem.proposals["optimal"], **{kind: amount})
                variances = relative_variances(self.problem.model, q, self.problem.series)
                self.limits[kind, amount] = float(variances.sum() / 2)

    def tables(self) -> Any:
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
        return {
            name: self.curves[setting, f"{method}/{name}"]
            for name in self.problem.proposals
            if (setting, f"{method}/{name}") in self.curves
        }

    def claims(self) -> list[Claim]:
        found = []
        kinds = {"exact histories": self._of("exact-histories", "mcfo-exact")}
        kinds |= {
            f"SMC, {type(scheme).__name__.lower()}": self._of("smc-histories", one) for one, scheme in SCHEMES.items()
        }
        exact, smc, systematic = kinds.values()
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
        captions = {
            "gap": "The gap, log p(x) − bound, against K. Dashed: the closed-form limit / K.",
            "k_gap": "K × gap against K. Dashed: its limit; dotted: limit + next order / K; squares: systematic resampling.",
            "optimal": "The gap with exact histories for proposals around the optimal one, all on the same random numbers: "
            "least at the optimal one for every K, and not zero. Dashed: the limit / K at the largest K.",
            "comparison": f"IWAE, FIVO and MCFO as K grows (T = {STEPS}) and as T grows (K = "
            f"{self.size.growing_particles}). Gaps that are zero up to rounding are left out.",
        }
        figures = {
            "gap": self._draw_by_particles(by_particles=False),
            "k_gap": self._draw_by_particles(by_particles=True),
            "optimal": self._draw_scan(),
            "comparison": self._draw_comparison(),
        }
        return [Figure(save(figure, folder / f"{name}.png"), captions[name]) for name, figure in figures.items()]

    def _draw_by_particles(self, *, by_particles: bool) -> Any:
        figure, axes = panels(1, 2, width=9, height=4, sharex=True, sharey=True)
        for axis, setting, method, text in (
            (axes[0, 0], "exact-histories", "mcfo-exact", "exact histories"),
            (axes[0, 1], "smc-histories", "mcfo-smc", "SMC histories, multinomial"),
        ):
            for name, curve in self._of(setting, method).items():
                color, counts = _COLORS[name], np.array([point.particles for point in curve])
                _errorbars(axis, counts, curve, color, label=name, by_particles=by_particles)
                scale = counts if by_particles else 1
                axis.plot(counts, curve[0].limit / counts * scale, color=color, lw=0.9, ls="--")
                if by_particles and method == "mcfo-exact":
                    many = counts[counts >= 10]
                    axis.plot(many, curve[0].limit + self.second[name] / many, color=color, lw=0.9, ls=":")
                if by_particles and method == "mcfo-smc":
                    other = self.curves[setting, f"mcfo-smc-systematic/{name}"]
                    _errorbars(axis, counts, other, color, by_particles=True, marker="s", mfc="white")
            _logarithmic(axis, text, "number of particles K")
        legend(figure, axes)
        return figure

    def _draw_scan(self) -> Any:
        figure, axes = panels(1, 2, width=9, height=4, sharey=True)
        largest = self.size.scan_particles[-1]
        for axis, (kind, amounts) in zip(axes[0], SCAN.items(), strict=True):
            for count in self.size.scan_particles:
                gaps = [self.gaps[kind, amount, count] for amount in amounts]
                values, errors = zip(*gaps, strict=True)
                axis.errorbar(amounts, values, 2 * np.array(errors), marker="o", ms=4, lw=1.2, label=f"K = {count}")
            limits = [self.limits[kind, amount] / largest for amount in amounts]
            axis.plot(amounts, limits, color="0.3", lw=1.0, ls="--", label=f"limit / {largest}")
            axis.set_yscale("log")
            title(
                axis, f"{kind} of the proposal", x="in standard deviations" if kind == "shift" else "of the optimal one"
            )
        legend(figure, axes)
        return figure

    def _draw_comparison(self) -> Any:
        figure, axes = panels(2, 2, width=9, height=3.4, sharex="col")
        for row, name in zip(axes, GROWING, strict=True):
            for method in METHODS:
                curve = self.curves["growing-k", f"{method}/{name}"]
                _errorbars(row[0], [point.particles for point in curve], curve, _COLORS[method], label=method)
                times = list(self.size.growing_steps)
                _errorbars(row[1], times, self.curves["growing-t", f"{method}/{name}"], _COLORS[method])
            _logarithmic(row[0], f"gap, {name} proposal", "number of particles K")
            _logarithmic(row[1], f"gap, {name} proposal", "steps T")
        legend(figure, axes)
        return figure

    def summary(self) -> str:
        return (
            "A Monte Carlo filtering objective is a lower bound of log p(x_1:T). On a linear Gaussian model, where log p "
            "and the filtering distribution are known, everything that the paper says about it can be checked."
        )

    def method(self) -> list[str]:
        size = self.size
        runs = ", ".join(f"{count} runs at K = {particles}" for particles, count in size.smc_replicates.items())
        return [
            "Model: z_1 ~ N(0.5, 1), z_t = 0.9 z_t-1 + N(0, 1), x_t = 1.2 z_t + N(0, 1); one simulated series, T = "
            f"{STEPS}, log p(x_1:T) = {self.problem.log_evidence:.4f}. Proposals: bootstrap, p(z_t | z_t-1); optimal, "
            "p(z_t | z_t-1, x_t); wide, the optimal mean with 1.5 times the optimal variance. ± is one standard error; "
            "bars in figures are two.",
            f"Exact histories: {size.exact_replicates} replicates of {size.exact_particles[-1]} weights a step, which "
            f"serve for every K in disjoint blocks. SMC, resampled before every step: {runs}. IWAE: {size.path_replicates}"
            f" replicates. Growing T: {size.growing_replicates} runs. Scan: {size.scan_replicates} replicates. The mean "
            "of log p̂ is corrected by the control variate p̂/p - 1 unless log p̂ spreads by more than a nat. float64.",
        ]

    def _table(self, setting: str, caption: str) -> TextTable:
        rows = []
        for (one, method), points in self.curves.items():
            if one == setting:
                labels = self.size.growing_steps if setting == "growing-t" else [point.particles for point in points]
                for label, point in zip(labels, points, strict=True):
                    limit = "–" if math.isnan(point.limit) else f"{abs(point.limit):.4f}"
                    increase = "–" if point.increase is None else point.increase.text()
                    cells = [point.gap.text(), point.k_gap.text(), limit, point.ratio.text(), increase]
                    rows.append([method, str(label), *cells])
        last = "T" if setting == "growing-t" else "K"
        return TextTable(["method", last, "gap", "K × gap", "limit", "mean of p̂/p", "increase"], rows, caption)

    def terminal(self) -> TextTable:
        table = self._table("smc-histories", f"Bounds of log p(x) = {self.problem.log_evidence:.3f}, T = {STEPS}.")
        return table._replace(header=table.header[:5], rows=[row[:5] for row in table.rows])

    def sections(self, page: Report, figures: list[Figure]) -> None:
        page.heading("Exact histories: Proposition 1")
        page.text(
            "At each step K histories are drawn from the Kalman filter's distribution of z_t-1, so R_t is a mean of K "
            "independent weights and K × gap → Σ_t V[w_t] / (2 p(x_t | x_1:t-1)²), a Gaussian integral. Increase: how "
            "much the bound grew since the K before, from the same weights in larger blocks."
        )
        add_table(page, self._table("exact-histories", "The bound with exact histories."))
        header = ["proposal", *(f"t = {step}" for step in range(1, STEPS + 1))]
        rows = [[name, *(f"{value:.3f}" for value in abs(values))] for name, values in self.variances.items()]
        add_table(page, TextTable(header, rows, "V[w_t] / p(x_t | x_1:t-1)² of one weight, closed form."))
        add_figures(page, figures[:2])
        page.heading("SMC histories")
        page.text(
            "p̂ is unbiased, so the bound holds at every K by Jensen's inequality. The limit of K × gap for multinomial "
            "resampling is Σ_t V[w_t ψ_t] / (2 p(x_t:T | x_1:t-1)²) with ψ_t = p(x_t+1:T | z_t); for systematic "
            "resampling none is known."
        )
        add_table(page, self._table("smc-histories", "The bound with SMC histories, which is FIVO's value."))
        page.heading("The optimal proposal: Proposition 2")
        page.text(
            "The optimal proposal removes the variance of the weight given the history. What is left is p(x_t | z_t-1), "
            "which varies with the history; the bound is exact only where there is none, or where it does not matter."
        )
        add_figures(page, figures[2:3])
        page.heading("IWAE, FIVO and MCFO")
        add_figures(page, figures[3:])
        add_table(page, self._table("growing-t", f"The gap as T grows, K = {self.size.growing_particles}."))


def _gap(one: Point, other: Point) -> Estimate:
    """How much smaller the gap of one is than that of the other, from independent runs."""
    return Estimate(other.gap.value - one.gap.value, math.hypot(one.gap.stderr, other.gap.stderr))


def _near(claim: str, point: Point, limit: float, setting: str, source: str) -> Claim:
    """K x gap within the tolerance of a limit; not decided where its error does not tell."""
    value, error = point.k_gap
    beyond = abs(value - limit) - _TOLERANCE * abs(limit)
    holds = True if beyond <= 0 else False if beyond > SIGMAS * error else None
    return stated(claim, holds, value, f"within {_TOLERANCE:.0%}", setting=setting, source=source, paper=limit,
                  spread=error)  # fmt: skip


def _first_steps(particles: int, blocks: Mapping[str, np.ndarray], time: int, limit: float) -> Point:
    """A point of the first steps of exact histories."""
    log_ratio, excess = (blocks[name][:, 0, :time] for name in ("log_ratio", "excess"))
    spread = float(log_ratio.sum(-1).std(ddof=1))
    return Point(particles, controlled_mean(-log_ratio, excess), mean(1 + excess.mean(-1)), spread, limit)


def _point_rows(setting: str, method: str, point: Point, exact: float) -> Iterator[Row]:
    about = setting, method, point.particles
    yield _row(*about, "mean", exact - point.gap.value, point.gap.stderr)
    yield _row(*about, "std", point.spread)
    yield _row(*about, "exact", exact)
    yield _row(*about, "gap", *point.gap)
    yield _row(*about, "k_gap", *point.k_gap)
    if not math.isnan(point.limit):
        yield _row(*about, "limit", point.limit)
    yield _row(*about, "ratio", *point.ratio)
    if point.increase is not None:
        yield _row(*about, "increase", *point.increase)


def _row(setting: str, method: str, particles: int, quantity: str, value: float, stderr: float = math.nan) -> Row:
    return Row(setting, method, particles, "log_evidence", quantity, value, stderr)


def _errorbars(
    axis: Any, places: Any, curve: list[Point], color: str, *, by_particles: bool = False, **options: Any
) -> None:
    # Zero has no place on a logarithmic axis, and a bar that reaches below zero has no end.
    shown = [
        (at, p.k_gap if by_particles else p.gap) for at, p in zip(places, curve, strict=True) if p.gap.value > _EXACT
    ]
    bars = [[min(2 * one.stderr, 0.99 * one.value) for _, one in shown], [2 * one.stderr for _, one in shown]]
    about = {"marker": "o", "ms": 4, "lw": 1.2, **options}
    axis.errorbar([at for at, _ in shown], [one.value for _, one in shown], bars, color=color, **about)


def _logarithmic(axis: Any, text: str, x: str) -> None:
    axis.set_xscale("log")
    axis.set_yscale("log")
    title(axis, text, x=x)
