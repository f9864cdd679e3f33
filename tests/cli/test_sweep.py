"""A grid of runs: what its file may say, where its runs are, what happens to those that fail or are lost."""

import csv
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from mcfo.cli.sweep import _options_of_fit
from mcfo.cli.sweep_grid import read_grid
from mcfo.cli.sweep_runs import Task, run_here, slurm_script
from support.commands import invoke, refused

GRID = """
data = ["a.csv", "b.csv"]
model = ["local-level", "own.py:Walk"]
particles = [10, 100]
steps = 50
fix = ["model.emission_matrix", "model.transition_matrix"]
checks = false
tensorboard = false

[objective_option]
theta = ["fisher", "filter-score"]
phi = "dreg"
"""


def grid(folder, text):
    path = folder / "sweep.toml"
    path.write_text(text)
    return path


def test_lists_are_axes(tmp_path):
    runs = read_grid(grid(tmp_path, GRID), _options_of_fit())
    assert len(runs) == 2**4
    assert len({run.name for run in runs}) == len(runs)
    assert {tuple(run.values) for run in runs} == {("data", "model", "particles", "objective-option.theta")}
    last = runs[-1]
    assert last.values == {
        "data": "b.csv", "model": "own.py:Walk", "particles": "100", "objective-option.theta": "filter-score"
    }  # fmt: skip
    assert last.arguments[0] == f"{tmp_path}/own.py:Walk"
    words = " ".join(last.arguments)
    for part in (
        f"--data {tmp_path}/b.csv", "--particles 100", "--steps 50", "--no-checks", "--fix model.emission_matrix",
        "--fix model.transition_matrix", "--objective-option theta=filter-score", "--objective-option phi=dreg",
    ):  # fmt: skip
        assert part in words
    assert "tensorboard" not in words
    # A list of names to fix is no axis, and the names of runs are names of folders.
    assert all("/" not in run.name and len(run.name) <= 80 for run in runs)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model = 'local-level'", "gives no data"),
        ("data = 'a.csv'", "gives no model"),
        ("data = 'a.csv'\nmodel = 'hmm'\nparticels = 3", "no option 'particels'. Did you mean 'particles'?"),
        ("data = 'a.csv'\nmodel = 'hmm'\nout = 'x'", "a sweep chooses it for every run"),
        ("data = 'a.csv'\nmodel = []", "or a list of them"),
        ("data = 'a.csv'\nmodel = 'hmm'\nseed = [1, 1]", "lists a value twice"),
        ("data = 'a.csv'\nmodel = 'hmm'\nset = 3", "set is a table, [set]"),
        ("data = 'a.csv'\nmodel = 'hmm'\n[steps]\na = 1", "steps is a value or a list of values, not a table"),
        ("data = 'a.csv'\nmodel = 'hmm'\nfix = [1]", "fix must be the name of a parameter"),
        (f"data = 'a.csv'\nmodel = 'hmm'\nseed = {list(range(101))}\nsteps = {list(range(1, 101))}", "at most 10000"),
        ("data = ", "is not TOML"),
    ],
)
def test_a_bad_file_is_refused_before_anything_runs(tmp_path, text, message):
    result = invoke("sweep", grid(tmp_path, text), "--out", tmp_path / "out")
    assert refused(result, message)
    assert not (tmp_path / "out").exists()


def test_no_file_and_other_folders(tmp_path):
    assert refused(invoke("sweep", tmp_path / "no.toml", "--out", tmp_path / "out"), "Cannot read")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    file = grid(tmp_path, "data = 'a.csv'\nmodel = 'hmm'")
    assert refused(invoke("sweep", file, "--out", tmp_path / "out"), "exists already")
    assert refused(invoke("sweep", file, "--out", tmp_path / "out", "--resume"), "holds no sweep, but other files")


def test_a_job_array_has_an_element_for_each_run(tmp_path):
    out = tmp_path / "out"
    file = grid(tmp_path, "data = 'a.csv'\nmodel = ['hmm', 'local-level']\nseed = [0, 1, 2]")
    result = invoke("sweep", file, "--out", out, "--slurm", "--cores", "4")
    assert result.exit_code == 0, result.output
    script = (out / "slurm.sh").read_text()
    assert "#SBATCH --array=0-5" in script
    assert "#SBATCH --cpus-per-task=4" in script
    assert script.count(" -m mcfo fit ") == 6
    assert script.count("--devices 4 --out") == 6
    # Control: bash reads it, and an element runs its own command alone.
    tasks = [Task(str(index), ["--version"], tmp_path / f"{index}.log") for index in range(2)]
    chosen = {**os.environ, "SLURM_ARRAY_TASK_ID": "1"}
    subprocess.run(["bash", "-c", slurm_script(tasks, 1, "x")], env=chosen, check=True)
    assert (tmp_path / "1.log").read_text().startswith("mcfo ")
    assert not (tmp_path / "0.log").exists()
    # The same folder takes the same sweep again, and no other.
    other = grid(tmp_path, "data = 'a.csv'\nmodel = ['hmm', 'local-level']\nseed = [0, 1, 3]")
    assert refused(invoke("sweep", other, "--out", out, "--resume", "--slurm"), "holds another sweep")


def test_a_run_that_fails_stops_no_other(tmp_path):
    tasks = [Task("bad", ["fit", "hmm"], tmp_path / "bad.log"), Task("good", ["--version"], tmp_path / "good.log")]
    codes = {}
    run_here(tasks, 1, lambda name, code: codes.update({name: code}))
    assert codes["good"] == 0
    assert codes["bad"] == 2
    assert "--data" in (tmp_path / "bad.log").read_text()


def table(folder):
    with (folder / "sweep.csv").open() as file:
        return list(csv.DictReader(file))


@pytest.fixture
def small(tmp_path):
    values = np.cumsum(np.random.default_rng(0).normal(size=30))
    (tmp_path / "a.csv").write_text("x\n" + "\n".join(f"{value:.3f}" for value in values) + "\n")
    text = "data = 'a.csv'\nmodel = ['local-level', 'nonsense']\nsteps = 3\nchecks = false\nobjective = 'mcfo'\n"
    return grid(tmp_path, text + "particles = 5\nevaluation_particles = 5\n")


@pytest.mark.ci
def test_a_failed_run_is_named_and_the_others_are_finished(small, tmp_path):
    out = tmp_path / "out"
    result = invoke("sweep", small, "--out", out)
    assert refused(result, "1 of 2 runs failed")
    assert "--resume" in result.stderr
    rows = table(out)
    assert [row["finished"] for row in rows] == ["True", "False"]
    assert rows[0]["model"] == "local-level"
    assert float(rows[0]["nll_per_step"]) > 0
    single = json.loads((out / "runs" / "1-model=local-level" / "results.json").read_text())
    assert float(rows[0]["nll_per_step"]) == single["seeds"][0]["evaluation"]["nll_per_step"]
    assert "Lowest NLL per step" in (out / "sweep.html").read_text()
    # What is finished is not done again.
    before = (out / "runs" / "1-model=local-level" / "results.json").stat().st_mtime_ns
    assert refused(invoke("sweep", small, "--out", out, "--resume"), "1 of 2 runs failed")
    assert (out / "runs" / "1-model=local-level" / "results.json").stat().st_mtime_ns == before


@pytest.mark.slow
def test_a_lost_worker_of_ray_changes_nothing(tmp_path):
    """Twelve runs on a local cluster of two workers, one of which is killed: all finish with the numbers of no Ray."""
    values = np.cumsum(np.random.default_rng(0).normal(size=40))
    (tmp_path / "a.csv").write_text("x\n" + "\n".join(f"{value:.3f}" for value in values) + "\n")
    file = grid(
        tmp_path,
        "data = 'a.csv'\nmodel = ['local-level', 'local-trend']\nseed = [0, 1]\nparticles = [5, 10, 20]\n"
        "objective = 'mcfo'\nsteps = 300\nchecks = false\n",
    )
    command = [sys.executable, "-m", "mcfo", "sweep", str(file), "--out"]
    subprocess.run([*command, str(tmp_path / "here")], check=True, capture_output=True)
    with subprocess.Popen([*command, str(tmp_path / "ray"), "--ray", "local"], stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 300
        killed = False
        while process.poll() is None and time.monotonic() < deadline and not killed:
            time.sleep(0.5)
            found = subprocess.run(["pgrep", "-f", "ray::_run_in_worker"], capture_output=True, text=True).stdout
            finished = len(list((tmp_path / "ray" / "runs").glob("*/results.json")))
            if finished >= 2 and found.split():
                os.kill(int(found.split()[0]), signal.SIGKILL)
                killed = True
        assert killed
        assert process.wait(900) == 0
    columns = ("run", "finished", "seed", "nll_per_step", "log_evidence", "ess", "steps")
    here, there = ([[row[name] for name in columns] for row in table(tmp_path / one)] for one in ("here", "ray"))
    assert len(here) == 12
    assert here == there
