"""The studies of `benchmarks/unbiased.py`: what results/verify says of them, and that they say it again."""

import csv
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "results" / "verify"


def check_invariance(rows):
    for row in rows:
        wrong = row["scheme"].startswith("unconditional") or "without" in row["scheme"]
        assert (float(row["largest_gap"]) > 4) == wrong, row


def check_means(rows):
    for row in rows:
        gap = float(row["largest_gap"])
        if row["method"] == "genealogy":
            assert gap > 10, row
        else:
            assert gap < 4, row
            assert row["unmet"] == "0", row


def check_score(rows):
    for row in rows:
        gaps = [float(row[f"gap_{i}"]) for i in (1, 2)]
        if row["method"] == "filter-score":
            assert max(gaps) > 10, row
        else:
            assert max(gaps) < 4, row
            assert row["unmet"] == "0", row
    errors = [float(row[f"standard_error_{i}"]) for row in rows if row["method"] == "conditional" for i in (1, 2)]
    assert max(errors) < 0.5


def check_meetings(rows):
    for row in rows:
        assert row["unmet"] == "0", row
        assert 0 < float(row["median_meeting"]) <= float(row["meeting_99"]), row


def check_climbing(rows):
    above = {(row["theta"], row["phi"], row["particles"]): float(row["nll_above_truth"]) for row in rows}
    assert above["score-climbing", "dreg", "10"] < above["fisher", "dreg", "100"] + 5e-4


CHECKS = {
    "invariance": check_invariance,
    "means": check_means,
    "score": check_score,
    "meetings": check_meetings,
    "climbing": check_climbing,
}


@pytest.mark.parametrize("study", sorted(path.stem for path in FOLDER.glob("*.csv") if path.stem in CHECKS))
def test_committed_results_say_what_the_pages_say(study):
    with (FOLDER / f"{study}.csv").open() as file:
        CHECKS[study](list(csv.DictReader(file)))


@pytest.mark.verify
@pytest.mark.parametrize("study", CHECKS)
def test_the_study_again(study, tmp_path):
    spec = importlib.util.spec_from_file_location("unbiased_studies", ROOT / "benchmarks" / "unbiased.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    CHECKS[study]([{key: str(value) for key, value in row.items()} for row in module.run(study, tmp_path)])
