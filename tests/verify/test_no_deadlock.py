"""`mcfo fit linear-gaussian` on a table of which many cells are empty comes to its end, whatever the seed.

It used to stop for ever in six of seven attempts: two batches of LAPACK calls inside a loop waited for each other.
"""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

ROWS, COLUMNS, EMPTY = 162, 5, 0.28
SECONDS = 600
"""Many times what a fit takes."""

pytestmark = pytest.mark.verify


def write_table(path):
    rng = np.random.default_rng(0)
    levels = np.cumsum(rng.standard_normal((ROWS, COLUMNS)), axis=0)
    values = levels + rng.standard_normal((ROWS, COLUMNS))
    empty = rng.random((ROWS, COLUMNS)) < EMPTY
    cells = np.where(empty, "", np.char.mod("%.4f", values))
    path.write_text("\n".join([",".join(row) for row in [[f"x{number}" for number in range(COLUMNS)], *cells]]) + "\n")


@pytest.mark.parametrize("devices", [None, 1], ids=["all-devices", "one-device"])
@pytest.mark.parametrize("seed", range(6))
def test_fit_ends(seed, devices, tmp_path):
    table, out = tmp_path / "table.csv", tmp_path / "run"
    write_table(table)
    command = [sys.executable, "-m", "mcfo", "fit", "linear-gaussian", "--data", table, "--out", out, "--seed", seed]
    command += ["--objective", "mcfo"]  # the exact fit has no particles
    command += [] if devices is None else ["--devices", devices]
    # Compiled as for a user, not as for the tests.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_"))}
    result = subprocess.run(
        [*map(str, command), "--no-checks"], env=environment, timeout=SECONDS, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert "No update for" not in result.stdout
    assert json.loads((out / "results.json").read_text())["steps"] > 100
