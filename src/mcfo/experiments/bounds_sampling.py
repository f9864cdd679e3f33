"""Draws of log R_t and log p̂ on the paper's linear Gaussian model, what they say of a bound, and figures of it.

MCFO as Propositions 1 and 2 of the paper state it has histories from the exact filtering distribution: at step t, K
histories z_t-1 are drawn independently from p(z_t-1 | x_1:t-1), which the Kalman filter knows, and z_t from q. Then
R_t = K⁻¹ Σ_i w_t^i is a mean of independent weights, unbiased for p(x_t | x_1:t-1), and L_t^K = E log R_t.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mcfo.experiments import bounds_theory as theory
from mcfo.experiments.bounds_theory import STEPS, Problem, moved
from mcfo.experiments.jobs import Samples
from mcfo.experiments.outcomes import Estimate
from mcfo.experiments.runs import COLORS
from mcfo.experiments.study import Outcomes
from mcfo.kalman import KalmanFilter, kalman_filter
from mcfo.models.linear_gaussian import LinearGaussian
from mcfo.proposals.base import Proposal
from mcfo.reports.figures import Chart, Figure, Line, draw_charts
from mcfo.series import Frame, Series
from mcfo.smc.filter import SMC, sis
from mcfo.smc.noise import from_noise
from mcfo.smc.resampling import Multinomial, Systematic
from mcfo.smc.step import log_densities, prior_and_proposed
from mcfo.smc.step_scan import frames, split_first
from mcfo.types import Key

SCAN = {
    "shift": (-1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0),
    "variance": (0.55, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 2.5, 3.0),
}
"""Proposals around the optimal one: its mean in standard deviations, and its variance by a factor."""
SCANNED = [(kind, amount) for kind, amounts in SCAN.items() for amount in amounts]
SCHEMES = {"mcfo-smc": Multinomial(), "mcfo-smc-systematic": Systematic()}
METHODS = ("iwae", "fivo", "mcfo-exact")
GROWING = ("bootstrap", "optimal")
"""The proposals with which these are compared as T grows."""
_ROUNDING = 1e-12
"""Log-ratios below this are zero up to rounding."""
_LEAST = 1e-9
"""A smaller gap is zero, which has no place on a logarithmic axis."""
_COLORS = COLORS | {"bootstrap": "#d94801", "wide": "#6a51a3", "optimal": "#08519c"}
_K = "number of particles K"


@eqx.filter_jit
def draw_replicates(
    draw: Callable[..., Any], model: LinearGaussian, proposal: Proposal, series: Series, how: Any, keys: jax.Array
) -> dict[str, Array]:
    """What one of the three functions below draws, `how` being its last argument, with each of the keys."""
    exact = kalman_filter(model, series)
    return jax.vmap(lambda key: draw(model, proposal, series, exact, how, key=key))(keys)


def exact_histories(
    model: LinearGaussian, proposal: Proposal, series: Series, exact: KalmanFilter, sizes: tuple[int, ...], *, key: Key
) -> dict[str, Array]:
    """The blocks of one set of weights with exact histories; see `in_blocks`."""
    return in_blocks(log_weight_ratios(model, proposal, series, exact, sizes[-1], key=key), sizes)


def paths(
    model: LinearGaussian, proposal: Proposal, series: Series, exact: KalmanFilter, sizes: tuple[int, ...], *, key: Key
) -> dict[str, Array]:
    """The blocks of one set of weights of whole paths that are never resampled."""
    trace = sis(sizes[-1])(model, proposal, series, key=key)
    log_paths = trace.state.log_weights + jnp.log(sizes[-1]) + trace.log_evidence
    return in_blocks(log_paths - exact.log_evidence, sizes)


def filters(
    model: LinearGaussian, proposal: Proposal, series: Series, exact: KalmanFilter, sampler: SMC, *, key: Key
) -> dict[str, Array]:
    """log p̂(x_1:t) / p(x_1:t) for every t: the first t steps of a run are a run on the first t steps."""
    increments = sampler(model, proposal, series, key=key).record.log_evidence
    return {"log_ratio": jnp.cumsum(increments - exact.log_evidences)}


def log_weight_ratios(
    model: LinearGaussian, proposal: Proposal, series: Series, exact: KalmanFilter, particles: int, *, key: Key
) -> Float[Array, "steps particles"]:
    """log(w_t / p(x_t | x_1:t-1)) of independent particles with exact histories, for every step."""
    first, rest = split_first(frames(proposal, series))
    of_histories, of_latents = jax.random.split(key)
    shape = (series.steps, particles, model.latent_size)
    noise = jax.random.normal(of_latents, shape, model.initial_mean.dtype)
    before = jax.tree.map(lambda array: array[:-1], exact.filtered)
    histories = before.sample(particles, key=of_histories)

    def log_weight(frame: Frame, memory: Any, noise: Array, *, first: bool = False) -> Array:
        prior, proposed = prior_and_proposed(model, proposal, memory, frame, first=first)
        return log_densities(model, prior, proposed, memory, from_noise(proposed, noise), frame, None).log_weight

    begun = jax.vmap(lambda noise: log_weight(first, model.start(first.inputs), noise, first=True))(noise[0])
    later = jax.vmap(jax.vmap(log_weight, in_axes=(None, 0, 0)))(rest, histories, noise[1:])
    return jnp.concatenate([begun[None], later]) - exact.log_evidences[:, None]


def in_blocks(log_ratios: Float[Array, "*steps particles"], sizes: tuple[int, ...]) -> dict[str, Array]:
    """Means over the disjoint blocks of K weights, for each K of `sizes`, each a divisor of the next: K, then steps.

    - `log_ratio`: of log(R_t / p), whose mean is L_t^K - log p(x_t | x_1:t-1).
    - `excess`: of R_t / p - 1, whose mean is zero: the control variate. It is the same for every K.
    - `square`: of log(R_t / p)², for the spread of a single estimate.

    All K share the weights of the largest one, so the bounds at two K are paired: their difference varies far less than
    either.
    """
    particles = log_ratios.shape[-1]
    if any(later % earlier for earlier, later in pairwise((1, *sizes, particles))):
        raise ValueError(
            f"The numbers of particles are {sizes} and there are {particles} weights. Give sizes of which each divides "
            "the next, the last dividing the number of weights, as in (1, 10, 100)."
        )
    estimates, previous, means = log_ratios, 1, []
    for size in sizes:
        ratio = size // previous
        if ratio > 1:
            grouped = estimates.reshape(*estimates.shape[:-1], -1, ratio)
            estimates = jax.nn.logsumexp(grouped, axis=-1) - np.log(ratio)
        parts = {"log_ratio": estimates, "excess": jnp.expm1(estimates), "square": estimates**2}
        means.append({name: part.mean(-1) for name, part in parts.items()})
        previous = size
    return jax.tree.map(lambda *each: jnp.stack(each), *means)


def controlled_mean(
    values: Float[Array | np.ndarray, " samples *terms"], control: Float[Array | np.ndarray, " samples *terms"]
) -> Estimate:
    """E[values], or of their sum over terms, freed of what control variates of mean zero explain, one for each term.

    For log(p̂ / p) the control p̂ / p - 1 removes the term of first order: what is left is of the size of the gap itself.
    The coefficients are those of least squares; estimating them from n samples costs a relative bias of order 1/n.
    Where log p̂ spreads by more than a nat the control is left out: p̂ / p then owes its mean to values that no sample
    shows. It is left out too where it is nothing but rounding, as with one step and the optimal proposal.
    """
    values, control = (np.asarray(each).reshape(len(each), -1) for each in (values, control))
    centered = control - control.mean(0)
    useful = (control.std(0) > _ROUNDING) & (values.std(0) < 1)
    squares = np.where(useful, np.sum(centered**2, axis=0), np.inf)
    slopes = np.sum(centered * values, axis=0) / squares
    return mean(np.sum(values - slopes * control, axis=-1))


def mean(values: Float[Array | np.ndarray, " samples"]) -> Estimate:
    """The mean of independent samples."""
    return Estimate(float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))))


class Point(NamedTuple):
    """A bound at one K and T, the number of `steps`.

    - `gap`: log p - E log p̂; `ratio`: the mean of p̂ / p, or of R_t / p over all steps with exact histories: one, up to
      its standard error.
    - `spread`: the standard deviation of one log p̂; `limit`: of K x gap, in closed form; NaN where none is known.
    - `increase`: how much the bound grew since the K before, paired; None where the K do not share their weights.
    """

    particles: int
    steps: int
    gap: Estimate
    ratio: Estimate
    spread: float
    limit: float
    increase: Estimate | None = None

    @property
    def k_gap(self) -> Estimate:
        return Estimate(*(self.particles * part for part in self.gap))

    @classmethod
    def of_steps(cls, particles: int, log_ratio: np.ndarray, excess: np.ndarray, limit: float) -> Point:
        """From estimates of each step, (samples, steps), that are independent of each other."""
        spread = float(log_ratio.sum(-1).std(ddof=1))
        gap, ratio = controlled_mean(-log_ratio, excess), mean(1 + excess.mean(-1))
        return cls(particles, log_ratio.shape[1], gap, ratio, spread, limit)

    @classmethod
    def of_run(cls, particles: int, steps: int, arrays: Mapping[str, np.ndarray], limit: float) -> Point:
        """On the first steps: from filters, or from blocks of a single K with exact histories."""
        if "excess" in arrays:
            log_ratio, excess = (arrays[name][:, 0, :steps] for name in ("log_ratio", "excess"))
            return cls.of_steps(particles, log_ratio, excess, limit)
        values = arrays["log_ratio"][:, steps - 1]
        gap, ratio = controlled_mean(-values, np.expm1(values)), mean(np.exp(values))
        return cls(particles, steps, gap, ratio, float(values.std(ddof=1)), limit)

    @classmethod
    def of_blocks(cls, sizes: tuple[int, ...], blocks: Mapping[str, np.ndarray], limit: float) -> list[Point]:
        """Return the point of each K, from blocks of one estimate a step, or of one estimate a path."""
        arrays = (blocks[name] for name in ("log_ratio", "excess", "square"))
        log_ratio, excess, square = (array.reshape(*array.shape[:2], -1) for array in arrays)
        spreads = np.sqrt(np.sum(square.mean(0) - log_ratio.mean(0) ** 2, axis=-1))
        points, totals = [], log_ratio.sum(-1)
        for place, size in enumerate(sizes):
            point = cls.of_steps(size, log_ratio[:, place], excess[:, place], limit)
            increase = mean(totals[:, place] - totals[:, place - 1]) if place else None
            points.append(point._replace(steps=STEPS, spread=float(spreads[place]), increase=increase))
        return points


class BoundsCurves(Outcomes):
    """Curves by setting and `method/proposal`, the scan around the optimal proposal, and differences that are zero."""

    def __init__(self, size: Any, problem: Problem, results: Mapping[str, Samples]):
        super().__init__(size, problem, results)
        arrays = {name: result.arrays for name, result in results.items()}
        model, series, long, proposals = problem.model, problem.series, problem.long, problem.proposals
        self.variances = {name: theory.relative_variances(model, q, series) for name, q in proposals.items()}
        self.second = {name: theory.second_order(model, q, series) for name, q in proposals.items()}
        self.curves: dict[tuple[str, str], list[Point]] = {}
        for name, variances in self.variances.items():
            blocks, limit = arrays[f"exact-{name}"], float(variances.sum() / 2)
            self.curves["exact-histories", f"mcfo-exact/{name}"] = Point.of_blocks(size.exact_particles, blocks, limit)
        for (method, scheme), (name, q) in product(SCHEMES.items(), proposals.items()):
            known = isinstance(scheme, Multinomial)
            limit = theory.smc_relative_variance(model, q, series) / 2 if known else math.nan
            self.curves["smc-histories", f"{method}/{name}"] = [
                Point.of_run(count, STEPS, arrays[f"{method}-{name}-{count}"], limit) for count in size.smc_replicates
            ]
        for name, q in proposals.items():
            blocks, limit = arrays[f"paths-{name}"], float(theory.path_relative_variances(model, q, series)[-1] / 2)
            self.curves["growing-k", f"iwae/{name}"] = Point.of_blocks(size.exact_particles, blocks, limit)
        for method, *source in (("fivo", "smc-histories", "mcfo-smc"), ("mcfo-exact", "exact-histories", "mcfo-exact")):
            for name in proposals:
                self.curves["growing-k", f"{method}/{name}"] = self.curves[source[0], f"{source[1]}/{name}"]
        at, count = np.array(size.growing_steps) - 1, size.growing_particles
        for name in GROWING:
            q, limits = proposals[name], {}
            limits["iwae"] = theory.path_relative_variances(model, q, long)[at]
            limits["fivo"] = [theory.smc_relative_variance(model, q, long, time) for time in size.growing_steps]
            limits["mcfo-exact"] = np.cumsum(theory.relative_variances(model, q, long))[at]
            for method in METHODS:
                self.curves["growing-t", f"{method}/{name}"] = [
                    Point.of_run(count, time, arrays[f"growing-{method}-{name}"], float(limit) / 2)
                    for time, limit in zip(size.growing_steps, limits[method], strict=True)
                ]
        self._scan(arrays)
        smc = arrays[f"mcfo-smc-optimal-{size.smc_particles}"]["log_ratio"]
        best, no_memory = arrays["scan-shift-0"]["square"], arrays["no-memory-exact"]["square"]
        self.zeros = {
            ("optimal-t-1", "mcfo-exact/optimal"): float(np.sqrt(best[..., 0]).max()),
            ("optimal-theta_1-0", "mcfo-exact/optimal"): float(np.sqrt(no_memory).max()),
            ("optimal-t-1", "mcfo-smc/optimal"): float(np.abs(smc[:, 0]).max()),
            ("optimal-theta_1-0", "mcfo-smc/optimal"): float(np.abs(arrays["no-memory-smc"]["log_ratio"][:, -1]).max()),
            ("smc-histories", "mcfo-smc-minus-fivo/bootstrap"): float(arrays["values"]["gap"].max()),
        }

    def _scan(self, arrays: Mapping[str, Mapping[str, np.ndarray]]) -> None:
        """The points of each scanned proposal, and for each K how far its bound lies below that of the optimal one,
        paired on the same random numbers."""
        best, sizes = arrays["scan-shift-0"], self.size.scan_particles
        self.scanned: dict[tuple[str, float], list[Point]] = {}
        self.losses: dict[tuple[str, float, int], Estimate] = {}
        for kind, amount in SCANNED:
            one, q = arrays[f"scan-{kind}-{amount:g}"], moved(self.problem.proposals["optimal"], **{kind: amount})
            variances = theory.relative_variances(self.problem.model, q, self.problem.series)
            self.scanned[kind, amount] = Point.of_blocks(sizes, one, float(variances.sum() / 2))
            below, control = (best[name] - one[name] for name in ("log_ratio", "excess"))
            for place, count in enumerate(sizes):
                self.losses[kind, amount, count] = controlled_mean(below[:, place], control[:, place])

    def figures(self, folder: Path) -> list[Figure]:
        shape = {"columns": 2, "width": 9.0, "height": 3.6}
        text = (
            "The gap with exact histories for proposals around the optimal one, all on the same random numbers: least "
            "at the optimal one for every K, and not zero. Dashed: the limit / K at the largest K."
        )
        gap = "The gap, log p(x) − bound, against K. Dashed: limit / K."
        k_gap = "K × gap against K. Dashed: its limit; dotted: limit + next order / K; squares: systematic resampling."
        both = f"IWAE, FIVO and MCFO as K grows (T = {STEPS}) and as T grows (K = {self.size.growing_particles})."
        by_particles = [self._by_particles(scaled=scaled) for scaled in (False, True)]
        return [
            draw_charts(folder / "gap.png", by_particles[0], gap, sharex=True, sharey=True, **shape),
            draw_charts(folder / "k_gap.png", by_particles[1], k_gap, sharex=True, sharey=True, **shape),
            draw_charts(folder / "optimal.png", self._around_the_optimum(), text, sharey=True, **shape),
            draw_charts(folder / "comparison.png", self._comparison(), both, sharex="col", **shape),
        ]

    def _by_particles(self, *, scaled: bool) -> list[Chart]:
        charts = []
        for setting, method in (("exact-histories", "mcfo-exact"), ("smc-histories", "mcfo-smc")):
            lines = []
            for name in self.problem.proposals:
                curve, color = self.curves[setting, f"{method}/{name}"], _COLORS[name]
                counts, limit = np.array([point.particles for point in curve]), curve[0].limit
                lines.append(_errorbars(counts, curve, color, scaled=scaled, label=name))
                lines.append(Line(counts, limit * (1 / counts) ** (not scaled), color, look={"ls": "--"}))
                if scaled and method == "mcfo-exact":
                    many = counts[counts >= 10]
                    lines.append(Line(many, limit + self.second[name] / many, color, look={"ls": ":"}))
                if scaled and method == "mcfo-smc":
                    other = self.curves[setting, f"mcfo-smc-systematic/{name}"]
                    lines.append(_errorbars(counts, other, color, scaled=True, marker="s", mfc="white"))
            charts.append(Chart(setting.replace("-", " "), lines, _K, log="xy"))
        return charts

    def _around_the_optimum(self) -> list[Chart]:
        largest, charts = self.size.scan_particles[-1], []
        for (kind, amounts), unit in zip(SCAN.items(), ("standard deviations", "times the optimal one"), strict=True):
            lines = []
            curves = zip(*(self.scanned[kind, amount] for amount in amounts), strict=True)
            for curve, color in zip(curves, _COLORS.values(), strict=False):
                lines.append(_errorbars(amounts, curve, color, label=f"K = {curve[0].particles}"))
            limits = [self.scanned[kind, amount][0].limit / largest for amount in amounts]
            lines.append(Line(amounts, limits, "0.3", look={"ls": "--", "label": f"limit / {largest}"}))
            charts.append(Chart(f"{kind} of the proposal", lines, unit, log="y"))
        return charts

    def _comparison(self) -> list[Chart]:
        charts = []
        for name, (setting, x_label) in product(GROWING, (("growing-k", _K), ("growing-t", "steps T"))):
            lines = []
            for method in METHODS:
                curve = self.curves[setting, f"{method}/{name}"]
                places = [point.particles if x_label == _K else point.steps for point in curve]
                lines.append(_errorbars(places, curve, _COLORS[method], label=method))
            charts.append(Chart(f"gap, {name} proposal", lines, x_label, log="xy"))
        return charts


def _errorbars(places: Any, curve: Sequence[Point], color: str, *, scaled: bool = False, **look: Any) -> Line:
    gaps = np.array([point.k_gap if scaled else point.gap for point in curve])
    known = np.array([point.gap.value > _LEAST for point in curve])
    values, errors = np.where(known[:, None], gaps, np.nan).T
    return Line(places, values, color, bars=2 * errors, look={"marker": "o", "ms": 4, **look})
