"""What every contender's worker shares: the problem, its exact answer, and the protocol. Python and NumPy only.

A worker is a process in an environment of its own. It reads one JSON object a line and answers each with one:

    {"prepare": workload}   {"first": seconds of the first call, "temporary": bytes or null}
    {"run": n, "seed": s}   {"seconds": [...], "values": [{...}, ...]}
    {"memory": true}        {"peak": MB of the process since `prepare`, "before": MB when `prepare` began}
    {"quit": true}          nothing; it ends

What goes wrong is answered too, as {"error": "..."}. The first line says that it is ready and which versions it runs.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import resource
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

COEFFICIENT = 0.9
"""z_1 ~ N(0, 1), z_t = COEFFICIENT z_t-1 + N(0, 1), x_t = z_t + N(0, 1)."""

THREADS = int(os.environ.get("BENCH_VARIANT", "1"))
"""Threads of PyTorch, or devices of JAX, that this worker may use."""


class Prepared(NamedTuple):
    """A workload that is ready: what is timed, from a seed to named numbers, and the bytes that its program plans."""

    call: Callable[[int], dict[str, float]]
    temporary: int | None = None


def observations(series_list: int, steps: int) -> np.ndarray:
    """Series of the model, one row each; the same numbers in every worker."""
    random = np.random.default_rng(0)
    latent = random.normal(size=series_list)
    values = np.empty((series_list, steps))
    for step in range(steps):
        if step:
            latent = COEFFICIENT * latent + random.normal(size=series_list)
        values[:, step] = latent + random.normal(size=series_list)
    return values.astype(np.float32)


def exact_log_evidence(values: np.ndarray) -> float:
    """log p of all series, by the Kalman filter in float64."""
    values = values.astype(np.float64)
    mean, variance, total = np.zeros(len(values)), 1.0, 0.0
    for step in range(values.shape[1]):
        if step:
            mean, variance = COEFFICIENT * mean, COEFFICIENT**2 * variance + 1.0
        spread = variance + 1.0
        surprise = values[:, step] - mean
        total += float(np.sum(-0.5 * (surprise**2 / spread + np.log(2 * np.pi * spread))))
        mean, variance = mean + variance / spread * surprise, variance / spread
    return total


def compile_filter(function: Callable[[Any, Any], Any], values: np.ndarray) -> Prepared:
    """A log-evidence in JAX: a function of series and key, compiled before it is timed."""
    import jax

    arrays = jax.numpy.asarray(values)
    # The key is made inside: to make it outside would be dispatched on its own, and be a good part of a short filter.
    compiled = (
        jax.jit(lambda values, seed: function(values, jax.random.PRNGKey(seed))).lower(arrays, _seed(0)).compile()
    )
    return Prepared(lambda seed: {"log_evidence": float(compiled(arrays, _seed(seed)))}, temporary_bytes(compiled))


def _seed(number: int) -> np.int32:
    return np.int32(number)


def temporary_bytes(compiled: Any) -> int | None:
    """What a compiled program of JAX needs besides its arguments and results."""
    analysis = compiled.memory_analysis()
    return None if analysis is None else int(analysis.temp_size_in_bytes)


def serve(prepare: Callable[[dict[str, Any]], Prepared], *packages: str) -> None:
    """Answers until it is told to quit. What libraries print goes to standard error: the answers have their own way."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**content: Any) -> None:
        print(json.dumps(content), file=answers, flush=True)

    versions = {package: importlib.metadata.version(package) for package in packages}
    answer(ready=True, versions={"python": platform.python_version(), **versions})
    prepared, before = None, 0.0
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if "quit" in request:
                return
            if "prepare" in request:
                prepared = None
                before = _forget_peak()
                begun = time.perf_counter()
                prepared = prepare(request["prepare"])
                value = prepared.call(0)
                answer(first=time.perf_counter() - begun, temporary=prepared.temporary, values=[value])
            elif "run" in request and prepared is not None:
                answer(**_run(prepared, request["run"], request["seed"]))
            elif "memory" in request:
                answer(peak=_peak(), before=before)
            else:
                answer(error=f"not understood: {line.strip()}")
        except Exception as error:
            text = str(error).strip().splitlines()
            answer(error=f"{type(error).__name__}: {text[0] if text else ''}"[:300])


def _run(prepared: Prepared, count: int, seed: int) -> dict[str, Any]:
    seconds, values = [], []
    for number in range(count):
        begun = time.perf_counter()
        value = prepared.call(seed + number)
        seconds.append(time.perf_counter() - begun)
        values.append(value)
    return {"seconds": seconds, "values": values}


def _forget_peak() -> float:
    """Lets the system count the peak anew, where it can (Linux); what the process holds now, in MB."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass
    return _status("VmRSS") or _largest()


def _peak() -> float:
    return _status("VmHWM") or _largest()


def _largest() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used / (1e6 if sys.platform == "darwin" else 1e6 / 1024)


def _status(name: str) -> float | None:
    try:
        with open("/proc/self/status") as file:
            found = [line.split()[1] for line in file if line.startswith(f"{name}:")]
    except OSError:
        return None
    return int(found[0]) * 1024 / 1e6 if found else None
