"""A long stream through `mcfo stream`: its rate, and how its memory grows.

python benchmarks/stream.py --steps 1000000
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

COMMAND = [sys.executable, "-c", "from mcfo.cli.main import main; main()"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--particles", type=int, default=100)
    parser.add_argument("--learn", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = _make_run(Path(folder))
        words = [*COMMAND, "stream", str(run), "--particles", str(options.particles), *["--learn"] * options.learn]
        _measure(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True), options.steps)


def _make_run(folder: Path) -> Path:
    values = np.cumsum(np.random.default_rng(0).normal(size=60)) * 0.3
    (folder / "series.csv").write_text("level\n" + "\n".join(f"{value:.4f}" for value in values) + "\n")
    sizes = ["--steps", "5", "--particles", "10", "--devices", "1"]
    words = ["fit", "linear-gaussian", "--data", folder / "series.csv", "--out", folder / "run", *sizes]
    subprocess.run([*COMMAND, *map(str, words)], check=True, capture_output=True)
    return folder / "run"


def _measure(process: subprocess.Popen[str], steps: int) -> None:
    """Asks and listens at the same time; prints as the steps double, and the growth after the warm-up."""
    assert process.stdin is not None
    assert process.stdout is not None

    def ask(pipe) -> None:
        numbers = np.random.default_rng(1).normal(size=1000).round(3).tolist()
        for place in range(steps):
            pipe.write(f"{numbers[place % 1000]}\n")
        pipe.close()

    threading.Thread(target=ask, args=(process.stdin,), daemon=True).start()
    warm, begun, memory = min(1000, steps // 2), 0.0, 0.0
    print(f"{'step':>9} {'MiB':>8} {'grown':>8} {'steps a second':>15}")
    for number, line in enumerate(process.stdout, 1):
        if number == warm:
            memory, begun = _resident(process.pid), time.perf_counter()
        elif number > warm and (number == steps or (number % warm == 0 and (number // warm).bit_count() == 1)):
            now, rate = _resident(process.pid), (number - warm) / (time.perf_counter() - begun)
            print(f"{number:>9} {now:>8.1f} {now - memory:>8.2f} {rate:>15.0f}", flush=True)
            assert json.loads(line)["step"] == number
    assert process.wait() == 0


def _resident(process: int) -> float:
    """MiB."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * 4096 / 2**20


if __name__ == "__main__":
    main()
