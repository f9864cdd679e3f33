"""Cases of a fixed seed. Many more: make fuzz ARGS="--minutes 30"."""

import json

import pytest
from hypothesis import HealthCheck, given, settings

from fuzz.cases import CASES, Case
from fuzz.commands import commands, fitted
from fuzz.oracle import Worker

FIXED = {"derandomize": True, "deadline": None, "database": None, "suppress_health_check": [*HealthCheck]}


@pytest.fixture(scope="module")
def worker(tmp_path_factory):
    worker = Worker(tmp_path_factory.mktemp("readers"))
    yield worker
    worker.close()


def look_at(worker, count):
    @settings(max_examples=count, **FIXED)
    @given(CASES)
    def look(case):
        assert worker.violations(case) == []

    look()


def test_some_cases(worker):
    look_at(worker, 250)


@pytest.mark.ci
def test_two_thousand_cases(worker):
    look_at(worker, 2000)


@pytest.mark.ci
def test_whole_commands(classical_run, tmp_path):
    shell = Worker(tmp_path, commands=True)

    @settings(max_examples=30, **FIXED)
    @given(commands(fitted(classical_run / "run")))
    def look(drawn):
        assert shell.violations(*drawn) == []

    try:
        look()
    finally:
        shell.close()


READERS = """
import os, socket, subprocess, sys, time
import mcfo.data.npz as npz
from mcfo.errors import InputError
def read_arrays(path):
    exec(path.with_name("harm.py").read_text())
npz.read_arrays = read_arrays
"""
HARMS = {
    "raise KeyError('x')": "KeyError",
    "bytearray(2**31)": "MemoryError",
    "open('/etc/passwd').close()": "reads /etc/passwd",
    "open('/dev/shm/fuzzed', 'w').close()": "writes /dev/shm",
    "socket.create_connection(('127.0.0.1', 9), 0.1)": "socket.",
    "subprocess.run(['true'])": "subprocess.Popen",
    "print('Exception ignored in: x', file=sys.stderr, flush=True)": "printed",
    "error = InputError(''); error.args = ('x' * 9999,); raise error": "cannot be shown",
    "end = time.process_time() + 6\nwhile time.process_time() < end: pass": "took",
    "os.abort()": "died",
    "while True: pass": "did not end",
}


@pytest.mark.ci
def test_what_the_oracle_finds(tmp_path, monkeypatch):
    """The negative controls: a reader that does each of the things that must not happen."""
    (tmp_path / "harm.py").write_text(READERS)
    monkeypatch.setenv("FUZZ_HARM", str(tmp_path))
    worker = Worker(tmp_path / "folder")
    harmless = Case("arrays", {"data.npz": b"", "harm.py": b"pass"})
    assert worker.violations(harmless) == []
    for harm, finding in HARMS.items():
        if finding == "did not end":
            assert worker.violations(harmless) == [], "a new process reads on"
            monkeypatch.setattr("fuzz.oracle.PATIENCE", 8.0)
        found = json.dumps(worker.violations(Case("arrays", {"data.npz": b"", "harm.py": harm.encode()})))
        assert finding in found, harm
    worker.close()
