"""The page about a posterior: intervals, traces, and how well the chains agree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mcfo.errors import InputError
from mcfo.posterior.result import Posterior, PosteriorRow
from mcfo.reports.figures import BLUE, GRAY, INCHES, ORANGE, Figure, save_figure, styled, subplots
from mcfo.reports.formatting import fixed, listed, parameter_name, significant
from mcfo.reports.html import Report

_DRAWN = 12
"""Parameters whose traces are drawn."""
_POINTS = 1000
"""Draws of a chain in a trace; more would lie on one another."""


def posterior_rows(rows: list[PosteriorRow]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the table of marginal posteriors, narrow enough for a terminal."""
    header = ["parameter", "mean", "sd", "2.5 %", "97.5 %", "R-hat", "ESS"]
    return header, [
        [
            row.name,
            *(significant(_finite(value)) for value in (row.mean, row.sd, row.low, row.high)),
            fixed(_finite(row.r_hat), 3),
            fixed(_finite(row.ess), 0),
        ]
        for row in rows
    ]


def write_posterior_report(posterior: Posterior, folder: Path, *, title: str) -> Path:
    """Writes `figures/traces.png` and `report.html`, and returns the page's path."""
    rows, about = posterior.summary(), posterior.about
    chains, draws = posterior.points.shape[:2]
    how = "the exact likelihood" if about["exact"] else f"a filter with {about['particles']} particles"
    summary = (
        f"{chains} chains of {draws} draws after {about['warmup']} of warm-up, accepted by {how}; "
        f"{100 * float(np.mean(posterior.acceptance)):.0f} % of the steps were accepted."
    )
    page = folder / "report.html"
    report = Report(title, summary=summary, command=about.get("command"))
    report.heading("What the data say about the parameters")
    header, cells = posterior_rows(rows)
    report.table(
        header, cells, caption="Marginal posteriors: means, standard deviations, central intervals of 95 %.", words={0}
    )
    priors = about.get("priors") or {}
    named = listed(f"{name} ~ {text}" for name, text in priors.items()) if priors else "none"
    report.text(f"Priors: {named}. A parameter without a prior has a flat one on the scale of this table.")
    report.heading("What to worry about")
    for warning in posterior.warnings:
        report.warning(warning)
    if not posterior.warnings:
        report.text("Nothing stands out: the chains agree, and the effective sample sizes are large.")
    variance = about.get("log_evidence_variance")
    if variance is not None:
        report.text(f"At the fitted parameters, the estimate of the log-likelihood has a variance of {variance:.2f}.")
    report.heading("How the chains moved")
    try:
        (folder / "figures").mkdir(exist_ok=True)
        figure = _draw(posterior, rows, folder / "figures" / "traces.png")
        report.figure(figure.path, figure.caption)
        report.write(page)
    except OSError as error:
        raise InputError(f"Cannot write {error.filename or page}: {error.strerror}. Make room, and resume.") from error
    return page


@styled
def _draw(posterior: Posterior, rows: list[PosteriorRow], path: Path) -> Figure:
    """A histogram and the traces of each parameter."""
    values, drawn = np.asarray(posterior.values(), float), min(len(rows), _DRAWN)
    figure, axes = subplots(drawn, 2, figsize=(INCHES, 1.3 * drawn + 0.3), squeeze=False, width_ratios=(1, 2))
    every = max(1, values.shape[1] // _POINTS)
    for index, row in enumerate(rows[:drawn]):
        left, right = axes[index]
        _histogram(left, values[:, :, index], row)
        for chain in values[:, ::every, index]:
            right.plot(np.arange(len(chain)) * every, chain, lw=0.5, alpha=0.7)
        right.axhline(row.mean, color=GRAY, lw=0.8)
        left.set_title(_name(row.name))
        right.set_xlabel("draw" if index == drawn - 1 else "")
    save_figure(figure, path)
    more = f" {len(rows) - drawn} more are in draws.nc." if len(rows) > drawn else ""
    caption = (
        "Left: the draws of all chains, with the central interval of 95 %. Right: each chain over its draws; chains "
        f"that agree cover the same band.{more}"
    )
    return Figure(path, caption)


def _histogram(axis: Any, draws: np.ndarray, row: PosteriorRow) -> None:
    axis.hist(draws.ravel(), bins=40, color=BLUE, alpha=0.6)
    for end in (row.low, row.high):
        axis.axvline(end, color=ORANGE, lw=1.0)
    axis.set_yticks([])


def _name(label: str) -> str:
    name, bracket, index = label.partition("[")
    return parameter_name(name) + (f" [{index}" if bracket else "")


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
