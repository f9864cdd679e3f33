"""`mcfo reproduce bounds`: Propositions 1 and 2 of the paper on the linear Gaussian model, where all is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mcfo.experiments import bounds_sampling as draws
from mcfo.experiments.bounds_sampling import GROWING, METHODS, SCANNED, SCHEMES, BoundsCurves, Point
from mcfo.experiments.bounds_theory import STEPS, Problem, build_problem, moved
from mcfo.experiments.jobs import Job, Share, sampling
from mcfo.experiments.outcomes import SIGMAS, Claim, Estimate, Row, at_most, positive, stated, unbiased
from mcfo.experiments.study import Study, TextTable
from mcfo.objectives.named import fivo, mcfo
from mcfo.proposals.gaussian import AffineGaussian
from mcfo.smc.filter import SMC, sis
from mcfo.smc.resampling import Always, Multinomial

_CHUNK = 2**20
"""Weights that are drawn at once: a few hundred megabytes at most with all that is made from them."""
_TOLERANCE = 0.05
"""How near K x gap must come to its limit at the largest K."""
_SMALL_GAP = 0.1
"""Nats below which a gap is described by limit / K: beyond it the next orders count as much."""
_EXACT = 1e-9
"""Below this a difference that is zero by the mathematics is rounding."""


@dataclass(frozen=True)
class Preset:
    """How much is measured.

    - `exact_particles`: the K of exact histories and of IWAE, each a divisor of the next; they share their weights.
    - `exact_replicates`, `path_replicates`: independent sets of the largest K weights, of exact histories and of paths.
    - `smc_replicates`: runs of SMC for each K.
    - `scan_particles`, `scan_replicates`: for the scan of proposals around the optimal one.
    - `growing_steps`, `growing_particles`, `growing_replicates`: the T at which bounds are compared, at one K.
    """

    exact_particles: tuple[int, ...]
    exact_replicates: int
    path_replicates: int
    smc_replicates: dict[int, int]
    scan_particles: tuple[int, ...]
    scan_replicates: int
    growing_steps: tuple[int, ...]
    growing_particles: int
    growing_replicates: int

    @property
    def smc_particles(self) -> int:
        """The least K of SMC that resamples among several particles."""
        return next(size for size in self.smc_replicates if size > 1)


PRESETS = {
    "quick": Preset(
        exact_particles=(1, 5, 10, 50, 100, 500, 1000), exact_replicates=8_000, path_replicates=4_000,
        smc_replicates={1: 20_000, 10: 20_000, 100: 20_000, 1000: 6_000}, scan_particles=(1, 10, 100),
        scan_replicates=2_000, growing_steps=(1, 2, 5, 10, 20, 50, 100), growing_particles=100,
        growing_replicates=2_000,
    ),
    "paper": Preset(
        exact_particles=(1, 5, 10, 50, 100, 500, 1000, 5000, 10_000), exact_replicates=10_000, path_replicates=10_000,
        smc_replicates={1: 100_000, 10: 100_000, 100: 100_000, 1000: 50_000, 10_000: 10_000},
        scan_particles=(1, 10, 100, 1000), scan_replicates=10_000, growing_steps=(1, 2, 5, 10, 20, 50, 100, 200),
        growing_particles=100, growing_replicates=20_000,
    ),
}  # fmt: skip


class BoundsOutcomes(BoundsCurves):
    """What the curves say of both propositions."""

    shown = ("method", "K", "gap", "K × gap", "limit")

    def files(self) -> Any:
        rows = [
            Row(setting, method, particles, "log_evidence", quantity, *numbers)
            for (setting, method, particles), quantities in self._quantities()
            for quantity, numbers in quantities.items()
        ]
        return {"results.csv": (Row._fields, rows)}

    def _quantities(self) -> Iterator[tuple[tuple[str, str, int], dict[str, Estimate]]]:
        """Numbers by quantity of each setting, method and K."""
        totals = self.problem.log_evidences.cumsum()
        for (setting, method), points in self.curves.items():
            for point in points:
                where, exact = setting, self.problem.log_evidence
                if setting == "growing-t":
                    where, exact = f"growing-t-{point.steps}", float(totals[point.steps - 1])
                found = {**_mean(exact, point.gap, point.spread), "k_gap": point.k_gap}
                found |= {} if math.isnan(point.limit) else {"limit": Estimate(point.limit)}
                found |= {"ratio": point.ratio} | ({} if point.increase is None else {"increase": point.increase})
                yield (where, method, point.particles), found
            if setting == "exact-histories":
                name = method.split("/")[1]
                largest = float(self.variances[name].max())
                beside = {"second_order": Estimate(self.second[name]), "largest_relative_variance": Estimate(largest)}
                for point in points:
                    yield (setting, method, point.particles), beside
        for (kind, amount, count), loss in self.losses.items():
            point = next(point for point in self.scanned[kind, amount] if point.particles == count)
            found = {**_mean(self.problem.log_evidence, point.gap), "loss": loss, "limit": Estimate(point.limit)}
            yield ("optimal", f"mcfo-exact/{kind}={amount:g}", count), found
        for (setting, method), value in self.zeros.items():
            of_scan = method.startswith("mcfo-exact")
            count = self.size.scan_particles[-1] if of_scan else self.size.smc_particles
            yield (setting, method, count), {"largest_difference": Estimate(value)}

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
            pairs = zip(paths, resampled, strict=True)
            looser = [str(one.steps) for one, other in pairs if _EXACT < one.limit < other.limit]
            test = f"closed forms; not at T = {', '.join(looser)}" if looser else "closed forms, every T"
            text, where = "FIVO is tighter than IWAE at every T", f"{name}, K = {self.size.growing_particles}"
            gap = _gap(resampled[-1], paths[-1])
            found.append(stated(text, not looser, gap.value, test, setting=where, source="ours", spread=gap.stderr))
        return found

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
            for point in self.curves[key]:
                label = str(point.steps if grows == "T" else point.particles)
                limit = "–" if math.isnan(point.limit) else f"{abs(point.limit):.4f}"
                increase = "–" if point.increase is None else point.increase.text()
                rows.append([key[1], label, point.gap.text(), point.k_gap.text(), limit, point.ratio.text(), increase])
        return TextTable(["method", grows, "gap", "K × gap", "limit", "mean of p̂/p", "increase"], rows, caption)


def _mean(exact: float, gap: Estimate, spread: float | None = None) -> dict[str, Estimate]:
    """A bound as the mean that it is, with the spread of one estimate if that is known, and its gap."""
    std = {} if spread is None else {"std": Estimate(spread)}
    return {"mean": Estimate(exact - gap.value, gap.stderr), **std, "exact": Estimate(exact), "gap": gap}


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


class Bounds(Study):
    """Bounds of log p(x_1:T) as K, T and the proposal change."""

    name = "bounds"
    title = "Bounds of the log-evidence: Propositions 1 and 2"
    presets: ClassVar = PRESETS
    outcomes = BoundsOutcomes
    # The gaps at large K are small differences: in single precision they would be rounding.
    double = True

    def settings(self) -> dict[str, Any]:
        model = {"theta_1": 0.9, "theta_2": 1.2, "initial_mean": 0.5, "initial_variance": 1.0,
                 "transition_variance": 1.0, "emission_variance": 1.0}  # fmt: skip
        return {"model": model, "steps": STEPS}

    def _keys(self) -> tuple[Any, Any]:
        of_data, of_measurements = jax.random.split(jax.random.key(self.seed))
        return of_data, jax.random.split(of_measurements, 6)

    def prepare(self) -> Problem:
        return build_problem(max(self.size.growing_steps), key=self._keys()[0])

    def jobs(self, problem: Problem) -> dict[str, Job]:
        size, proposals, optimal = self.size, problem.proposals, problem.proposals["optimal"]
        of_exact, of_smc, of_paths, of_growing, of_scan, of_values = self._keys()[1]
        jobs: dict[str, Job] = {}

        def add(name: str, draw: Callable[..., Any], how: Any, proposal: Any, count: int, key: Any,
                series=problem.series, model=problem.model) -> None:  # fmt: skip
            weights = (how.particles if isinstance(how, SMC) else how[-1]) * series.steps
            chunk = max(1, min(count, _CHUNK // weights))
            chunks = -(-count // chunk)

            def draw_all(share: Share) -> dict[str, np.ndarray]:
                parts = []
                for number in range(chunks):
                    keys = jax.random.split(jax.random.fold_in(key, number), chunk)
                    found = draws.draw_replicates(draw, model, proposal, series, how, keys)
                    parts.append(jax.tree.map(np.asarray, found))
                    share.advance(1 / chunks)
                return jax.tree.map(lambda *each: np.concatenate(each)[:count], *parts)

            # Compiling takes as long as some ten million weights.
            jobs[name] = sampling(count * weights + 1e7, draw_all)

        for name, proposal in proposals.items():
            add(f"exact-{name}", draws.exact_histories, size.exact_particles, proposal, size.exact_replicates, of_exact)
            add(f"paths-{name}", draws.paths, size.exact_particles, proposal, size.path_replicates, of_paths)
            for (method, scheme), (particles, count) in product(SCHEMES.items(), size.smc_replicates.items()):
                sampler = SMC(particles, scheme, Always())
                add(f"{method}-{name}-{particles}", draws.filters, sampler, proposal, count, of_smc)
        scanned = draws.exact_histories, size.scan_particles
        for kind, amount in SCANNED:
            add(f"scan-{kind}-{amount:g}", *scanned, moved(optimal, **{kind: amount}), size.scan_replicates, of_scan)
        no_memory = eqx.tree_at(lambda m: m.transition_matrix, problem.model, replace_fn=jnp.zeros_like)
        forgetful = AffineGaussian.optimal(no_memory)
        add("no-memory-exact", *scanned, forgetful, size.scan_replicates, of_scan, model=no_memory)
        sampler, count = SMC(size.smc_particles, Multinomial(), Always()), size.smc_replicates[size.smc_particles]
        add("no-memory-smc", draws.filters, sampler, forgetful, count, of_smc, model=no_memory)
        particles = size.growing_particles
        hows = sis(particles), SMC(particles, Multinomial(), Always()), (particles,)
        for name in GROWING:
            for method, how, key in zip(METHODS, hows, jax.random.split(of_growing, 3), strict=True):
                draw, count = draws.filters if isinstance(how, SMC) else draws.exact_histories, size.growing_replicates
                add(f"growing-{method}-{name}", draw, how, proposals[name], count, key, series=problem.long)
        jobs["values"] = sampling(1e7, lambda share: {"gap": self._difference_of_values(problem, of_values)})
        return jobs

    def _difference_of_values(self, problem: Problem, key: Any) -> np.ndarray:
        """|MCFO - FIVO| of the objectives' values on some keys, with the same sampler: zero."""
        proposal, particles = problem.proposals["bootstrap"], self.size.smc_particles
        ours = mcfo(particles, resampling=Multinomial())
        theirs = fivo(particles, resampling=Multinomial(), criterion=Always())

        def value(objective: Any, key: Any) -> float:
            return float(objective.loss(problem.model, proposal, problem.series, key=key)[0])

        return np.array([abs(value(ours, one) - value(theirs, one)) for one in jax.random.split(key, 8)])


STUDY = Bounds
