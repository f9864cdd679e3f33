"""A watchdog for a run: it says so when updates stop, and lets Ctrl-C end a process that XLA blocks.

Ctrl-C is noticed between updates ([`mcfo.interrupts`][]), so that it has no effect on one that never ends. The watchdog
is a thread of its own. The computations stay in the main thread, because JAX settings such as `jax.enable_x64` are
those of a thread.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple, ParamSpec, TypeVar

from mcfo import interrupts
from mcfo.learning.progress import Listener

STALL_SECONDS = 60.0
"""How long a run may go without an update before the watchdog says so."""
GRACE_SECONDS = 5.0
"""How long a computation may continue after Ctrl-C before the process is ended."""
_SLOWER = 3.0
"""A call that takes longer than this many times the slowest one before is not merely slow."""

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class _Call(NamedTuple):
    """A call that the main thread is in. `slowest` is None for the first of its kind, which compiles."""

    step: int
    slowest: float | None
    begun: float
    processor: float


class Watchdog:
    """Watches the calls that it is given; a context manager around the loop of a run.

    A call that lasts longer than `seconds`, and three times as long as any earlier call of the same function, is
    reported; the first call of a function compiles and is not. No run is ended for that.

    Inside, Ctrl-C sets a flag, for `mcfo.interrupts.check` between the calls. Where a call has not returned after three
    times the longest time so far (at least `grace`; `seconds` for a first call), the process ends with code 130, unless
    the session is interactive or SIGINT has a handler of its own.

    **Arguments:**

    - `listener`: told of a stall by `notice`.
    - `resume`: a sentence that says how to resume the run.
    """

    def __init__(
        self, listener: Listener, resume: str, *, seconds: float = STALL_SECONDS, grace: float = GRACE_SECONDS
    ):
        self._listener, self._resume = listener, resume
        self._seconds, self._grace = seconds, grace
        self._slowest: dict[Callable[..., Any], float] = {}
        self._call: _Call | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mcfo-watchdog", daemon=True)
        self._open = ExitStack()

    def __enter__(self) -> Watchdog:
        self._open.enter_context(interrupts.deferred())
        self._open.callback(self._thread.join)
        self._open.callback(self._ended.set)
        self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def watch(
        self,
        step: int,
        function: Callable[_Arguments, _Result],
        *arguments: _Arguments.args,
        **options: _Arguments.kwargs,
    ) -> _Result:
        """The function's result; `step` is the last update that is done."""
        slowest = self._slowest.get(function)
        call = self._call = _Call(step, slowest, time.monotonic(), time.process_time())
        try:
            return function(*arguments, **options)
        finally:
            self._call = None
            # The first one compiles, which says nothing of the others.
            seconds = 0.0 if slowest is None else time.monotonic() - call.begun
            self._slowest[function] = max(slowest or 0.0, seconds)

    def _run(self) -> None:
        reported = None
        while not self._ended.wait(min(1.0, self._seconds / 4, self._grace / 4)):
            now, call, interrupted = time.monotonic(), self._call, interrupts.requested()
            if call is None:
                continue
            if call is not reported and self._is_stalled(call, now):
                self._listener.notice(self._report(call, now))
                reported = call
            if interrupted is not None and now - max(interrupted, call.begun) > self._patience(call):
                self._end(call)

    def _is_stalled(self, call: _Call, now: float) -> bool:
        return call.slowest is not None and now - call.begun > max(self._seconds, _SLOWER * call.slowest)

    def _patience(self, call: _Call) -> float:
        return self._seconds if call.slowest is None else max(self._grace, _SLOWER * call.slowest)

    def _report(self, call: _Call, now: float) -> str:
        elapsed, used = now - call.begun, time.process_time() - call.processor
        before = f"No update for {elapsed:.0f} s: update {call.step} was the last, and none took longer than "
        usual = f"{call.slowest or 0.0:.1f} s before. The process has used {used:.1f} s of processor time since. "
        if used < 0.1 * elapsed:
            reason = (
                "So it waits: for memory on a disk, for a function of your own, or its threads for each other, which "
                "happens where a model of your own calls LAPACK (jnp.linalg, MultivariateNormal with a covariance) "
                "inside the filter. "
            )
        else:
            reason = "So it computes: the machine may be busy with other programs, or short of memory. "
        return f"{before}{usual}{reason}The run is not ended; Ctrl-C ends it. {self._resume}"

    def _end(self, call: _Call) -> None:
        text = f"Interrupted in a computation that did not end; update {call.step} was the last. {self._resume}"
        if hasattr(sys, "ps1"):
            # Other work of an interactive session would be lost.
            self._listener.notice(f"{text} Restart the session to end it.")
            self._call = None
            return
        try:
            self._listener.__exit__(None, None, None)
        finally:
            interrupts.end(text)
