"""Streams learn A, Q and R of a linear Gaussian model from one observed column; the filter score ends elsewhere.

The study writes results/verify/streams.csv: what eight streams of 20000 steps end with, for each rule.
"""

import csv
from pathlib import Path

import numpy as np
import pytest

from support.streams import estimates, standard_errors

FILE = Path(__file__).parent.parent.parent / "results" / "verify" / "streams.csv"
RULES = ("exact", "fisher-lag-20", "filter-score")
STREAMS, STEPS = 8, 20_000
HEADER = ["rule", "stream", "A", "Q", "R"]


@pytest.mark.verify
def test_streams_find_the_truth():
    found = {rule: estimates(rule, STREAMS, STEPS) for rule in RULES}
    FILE.parent.mkdir(parents=True, exist_ok=True)
    with FILE.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        for rule, rows in found.items():
            writer.writerows([rule, index, *(f"{value:.5f}" for value in row)] for index, row in enumerate(rows))
    check(found)


def test_the_committed_study_found_the_truth():
    with FILE.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(RULES) * STREAMS
    check(
        {
            rule: np.array([[float(row[name]) for name in "AQR"] for row in rows if row["rule"] == rule])
            for rule in RULES
        }
    )


def check(found):
    """Within three standard errors in all three parameters; the control is off by more than ten in one."""
    for rule in ("exact", "fisher-lag-20"):
        assert np.max(np.abs(standard_errors(found[rule]))) < 3, rule
    assert np.max(np.abs(standard_errors(found["filter-score"]))) > 10
