"""`mcfo fit`, `mcfo evaluate` and `mcfo report`: what they write, what they refuse, what survives."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import jax
import pytest

import mcfo
from mcfo.data.npz import read_arrays
from mcfo.learning.run_folder import read_metrics
from support.commands import SMALL, invoke, refused
from support.learning import same_metrics

pytestmark = pytest.mark.xdist_group("command")  # its fixtures take long: one worker makes them

ROOT = Path(__file__).parent.parent.parent
OWN = """
import jax.numpy as jnp
import numpyro.distributions as dist
from mcfo import MarkovModel, Proposal


class Drift(MarkovModel):
    speed: jnp.ndarray

    def __init__(self):
        self.speed = jnp.zeros(1)

    def initial(self, memory, inputs):
        return dist.Normal(jnp.zeros(1), 1.0).to_event(1)

    def transition(self, memory, inputs):
        return dist.Normal(memory + self.speed, 1.0).to_event(1)

    def emission(self, memory, latent, inputs):
        return dist.Normal(latent, 1.0).to_event(1)


class Wide(Proposal):
    scale: jnp.ndarray

    def __init__(self):
        self.scale = jnp.ones(1)

    def encode(self, series):
        return None

    def initial(self, prior, context):
        return dist.Normal(prior.mean, self.scale).to_event(1)

    def step(self, prior, memory, context):
        return dist.Normal(prior.mean, self.scale).to_event(1)


class Broken(Drift):
    def emission(self, memory, latent, inputs):
        return dist.Normal(latent, self.sped)
"""


@pytest.fixture(scope="module")
def place(classical_run, tmp_path_factory):
    """A folder with data, an own model and a finished run."""
    folder = tmp_path_factory.mktemp("place") / "place"
    shutil.copytree(classical_run, folder)
    (folder / "own.py").write_text(OWN)
    (folder / "text.csv").write_text("x\n1.0\nmany\n")
    (folder / "absurd.csv").write_text("x\n" + "\n".join("1e200" if n == 30 else str(n % 3) for n in range(100)))
    return folder


def test_a_run_folder_has_everything(place):
    found = {path.name for path in (place / "run").iterdir()} - {".lock"}
    assert found == {
        "config.json",
        "metrics.jsonl",
        "checkpoints",
        "results.json",
        "model.npz",
        "report.html",
        "figures",
    }
    config = json.loads((place / "run" / "config.json").read_text())
    assert config["model"]["name"] == "linear-gaussian"
    assert config["data"]["file"].endswith("series.csv")
    assert [(line["step"], line["seed"]) for line in read_metrics(place / "run")] == [(2, 0), (2, 1), (4, 0), (4, 1)]
    assert list((place / "run" / "figures").glob("*.png"))


@pytest.mark.ci
def test_evaluate_prints_what_python_computes(place):
    result = invoke("evaluate", place / "run", "--data", place / "series.csv", "--particles", 50, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["seeds"][0]
    saved = mcfo.load_run(place / "run").seeds[0]
    series_list = mcfo.read_series(place / "series.csv").series_list
    wanted = mcfo.evaluate(saved.model, saved.proposal, series_list, particles=50, repeats=4, key=jax.random.key(0))
    assert found == {"seed": 0, **wanted.as_data()}
    assert found["exact_nll_per_step"] < found["nll_per_step"] + 0.5
    assert found["log_evidence_error"] > 0
    table = invoke("evaluate", place / "run", "--data", place / "series.csv", "--particles", 50)
    assert f"{wanted.nll_per_step:.5f}" in table.stdout


def test_report_is_made_again(place):
    (place / "run" / "report.html").unlink()
    result = invoke("report", place / "run")
    assert result.exit_code == 0
    assert "linear-gaussian" in (place / "run" / "report.html").read_text()
    assert refused(invoke("report", place), "holds no run: there is no config.json in it")


@pytest.mark.slow
def test_an_own_model_is_fitted_and_evaluated(place, tmp_path, monkeypatch):
    own = f"{place / 'own.py'}:Drift"
    result = invoke(
        "fit", own, "--data", place / "series.csv", "--out", tmp_path / "run", "--tensorboard", "--holdout", 0.4, *SMALL
    )
    assert result.exit_code == 0, result.output
    assert list((tmp_path / "run" / "tensorboard" / "seed-0").iterdir())
    assert invoke("evaluate", tmp_path / "run", "--data", place / "series.csv", "--particles", 9).exit_code == 0
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "of-somebody-else"))
    assert refused(invoke("evaluate", tmp_path / "run", "--data", place / "series.csv"), "--model path/to/own.py:Drift")
    found = invoke("evaluate", tmp_path / "run", "--data", place / "series.csv", "--model", own, "--particles", 9)
    assert found.exit_code == 0, found.output
    other = invoke("evaluate", place / "run", "--data", place / "series.csv", "--model", own)
    assert refused(other, "holds another model")


@pytest.mark.slow
def test_an_own_proposal_is_evaluated_too(place, tmp_path, monkeypatch):
    own = ["--proposal", f"{place / 'own.py'}:Wide"]
    run = tmp_path / "a run [/x]"
    fit = invoke("fit", "linear-gaussian", "--data", place / "series.csv", "--out", run, *own, *SMALL)
    assert fit.exit_code == 0, fit.output
    evaluate = ["evaluate", run, "--data", place / "series.csv", "--particles", 9]
    assert invoke(*evaluate).exit_code == 0
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "of-somebody-else"))
    assert refused(invoke(*evaluate), "Say where it is: --proposal")
    assert invoke(*evaluate, *own).exit_code == 0
    (place / "two.csv").write_text("a,b\n1,2\n2,3\n")
    assert refused(invoke("evaluate", run, "--data", place / "two.csv", *own), "learned from 1 columns")
    config = run / "config.json"
    config.write_text("[" * 100_000)
    assert refused(invoke(*evaluate, *own), "is not JSON")
    assert refused(invoke("report", run), "config.json")


BAD = {
    "unknown model": (["fit", "linear-gausian"], "Did you mean 'linear-gaussian'?"),
    "a file without a name": (["fit", "own.py"], "Say which model in it: own.py:Name"),
    "no such own file": (["fit", "nowhere.py:Drift"], "nowhere.py"),
    "no such own class": (["fit", "{place}/own.py:Drif"], "Did you mean 'Drift'?"),
    "an error in an own model": (["fit", "{place}/own.py:Broken"], "own.py, line 41, in emission: AttributeError"),
    "unknown objective": (["fit", "linear-gaussian", "--objective", "mfco"], "Did you mean 'mcfo'?"),
    "unknown objective option": (["fit", "linear-gaussian", "--objective-option", "sweep=3"], "Did you mean 'sweeps'?"),
    "unknown rule": (["fit", "linear-gaussian", "--objective-option", "phi=dregg"], "Did you mean 'dreg'?"),
    "not a pair": (["fit", "linear-gaussian", "--set", "signal"], "not of the form name=value"),
    "unknown model option": (["fit", "linear-gaussian", "--set", "signl=0.5"], "Did you mean 'signal'?"),
    "unknown optimizer": (["fit", "linear-gaussian", "--optimizer", "addam"], "Did you mean 'adam'?"),
    "unknown parameter": (["fit", "linear-gaussian", "--fix", "model.transition"], "model.transition_matrix"),
    "all held out": (["fit", "linear-gaussian", "--holdout", "0.05"], "leaves none"),
    "no such column": (["fit", "linear-gaussian", "--columns", "y"], "'y'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_ends_with_a_message_and_code_2(case, place, tmp_path):
    arguments, message = BAD[case]
    arguments = [word.format(place=place) for word in arguments]
    # The last of two objectives counts.
    result = invoke("fit", *SMALL, *arguments[1:], "--data", place / "series.csv", "--out", tmp_path / "run")
    assert refused(result, message)
    assert not (tmp_path / "run" / "results.json").exists()


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("none.csv", "none.csv"),
        ("text.csv", "line 3"),
        ("own.py", ".csv"),
        (".", "folder"),
        ("absurd.csv", "line 32"),
    ],
)
def test_files_that_cannot_be_read_are_refused(file, message, place, tmp_path):
    for command in (["fit", "linear-gaussian", "--out", tmp_path / "run", *SMALL], ["evaluate", place / "run"]):
        assert refused(invoke(*command, "--data", place / file), message)
    assert not (tmp_path / "run").exists()


def test_names_that_cannot_be(place):
    long = place / ("x" * 300)
    for command in (["fit", "linear-gaussian", "--data", place / "series.csv", "--out", long], ["report", long]):
        assert refused(invoke(*command), "cannot be a name")


def test_what_is_there_is_never_lost(place, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(place / "run", run)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    fit = ["fit", "linear-gaussian", "--data", place / "series.csv", "--out", run, *SMALL, "--seeds", "2"]
    assert refused(invoke(*fit), "exists already")
    assert refused(invoke(*fit, "--resume", "--seed", 3), "settings.seeds was [0, 1] and is [3, 4]")
    assert refused(invoke(*fit, "--resume", "--objective", "nasmc"), "objective.name was 'mcfo' and is 'nasmc'")
    assert refused(invoke("evaluate", place, "--data", place / "series.csv"), "holds no run")
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_the_bootstrap_brings_its_own_proposal(place, tmp_path):
    fit = ["fit", "linear-gaussian", "--data", place / "series.csv", "--out", tmp_path / "run", *SMALL]
    result = invoke(*fit, "--objective", "bootstrap")
    assert result.exit_code == 0, result.output
    found = invoke("evaluate", tmp_path / "run", "--data", place / "series.csv", "--particles", 9)
    assert found.exit_code == 0, found.output


@pytest.mark.slow
def test_a_checkpoint_of_another_model_is_refused(place, tmp_path):
    run, other = tmp_path / "run", tmp_path / "other"
    fit = ["fit", "linear-gaussian", "--data", place / "series.csv", *SMALL, "--seeds", "2"]
    assert invoke(*fit, "--out", other, "--optimizer", "sgd").exit_code == 0
    shutil.copytree(place / "run", run)
    shutil.rmtree(run / "checkpoints")
    shutil.copytree(other / "checkpoints", run / "checkpoints")
    assert refused(invoke(*fit, "--out", run, "--resume"), "is one of another model, optimizer or number of seeds")
    assert (run / "results.json").exists()


@pytest.mark.slow
def test_a_disk_that_is_full_loses_nothing(place, tmp_path):
    """A limit on the size of files stands for the disk: writing fails in the middle, and the run goes on later."""
    command = [
        str(Path(sys.executable).with_name("mcfo")), "fit", "linear-gaussian", "--data", str(place / "series.csv"),
        "--steps", "120", "--particles", "5", "--batch", "2", "--log-every", "1", "--checkpoint-seconds", "0",
    ]  # fmt: skip

    def run(out, *options, limit="unlimited"):
        limited = ["sh", "-c", f'ulimit -f {limit}; exec "$@"', "sh", *command, "--out", str(out), *options]
        return subprocess.run(limited, capture_output=True, text=True, timeout=300)

    assert run(tmp_path / "whole").returncode == 0
    stopped = run(tmp_path / "run", limit=24)
    assert stopped.returncode == 2, stopped.stderr
    assert "Traceback" not in stopped.stderr
    assert "resume: --resume" in stopped.stderr
    assert 0 < len(read_metrics(tmp_path / "run")) < 120
    at_once = run(tmp_path / "none", limit=0)
    assert at_once.returncode == 2
    assert "Traceback" not in at_once.stderr
    resumed = run(tmp_path / "run", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert same_metrics(read_metrics(tmp_path / "run"), read_metrics(tmp_path / "whole"))
    whole, found = read_arrays(tmp_path / "whole" / "model.npz"), read_arrays(tmp_path / "run" / "model.npz")
    assert all((whole[name] == found[name]).all() for name in whole)


def test_what_the_model_cannot_explain_is_refused_by_evaluate_too(counts_run, tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text("count\n3\n-1\n4\n")
    run = counts_run / "run"
    assert refused(
        invoke("evaluate", run, "--data", bad), "Series 1, step 2, column 1 of the values: -1 is not a count"
    )
    assert invoke("evaluate", run, "--data", counts_run / "series.csv", "--particles", 5).exit_code == 0


@pytest.mark.slow
def test_killed_runs_go_on_to_the_bit():
    script = [sys.executable, "benchmarks/kill_and_resume.py", "--kills", "3", "--steps", "300"]
    result = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "equal to the bit" in result.stdout
    assert result.stdout.count("Whole.") == 3
