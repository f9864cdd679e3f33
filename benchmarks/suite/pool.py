"""Workers that are started side by side and, in the short suite, used for more than one row."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from suite.contenders import CONTENDERS
from suite.environments import PEERS, python_of
from suite.measuring import Entry
from suite.workers import Worker

Place = tuple[str, int]


class Pool:
    """To be used in a `with` statement.

    **Arguments:**

    - `reuse`: whether a worker serves row after row. What it holds from the rows before then hides some of its memory.
    - `timeout`: seconds that a worker may take to start.
    """

    def __init__(self, *, reuse: bool, timeout: float = 300.0):
        self._reuse, self._timeout = reuse, timeout
        self._contenders = {one.name: one for one in CONTENDERS}
        self._idle: dict[Place, list[Future[Worker]]] = {}
        # Two at a time: importing is most of it, and on two cores more would take as long.
        self._threads = ThreadPoolExecutor(2)

    def expect(self, entries: Sequence[Entry]) -> None:
        """Starts what is not there yet, so that the imports of one go on while another one's do."""
        needed: dict[Place, int] = {}
        for entry in entries:
            place = entry.contender, entry.variant
            needed[place] = needed.get(place, 0) + 1
        for place, count in needed.items():
            idle = self._idle.setdefault(place, [])
            idle += [self._threads.submit(self._start, place) for _ in range(count - len(idle))]

    def wait(self) -> None:
        """Until all have started or failed, so that none starts while another is timed."""
        for futures in self._idle.values():
            for future in futures:
                future.exception()

    def take(self, entry: Entry) -> Worker:
        place = entry.contender, entry.variant
        idle = self._idle.setdefault(place, [])
        return idle.pop(0).result() if idle else self._start(place)

    def give_back(self, entry: Entry, worker: Worker) -> None:
        if not self._reuse or not worker.is_running:
            worker.close()
            return
        future: Future[Worker] = Future()
        future.set_result(worker)
        self._idle.setdefault((entry.contender, entry.variant), []).append(future)

    def _start(self, place: Place) -> Worker:
        name, variant = place
        contender = self._contenders[name]
        command = [str(python_of(contender.environment)), str(PEERS / contender.script)]
        return Worker(command, variant=variant, timeout=self._timeout)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for futures in self._idle.values():
            for future in futures:
                if not future.exception():
                    future.result().close()
        self._threads.shutdown()
