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
from collections.abc import Iterator
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
        },
    ),
    "driver_deaths": Case(
        12,
        {"season": 12, "transform": "log"},
        MONTHLY,
        {
            "local level": {"level": "local level", "seasonal": 12},
            "local linear trend": {"level": "local linear trend", "seasonal": 12},
        },
    ),
    "lynx": Case(
        5,
        {"cycle": "damped", "transform": "log"},
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


def our_moments(values: np.ndarray, options: dict[str, Any], horizon: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield mean and standard deviation of the logarithm 1 to `horizon` steps ahead, from each origin."""
    fitted = mcfo.fit("structural", values[: split(values)], **options)
    series = mcfo.Series.from_values(values)
    rolled = mcfo.evaluate_rolling(fitted.model, fitted.proposal, series, horizon=horizon, first=split(values) + 1)
    for quantiles in rolled.series[0].quantiles[split(values) : len(values) - horizon + 1]:
        center, upper = (np.log(quantiles[:, LEVELS.index(level), 0]) for level in (0.5, 0.75))
        yield center, (upper - center) / norm.ppf(0.75)


def their_moments(model: Any, values: np.ndarray, horizon: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The same by a model of statsmodels of the logarithms; `model` builds it from them."""
    logarithms = np.log(values)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about starts and convergence; the best of three searches counts
        learner = model(logarithms[: split(values)])
        searches = [learner.fit(disp=0, method=method, maxiter=1000) for method in ("lbfgs", "powell", "nm")]
        best = max(searches, key=lambda one: one.llf)
        whole = model(logarithms).smooth(best.params)
        for origin in range(split(values), len(values) - horizon + 1):
            ahead = whole.get_prediction(origin, origin + horizon - 1, dynamic=True)
            yield np.asarray(ahead.predicted_mean), np.sqrt(np.asarray(ahead.var_pred_mean))


def rows(name: str, case: Case) -> list[Row]:
    """Return the scores of all models of a series, one step and `horizon` steps ahead."""
    values, found = read(name), []

    def theirs(build: Any) -> Any:
        return lambda horizon: their_moments(build, values, horizon)

    models = {"mcfo structural": lambda horizon: our_moments(values, case.ours, horizon)}
    models["statsmodels SARIMAX"] = theirs(lambda y: sm.tsa.SARIMAX(y, **case.sarimax))
    for kind, options in case.structural.items():
        build = lambda y, options=options: sm.tsa.UnobservedComponents(y, use_exact_diffuse=True, **options)  # noqa: E731
        models[f"statsmodels UnobservedComponents, {kind}"] = theirs(build)
    for model, moments in models.items():
        for ahead in (1, case.horizon):
            mean, scale = np.array([[one[-1] for one in each] for each in moments(ahead)]).T
            scores = log_normal_crps(mean, scale, values[split(values) + ahead - 1 :])
            found.append(Row(name, model, ahead, len(scores), float(scores.mean())))
    return found


def ratios(table: list[Row]) -> dict[tuple[str, int], float]:
    """Return our CRPS over the best of statsmodels', by series and steps ahead."""
    found = {}
    for series, ahead in sorted({(row.series, row.ahead) for row in table}):
        here = [row for row in table if (row.series, row.ahead) == (series, ahead)]
        best = min(row.crps for row in here if row.model.startswith("statsmodels"))
        found[series, ahead] = next(row.crps for row in here if row.model.startswith("mcfo")) / best
    return found


def main(folder: str = "results/verify") -> None:
    table = [row for name, case in CASES.items() for row in rows(name, case)]
    Path(folder).mkdir(parents=True, exist_ok=True)
    with (Path(folder) / "forecast_scores.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows([*row[:-1], f"{row.crps:.4f}"] for row in table)
    for row in table:
        print(f"{row.series:14s} {row.model:50s} {row.ahead:3d} {row.forecasts:4d} {row.crps:10.4f}")
    for (series, ahead), ratio in ratios(table).items():
        print(f"{series} {ahead} ahead: {ratio:.3f} times the best of statsmodels (wanted: {WITHIN} or less)")


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main(*sys.argv[1:])
