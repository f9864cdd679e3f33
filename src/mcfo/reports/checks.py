"""The part of a run's page that asks whether the model makes series like those it learned from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import chi2

from mcfo.data.inspection import MOST_COLUMNS, STATISTICS
from mcfo.data.npz import read_arrays
from mcfo.errors import InputError
from mcfo.reports.curves import WIDTH
from mcfo.reports.page import Report
from mcfo.reports.residuals import autocorrelation, draw_paths, draw_residuals, draw_statistics
from mcfo.reports.words import counted, fixed, significant

FILE = "checks.npz"
_LAGS = 10
_DRAWN = 3
"""Columns that are drawn."""
_FAR = 0.005
"""A share of simulated data sets below which the data's own statistic is far out, on either side."""


@dataclass(frozen=True)
class Found:
    """What checks.npz holds. `residuals` are those of each series, (steps, columns)."""

    columns: list[str]
    residuals: list[np.ndarray]
    values: np.ndarray
    observed: np.ndarray
    simulated: np.ndarray
    paths: np.ndarray


def add_checks(report: Report, folder: Path, figures: Path) -> None:
    """Adds tables and pictures, if the checks were made."""
    if not (folder / FILE).exists():
        return
    found = _read(folder / FILE)
    report.heading("Does the model make series like these?")
    report.text(
        "Residuals: where each value fell in the forecast from all before it, as a number that is standard normal if "
        "the model is right, and independent of the others. Wrong tails bend the QQ plot; memory that the model lacks "
        "shows in the autocorrelation, and changing volatility in that of the squares."
    )
    _residual_table(report, found)
    shown = min(_DRAWN, len(found.columns))
    picture = draw_residuals(figures / "residuals.png", found.residuals, found.columns[:shown])
    report.figure(
        picture,
        "Residuals of the first series, their autocorrelation over all series and their quantiles against the normal "
        "ones. Gray: where 95 of 100 would lie, one by one, if the model were right.",
        alt="Residuals over time, autocorrelations and QQ plot of each column.",
        width=WIDTH,
    )
    report.text(
        f"Below, {counted(len(found.simulated), 'data set')} that the learned model made, with the lengths and gaps of "
        "the data: the data's own statistics should lie among theirs."
    )
    _statistics_table(report, found)
    picture = draw_statistics(figures / "statistics.png", found.observed[:, 0], found.simulated[:, :, 0])
    report.figure(
        picture,
        f"Statistics of {found.columns[0]}: of the simulated data sets (bars) and of the data (line).",
        alt="Histograms of statistics of simulated data, with the data's own value in each.",
        width=WIDTH,
    )
    picture = draw_paths(figures / "simulated.png", found.values, found.paths, found.columns[0])
    report.figure(
        picture,
        f"The first series of {found.columns[0]}, and simulated ones of the same length on the same scale. Could you "
        "tell which is which?",
        alt="The data above three simulated series.",
        width=WIDTH,
    )


def _read(path: Path) -> Found:
    found = _sound(read_arrays(path))
    if found is None:
        raise InputError(
            f"{path} is damaged. Delete it, or make it again: mcfo report {path.parent} --data FILE, with the data of "
            "the run."
        )
    return found


def _sound(arrays: dict[str, np.ndarray]) -> Found | None:
    """What the arrays say, or None if they do not fit together."""
    try:
        columns = [str(name) for name in arrays["columns"]]
        lengths = arrays["lengths"].astype(int)
        residuals, values = arrays["residuals"].astype(float), arrays["values"].astype(float)
        observed, simulated = arrays["observed"].astype(float), arrays["simulated"].astype(float)
        paths = arrays["paths"].astype(float)
        shape = (len(STATISTICS), len(columns))
        sound = (
            0 < len(columns) <= MOST_COLUMNS
            and residuals.shape == values.shape == (int(lengths.sum()), len(columns))
            and (lengths > 0).all()
            and observed.shape == shape
            and simulated.shape[1:] == shape
            and paths.shape[1:] == (lengths[0], len(columns))
        )
    except (KeyError, ValueError, TypeError, IndexError):
        return None
    if not sound:
        return None
    pieces = np.split(residuals, np.cumsum(lengths)[:-1])
    return Found(columns, pieces, values[: lengths[0]], observed, simulated, paths)


def _residual_table(report: Report, found: Found) -> None:
    rows = []
    for place, column in enumerate(found.columns):
        of_series = [one[:, place] for one in found.residuals]
        known = np.concatenate(of_series)
        known = known[np.isfinite(known)]
        squares = [one**2 for one in of_series]
        rows.append(
            [
                column,
                str(len(known)),
                *(fixed(_or_none(value), 3) for value in (known.mean(), known.std())),
                fixed(_or_none(float(np.mean(np.abs(known) > 1.96))), 3),
                *(fixed(_or_none(autocorrelation(one, 1)[0][0]), 3) for one in (of_series, squares)),
                *(significant(_or_none(_ljung_box(one)), 2) for one in (of_series, squares)),
            ]
        )
    report.table(
        ["column", "residuals", "mean", "sd", "beyond ±1.96", "lag 1", "lag 1, squares", "p", "p, squares"],
        rows,
        caption="Residuals one step ahead: of a right model mean 0, sd 1, one in twenty beyond ±1.96, no "
        f"autocorrelation. p: Ljung and Box over {_LAGS} lags, small where there is some.",
    )


def _statistics_table(report: Report, found: Found) -> None:
    rows, marked = [], set()
    for place, column in enumerate(found.columns):
        for number, name in enumerate(STATISTICS):
            simulated = found.simulated[:, number, place]
            simulated, own = simulated[np.isfinite(simulated)], found.observed[number, place]
            if not len(simulated) or not math.isfinite(own):
                continue
            low, middle, high = np.quantile(simulated, [0.05, 0.5, 0.95])
            share = float(np.mean(simulated < own) + np.mean(simulated == own) / 2)
            if min(share, 1 - share) < _FAR:
                marked |= {(len(rows), cell) for cell in range(7)}
            rows.append([column, name, *(significant(float(one)) for one in (own, low, middle, high)), f"{share:.1%}"])
    report.table(
        ["column", "statistic", "data", "5 %", "50 %", "95 %", "below the data"],
        rows,
        caption="Statistics of the data, quantiles of those of simulated data sets, and how many of these lie below. "
        "Bold: hardly any, or nearly all.",
        marked=marked,
    )


def _ljung_box(of_series: list[np.ndarray]) -> float:
    """The probability of autocorrelations as large as these in white noise. Ljung and Box (1978)."""
    lags, count = autocorrelation(of_series, _LAGS)
    if count <= _LAGS + 1 or not np.isfinite(lags).all():
        return math.nan
    return float(chi2.sf(count * (count + 2) * np.sum(lags**2 / (count - np.arange(1, _LAGS + 1))), _LAGS))


def _or_none(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
