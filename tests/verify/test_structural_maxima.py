"""The maximized log-likelihood of `mcfo.fit` beside the best that statsmodels finds.

The long study writes results/verify/structural_maxima.csv; its small version is test_structural_maximum.py.
"""

import csv
import warnings
from pathlib import Path

import numpy as np
import pytest
import statsmodels.api as sm

import mcfo
from support.real_series import MAXIMA

FILE = Path(__file__).parent.parent.parent / "results" / "verify" / "structural_maxima.csv"
ALLOWED = 0.01
"""Nats below the best of statsmodels."""


def best_of_statsmodels(values, options):
    model = sm.tsa.UnobservedComponents(values, use_exact_diffuse=True, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about convergence; the best of three searches counts
        return max(model.fit(disp=0, method=method, maxiter=500).llf for method in ("lbfgs", "powell", "nm"))


@pytest.mark.verify
def test_fits_reach_the_maximum_of_statsmodels():
    rows = []
    for name, (load, words, options) in MAXIMA.items():
        values = load()
        logarithm = "transform" in words
        jacobian = -np.nansum(np.log(values)) if logarithm else 0.0
        found = mcfo.fit("structural", mcfo.Series.from_values(values), **{"trend": "none"} | words)
        best = best_of_statsmodels(np.log(values) if logarithm else values, options) + jacobian
        rows.append([name, f"{found.evaluation.log_evidence:.5f}", f"{best:.5f}"])
    FILE.parent.mkdir(parents=True, exist_ok=True)
    with FILE.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([["series", "log_likelihood", "statsmodels"], *rows])
    assert all(float(ours) > float(theirs) - ALLOWED for _, ours, theirs in rows), rows


def test_the_committed_maxima_are_those_of_statsmodels_or_above():
    with FILE.open() as file:
        rows = list(csv.DictReader(file))
    assert {row["series"] for row in rows} == set(MAXIMA)
    assert all(float(row["log_likelihood"]) > float(row["statsmodels"]) - ALLOWED for row in rows)
