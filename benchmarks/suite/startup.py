"""How long one waits: for imports, help, the first step of a second `mcfo fit`, and for whole short commands."""

from __future__ import annotations

import os
import resource
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
STRUCTURAL = "second mcfo fit structural, 150 months"
RESULT = "second mcfo fit structural, to its result"
FORECAST = "second mcfo forecast of 24 months"
CALL = "mcfo.fit of 200 steps in Python, once compiled"


def measure(repeats: int, tell: Callable[[str], None]) -> dict[str, Any]:
    """Medians of fresh processes, one of each kind after the other; imports without the time of Python's own start."""
    with tempfile.TemporaryDirectory() as folder:
        fit, monthly = Fit(Path(folder)), Monthly(Path(folder))
        cases: dict[str, Callable[[], float]] = {
            name: (lambda code=code: _seconds([sys.executable, "-c", code]) - _seconds([sys.executable, "-c", ""]))
            for name, code in IMPORTS.items()
        }
        cases |= {HELP: lambda: _seconds([*COMMAND, "--help"]), FIT: fit.first_step}
        cases |= {STRUCTURAL: monthly.fit, RESULT: monthly.result, FORECAST: monthly.forecast, CALL: monthly.call}
        found: dict[str, Any] = {name: {"seconds": [], "processor": []} for name in cases}
        for repeat in range(repeats + 1):
            for name, case in cases.items():
                if "crashed" in found[name]:
                    continue
                tell(f"{name}, repeat {repeat}")
                before = _processor_seconds()
                try:
                    seconds = case()
                except (subprocess.SubprocessError, RuntimeError) as error:
                    found[name]["crashed"] = without_folders(str(error))[:300]
                    continue
                if repeat:  # the first one reads files that the system then holds, and compiles
                    found[name]["seconds"].append(seconds)
                    found[name]["processor"].append(_processor_seconds() - before)
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


class Monthly:
    """One monthly series of 150: whole commands on it, with the compiled programs kept in a folder of its own."""

    def __init__(self, folder: Path):
        self._folder, self._runs = folder, 0
        self._environment = os.environ | {"JAX_COMPILATION_CACHE_DIR": str(folder / "monthly-programs")}
        self._data = folder / "monthly.csv"
        months = np.arange(150)
        noise = np.cumsum(np.random.default_rng(0).normal(size=150)) * 0.02
        values = np.exp(5 + 0.01 * months + 0.2 * np.sin(2 * np.pi * months / 12) + noise)
        rows = [f"{1949 + index // 12}-{index % 12 + 1:02d}-01,{value:.2f}" for index, value in enumerate(values)]
        self._data.write_text("month,passengers\n" + "\n".join(rows) + "\n")

    def fit(self) -> float:
        """Seconds of the whole command, with its checks and its report."""
        return self._fit(result_only=False)

    def result(self) -> float:
        """Seconds from the start of the process until its results are written."""
        return self._fit(result_only=True)

    def forecast(self) -> float:
        """Seconds of the whole command, from the run that was fitted last."""
        run = self._folder / f"monthly-{self._runs}"
        words = ["forecast", run, "--data", self._data, "--steps", "24", "--out", run / "forecast.csv"]
        return _seconds([*COMMAND, *map(str, words)], env=self._environment)

    def call(self) -> float:
        """Seconds of a second call in one process, on other values of the same length."""
        return float(subprocess.run([*PYTHON, CALLS], check=True, capture_output=True, env=self._environment).stdout)

    def _fit(self, *, result_only: bool) -> float:
        self._runs += 1
        out = self._folder / f"monthly-{self._runs}"
        words = [
            "fit",
            "structural",
            "--data",
            self._data,
            "--out",
            out,
            "--set",
            "season=12",
            "--set",
            "transform=log",
        ]
        begun = time.perf_counter()
        process = subprocess.Popen(
            [*COMMAND, *map(str, words)], env=self._environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        while result_only and process.poll() is None and not (out / "results.json").exists():
            time.sleep(0.005)
        seconds = time.perf_counter() - begun
        if process.wait():
            raise RuntimeError("mcfo fit structural failed")
        return seconds if result_only else time.perf_counter() - begun


PYTHON = [sys.executable, "-c"]
CALLS = """
import time, numpy as np, mcfo
values = np.cumsum(np.random.default_rng(0).normal(size=200))
for series in (values, 1.1 * values):
    begun = time.perf_counter()
    mcfo.fit("local-trend", series)
print(time.perf_counter() - begun)
"""


def _processor_seconds() -> float:
    """User and system time of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _seconds(command: list[str], **options: Any) -> float:
    begun = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, **options)
    return time.perf_counter() - begun
