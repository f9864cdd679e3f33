"""Kills a run of `mcfo fit` at random moments (kill -9), resumes it each time, and compares with one left in peace.

    python benchmarks/kill_and_resume.py --kills 20

Prints one line a kill, and ends with code 1 if a checkpoint was lost or half-written, or if parameters or metrics
differ by a single bit (time apart).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import jax
import numpy as np

from mcfo import Series, simulate
from mcfo.data.npz import read_arrays
from mcfo.data.tables import write_series
from mcfo.errors import InputError
from mcfo.learning.run_folder import read_metrics
from mcfo.models import LinearGaussian


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="how often")
    parser.add_argument("--steps", type=int, default=2000, help="updates of the run")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        return compare(Path(name), kills=arguments.kills, steps=arguments.steps, seed=arguments.seed)


def compare(folder: Path, *, kills: int, steps: int, seed: int) -> int:
    """The number of differences."""
    write_series(folder / "series.csv", _series(), ["x"])
    whole, killed = folder / "whole", folder / "killed"
    starting, updating = _in_peace(folder, whole, steps)
    lines = len(read_metrics(whole))
    print(
        f"Left in peace: {starting:.1f} s until the first line of the metrics, {updating:.1f} s to the last of {lines}"
    )
    moments = random.Random(seed)
    troubles = 0
    before = 0
    for number in range(1, kills + 1):
        # One in four before it learns. The others while it does, by lines written and not by the clock, since machines
        # differ: together they get two thirds of the way.
        process = _command(folder, killed, steps)
        if moments.random() < 0.25:
            _wait(process, moments.uniform(0, starting))
        else:
            _wait_for_lines(process, killed, _lines(killed) + moments.randint(1, max(1, 4 * lines // (3 * kills))))
            _wait(process, moments.uniform(0, 2 * updating / lines))
        what = "killed" if process.poll() is None else "had ended"
        process.kill()
        process.wait()
        reached, trouble = _look(killed)
        if reached < before:
            trouble = f"the checkpoint of step {before} is lost"
        before = reached
        troubles += trouble is not None
        print(
            f"{number:>3}: {what} at line {_lines(killed)}, newest checkpoint at step {reached}. {trouble or 'Whole.'}",
            flush=True,
        )
    ended = _command(folder, killed, steps).wait()
    if ended:
        print(f"The last run ended with code {ended}.")
        return troubles + 1
    return troubles + _differences(whole, killed)


def _in_peace(folder: Path, out: Path, steps: int) -> tuple[float, float]:
    """Seconds until the first line of the metrics, and from there to the last."""
    begun = time.perf_counter()
    process = _command(folder, out, steps)
    _wait_for_lines(process, out, 1)
    started = time.perf_counter()
    last = started
    lines = 0
    while process.poll() is None:
        if _lines(out) > lines:
            lines, last = _lines(out), time.perf_counter()
        time.sleep(0.02)
    if process.returncode:
        raise RuntimeError("The run in peace failed.")
    return started - begun, last - started


def _lines(run: Path) -> int:
    metrics = run / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


def _wait(process: subprocess.Popen, seconds: float) -> None:
    """Until the time is over, or the process."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(seconds)


def _wait_for_lines(process: subprocess.Popen, run: Path, lines: int) -> None:
    while process.poll() is None and _lines(run) < lines:
        time.sleep(0.005)


def _command(folder: Path, out: Path, steps: int) -> subprocess.Popen:
    command = [str(Path(sys.executable).with_name("mcfo")), "fit", "linear-gaussian"]
    options = {
        "data": folder / "series.csv",
        "out": out,
        "steps": steps,
        "particles": 20,
        "batch": 4,
        "seeds": 2,
        "holdout": 0.25,
        "evaluate-every": 20,
        "log-every": 10,
        "checkpoint-seconds": 0,
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return subprocess.Popen([*command, *words, "--resume"], stdout=subprocess.DEVNULL)


def _look(run: Path) -> tuple[int, str | None]:
    """The newest checkpoint, and what is wrong with any of them."""
    checkpoints = run / "checkpoints"
    if not checkpoints.is_dir():
        return 0, None
    from orbax.checkpoint import v1 as orbax

    reader = orbax.training.Checkpointer(checkpoints.absolute())
    steps = sorted(one.step for one in reader.checkpoints)
    trouble = None
    for step in steps:
        try:
            content = reader.load(step)
            # The best NLL so far is infinite until the first evaluation; nothing in a run is ever NaN.
            if int(content["step"]) != step or any(np.isnan(one).any() for one in content.values()):
                trouble = f"The checkpoint of step {step} holds something else"
        except Exception as error:
            trouble = f"The checkpoint of step {step} cannot be read: {str(error).splitlines()[0]}"
    reader.close()
    try:
        read_metrics(run)
    except InputError as error:
        trouble = str(error)
    return (steps[-1] if steps else 0), trouble


def _differences(whole: Path, killed: Path) -> int:
    wrong = 0
    first, second = read_arrays(whole / "model.npz"), read_arrays(killed / "model.npz")
    for name in sorted(first.keys() | second.keys()):
        if name not in first or name not in second or first[name].tobytes() != second[name].tobytes():
            print(f"{name} differs")
            wrong += 1
    lines = [
        [{name: value for name, value in line.items() if name != "seconds"} for line in read_metrics(run)]
        for run in (whole, killed)
    ]
    if lines[0] != lines[1]:
        print("The metrics differ")
        wrong += 1
    results = [json.loads((run / "results.json").read_text()) for run in (whole, killed)]
    for one in results:
        del one["seconds"]
    if results[0] != results[1]:
        print("The results differ")
        wrong += 1
    print(
        f"{len(first)} arrays and {len(lines[0])} lines compared: {'equal to the bit' if not wrong else 'DIFFERENT'}."
    )
    return wrong


def _series() -> list[Series]:
    model = LinearGaussian.scalar(0.9, 1.2, emission_variance=0.1)
    return [
        Series.from_values(np.asarray(simulate(model, 20 + place % 5, key=jax.random.key(place))[1]), series_id=place)
        for place in range(16)
    ]


if __name__ == "__main__":
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    sys.exit(1 if main() else 0)
