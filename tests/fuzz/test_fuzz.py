"""Cases of a fixed seed. Many more: make fuzz ARGS="--minutes 30"."""

import io
import json
from pathlib import Path

import numpy as np
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


READER = """
import {imports}
import mcfo.data.npz as npz
def read_arrays(path):
    {harm}
npz.read_arrays = read_arrays
"""
HARMS = {
    "a traceback": ("os", "raise KeyError('x')", "KeyError"),
    "no end": ("os", "while True: pass", "did not end"),
    "memory": ("os", "bytearray(2**31)", "MemoryError"),
    "a crash": ("os", "os.abort()", "died"),
    "another file": ("os", "open('/etc/passwd').close()", "reads /etc/passwd"),
    "a file written": ("os", "open(os.path.expanduser('~/fuzzed'), 'w').close()", "writes "),
    "the network": ("socket", "socket.create_connection(('127.0.0.1', 9), 0.1)", "socket."),
    "a process": ("subprocess", "subprocess.run(['true'])", "subprocess.Popen"),
    "noise": ("sys", "print('Exception ignored in: x', file=sys.stderr, flush=True)", "printed"),
    "a message without end": ("mcfo.errors as e", "x = e.InputError(''); x.args = ('x' * 9999,); raise x", "cannot be"),
    "time": ("time", "end = time.process_time() + 7\n    while time.process_time() < end: pass", "took"),
}  # fmt: skip


@pytest.mark.ci
def test_what_the_oracle_finds(tmp_path, monkeypatch):
    """The negative controls: readers that do each of the things that must not happen."""
    content = io.BytesIO()
    np.savez(content, a=np.ones(3))
    case = Case("arrays", {"data.npz": content.getvalue()})
    monkeypatch.setattr("fuzz.oracle.PATIENCE", 60.0)
    (tmp_path / "site").mkdir()
    for name, (imports, harm, finding) in HARMS.items():
        (tmp_path / "site" / "harm.py").write_text(READER.format(imports=imports, harm=harm))
        monkeypatch.setenv("FUZZ_HARM", str(tmp_path / "site"))
        worker = Worker(tmp_path / "folder")
        found = json.dumps(worker.violations(case))
        worker.close()
        assert finding in found, name
    assert not (Path.home() / "fuzzed").exists()
