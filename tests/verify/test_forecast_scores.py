"""CRPS of structural models on classic series beside statsmodels: the committed table, and parts of it again."""

import csv
from pathlib import Path

import forecast_scores as study
import numpy as np
import pytest

import mcfo

COMMITTED = Path(__file__).parent.parent.parent / "results" / "verify" / "forecast_scores.csv"


def committed():
    with COMMITTED.open() as file:
        rows = list(csv.DictReader(file))
    return [
        study.Row(row["series"], row["model"], int(row["ahead"]), int(row["forecasts"]), float(row["crps"]))
        for row in rows
    ]


def test_the_committed_scores_are_as_good_as_the_best_of_statsmodels():
    ratios = study.ratios(committed())
    assert set(ratios) == {("airline", 1), ("airline", 12), ("driver_deaths", 1), ("driver_deaths", 12)} | {
        ("lynx", 1),
        ("lynx", 5),
    }
    assert max(ratios.values()) <= study.WITHIN, ratios


@pytest.mark.ci
def test_our_scores_are_the_committed_ones_and_the_same_crps_for_all():
    values, options = study.read("airline"), study.CASES["airline"].ours
    mean, scale = study.our_moments(values, options)(1).T
    scores = study.log_normal_crps(mean, scale, values[study.split(values) :])
    ours = next(
        row for row in committed() if row.model.startswith("mcfo") and (row.series, row.ahead) == ("airline", 1)
    )
    np.testing.assert_allclose(scores.mean(), ours.crps, rtol=1e-3)
    # The closed form for all models is what our own rolling evaluation computes by quadrature.
    fitted = mcfo.fit("structural", values[: study.split(values)], **options)
    first = study.split(values) + 1
    rolled = mcfo.evaluate_rolling(fitted.model, fitted.proposal, mcfo.Series.from_values(values), first=first)
    np.testing.assert_allclose(rolled.scores[0].crps, scores.mean(), rtol=1e-6)
    # A level alone, without a season, is far outside of what is allowed.
    mean, scale = study.our_moments(values, {"transform": "log", "trend": "none"})(1).T
    alone = study.log_normal_crps(mean, scale, values[study.split(values) :]).mean()
    best = min(row.crps for row in committed() if (row.series, row.ahead) == ("airline", 1))
    assert alone > study.WITHIN * best


@pytest.mark.verify
def test_the_whole_table_is_as_committed():
    table = [row for name, case in study.CASES.items() for row in study.rows(name, case)]
    assert [row[:4] for row in table] == [row[:4] for row in committed()]
    np.testing.assert_allclose([row.crps for row in table], [row.crps for row in committed()], rtol=0.01)
