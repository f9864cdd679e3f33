"""A watchdog for a run: it says so when updates stop, and lets Ctrl-C end a process that XLA blocks.

While the main thread waits inside XLA, Python runs no signal handler, so that Ctrl-C has no effect on a computation
that never ends. The watchdog is a thread of its own, which learns of signals through a socket (`signal.set_wakeup_fd`).
The computations stay in the main thread, because JAX settings such as `jax.enable_x64` are those of a thread.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar

from mcfo.learning.progress import Listener

STALL_SECONDS = 60.0
"""How long a run may go without an update before the watchdog says so."""
GRACE_SECONDS = 5.0
"""How long a computation may continue after Ctrl-C before the process is ended."""
_SLOWER = 3.0
"""A call that takes longer than this many times the slowest one before is not merely slow."""
_STOP = b"\0"
_INTERRUPTED = 130

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

    After Ctrl-C Python raises KeyboardInterrupt as soon as the call returns. Where it has not returned after three
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
        self._reader, self._writer = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="mcfo-watchdog", daemon=True)
        self._previous: int | None = None

    def __enter__(self) -> Watchdog:
        self._writer.setblocking(False)
        # Signals belong to the main thread; a run in another one does not keep Ctrl-C from it.
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._thread.start()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._previous is not None:
            signal.set_wakeup_fd(self._previous)
        self._writer.send(_STOP)
        self._thread.join()
        self._reader.close()
        self._writer.close()

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
        reported = interrupted = None
        since = 0.0
        while True:
            now, call = time.monotonic(), self._call
            if call is not None and call is not reported and self._is_stalled(call, now):
                self._listener.notice(self._report(call, now))
                reported = call
            if call is not None and call is interrupted and now - since > self._patience(call):
                self._end(call)
            wait = min(1.0, self._seconds / 4, self._grace / 4)
            if select.select([self._reader], [], [], wait)[0]:
                numbers = self._reader.recv(64)
                if _STOP in numbers:
                    return
                if self._previous not in (None, -1):
                    with contextlib.suppress(OSError):  # a loop whose wake-up call cannot be passed on polls anyway
                        os.write(self._previous, numbers)
                if signal.SIGINT in numbers and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
                    interrupted, since = self._call, time.monotonic()

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
            print(f"\nmcfo: {text}", file=sys.stderr)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            # The main thread cannot be reached, and the end of the interpreter would wait for it.
            os._exit(_INTERRUPTED)
