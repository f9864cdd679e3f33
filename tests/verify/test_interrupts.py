"""Fifty times Ctrl-C at a random moment of every command: exit code 130, no traceback, and nothing lost."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

pytestmark = pytest.mark.verify

TIMES = 50
PROGRAM = """import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from mcfo import interrupts
interrupts.take_over()
print("begun", flush=True)
from mcfo.__main__ import main
main()
"""
FIT = ["--objective", "mcfo", "--particles", 20, "--steps", 400, "--checkpoint-seconds", 0.2]


def run(words, seconds=None):
    """The command; Ctrl-C after some seconds, if it has not ended by then."""
    command = [sys.executable, "-c", PROGRAM, *map(str, words)]
    # Compiled as for a user, not as for the tests; compiled programs are shared with them.
    shared = ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")
    environment = {k: v for k, v in os.environ.items() if k in shared or not k.startswith(("JAX_", "XLA_"))}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
    begun = time.monotonic()
    with subprocess.Popen(command, **pipes) as process:
        try:
            assert process.stdout.readline() == "begun\n"
            output, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=600)
    for noise in ("Traceback", "Exception ignored", "Fatal"):
        assert noise not in output + errors, errors
    return process.returncode, errors, time.monotonic() - begun


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("interrupts")
    values = np.cumsum(np.random.default_rng(0).normal(size=60))
    (folder / "series.csv").write_text("level\n" + "".join(f"{value:.4f}\n" for value in values))
    code, errors, _ = run(["fit", "local-level", "--data", folder / "series.csv", "--out", folder / "run"])
    assert code == 0, errors
    return folder


def test_fit_resumes_bit_identically_after_any_number_of_interrupts(folder):
    fit = ["fit", "linear-gaussian", "--data", folder / "series.csv", *FIT, "--out"]
    _, errors, _ = run([*fit, folder / "warm"])
    code, errors, seconds = run([*fit, folder / "whole"])
    assert code == 0, errors
    moments, ended = random.Random(0), 0
    for number in range(TIMES):
        out = folder / f"fit-{ended}"
        code, errors, _ = run([*fit, out, "--resume"], moments.uniform(0.1, 1.05 * seconds))
        assert code in (0, 130), errors
        if code == 130:
            assert "mcfo: Interrupted" in errors, number
        if (out / "results.json").exists():
            whole, resumed = (np.load(path / "model.npz") for path in (folder / "whole", out))
            assert all(np.array_equal(whole[name], resumed[name]) for name in whole.files)
            ended += 1
    assert ended, "some of them came to their end"


@pytest.mark.parametrize("command", ["filter", "evaluate", "forecast", "inspect", "report"])
def test_other_commands_end_at_once(folder, command, tmp_path):
    series, saved = folder / "series.csv", folder / "run"
    out, words = tmp_path / ("out.json" if command == "evaluate" else "out.csv"), [command, saved]
    if command == "inspect":
        words = ["data", "inspect", series, "--plot", tmp_path / "out.png"]
    elif command != "report":
        words += ["--data", series, "--out", out]
    _, errors, seconds = run(words)
    moments = random.Random(1)
    for _ in range(TIMES // 5):
        for path in tmp_path.iterdir():
            path.unlink()
        moment = moments.uniform(0.05, seconds)
        code, errors, took = run(words, moment)
        assert code in (0, 130), errors
        assert took < seconds + 10
        left = [path.name for path in tmp_path.iterdir()]
        assert all(name in ("out.csv", "out.json", "out.png") for name in left), "nothing half-written"
    assert json.loads((saved / "results.json").read_text())["seeds"]
