"""The summary of a learned model: parameters, likelihood, criteria and tests of its residuals, as text and as HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

from mcfo.data.residual_tests import ResidualTests
from mcfo.reports.formatting import MISSING, fixed, significant

DOUBTFUL = 0.01
"""A p-value of a test of residuals below which it becomes a sentence."""


class ParameterRow(NamedTuple):
    """A parameter as people mean it; standard error and interval are None where they are not known."""

    name: str
    estimate: float
    stderr: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, repr=False)
class FitSummary:
    """What [`Fitted.summary`][mcfo.Fitted] returns. It prints as a table, and a notebook shows it as one.

    - `parameters`: one row for each learned number of the model that is short enough to be shown; `uncertainty` says
      what their standard errors are made from.
    - `log_likelihood`: log p(x), exact or estimated; then `log_likelihood_error` is its standard error.
    - `observations`: the number of observed values; `steps`: the number of steps, as statsmodels counts them.
    - `learned`: the number of learned numbers of the model; `diffuse`: of states that start diffuse.
    - `aic`, `bic`: -2 log p(x) + 2 k and -2 log p(x) + k log n with k = learned + diffuse, n = steps.
    - `tests`: tests of the residuals of each column.
    - `notes`: sentences to know before believing a number.
    """

    title: str
    data: str
    parameters: tuple[ParameterRow, ...]
    log_likelihood: float
    log_likelihood_error: float | None
    exact: bool
    observations: int
    steps: int
    learned: int
    diffuse: int
    tests: dict[str, ResidualTests]
    notes: tuple[str, ...]
    uncertainty: str = ""

    @property
    def aic(self) -> float:
        """Akaike's criterion."""
        return -2 * self.log_likelihood + 2 * (self.learned + self.diffuse)

    @property
    def bic(self) -> float:
        """Schwarz's criterion."""
        return -2 * self.log_likelihood + (self.learned + self.diffuse) * math.log(self.steps)

    @property
    def conclusions(self) -> list[str]:
        """What the tests of the residuals say, in sentences."""
        return [text for column, tests in self.tests.items() for text in residual_sentences(column, tests)]

    def __repr__(self) -> str:
        sections = [f"{self.title}\n{self.data}"]
        sections.append("\n".join(f"{name:<16} {value}" for name, value in self._facts()))
        for header, rows in self._tables():
            sections.append(_aligned([header, *rows]))
        return "\n\n".join([*sections, *self._sentences()])

    def _repr_html_(self) -> str:
        parts = [f"<h4>{escape(self.title)}</h4><p>{escape(self.data)}</p>", _html([], self._facts())]
        parts += [_html(header, rows) for header, rows in self._tables()]
        return "\n".join([*parts, *(f"<p>{escape(text)}</p>" for text in self._sentences())])

    def _facts(self) -> list[list[str]]:
        error = "" if self.log_likelihood_error is None else f" ± {self.log_likelihood_error:.2g}"
        how = " (exact)" if self.exact else " (by particles)"
        count = f"{self.learned}" + (f" and {self.diffuse} diffuse states" if self.diffuse else "")
        return [
            ["log-likelihood", fixed(_finite(self.log_likelihood), 3) + error + how],
            ["AIC, BIC", f"{fixed(_finite(self.aic), 3)}, {fixed(_finite(self.bic), 3)}"],
            ["observations", str(self.observations) + (f" in {self.steps} steps" * (self.steps != self.observations))],
            ["learned numbers", count],
        ]

    def _tables(self) -> list[tuple[list[str], list[list[str]]]]:
        tables = []
        if self.parameters:
            known = any(row.stderr is not None or row.low is not None for row in self.parameters)
            header = ["parameter", "estimate", *(["std. error", "2.5 %", "97.5 %"] if known else [])]
            rows = [
                [row.name, *(significant(_finite(value)) for value in (row[1:] if known else row[1:2]))]
                for row in self.parameters
            ]
            tables.append((header, rows))
        if self.tests:
            header = ["residuals", "n", "Ljung-Box", "p", "heteroscedasticity", "p", "Jarque-Bera", "p"]
            rows = []
            for column, tests in self.tests.items():
                cells = [column, str(tests.size)]
                for test in (tests.serial, tests.heteroscedasticity, tests.normality):
                    cells += [fixed(_finite(test.statistic), 2), significant(_finite(test.p_value), 2)]
                cells[2] += f" ({tests.lags})" * (cells[2] != MISSING)
                rows.append(cells)
            tables.append((header, rows))
        return tables

    def _sentences(self) -> list[str]:
        return [*([self.uncertainty] if self.uncertainty else []), *self.conclusions, *self.notes]


def residual_sentences(column: str, tests: ResidualTests) -> list[str]:
    """What the tests of a column's residuals say where they object."""
    found = []
    if tests.serial.p_value < DOUBTFUL:
        found.append(
            f"The forecast errors of {column} are autocorrelated (Ljung-Box over {tests.lags} lags, p = "
            f"{significant(tests.serial.p_value, 2)}): the data have a memory that the model lacks, such as a season, "
            "a trend, a cycle or an autoregression."
        )
    if tests.heteroscedasticity.p_value < DOUBTFUL:
        ratio = tests.heteroscedasticity.statistic
        which = "larger" if ratio > 1 else "smaller"
        found.append(
            f"The forecast errors of {column} are {which} at the end than at the beginning (ratio of their squares "
            f"{significant(ratio, 3)}, p = {significant(tests.heteroscedasticity.p_value, 2)}): the noise changes over "
            "time. A logarithm may help where it grows with the level."
        )
    if tests.normality.p_value < DOUBTFUL:
        found.append(
            f"The forecast errors of {column} are not normal (Jarque-Bera, p = "
            f"{significant(tests.normality.p_value, 2)}): look for outliers, or choose an emission with heavier tails."
        )
    return found


def _finite(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns of equal width: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        first, *others = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join([first.strip().ljust(widths[0]), *others]).rstrip())
    return "\n".join(lines)


def _html(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table>{f'<thead><tr>{head}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>"
