"""How good the forecasts of a run are, and whether its model generates series like those it learned from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import gammaln, ndtri, xlogy

from mcfo.data.inspection import MOST_COLUMNS, STATISTICS
from mcfo.data.npz import read_arrays
from mcfo.data.residual_tests import LAGS, autocorrelation, ljung_box, residual_tests
from mcfo.errors import InputError
from mcfo.reports.calibration import draw_paths, draw_residuals, draw_statistics
from mcfo.reports.figures import PIXELS
from mcfo.reports.formatting import MISSING, counted, fixed, listed, significant
from mcfo.reports.html import Report

FILE = "checks.npz"
_FAR = 0.005
"""A share of simulated data sets below which the data's own statistic is far out, on either side."""
_NAIVE = ("naive", "seasonal naive")
_SURE = 1e-3
"""A p-value below which a deviation is reported."""


@dataclass(frozen=True)
class Checks:
    """The content of checks.npz. `residuals`, `values` and `predicted` hold an array (steps, columns) for each
    series; `predicted`, the means of the forecasts one step ahead, is None in files that lack it. `naive` has those of
    naive forecasts by name, and `digest` is the hash of the data."""

    columns: list[str]
    residuals: list[np.ndarray]
    values: list[np.ndarray]
    predicted: list[np.ndarray] | None
    observed: np.ndarray
    simulated: np.ndarray
    paths: np.ndarray
    naive: dict[str, list[np.ndarray]]
    digest: str

    def known(self, column: int) -> np.ndarray:
        """The residuals of a column over all series."""
        residuals = np.concatenate([one[:, column] for one in self.residuals])
        return residuals[np.isfinite(residuals)]

    def coverage(self, column: int, share: float) -> float:
        """The share of values inside the central interval of this probability."""
        return float(np.mean(np.abs(self.known(column)) <= ndtri(0.5 + share / 2)))

    def errors(self, column: int, name: str = "naive") -> tuple[float, float] | None:
        """RMSE one step ahead of the model and of a naive forecast, over the values that both forecast."""
        if self.predicted is None or name not in self.naive:
            return None
        both = np.concatenate(
            [np.stack([x - m, x - n]) for x, m, n in zip(*self._forecasts(name, column), strict=True)], -1
        )
        known = np.isfinite(both).all(axis=0)
        if not known.any():
            return None
        model, naive = np.sqrt(np.mean(both[:, known] ** 2, axis=1)).tolist()
        return model, naive

    def _forecasts(self, name: str, column: int) -> tuple[list[np.ndarray], ...]:
        assert self.predicted is not None
        return tuple([one[:, column] for one in each] for each in (self.values, self.predicted, self.naive[name]))


def read_checks(folder: Path) -> Checks | None:
    """The checks of a run; None if none were made."""
    path = folder / FILE
    if not path.exists():
        return None
    checks = _validated(read_arrays(path))
    if checks is None:
        raise InputError(
            f"{path} is damaged. Delete it, or write it again: mcfo report {path.parent} --data FILE, with the data of "
            "the run."
        )
    return checks


def _validated(arrays: dict[str, np.ndarray]) -> Checks | None:
    """The checks, or None if the arrays do not fit together."""
    try:
        columns = [str(name) for name in arrays["columns"]]
        lengths = arrays["lengths"].astype(int)
        residuals, values = arrays["residuals"].astype(float), arrays["values"].astype(float)
        predicted = arrays["predicted"].astype(float) if "predicted" in arrays else None
        observed, simulated = arrays["observed"].astype(float), arrays["simulated"].astype(float)
        paths = arrays["paths"].astype(float)
        naive = {name: arrays[name].astype(float) for name in _NAIVE if name in arrays}
        shape = (len(STATISTICS), len(columns))
        sound = (
            0 < len(columns) <= MOST_COLUMNS
            and residuals.shape == values.shape == (int(lengths.sum()), len(columns))
            and (predicted is None or predicted.shape == values.shape)
            and all(one.shape == values.shape for one in naive.values())
            and (lengths > 0).all()
            and observed.shape == shape
            and simulated.shape[1:] == shape
            and paths.shape[1:] == (lengths[0], len(columns))
        )
    except (KeyError, ValueError, TypeError, IndexError):
        return None
    if not sound:
        return None

    def split(array: np.ndarray) -> list[np.ndarray]:
        return np.split(array, np.cumsum(lengths)[:-1])

    pieces = None if predicted is None else split(predicted)
    naive = {name: split(array) for name, array in naive.items()}
    digest = str(arrays.get("digest", ""))
    return Checks(columns, split(residuals), split(values), pieces, observed, simulated, paths, naive, digest)


def forecast_summary(checks: Checks) -> str:
    """One sentence about the forecasts of the first column."""
    name, inside, errors = checks.columns[0], checks.coverage(0, 0.9), checks.errors(0)
    coverage = f"{inside:.0%} of its values lie in the 90% intervals"
    if errors is None:
        return f"Forecasts of {name} one step ahead: {coverage}."
    better = 1 - errors[0] / errors[1] if errors[1] > 0 else 0.0
    than = f"{abs(better):.0%} {'less' if better >= 0 else 'more'} than the value before would"
    return f"Forecasts of {name} one step ahead miss it by {significant(errors[0], 3)} (RMSE), {than}; {coverage}."


def add_forecasts(report: Report, checks: Checks, learned_from: str | None) -> None:
    """The table of the forecasts one step ahead; `learned_from` is the hash of the data that the run learned from."""
    rows, seasonal = [], "seasonal naive" in checks.naive
    for column, name in enumerate(checks.columns):
        errors, season = checks.errors(column), checks.errors(column, "seasonal naive")
        shown = [MISSING] * 2 if errors is None else [significant(error) for error in errors]
        shown += [MISSING if season is None else significant(season[1])] if seasonal else []
        inside = [f"{checks.coverage(column, share):.1%}" for share in (0.5, 0.9)]
        rows.append([name, str(len(checks.known(column))), *shown, *inside])
    sample = (
        "In-sample, of the data that the model learned from: too good. " if _in_sample(checks, learned_from) else ""
    )
    more = "; and the seasonal naive one, the value one season before" if seasonal else ""
    report.table(
        ["column", "forecasts", "RMSE", "naive RMSE", *(["seasonal"] if seasonal else []), "in 50%", "in 90%"],
        rows,
        caption=f"{sample}Forecasts one step ahead: root mean square error in the units of the data, beside that of "
        f"the naive forecast, the last value{more}; and the shares of values inside the central intervals of 50% and "
        "90%.",
        words={0},
    )


def _in_sample(checks: Checks, learned_from: str | None) -> bool:
    return bool(checks.digest) and checks.digest == learned_from


def check_concerns(checks: Checks) -> list[str]:
    """Where model and data disagree, each with a remedy; empty if nowhere."""
    several = range(len(checks.columns))
    named = checks.columns
    series = [[one[:, column] for one in checks.residuals] for column in several]
    concerns = []
    wrong = [
        f"{named[column]} ({inside:.0%})"
        for column in several
        if (known := len(checks.known(column)))
        and abs((inside := checks.coverage(column, 0.9)) - 0.9) > 0.03
        and _binomial_test(round(inside * known), known, 0.9) < _SURE
    ]
    if wrong:
        concerns.append(
            f"The 90% intervals do not hold 90% of the values: {listed(wrong)}. Take the forecasts' widths with "
            "caution; try a model with other tails or a changing volatility."
        )
    worse = [named[c] for c in several if (errors := checks.errors(c)) is not None and errors[0] > errors[1]]
    if worse:
        concerns.append(
            f"The value before forecasts better than the model: {listed(worse)}. Take more steps, or another model."
        )
    tests = [residual_tests(series[column]) for column in several]
    memory = _with_p_values(named, [ljung_box(one).p_value for one in series])
    if memory:
        concerns.append(
            f"The forecast errors are autocorrelated: {listed(memory)}. The data have a memory that the model lacks: a "
            "trend, a season or more latent dimensions."
        )
    volatile = _with_p_values(named, [ljung_box([one**2 for one in each]).p_value for each in series])
    if volatile:
        concerns.append(
            f"Large forecast errors come in clusters: {listed(volatile)}. The noise of the data changes over time, "
            "that of the model does not."
        )
    changed = _with_p_values(named, [one.heteroscedasticity.p_value for one in tests])
    if changed:
        concerns.append(
            f"The forecast errors are not as large at the end as at the beginning: {listed(changed)}. The noise "
            "changes over time; a logarithm may help where it grows with the level."
        )
    far = [f"{name} of {column}" for column, name, own, simulated, _ in _statistics(checks) if _beyond(own, simulated)]
    if far:
        more = f" and {len(far) - 6} more" if len(far) > 6 else ""
        concerns.append(f"Series that the model generates differ from the data: {listed(far[:6])}{more}.")
    return concerns


def _with_p_values(columns: list[str], p_values: list[float]) -> list[str]:
    """The columns whose residuals a test rejects, each with its p-value."""
    pairs = zip(columns, p_values, strict=True)
    return [f"{name} (p = {significant(p_value, 2)})" for name, p_value in pairs if p_value < _SURE]


def add_check_figures(report: Report, checks: Checks, figures: Path) -> None:
    """Residuals and simulated series beside the data."""
    report.heading("Does the model generate series like these?")
    report.text(
        "Residuals: where each value fell in the forecast from all before it, as a number that is standard normal if "
        "the model is right, and independent of the others. Wrong tails bend the QQ plot; memory that the model lacks "
        "shows in the autocorrelation, and changing volatility in that of the squares."
    )
    report.figure(
        draw_residuals(figures / "residuals.png", checks.residuals, checks.columns),
        "Residuals of the first series, their autocorrelation over all series and their quantiles against the normal "
        "ones. Gray: where 95 of 100 would lie, one by one, if the model were right.",
        width=PIXELS,
    )
    report.figure(
        draw_paths(figures / "simulated.png", checks.values[0][:, 0], checks.paths[:, :, 0], checks.columns[0]),
        f"The first series of {checks.columns[0]}, and simulated ones of the same length on the same scale. Could you "
        "tell which is which?",
        width=PIXELS,
    )
    report.figure(
        draw_statistics(figures / "statistics.png", checks.observed[:, 0], checks.simulated[:, :, 0]),
        f"Statistics of {checks.columns[0]}: of {counted(len(checks.simulated), 'data set')} that the learned model "
        "generated with the lengths and gaps of the data (bars), and of the data (line), which should lie among them.",
        width=PIXELS,
    )
    with report.details("The numbers behind these figures"):
        _add_residuals(report, checks)
        _add_statistics(report, checks)


def _add_residuals(report: Report, checks: Checks) -> None:
    rows = []
    for column, name in enumerate(checks.columns):
        series = [one[:, column] for one in checks.residuals]
        known, squares = checks.known(column), [one**2 for one in series]
        moments = (known.mean(), known.std(), float(np.mean(np.abs(known) > 1.96))) if len(known) else (math.nan,) * 3
        lags = (autocorrelation(one, 1)[0][0] for one in (series, squares))
        tests = (significant(_or_none(ljung_box(one).p_value), 2) for one in (series, squares))
        rows.append([name, str(len(known)), *(fixed(_or_none(value), 3) for value in (*moments, *lags)), *tests])
    report.table(
        ["column", "residuals", "mean", "sd", "beyond ±1.96", "lag 1", "lag 1, squares", "p", "p, squares"],
        rows,
        caption="Residuals one step ahead: of a right model mean 0, sd 1, one in twenty beyond ±1.96, no "
        f"autocorrelation. p: Ljung and Box over {LAGS} lags, small where there is some.",
        words={0},
    )


def _add_statistics(report: Report, checks: Checks) -> None:
    rows, marked = [], set()
    for column, name, own, simulated, share in _statistics(checks):
        if min(share, 1 - share) < _FAR:
            marked |= {(len(rows), cell) for cell in range(7)}
        numbers = (own, *np.quantile(simulated, [0.05, 0.5, 0.95]))
        rows.append([column, name, *(significant(float(one)) for one in numbers), f"{share:.1%}"])
    report.table(
        ["column", "statistic", "data", "5%", "50%", "95%", "below the data"],
        rows,
        caption="Statistics of the data, quantiles of those of simulated data sets, and how many of these lie below. "
        "Bold: hardly any, or nearly all.",
        marked=marked,
        words={0, 1},
    )


def _statistics(checks: Checks) -> list[tuple[str, str, float, np.ndarray, float]]:
    """Column, statistic, its value for the data, those for simulated data, and the share of these below the data's."""
    rows = []
    for column, title in enumerate(checks.columns):
        for index, name in enumerate(STATISTICS):
            simulated = checks.simulated[:, index, column]
            simulated, own = simulated[np.isfinite(simulated)], float(checks.observed[index, column])
            if len(simulated) and math.isfinite(own):
                share = float(np.mean(simulated < own) + np.mean(simulated == own) / 2)
                rows.append((title, name, own, simulated, share))
    return rows


def _beyond(own: float, simulated: np.ndarray) -> bool:
    """Whether a statistic lies further from the simulated ones than their central 90% are wide: five standard
    deviations of a normal distribution, so that none of many statistics does by chance."""
    low, high = np.quantile(simulated, [0.05, 0.95])
    return not 2 * low - high <= own <= 2 * high - low


def _or_none(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _binomial_test(successes: int, trials: int, probability: float) -> float:
    """The probability of all counts that are no likelier than this one. `scipy.stats` takes half a second to import."""
    counts = np.arange(trials + 1)
    log_ways = gammaln(trials + 1) - gammaln(counts + 1) - gammaln(trials - counts + 1)
    log_density = log_ways + xlogy(counts, probability) + xlogy(trials - counts, 1 - probability)
    return float(np.sum(np.exp(log_density[log_density <= log_density[successes] + 1e-7])))
