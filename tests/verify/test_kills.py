"""Runs that are killed (kill -9) at random moments, or whose disk is full, end as those that are left in peace."""

import csv
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import kill_and_resume
import pytest

import mcfo
from support import tiny_studies
from support.commands import SMALL

pytestmark = pytest.mark.verify
KILLS, FULL_DISKS = 20, 50
ENVIRONMENT = os.environ | {
    "PYTHONPATH": os.pathsep.join([str(Path(mcfo.__file__).parents[1]), str(Path(tiny_studies.__file__).parents[1])])
}


def start(*words, log, **options):
    command = [sys.executable, *map(str, words)]
    with log.open("ab") as errors:
        return subprocess.Popen(command, env=ENVIRONMENT, stderr=errors, **{"stdout": subprocess.DEVNULL, **options})


def test_fit(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", ENVIRONMENT["PYTHONPATH"])
    assert kill_and_resume.compare(tmp_path, kills=KILLS, steps=1000, seed=0) == 0


def test_reproduce(tmp_path):
    killed, whole, log = tmp_path / "killed", tmp_path / "whole", tmp_path / "log"
    begun = time.monotonic()
    assert start(tiny_studies.__file__, "lgssm", whole, log=log).wait() == 0, log.read_text()[-2000:]
    seconds, moments, kills = time.monotonic() - begun, random.Random(0), 0
    while kills < KILLS:
        process = start(tiny_studies.__file__, "lgssm", killed, log=log)
        try:
            process.wait(moments.uniform(0.05, 0.4) * seconds)
            break  # it ended before it was killed
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
    assert start(tiny_studies.__file__, "lgssm", killed, log=log).wait() == 0, log.read_text()[-2000:]
    assert kills >= 5
    rows = []
    for folder in (killed, whole):
        with (folder / "results.csv").open(newline="") as file:
            rows.append([row for row in csv.reader(file) if not {"minutes", "seconds"} & set(row)])
    assert rows[0] == rows[1]


def test_stream(tmp_path):
    data, run, state, log = tmp_path / "x.csv", tmp_path / "run", tmp_path / "state.npz", tmp_path / "log"
    moments = random.Random(0)
    observations = [moments.gauss(0, 1) for _ in range(3000)]
    data.write_text("x\n" + "\n".join(map(str, observations[:20])) + "\n")
    assert start("-m", "mcfo", "fit", "local-level", "--data", data, "--out", run, *SMALL, log=log).wait() == 0
    words = ["-m", "mcfo", "stream", run, "--learn", "--particles", 20]

    def feed(*more, lines, kill_after=None):
        """The answers to these lines; the process is killed after a number of them."""
        process = start(*words, *more, log=log, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        answers = []
        for line in lines:
            if kill_after == len(answers):
                process.kill()
                break
            print(line, file=process.stdin, flush=True)
            answers.append(json.loads(process.stdout.readline()))
        process.stdin.close()
        process.stdout.close()
        process.wait()
        return answers

    whole = feed(lines=observations)
    answers = {}
    for _ in range(KILLS):
        at = saved_step(state)
        some = feed("--state", state, "--every", 7, lines=observations[at:], kill_after=moments.randint(1, 250))
        assert all(answers.setdefault(one["step"], one) == one for one in some), "a step is answered again, and alike"
    for one in feed("--state", state, "--every", 7, lines=observations[saved_step(state) :]):
        answers[one["step"]] = one
    assert [answers[step] for step in sorted(answers)] == whole


def saved_step(state):
    """The steps in a saved state."""
    from mcfo.data.npz import read_arrays

    return int(read_arrays(state)["time"]) if state.exists() else 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to mount a small file system")
def test_full_disks(tmp_path):
    """The disk is full after a random number of bytes, fifty times; each time room is made, and the run resumes."""
    disk, log = tmp_path / "disk", tmp_path / "log"
    disk.mkdir()
    kill_and_resume.write_series(tmp_path / "series.csv", kill_and_resume._series(), ["x"])
    options = {"data": tmp_path / "series.csv", "steps": 1000, "particles": 20, "batch": 4, "seeds": 2}
    options |= {"evaluate-every": 20, "log-every": 10, "checkpoint-seconds": 0, "holdout": 0.25}
    words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    command = ["-m", "mcfo", "fit", "linear-gaussian", *words, "--resume", "--out"]
    assert start(*command, tmp_path / "whole", log=log).wait() == 0, log.read_text()[-2000:]
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", disk]).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        moments, full = random.Random(0), 0
        for _ in range(FULL_DISKS):
            room = moments.choice([0, 1, 4096, moments.randint(0, 500_000), 2**19 + moments.randint(0, 100_000)])
            (disk / "ballast").write_bytes(bytes(max(0, shutil.disk_usage(disk).free - room)))
            log.write_bytes(b"")
            code = start(*command, disk / "run", log=log).wait()
            (disk / "ballast").unlink()
            if code == 0:
                break
            message = log.read_text()
            assert code == 2, message[-2000:]
            assert message.startswith("mcfo: Cannot write"), message[-2000:]
            assert message.count("\n") == 1, message[-2000:]
            full += 1
        assert full >= 10
        assert start(*command, disk / "run", log=log).wait() == 0, log.read_text()[-2000:]
        assert kill_and_resume._differences(tmp_path / "whole", disk / "run") == 0
        print(f"The disk was full {full} times.")
    finally:
        subprocess.run(["umount", disk], check=True)
