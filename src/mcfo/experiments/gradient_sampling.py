"""Samples of gradient estimates, from few compiled programs; what they say beside the exact gradients, and figures.

The rule for theta and the rule for phi do not see each other, so a method takes theta's column from one program and
phi's from another, and the programs are fewer than the methods. Replicates and settings are arguments of a program;
only the objective with its number of particles makes another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from jaxtyping import Key as KeyArray

from mcfo.experiments.bounds_theory import moved
from mcfo.experiments.jobs import Share
from mcfo.experiments.lgssm_problem import PHI, THETA, parameters
from mcfo.experiments.outcomes import ROUNDING, SIGMAS, Estimate, Row
from mcfo.experiments.runs import SWEEPS, color
from mcfo.kalman import log_evidence
from mcfo.models.base import simulate
from mcfo.models.linear_gaussian import LinearGaussian
from mcfo.objectives.named import aesmc, bootstrap, fivo, iwae, mcfo, nasmc, rws
from mcfo.objectives.objective import Objective
from mcfo.proposals.base import Bootstrap, Proposal
from mcfo.proposals.gaussian import AffineGaussian
from mcfo.reports.figures import Chart, Figure, Line, draw_charts, save_figure, styled, subplots
from mcfo.series import Series
from mcfo.types import Key

PARAMETERS = THETA + PHI
LAG = 3
_CHUNK = 20_000
"""Particles side by side: enough to fill vectors, few enough to stay in the cache."""
_CALL = 10_000_000
"""Particle steps in one call: a second or two, so that a bar moves and an interruption is heard."""
_DRAWN = {
    "theta": ("iwae", "rws", "aesmc", "nasmc", "mcfo-smc", "mcfo-pimh", "mcfo-fisher", "mcfo-fisher-lag"),
    "phi": ("iwae", "rws", "aesmc", "nasmc", "mcfo-smc", "mcfo-pimh", "mcfo-dreg"),
}
"""Methods in the figures. Those with by far the widest spread (the full FIVO gradient, bootstrap) would hide others."""
_LEAST = 0.1
"""Fewer standard errors than this are drawn as so many, on a logarithmic axis."""

PROGRAMS: dict[str, Callable[[int], Objective]] = {
    "iwae": iwae,
    "rws": rws,
    "aesmc": aesmc,
    "fivo-full": lambda particles: fivo(particles, full=True),
    "nasmc": nasmc,
    "filter-score-reparameterized": mcfo,
    "fisher-dreg": lambda particles: mcfo(particles, theta="fisher", phi="dreg"),
    "fisher-lag-stl": lambda particles: mcfo(particles, theta=f"fisher-lag-{LAG}", phi="sticking-the-landing"),
    "pimh": lambda particles: mcfo(particles, sweeps=SWEEPS),
    "bootstrap": bootstrap,
}


class Method(NamedTuple):
    """Which programs give a method's columns, what they estimate, and at which K alone it exists, if at one."""

    theta: str
    phi: str | None
    theta_estimand: str
    phi_estimand: str = "none"
    only: int | None = None


_FILTER = "score under the filtering law"
_SCORE = "score of log p(x), bias of order 1/K"
_STEP = "derivative of each step's bound"
_LOCAL, _FISHER, _LAGGED = list(PROGRAMS)[5:8]

METHODS: dict[str, Method] = {
    "elbo": Method("iwae", "iwae", "derivative of the ELBO", "derivative of the ELBO", only=1),
    "iwae": Method("iwae", "iwae", "derivative of the IWAE bound", "derivative of the IWAE bound"),
    "aesmc": Method("aesmc", "aesmc", _FILTER, "FIVO bound without the resampling term"),
    "fivo-full": Method("fivo-full", "fivo-full", "derivative of the FIVO bound", "derivative of the FIVO bound"),
    "alternating": Method("aesmc", "iwae", _FILTER, "derivative of the IWAE bound"),
    "rws": Method("rws", "rws", _SCORE, "KL(p(z_1:T | x) || q)"),
    "nasmc": Method("nasmc", "nasmc", _FILTER, "KL(p(z_t | x_1:t) || q), bias of order 1/K"),
    "bootstrap": Method("bootstrap", None, _FILTER),
    "mcfo-smc": Method(_LOCAL, _LOCAL, _FILTER, _STEP),
    "mcfo-pimh": Method("pimh", "pimh", "filter score, histories of the accepted sweep", _STEP),
    "mcfo-dreg": Method(_LOCAL, _FISHER, _FILTER, _STEP),
    "mcfo-stl": Method(_LOCAL, _LAGGED, _FILTER, "each step's bound without q's score"),
    "mcfo-fisher": Method(_FISHER, _LOCAL, _SCORE, _STEP),
    "mcfo-fisher-lag": Method(_LAGGED, _LOCAL, f"score under the smoothing law of lag {LAG}", _STEP),
}


class Problem(eqx.Module):
    """Where gradients are taken, and of what data."""

    model: LinearGaussian
    proposal: Proposal
    series: Series

    def exact(self) -> np.ndarray:
        """The exact score for theta, and zero for phi: the derivative of each step's bound at its maximum."""
        score = parameters(jax.grad(log_evidence)(self.model, self.series), Bootstrap())
        return np.array([float(score.get(name, 0.0)) for name in PARAMETERS])


def gradient(objective: Objective, problem: Problem, key: Key) -> Float[Array, " parameters"]:
    """One estimate, in the direction of ascent; NaN for phi where the objective does not learn it."""

    def loss(modules: tuple[LinearGaussian, Proposal]):
        return objective.loss(*modules, problem.series, key=key)

    (model, proposal), _ = eqx.filter_grad(loss, has_aux=True)((problem.model, problem.proposal))
    learned = parameters(model, Bootstrap() if objective.phi is None else proposal)
    return -jnp.stack([learned.get(name, jnp.nan) for name in PARAMETERS])


def sample(
    objective: Objective, problems: Mapping[str, Problem], replicates: int, share: Share, *, key: Key
) -> dict[str, Float[np.ndarray, "replicates parameters"]]:
    """Independent gradient estimates for each problem, with the same keys for all of them."""
    first, particles = next(iter(problems.values())), objective.theta.sampler.particles
    side_by_side = max(1, min(replicates, _CHUNK // particles))
    in_turn = max(1, min(-(-replicates // side_by_side), _CALL // (side_by_side * particles * first.series.steps)))
    calls = -(-replicates // (side_by_side * in_turn))
    keys = jax.random.split(key, calls * in_turn * side_by_side).reshape(calls, -1)

    def estimates(problem: Problem, keys: KeyArray[Array, " replicates"]) -> Float[Array, "replicates parameters"]:
        return jax.lax.map(lambda key: gradient(objective, problem, key), keys, batch_size=side_by_side)

    # At this level compiling takes half as long, and the programs are as fast.
    compiled = jax.jit(estimates).lower(first, keys[0]).compile({"xla_backend_optimization_level": "1"})
    samples = {}
    for name, problem in problems.items():
        parts = []
        for some in keys:
            parts.append(np.asarray(compiled(problem, some)))
            share.advance(1 / (len(problems) * calls))
        samples[name] = np.concatenate(parts)[:replicates]
    return samples


class Setting(NamedTuple):
    """Data from one theta, gradients at another, phi at the locally optimal proposal of the latter."""

    theta: tuple[float, float]
    data_theta: tuple[float, float]
    emission_variance: float


SETTINGS: dict[str, Setting] = {
    "r1": Setting((0.9, 10.0), (0.9, 10.0), 1.0),
    "r0.01": Setting((0.9, 10.0), (0.9, 10.0), 0.01),
    "off-optimum": Setting((0.6, 8.0), (0.9, 10.0), 1.0),
}


def _build(setting: Setting, steps: int, key: Key) -> Problem:
    variance = setting.emission_variance
    _, observations = simulate(LinearGaussian.scalar(*setting.data_theta, emission_variance=variance), steps, key=key)
    model = LinearGaussian.scalar(*setting.theta, emission_variance=variance)
    return Problem(model, AffineGaussian.optimal(model), Series.from_values(np.asarray(observations)))


def build_problems(steps: int, seed: int) -> dict[str, Problem]:
    """The settings of the paper, on the same random numbers, and the cases of the errata.

    Displaced: both offsets of the proposal, φ_2 and φ_5, half a standard deviation of the proposal away from the
    optimum. Small: a proposal that follows the observation 0.4 times as far as the optimal one, so that weights differ.
    """
    of_paper, of_long, of_small = jax.random.split(jax.random.fold_in(jax.random.key(seed), 0), 3)
    problems = {name: _build(setting, steps, of_paper) for name, setting in SETTINGS.items()}
    problems["displaced"] = eqx.tree_at(
        lambda problem: problem.proposal, problems["r1"], replace_fn=lambda proposal: moved(proposal, shift=0.5)
    )
    problems["long"] = _build(Setting((0.8, 1.08), (0.9, 1.2), 1.0), 50, of_long)
    problems["small"] = eqx.tree_at(
        lambda problem: (problem.proposal.initial_weight, problem.proposal.observation_weight),
        _build(Setting((0.9, 1.2), (0.9, 1.2), 1.0), 3, of_small),
        replace_fn=lambda weight: 0.4 * weight,
    )
    return problems


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
        """Mean and standard deviation of each with their standard errors, and the exact value where it is known."""
        for about, one in self.items():
            yield Row(*about, "mean", one.mean, one.bias.stderr)
            yield Row(*about, "std", one.std, one.std / math.sqrt(2 * (one.replicates - 1)))
            if not math.isnan(one.exact):
                yield Row(*about, "exact", one.exact)

    def by_particles(self, setting: str, method: str, parameter: str) -> dict[int, Gradient]:
        """A method's gradients by K, ascending; none if it does not learn the parameter."""
        found = {k[2]: one for k, one in self.items() if (k[0], k[1], k[3]) == (setting, method, parameter)}
        return dict(sorted(found.items()))

    def worst(self, setting: str, method: str, parameters: Iterable[str]) -> tuple[int, str, Gradient] | None:
        """The largest K, the parameter that is there most standard errors away from its exact value, and its gradient;
        None if no parameter is learned."""
        every = [(name, self.by_particles(setting, method, name)) for name in parameters]
        found = [(max(gradients), name, gradients[max(gradients)]) for name, gradients in every if gradients]
        return max(found, key=lambda one: abs(one[2].bias.sigmas), default=None)

    def verdict(self, setting: str, method: str, parameter: str) -> str:
        """Whether the mean misses the exact value at the largest K, and whether the gap shrinks as K grows."""
        *before, last = self.by_particles(setting, method, parameter).values()
        if not last.biased:
            return "zero up to rounding" if abs(last.bias.value) < ROUNDING else "no bias seen"
        if not before or not before[-1].biased:
            return "biased, trend unknown"
        shrinks = abs(last.bias.value) < 0.5 * abs(before[-1].bias.value)
        return "biased, shrinks" if shrinks else "biased, does not shrink"

    def slope(self, setting: str, method: str, parameter: str) -> float:
        """The exponent of K in the spread, by least squares on logarithms over K >= 10; NaN if it has none."""
        spreads = {k: one.std for k, one in self.by_particles(setting, method, parameter).items() if k >= 10}
        if len(spreads) < 2 or min(spreads.values()) < ROUNDING:
            return math.nan
        return float(np.polyfit(np.log([*spreads]), np.log([*spreads.values()]), 1)[0])


def draw_figures(folder: Path, outcomes: Any) -> list[Figure]:
    """All figures of the outcomes of the study, in the order of the page."""
    figures = []
    for setting in dict.fromkeys(about[0] for about in outcomes.samples):
        for side in ("theta", "phi"):
            caption = (
                f"Setting {setting}: the {side} gradient. Each violin holds one method's samples between their 0.5 "
                "and 99.5 percentiles; the tick is the mean, the dashed line the exact value. Scales differ."
            )
            path = folder / f"distributions-{setting}-{side}.png"
            figures.append(Figure(_distributions(path, outcomes, setting, side), caption))
        for quantity in ("spread", "gap"):
            what = "standard deviation" if quantity == "spread" else "distance of the mean from the exact value in s.e."
            caption = f"Setting {setting}: {what} against K. Dotted: slope -1/2; dashed: beyond it a bias is seen."
            charts = _against_particles(outcomes.found, setting, spread=quantity == "spread")
            figures.append(draw_charts(folder / f"{quantity}-{setting}.png", charts, caption, columns=4))
    return figures


@styled
def _distributions(path: Path, outcomes: Any, setting: str, side: str) -> Path:
    samples = {about[1:]: values for about, values in outcomes.samples.items() if about[0] == setting}
    counts = sorted({count for _, count in samples})
    methods = [method for method in _DRAWN[side] if any(method == known for known, _ in samples)]
    names = THETA if side == "theta" else PHI
    shape = (2.7 * len(counts) + 0.8, (0.24 * len(methods) + 0.2) * len(names) + 0.5)
    figure, axes = subplots(len(names), len(counts), figsize=shape, squeeze=False, sharey=True)
    for axis, (name, count) in zip(axes.flat, product(names, counts), strict=True):
        index = PARAMETERS.index(name)
        for level, method in enumerate(methods):
            if (method, count) in samples:
                _violin(axis, samples[method, count][:, index], level, color(method))
        axis.axvline(outcomes.exact[setting][index], color="black", lw=1.0, ls="--", zorder=3)
        axis.set_yticks(range(len(methods)), methods)
        axis.set_title(rf"$\{name}$, K = {count}")
        axis.locator_params(axis="x", nbins=4)
    axes[0, 0].invert_yaxis()
    return save_figure(figure, path)


def _violin(axis: Any, values: np.ndarray, level: int, shade: str) -> None:
    low, high = np.percentile(values, [0.5, 99.5])
    if high - low > ROUNDING:
        inside = values[(values >= low) & (values <= high)]
        options: Any = {"orientation": "horizontal", "widths": 0.85, "showextrema": False, "points": 60}
        bodies: Any = axis.violinplot(inside, [level], **options)["bodies"]
        bodies[0].set(facecolor=shade, alpha=0.55, linewidth=0)
    axis.plot(values.mean(), level, color=shade, marker="|", ms=7, mew=1.8, zorder=4)


def _against_particles(found: Summary, setting: str, *, spread: bool) -> list[Chart]:
    charts = []
    for name in PARAMETERS:
        lines = []
        for method in _DRAWN["theta" if name in THETA else "phi"]:
            gradients = found.by_particles(setting, method, name)
            counts = np.array([*gradients])
            values = [one.std if spread else max(abs(one.bias.sigmas), _LEAST) for one in gradients.values()]
            shown = np.where(np.array(values) > ROUNDING, values, np.nan)
            if np.isfinite(shown).any():
                lines.append(Line(counts, shown, color(method), look={"marker": "o", "ms": 3, "label": method}))
            if method == "mcfo-smc" and spread:
                lines.append(Line(counts, values[0] * (counts / counts[0]) ** -0.5, "0.6", look={"ls": ":"}))
        levels = {} if spread else {f"{SIGMAS:g} standard errors": SIGMAS}
        charts.append(Chart(rf"$\{name}$", lines, "particles K", levels, log="xy", formula=True))
    return charts
