"""How many files of the package one observation passes through in `mcfo fit local-level`, from table to page."""

import collections
import sys
import threading
from pathlib import Path

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import mcfo
from mcfo.cli.main import app
from mcfo.data.tables import Table
from mcfo.series import Frame, Series

ROOT = Path(mcfo.__file__).parent
# The text of a cell becomes a number there: it holds an observation, though no array yet.
READER = "data/csv_reader.py"


def carries(value, depth=2):
    """Whether an argument holds observations or what was computed from them: a table, series, an array of numbers."""
    if isinstance(value, Series | Frame | Table):
        return True
    if isinstance(value, jax.Array | np.ndarray):
        return jax.dtypes.issubdtype(value.dtype, np.floating) and value.size > 0
    return depth > 0 and isinstance(value, list | tuple) and len(value) > 0 and carries(value[0], depth - 1)


def files_of(call):
    """The files whose functions a call enters, and those of them that are handed numbers."""
    entered, passed = collections.Counter(), collections.Counter()

    def profile(frame, event, argument):
        path = Path(frame.f_code.co_filename)
        # Bodies of modules and classes run once, at the first import, and see no observation.
        if event != "call" or not path.is_relative_to(ROOT) or not frame.f_code.co_flags & 0x2:
            return
        name = path.relative_to(ROOT).as_posix()
        entered[name] += 1
        if name == READER or any(carries(value) for value in list(frame.f_locals.values())):
            passed[name] += 1

    jax.clear_caches()
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return entered, passed


@pytest.mark.ci
def test_an_observation_passes_through_few_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = np.cumsum(np.random.default_rng(0).normal(size=12))
    Path("series.csv").write_text("\n".join(["x", *(f"{value:.4f}" for value in values)]) + "\n")
    words = ["fit", "local-level", "--data", "series.csv", "--out", "run"]
    results = []
    entered, passed = files_of(
        lambda: results.append(CliRunner().invoke(app, [*words, "--devices", "1", "--no-checks"]))
    )
    assert results[0].exit_code == 0, results[0].output
    assert {READER, "series.py", "kalman/filter.py", "learning/maximum_likelihood.py"} <= passed.keys()
    assert "cli/main.py" not in passed, "the negative control: it is handed no numbers"
    assert len(passed) <= 45, sorted(passed)
    assert len(entered) <= 75, sorted(entered)
