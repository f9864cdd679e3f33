"""Jobs of a study: side by side, one on each of two cores, under one progress bar; a finished job is never repeated."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from mcfo import interrupts
from mcfo.data.npz import read_arrays, write_npz
from mcfo.learning.devices import cores
from mcfo.learning.progress import Listener

WORKERS = 2


class _StoppedError(Exception):
    """Another job failed, or the user interrupted."""


class Share(Listener):
    """A job's share of the bar. As a listener it follows a run of [`mcfo.fit`][]."""

    def __init__(self, advance: Callable[[float], None], stop: threading.Event):
        self._advance, self._stop = advance, stop

    def advance(self, share: float) -> None:
        """Moves the bar by this part of the job; raises, in the job's thread, when the job must end."""
        interrupts.check()
        if self._stop.is_set():
            raise _StoppedError
        self._advance(share)

    def begin(self, steps: int, step: int, particles: int) -> None:
        self._steps, self._step = steps, step
        self.advance(step / steps)

    def update(self, lines: list[dict[str, Any]]) -> None:
        step = lines[0]["step"]
        self.advance((step - self._step) / self._steps)
        self._step = step


class Job(NamedTuple):
    """One part of a study.

    - `cost`: how long it takes, in any unit that all jobs share.
    - `work`: called with a path of its own, under which it saves what lets it resume, and its share of the bar. Its
      result has a method `line`, which says for the terminal what came out, and its `seconds`.
    """

    cost: float
    work: Callable[[Any, Any], Any]


class Samples(NamedTuple):
    """The arrays of a finished job, and how long it took."""

    arrays: dict[str, np.ndarray]
    seconds: float

    def line(self) -> str:
        return f"{self.seconds:.0f} s"


def sampling(cost: float, draw: Callable[[Share], dict[str, np.ndarray]]) -> Job:
    """A job whose arrays are saved when it is finished."""

    def work(path: Path, share: Share) -> Samples:
        file = path.with_name(f"{path.name}.npz")
        if file.exists():
            share.advance(1.0)
            arrays = read_arrays(file)
            return Samples(arrays, float(arrays.pop("seconds")))
        started = time.perf_counter()
        samples = Samples(draw(share), time.perf_counter() - started)
        write_npz(file, {"seconds": np.array(samples.seconds), **samples.arrays})
        return samples

    return Job(cost, work)


def at_once(workers: int = WORKERS) -> int:
    """How many jobs run side by side."""
    return min(workers, cores())


def run_all(
    jobs: Mapping[str, Job],
    folder: Path,
    *,
    console: Console,
    workers: int,
    context: Callable[[], AbstractContextManager[Any]],
) -> dict[str, Any]:
    """The result of each job, in the order of `jobs`; the costliest start first, and an error ends them all.

    **Arguments:**

    - `folder`: where each job has a path by its name.
    - `workers`: jobs at a time, where there are as many cores.
    - `context`: entered in the thread of each job, as JAX's precision belongs to the thread.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stop = threading.Event()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        label = f"{len(jobs)} job{'s' if len(jobs) > 1 else ''}"
        bar = progress.add_task(label, total=sum(job.cost for job in jobs.values()))

        def run(name: str) -> Any:
            job = jobs[name]
            with context():
                result = job.work(folder / name, Share(lambda share: progress.advance(bar, job.cost * share), stop))
            console.print(f"{name}  {result.line()}", highlight=False, soft_wrap=True)
            return result

        with ThreadPoolExecutor(at_once(workers)) as pool:
            futures = {pool.submit(run, name): name for name in sorted(jobs, key=lambda name: -jobs[name].cost)}
            try:
                results = {futures[future]: future.result() for future in as_completed(futures)}
            except BaseException:
                stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return {name: results[name] for name in jobs}
