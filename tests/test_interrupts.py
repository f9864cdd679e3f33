"""Ctrl-C is a flag between updates, and ends a command at once where nothing is half done."""

import json
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from mcfo import interrupts

HEED = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
"""A process that is started in the background ignores Ctrl-C, and so do those that it starts."""


@pytest.fixture
def heeded():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_it_waits_for_the_next_check(heeded):
    done = []

    def update():
        interrupts.check()
        signal.raise_signal(signal.SIGINT)
        done.append("the rest of the update")
        interrupts.check()
        done.append("never")

    with pytest.raises(interrupts.Interrupted), interrupts.deferred():
        update()
    assert done == ["the rest of the update"]
    assert interrupts.requested() is None
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt) as found:
        signal.raise_signal(signal.SIGINT)
    assert not isinstance(found.value, interrupts.Interrupted)


def test_it_is_raised_at_the_end_of_what_never_checks(heeded):
    with pytest.raises(interrupts.Interrupted), interrupts.deferred(), interrupts.deferred():
        signal.raise_signal(signal.SIGINT)


def test_the_second_one_ends_what_never_checks_in_a_session(heeded):
    def press_twice():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as found, interrupts.deferred():
        press_twice()
    assert not isinstance(found.value, interrupts.Interrupted)


def test_handlers_of_others_stay():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts.deferred():
            signal.raise_signal(signal.SIGINT)
            interrupts.check()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


COMMAND = """
import ctypes, sys, time
from mcfo import interrupts
interrupts.take_over()
interrupts.set_outcome("Half of it is there.")
try:
    if sys.argv[1] == "outside":
        print("ready", flush=True)
        time.sleep(60)
    with interrupts.deferred():
        print("ready", flush=True)
        if sys.argv[1] == "blocked":
            # A mutex that this thread holds already: no handler of Python's runs there, as none runs inside XLA.
            mutex, libc = ctypes.create_string_buffer(256), ctypes.CDLL(None)
            libc.pthread_mutex_lock(mutex)
            libc.pthread_mutex_lock(mutex)
        for _ in range(600):
            time.sleep(0.1)
            interrupts.check()
except KeyboardInterrupt:
    print("unwound", flush=True)
    interrupts.leave()
"""


@pytest.mark.parametrize(
    ("where", "times", "unwound"), [("outside", 1, False), ("inside", 1, True), ("blocked", 2, False)]
)
def test_a_command_ends_where_nothing_is_half_done(where, times, unwound):
    with start("-c", HEED + COMMAND, where) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        if times == 2:
            assert "ends as soon as nothing is half done" in process.stderr.readline() + process.stderr.readline()
            assert process.poll() is None
            process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert ("unwound" in output) == unwound
    assert ("mcfo: Interrupted. Half of it is there." in errors) == (not unwound)


def start(*words, **options):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, *map(str, words)], **pipes, **options)


MCFO = HEED + "from mcfo import interrupts; interrupts.take_over(); print('begun', flush=True)\n"
MCFO += "from mcfo.__main__ import main; main()"


def interrupted(*words, when, **options):
    """Sends Ctrl-C to a command once `when` says so; checks how it ends, and returns what it said."""
    with start("-c", MCFO, *words, **options) as process:
        try:
            assert process.stdout.readline() == "begun\n"
            end = time.monotonic() + 300
            while not when() and process.poll() is None and time.monotonic() < end:
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            output, errors = process.communicate(timeout=300)
        finally:
            process.kill()
    assert process.returncode == 130, (output, errors)
    assert "mcfo: Interrupted." in errors
    assert "Traceback" not in errors + output
    assert "Exception ignored" not in errors + output
    return errors


@pytest.fixture
def series(tmp_path):
    values = np.cumsum(np.random.default_rng(0).normal(size=(30, 2)), axis=0)
    path = tmp_path / "series.csv"
    path.write_text("a,b\n" + "".join(f"{a:.4f},{b:.4f}\n" for a, b in values))
    return path


@pytest.mark.ci
def test_an_interrupted_fit_names_the_command_that_resumes_it_and_loses_nothing(series, tmp_path):
    run = tmp_path / "run"
    fit = ["fit", "linear-gaussian", "--data", series, "--objective", "mcfo", "--particles", 5, "--steps", 3000]
    fit += ["--devices", 1, "--no-checks", "--checkpoint-seconds", 1000, "--evaluation-particles", 5]
    metrics = run / "metrics.jsonl"
    errors = interrupted(*fit, "--out", run, when=lambda: metrics.exists() and metrics.read_bytes().count(b"\n") > 2)
    assert "--out " + str(run) in errors
    assert errors.strip().endswith("--resume")
    done = json.loads(metrics.read_text().splitlines()[-1])["step"]
    assert done < 3000
    assert [path.name for path in (run / "checkpoints").iterdir()] == [f"{done}"], "what was learned is saved"
    for out, more in ((run, ["--resume"]), (tmp_path / "whole", [])):
        words = ["-m", "mcfo", *fit, "--out", out, *more]
        subprocess.run([sys.executable, *map(str, words)], check=True, capture_output=True, timeout=300)
    ended = [np.load(out / "model.npz") for out in (run, tmp_path / "whole")]
    assert all(np.array_equal(ended[0][name], ended[1][name]) for name in ended[0].files)


def test_a_command_that_has_written_nothing_ends_at_once(series, tmp_path):
    said = interrupted("data", "inspect", series, when=lambda: True)
    assert "Nothing was written" in said
    assert [path.name for path in tmp_path.iterdir()] == ["series.csv"]
