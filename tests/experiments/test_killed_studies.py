"""A study that is killed at any moment goes on where it was: SIGKILL, for all five, at their smallest size."""

import csv
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import mcfo
from mcfo.cli.reproduce import EXPERIMENTS
from mcfo.experiments.outcomes import Claim
from support import tiny_studies

pytestmark = pytest.mark.slow
PATH = os.pathsep.join([str(Path(mcfo.__file__).parents[1]), str(Path(tiny_studies.__file__).parents[1])])


def begin(name, out):
    command = [sys.executable, tiny_studies.__file__, name, str(out)]
    with out.with_suffix(".log").open("w") as log:
        return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": PATH}, stdout=log, stderr=log)


def rows_of(path):
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    # How long a run took is all that may differ.
    return [row for row in rows if not {"minutes", "seconds"} & set(row)]


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_killed_study_ends_as_one_left_in_peace(name, tmp_path):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    process = begin(name, killed)
    deadline = time.monotonic() + 600
    # What is saved first: the arrays of a finished job, or the metrics of a run that learns.
    while not [*killed.glob("jobs/*.npz"), *killed.glob("jobs/*/metrics.jsonl")]:
        assert process.poll() is None, "it ended before anything was saved: " + killed.with_suffix(".log").read_text()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    assert process.wait() == -9
    assert not (killed / "results.csv").exists()
    for out in (killed, whole):
        assert begin(name, out).wait() == 0, out.with_suffix(".log").read_text()[-2000:]
    assert rows_of(killed / "results.csv") == rows_of(whole / "results.csv")
    assert not (killed / "jobs").exists()
    claims = rows_of(killed / "claims.csv")
    assert claims[0] == list(Claim._fields)
    assert len(claims) > 3
    assert claims == rows_of(whole / "claims.csv")
    page = (killed / "report.html").read_text()
    assert "What of the paper holds" in page
    assert all(f"<td>{row[7]}</td>" in page or f"<strong>{row[7]}</strong>" in page for row in claims[1:])
