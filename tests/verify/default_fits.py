"""Default fits of every catalogue model with few parameters against the maxima that an independent optimizer finds.

    python tests/verify/default_fits.py results/verify/default_fits.csv [CASE ...]

Each fit is the default one: `mcfo.fit(name, series)`, exact where that is possible, by particles elsewhere; and linear
models also by particles. The maximum is that of scipy's Nelder and Mead from the truth, from the initial model and from
what was found, on the exact likelihood, or on one that filters with 10,000 particles and common random numbers
estimate. A row is skipped if the file has it.
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize

import mcfo
from mcfo import Series, exact
from mcfo.inference.evaluation import evaluation_sampler, series_scores
from mcfo.learning.parameters import Modules, split

SEEDS = (0, 1, 2, 3, 4)
NEAR = 0.2
"""Nats below the maximum within which a fit counts as there."""
LOW = 0.05
"""ESS over K below which a fit counts as broken down."""
HEADER = ("case", "seed", "stopped", "updates", "log_likelihood", "stderr", "maximum", "gap", "ess_share", "seconds")


class Case(NamedTuple):
    """A default fit: the name and the options of a model, data, and how it is learned.

    - `by_particles`: learn a model by particles although its likelihood is known.
    """

    name: str
    data: Any
    options: Mapping[str, Any] = MappingProxyType({})
    by_particles: bool = False


def nile() -> np.ndarray:
    """The annual flow of the Nile, 1871 to 1970."""
    import statsmodels.api as sm

    return sm.datasets.nile.load_pandas().data["volume"].to_numpy()


def simulated(model: Any, steps: int = 120, seed: int = 0) -> np.ndarray:
    """A series drawn from a model."""
    return np.asarray(mcfo.simulate(model, steps, key=jax.random.key(seed))[1], np.float64)


def autoregression() -> np.ndarray:
    """A hidden autoregression with noise."""
    truth = mcfo.models.LinearGaussian.scalar(0.8, 1.0, transition_variance=0.5, emission_variance=0.5)
    return 10 + simulated(truth)


def volatility(**options: Any) -> np.ndarray:
    """Returns."""
    return simulated(mcfo.models.StochasticVolatility(level=-9.0, persistence=0.95, scale=0.4, **options), 150)


def leveraged() -> np.ndarray:
    """Returns whose falls raise the volatility."""
    return simulated(mcfo.models.LeveragedVolatility(level=-9.0, persistence=0.9, scale=0.4, leverage=-0.6), 150)


def counts() -> np.ndarray:
    """Counts with a persistent intensity."""
    return simulated(mcfo.models.PoissonCounts(level=1.5, persistence=0.9, scale=0.3))


def wide_counts() -> np.ndarray:
    """Counts with more variance."""
    return simulated(mcfo.models.NegativeBinomialCounts(level=1.5, persistence=0.9, scale=0.3, concentration=4.0))


def regimes() -> np.ndarray:
    """Two regimes of different means."""
    generator = np.random.default_rng(3)
    states = np.cumsum(generator.random(120) < 0.08) % 2
    return np.where(states, 3.0, 0.0) + generator.normal(size=120) * np.where(states, 1.5, 0.7)


def switching() -> np.ndarray:
    """An autoregression around a mean that switches."""
    states, noise = regimes(), np.random.default_rng(4).normal(size=120) * 0.5
    for step in range(1, 120):
        noise[step] += 0.6 * noise[step - 1]
    return 2 * np.round(states / 3) + noise


def tailed() -> np.ndarray:
    """A random walk seen through noise with heavy tails."""
    generator = np.random.default_rng(5)
    return np.cumsum(generator.normal(size=120) * 0.5) + generator.standard_t(4, size=120)


CASES = {
    "local-level nile": Case("local-level", nile),
    "local-level nile, particles": Case("local-level", nile, by_particles=True),
    "local-trend nile": Case("local-trend", nile),
    "local-trend nile, particles": Case("local-trend", nile, by_particles=True),
    "linear-gaussian": Case("linear-gaussian", autoregression),
    "linear-gaussian, particles": Case("linear-gaussian", autoregression, by_particles=True),
    "structural": Case("structural", nile),
    "structural poisson": Case("structural", counts, {"emission": "poisson"}),
    "structural student": Case("structural", tailed, {"emission": "student"}),
    "hmm": Case("hmm", regimes),
    "switching": Case("switching", switching),
    "stochastic-volatility": Case("stochastic-volatility", volatility),
    "stochastic-volatility student": Case(
        "stochastic-volatility", lambda: volatility(degrees=6.0), {"tails": "student"}
    ),
    "stochastic-volatility leverage": Case("stochastic-volatility", leveraged, {"leverage": -0.3}),
    "poisson-counts": Case("poisson-counts", counts),
    "negative-binomial-counts": Case("negative-binomial-counts", wide_counts),
}


def objective_of(case: Case, series: Series, begun: Any, particles: int) -> tuple[Any, Any]:
    """The log-likelihood of the learned numbers, exact or with common random numbers, and the start."""
    modules = Modules.learned_by(begun.model, begun.proposal, begun.fixed)
    learned, rest = split(modules, begun.fixed)
    origin, unravel = ravel_pytree(learned)
    known = exact.is_exact(begun.model)
    sampler, batch = evaluation_sampler(particles), mcfo.stack([series])

    @jax.jit
    def value(point: Any) -> Any:
        both = eqx.combine(unravel(point), rest).current()
        if known:
            return exact.log_evidence(both.model, series)
        return series_scores(sampler, both.model, both.proposal, batch, key=jax.random.key(99)).log_evidence[0]

    return value, np.asarray(origin)


def start_of(case: Case, series: Series) -> Any:
    """The default start."""
    return mcfo.initialize(case.name, series, **case.options)


def maximum(value: Any, points: list[np.ndarray], evaluations: int) -> np.ndarray:
    """The best point that Nelder and Mead find from several ones."""

    def negative(point: np.ndarray) -> float:
        found = float(value(jnp.asarray(point)))
        return -found if np.isfinite(found) else 1e10

    best = min(points, key=negative)
    for _ in range(2):  # a new simplex where the first has contracted
        simplex = best + np.concatenate([np.zeros((1, len(best))), 0.3 * np.eye(len(best))])
        options = {"maxfev": evaluations, "initial_simplex": simplex, "xatol": 1e-4, "fatol": 1e-3}
        best = minimize(negative, best, method="Nelder-Mead", options=options).x
    return best


def study(name: str, *, seeds: tuple[int, ...] = SEEDS, particles: int = 10_000, evaluations: int = 150, **settings):
    """Fit a case with several seeds, and yield a row for each."""
    case = CASES[name]
    series = Series.from_values(case.data())
    begun = start_of(case, series)
    began = time.perf_counter()
    objective = "mcfo" if case.by_particles or not exact.is_exact(begun.model) else None
    options = {"objective": objective, "fixed": begun.fixed, "seeds": seeds} | settings
    fitted = mcfo.fit(begun.model, begun.proposal, [series], **options)
    seconds = (time.perf_counter() - began) / len(seeds)
    value, origin = objective_of(case, series, begun, particles)

    def point_of(one: Any) -> np.ndarray:
        modules = Modules.learned_by(one.model, begun.proposal.following(one.model), begun.fixed)
        return np.asarray(ravel_pytree(split(modules, begun.fixed)[0])[0])

    found = {one.seed: point_of(one) for one in fitted.seeds}
    reached = {seed: float(value(jnp.asarray(point))) for seed, point in found.items()}
    best = maximum(value, [origin, *found.values()], evaluations)
    top = max(float(value(jnp.asarray(best))), *reached.values())
    for one in fitted.seeds:
        evaluation = one.evaluation
        share = 1.0 if evaluation.ess is None else evaluation.ess / evaluation.particles
        error = 0.0 if evaluation.log_evidence_error is None else evaluation.log_evidence_error
        numbers = evaluation.log_evidence, error, top, top - reached[one.seed], share, seconds
        yield [name, one.seed, fitted.stopped, fitted.steps, *(f"{number:.4f}" for number in numbers)]


def main(path: Path, names: list[str]) -> None:
    """Add the rows of every case that the file does not have."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = list(csv.reader(path.open())) if path.exists() else [list(HEADER)]
    for name in names or CASES:
        if any(row[0] == name for row in rows):
            continue
        rows += [list(map(str, row)) for row in study(name)]
        with path.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
        print(*rows[-len(SEEDS) :], sep="\n", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
