"""`mcfo stream`: answers, bad lines, and interruptions that change nothing."""

import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import mcfo
from mcfo.cli.main import app
from support.commands import refused

pytestmark = pytest.mark.xdist_group("stream")  # its fixture takes long: one worker makes it

FEW = ["--particles", "20"]
LINES = ["0.5", "[0.1]", '{"level": -0.7}', "null", "[null]", "1.2", "0.3", "{}", "-0.4", "0.9"]


@pytest.fixture
def run(classical_run):
    return classical_run / "run"


def fed(lines, *arguments):
    """The command with these lines on its standard input."""
    text = "".join(f"{line}\n" for line in lines)
    return CliRunner().invoke(app, ["stream", *map(str, arguments)], input=text)


def answers(result):
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_answers_are_the_filters(run, tmp_path):
    found = answers(fed(LINES, run, *FEW, "--quantiles", "0.1,0.9"))
    assert [one["step"] for one in found] == list(range(1, 11))
    assert set(found[0]) == {"step", "mean", "quantiles", "ess", "log_predictive"}
    assert set(found[0]["quantiles"]) == {"0.1", "0.9"}
    assert found[3]["log_predictive"] == 0.0  # nothing was observed
    values = np.array([0.5, 0.1, -0.7, np.nan, np.nan, 1.2, 0.3, np.nan, -0.4, 0.9])
    batch = mcfo.load_run(run).filter(values, particles=20, levels=[0.1, 0.9])
    np.testing.assert_allclose([one["mean"] for one in found], batch["latent_mean"].values[0], rtol=1e-9)
    np.testing.assert_allclose([one["log_predictive"] for one in found], batch["log_predictive"].values[0], atol=1e-9)
    np.testing.assert_allclose([one["ess"] for one in found], batch["ess"].values[0], rtol=1e-9)
    quantiles = [[one["quantiles"]["0.1"], one["quantiles"]["0.9"]] for one in found]
    np.testing.assert_allclose(quantiles, batch["latent_quantiles"].values[0], rtol=1e-9)


BAD = {
    "no json": ("level=3", "it is no JSON"),
    "NaN": ("NaN", "NaN is no number; write null"),
    "text": ('["high"]', 'level is "high", but a number or null'),
    "too many": ("[1, 2]", "it has 2 values, but 1 are wanted: level"),
    "unknown": ('{"levle": 1}', "it has 'levle'"),
    "huge": ("1e300", "too large"),
    "truth": ("true", "level is true"),
}


@pytest.mark.parametrize(("line", "message"), BAD.values(), ids=BAD.keys())
def test_bad_lines_are_named_or_skipped(run, tmp_path, line, message):
    state = tmp_path / "state.npz"
    result = fed(["0.5", "", line, "0.7"], run, *FEW, "--state", state)
    assert refused(result, "Line 3 of the stream: ")
    assert message in " ".join(result.stderr.split())
    assert len(result.stdout.splitlines()) == 1
    assert state.exists()  # that after the only answer
    found = answers(fed(["0.5", "", line, "0.7"], run, *FEW, "--skip-bad"))
    assert found[1]["line"] == 3
    assert message in found[1]["error"]
    assert [one.get("step") for one in found] == [1, None, 2]


@pytest.mark.parametrize("learn", [(), ("--learn", "--learning-rate", "0.01")], ids=["filter", "learn"])
def test_two_halves_are_the_whole(run, tmp_path, learn):
    whole = fed(LINES, run, *FEW, *learn).stdout.splitlines()
    options = [run, *FEW, *learn, "--state", tmp_path / "s.npz"]
    first = fed(LINES[:4], *options, "--every", "3")
    second = fed(LINES[4:], *options)
    assert "resumes after step 4" in second.stderr
    assert [*first.stdout.splitlines(), *second.stdout.splitlines()] == whole
    if learn:
        assert whole != fed(LINES, run, *FEW).stdout.splitlines()


@pytest.mark.ci
def test_learning_survives_an_absurd_value(run):
    """It is answered as refused, and all that comes after it as if it had been missing."""
    options = [run, *FEW, "--learn", "--learning-rate", "0.1"]
    absurd = fed([*LINES[:3], "1e18", *LINES[4:]], *options)
    found, expected = answers(absurd), answers(fed([*LINES[:3], "null", *LINES[4:]], *options))
    assert found[3].pop("refused") is True
    assert found[3]["log_predictive"] < -1e20
    assert found[:3] + found[4:] == expected[:3] + expected[4:]
    assert all(one["mean"][0] is not None for one in found)
    assert "1 of 10 observations were refused" in absurd.stderr


def test_values_that_the_model_cannot_explain_are_bad_lines(counts_run):
    """Also those of which the density alone would say nothing: a Poisson law is evaluated at 1.5 without complaint."""
    for bad in ("-1", "1.5"):
        result = fed(["3", bad, "2"], counts_run / "run", *FEW)
        assert refused(result, f"Line 2 of the stream: visits is {bad}, which is not a count.")
        assert len(result.stdout.splitlines()) == 1
        skipped = answers(fed(["3", bad, "null", "2"], counts_run / "run", *FEW, "--skip-bad"))
        assert [one.get("step") for one in skipped] == [1, None, 2, 3]


def test_what_cannot_be_done_is_refused(run, tmp_path):
    state = tmp_path / "s.npz"
    assert fed(["0.5"], run, *FEW, "--state", state).exit_code == 0
    before = state.read_bytes()
    assert refused(fed(["0.5"], run, "--particles", "30", "--state", state), "particles was 20 and is 30")
    assert refused(fed(["0.5"], run, *FEW, "--seed", "1", "--state", state), "seed was 0 and is 1")
    assert refused(fed(["0.5"], run, *FEW, "--learn", "--state", state), "another stream: learning was None")
    assert state.read_bytes() == before
    assert refused(fed(["0.5"], run, *FEW, "--every", "3"), "Say where, with --state")
    assert refused(fed(["0.5"], run, *FEW, "--state", tmp_path / "s.pkl"), "must end in .npz")
    assert refused(fed(["0.5"], run, *FEW, "--state", tmp_path / "no" / "s.npz"), "There is no folder")
    assert refused(fed(["0.5"], run, *FEW, "--learn", "--theta", "fisher"), "looks back to the first step")
    assert refused(fed(["0.5"], run, *FEW, "--learn", "--optimizer", "adom"), "There is no optimizer 'adom'")
    assert refused(fed(["0.5"], tmp_path, *FEW), "holds no run")
    shutil.copytree(run, tmp_path / "unfinished")
    (tmp_path / "unfinished" / "results.json").unlink()
    assert refused(fed(["0.5"], tmp_path / "unfinished"), "has not ended")


class Process:
    """The command as a process of its own, answered line by line."""

    def __init__(self, *arguments):
        code = "from mcfo.cli.main import main; main()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code, "stream", *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            bufsize=1,
            env={**os.environ, "JAX_ENABLE_X64": "1"},
        )

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()

    def end(self, number=None):
        if number is not None:
            self.process.send_signal(number)
        output, errors = self.process.communicate(timeout=120)
        assert self.process.returncode == {signal.SIGKILL: -9, signal.SIGINT: 130}.get(number, 0), errors
        return output


KILLS = [
    (signal.SIGTERM, ()),
    pytest.param(signal.SIGINT, ("--learn",), marks=pytest.mark.slow),
    pytest.param(signal.SIGKILL, ("--learn",), marks=pytest.mark.slow),
]


@pytest.mark.ci
@pytest.mark.parametrize(("number", "more"), KILLS, ids=["SIGTERM", "SIGINT-learn", "SIGKILL-learn"])
def test_a_kill_in_the_middle_changes_nothing(run, tmp_path, number, more):
    state = tmp_path / "s.npz"
    options = [run, *FEW, *more, "--state", state, "--every", "2"]
    killed = Process(*options)
    answered = [killed.ask(line) for line in LINES[:6]]
    if number == signal.SIGKILL:
        killed.ask(LINES[6])  # once it is answered, the state after the sixth has been kept
    assert killed.end(number) == ""
    resumed = Process(*options)
    answered += [resumed.ask(line) for line in LINES[6:]]
    resumed.end()
    state.unlink()
    untouched = Process(*options)
    assert [untouched.ask(line) for line in LINES] == answered
    untouched.end()
