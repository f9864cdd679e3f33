"""Forecasts of three classic series beside those of statsmodels: CRPS by rolling origin over the last fifth.

python benchmarks/forecast_scores.py [results/verify]

Every model learns its parameters from the first four fifths. Then the filter goes on through the last fifth with
these parameters, and forecasts from each step of it. All models are of logarithms, so that every forecast of the
series itself is log-normal, N(m, v) of the logarithm. Its CRPS is computed from m and v by the same closed form for
all models. Writes forecast_scores.csv.
"""

import csv
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import statsmodels.api as sm
from scipy.stats import norm

import mcfo
from mcfo.inference.quantiles import LEVELS

DATA = Path(__file__).parent.parent / "examples" / "data"
SHARE = 0.2
"""The last part of a series, whose steps are forecast."""
WITHIN = 1.05
"""The largest ratio of our CRPS to the best of statsmodels'."""
MONTHLY = {"seasonal_order": (0, 1, 1, 12), "order": (0, 1, 1)}


class Case(NamedTuple):
    """A series, our options, and the options of statsmodels' SARIMAX and UnobservedComponents."""

    horizon: int
    ours: dict[str, Any]
    sarimax: dict[str, Any]
    structural: dict[str, dict[str, Any]]


CASES = {
    "airline": Case(
        12,
        {"season": 12, "transform": "log"},
        MONTHLY,
        {
            "local level": {"level": "local level", "seasonal": 12},
            "local linear trend": {"level": "local linear trend", "seasonal": 12},
            "local linear trend, waves": {"level": "local linear trend", "freq_seasonal": [{"period": 12}]},
        },
    ),
    "driver_deaths": Case(
        12,
        {"season": 12, "transform": "log"},
        MONTHLY,
        {
            "local level": {"level": "local level", "seasonal": 12},
            "local linear trend": {"level": "local linear trend", "seasonal": 12},
            "local linear trend, waves": {"level": "local linear trend", "freq_seasonal": [{"period": 12}]},
        },
    ),
    "lynx": Case(
        5,
        {"cycle": "smooth", "transform": "log"},
        {"order": (2, 0, 0), "trend": "c"},
        {
            "local level": {"level": "local level", "cycle": True, "stochastic_cycle": True, "damped_cycle": True},
            "fixed level": {"level": "fixed intercept", "cycle": True, "stochastic_cycle": True, "damped_cycle": True},
        },
    ),
}


class Row(NamedTuple):
    """The mean CRPS of one model `ahead` steps ahead, in units of the data, over so many forecasts."""

    series: str
    model: str
    ahead: int
    forecasts: int
    crps: float


def read(name: str) -> np.ndarray:
    """Return a series."""
    return np.loadtxt(DATA / f"{name}.csv", delimiter=",", skiprows=1, usecols=1)


def log_normal_crps(mean: np.ndarray, scale: np.ndarray, value: np.ndarray) -> np.ndarray:
    """E|X - x| - E|X - X'| / 2 for log X ~ N(mean, scale²). Baran and Lerch (2015), equation 6."""
    u = (np.log(value) - mean) / scale
    tail = norm.cdf(u - scale) + norm.cdf(scale / np.sqrt(2)) - 1
    return value * (2 * norm.cdf(u) - 1) - 2 * np.exp(mean + scale**2 / 2) * tail


def split(values: np.ndarray) -> int:
    """Return the number of steps to learn from."""
    return len(values) - round(SHARE * len(values))


Moments = Callable[[int], np.ndarray]
"""From the number of steps ahead to mean and standard deviation of the logarithm, (origins, 2)."""


def our_moments(values: np.ndarray, options: dict[str, Any]) -> Moments:
    """Fit our model, and return what it forecasts."""
    fitted, series = mcfo.fit("structural", values[: split(values)], **options), mcfo.Series.from_values(values)

    def moments(ahead: int) -> np.ndarray:
        rolled = mcfo.evaluate_rolling(fitted.model, fitted.proposal, series, horizon=ahead, first=split(values) + 1)
        quantiles = rolled.series[0].quantiles[split(values) : len(values) - ahead + 1, -1, :, 0]
        center, upper = (np.log(quantiles[:, LEVELS.index(level)]) for level in (0.5, 0.75))
        return np.column_stack([center, (upper - center) / norm.ppf(0.75)])

    return moments


def their_moments(build: Callable[[np.ndarray], Any], values: np.ndarray) -> Moments:
    """The same by a model of statsmodels of the logarithms, which `build` makes."""
    logarithms = np.log(values)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about starts and convergence; the best of three searches counts
        learner = build(logarithms[: split(values)])
        searches = [learner.fit(disp=0, method=method, maxiter=500) for method in ("lbfgs", "powell", "nm")]
    whole = build(logarithms).smooth(max(searches, key=lambda one: one.llf).params)

    def moments(ahead: int) -> np.ndarray:
        found = []
        for origin in range(split(values), len(values) - ahead + 1):
            law = whole.get_prediction(origin, origin + ahead - 1, dynamic=True)
            found.append((np.asarray(law.predicted_mean)[-1], np.sqrt(np.asarray(law.var_pred_mean)[-1])))
        return np.array(found)

    return moments


def rows(name: str, case: Case) -> Iterator[Row]:
    """Yield the scores of all models of a series, one step and `horizon` steps ahead."""
    values = read(name)

    def structural(options: dict[str, Any]) -> Moments:
        return their_moments(lambda y: sm.tsa.UnobservedComponents(y, use_exact_diffuse=True, **options), values)

    models = {"mcfo structural": lambda: our_moments(values, case.ours)}
    models["statsmodels SARIMAX"] = lambda: their_moments(lambda y: sm.tsa.SARIMAX(y, **case.sarimax), values)
    for kind, options in case.structural.items():
        models[f"statsmodels structural, {kind}"] = lambda options=options: structural(options)
    for model, build in models.items():
        moments = build()
        for ahead in (1, case.horizon):
            mean, scale = moments(ahead).T
            scores = log_normal_crps(mean, scale, values[split(values) + ahead - 1 :])
            yield Row(name, model, ahead, len(scores), float(scores.mean()))


def ratios(table: list[Row]) -> dict[tuple[str, int], float]:
    """Return our CRPS over the best of statsmodels', by series and steps ahead."""
    found = {}
    for series, ahead in sorted({(row.series, row.ahead) for row in table}):
        here = [row for row in table if (row.series, row.ahead) == (series, ahead)]
        best = min(row.crps for row in here if row.model.startswith("statsmodels"))
        found[series, ahead] = next(row.crps for row in here if row.model.startswith("mcfo")) / best
    return found


def main(folder: str = "results/verify") -> None:
    table = []
    for name, case in CASES.items():
        for row in rows(name, case):
            print(f"{row.series:14s} {row.model:45s} {row.ahead:3d} {row.forecasts:4d} {row.crps:10.4f}", flush=True)
            table.append(row)
    Path(folder).mkdir(parents=True, exist_ok=True)
    with (Path(folder) / "forecast_scores.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows([*row[:-1], f"{row.crps:.4f}"] for row in table)
    for (series, ahead), ratio in ratios(table).items():
        print(f"{series} {ahead} ahead: {ratio:.3f} times the best of statsmodels (wanted: {WITHIN} or less)")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main(*sys.argv[1:])
