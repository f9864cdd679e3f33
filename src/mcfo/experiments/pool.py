"""Jobs of an experiment side by side, one on each of two cores, under one progress bar; an error ends them all."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from mcfo.learning.devices import cores
from mcfo.learning.progress import Listener

_Name = TypeVar("_Name", bound=Hashable)
_Result = TypeVar("_Result")


_WORKERS = 2


class _StoppedError(Exception):
    """Another job failed, or the user interrupted."""


class Share(Listener):
    """A job's share of the bar. As a listener it follows a run of [`mcfo.fit`][]."""

    def __init__(self, advance: Callable[[float], None], stop: threading.Event):
        self._advance, self._stop = advance, stop

    def advance(self, share: float) -> None:
        """Moves the bar by this part of the job; raises, in the job's thread, when the job must end."""
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


def at_once(workers: int = _WORKERS) -> int:
    """How many jobs run side by side."""
    return min(workers, cores())


def run_all(
    costs: Mapping[_Name, float],
    work: Callable[[_Name, Share], _Result],
    *,
    label: str,
    console: Console,
    workers: int = _WORKERS,
) -> dict[_Name, _Result]:
    """What `work` makes of each job, in the order of `costs`; the costliest begin first.

    **Arguments:**

    - `costs`: how long each job takes, in any unit.
    - `workers`: jobs at a time, where there are as many cores.
    """
    stop = threading.Event()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task(label, total=sum(costs.values()))

        def run(name: _Name) -> _Result:
            return work(name, Share(lambda share: progress.advance(bar, costs[name] * share), stop))

        with ThreadPoolExecutor(at_once(workers)) as pool:
            futures = {pool.submit(run, name): name for name in sorted(costs, key=lambda name: -costs[name])}
            try:
                found = {futures[future]: future.result() for future in as_completed(futures)}
            except BaseException:
                stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    return {name: found[name] for name in costs}
