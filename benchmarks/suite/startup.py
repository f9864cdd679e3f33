"""How long one waits before anything happens: imports, help, and the first step of a second `mcfo fit`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from suite import statistics
from suite.workers import without_folders

COMMAND = [sys.executable, "-c", "from mcfo.cli.main import main; main()"]
IMPORTS = {
    "import mcfo": "import mcfo",
    "import mcfo and use it": "import mcfo; mcfo.SMC, mcfo.models.LinearGaussian, mcfo.objectives.mcfo, mcfo.fit",
}
FIT = "second mcfo fit, to its first step"
HELP = "mcfo --help"


def measure(repeats: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """Medians of fresh processes, one of each kind after the other; imports without the time of Python's own start."""
    with tempfile.TemporaryDirectory() as folder:
        fit = Fit(Path(folder))
        cases: dict[str, Callable[[], float]] = {
            name: (lambda code=code: _seconds([sys.executable, "-c", code]) - _seconds([sys.executable, "-c", ""]))
            for name, code in IMPORTS.items()
        }
        cases |= {HELP: lambda: _seconds([*COMMAND, "--help"]), FIT: fit.first_step}
        found: dict[str, Any] = {name: {"seconds": []} for name in cases}
        for repeat in range(repeats + 1):
            for name, case in cases.items():
                if "crashed" in found[name]:
                    continue
                tell(f"{name}, repeat {repeat}")
                try:
                    seconds = case()
                except (subprocess.SubprocessError, RuntimeError) as error:
                    found[name]["crashed"] = without_folders(str(error))[:300]
                    continue
                if repeat:  # the first one reads files that the system then holds, and compiles
                    found[name]["seconds"].append(seconds)
                elif name == FIT:
                    found[name]["without_kept_programs"] = seconds
    for one in found.values():
        if one["seconds"]:
            one["summary"] = statistics.summary(one["seconds"])
    return found


class Fit:
    """`mcfo fit` on one file again and again, with the compiled programs kept in a folder of its own."""

    def __init__(self, folder: Path):
        self._folder, self._runs = folder, 0
        self._environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(folder / "programs")}
        values = np.cumsum(np.random.default_rng(0).normal(size=200)) * 0.3
        (folder / "series.csv").write_text("level\n" + "\n".join(f"{value:.4f}" for value in values) + "\n")

    def first_step(self) -> float:
        """Seconds from the start of the process until the first line of its metrics."""
        self._runs += 1
        out = self._folder / f"run-{self._runs}"
        words = ["fit", "linear-gaussian", "--data", self._folder / "series.csv", "--out", out]
        words += ["--steps", "20", "--log-every", "1", "--no-checks"]
        metrics = out / "metrics.jsonl"
        begun = time.perf_counter()
        process = subprocess.Popen(
            [*COMMAND, *map(str, words)],
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
            time.sleep(0.005)
        seconds = time.perf_counter() - begun
        begun_to_learn = metrics.exists() and metrics.stat().st_size
        process.kill()  # what it kept, it kept before its first step
        _, errors = process.communicate()
        if not begun_to_learn:
            raise RuntimeError(errors.decode().strip().splitlines()[-1] if errors.strip() else "mcfo fit failed")
        return seconds


def _seconds(command: list[str]) -> float:
    begun = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - begun
