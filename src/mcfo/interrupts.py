"""Ctrl-C as a flag that is checked between updates, so that nothing is raised inside XLA, Orbax or asyncio.

Python runs a signal handler in the main thread, between two of its own instructions: never while that thread waits
inside XLA, but also in the middle of a library's callback, where an exception is lost. So the handler raises nothing,
and a thread of its own learns of the signal through a socket (`signal.set_wakeup_fd`).
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
from collections.abc import Iterator
from typing import Any, NoReturn

EXIT_CODE = 130
"""What a shell reports of a program that Ctrl-C ended."""
_PATIENCE = 1.0
"""Seconds after which it is said that Ctrl-C was noticed, where the end takes longer."""
_SHOW_CURSOR = "\x1b[?25h"
_STOP = b"\0"


class Interrupted(KeyboardInterrupt):
    """Ctrl-C came; raised where nothing is half done."""


class _Interrupts:
    """SIGINT in this process.

    - `since`: the time of the first Ctrl-C, or None.
    - `outcome`: a sentence about what is left when the process ends.
    - `ends_process`: whether the process is a command, which may be ended; a session of Python may not.
    """

    def __init__(self) -> None:
        self.since: float | None = None
        self.outcome = "Nothing was written."
        self.ends_process = self._listens = False
        self.held: Any = None  # the sockets of a process that listens to its end
        self._lock = threading.Lock()
        self._blocks = self._seen = self._handled = 0

    def listen(self, *, ends_process: bool) -> Any:
        """Take SIGINT over from Python, and return a function that gives it back; None where it is not Python's."""
        if self._listens or threading.current_thread() is not threading.main_thread():
            return None
        # A program that was started in the background ignores SIGINT; others have handlers of their own.
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            return None
        self.since, self._seen, self._handled = None, 0, 0
        self._listens, self.ends_process = True, ends_process
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        previous = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGINT, self._handle)
        thread = threading.Thread(target=self._run, args=(reader, previous), name="mcfo-interrupts", daemon=True)
        thread.start()

        def give_back() -> None:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.set_wakeup_fd(previous)
            writer.send(_STOP)
            thread.join()
            reader.close()
            writer.close()
            self._listens, self.since = False, None

        return give_back

    @contextlib.contextmanager
    def deferred(self) -> Iterator[None]:
        """Defer Ctrl-C to `check`, and to the end of this block."""
        give_back = self.listen(ends_process=False)
        with self._lock:
            self._blocks += 1
        try:
            yield
            self.check()
        finally:
            with self._lock:
                self._blocks -= 1
            if give_back is not None:
                give_back()

    def check(self) -> None:
        """Raise Interrupted if Ctrl-C came. Call it where nothing is half done."""
        if self.since is not None:
            raise Interrupted

    def end(self, text: str | None = None) -> NoReturn:
        """End the process with exit code 130: at once, because threads of libraries may hold up an orderly end."""
        _say(text or f"Interrupted. {self.outcome}")
        leave()

    def _handle(self, number: int, frame: Any) -> None:
        self._handled += 1
        self.since = self.since or time.monotonic()
        # In a session a second Ctrl-C ends what never looks at the flag; a command is ended by the thread.
        if self._handled > 1 and not self.ends_process:
            raise KeyboardInterrupt

    def _run(self, reader: socket.socket, previous: int) -> None:
        told = False
        while True:
            waits = self.since is not None and not told and self.ends_process
            if select.select([reader], [], [], _PATIENCE if waits else None)[0]:
                numbers = reader.recv(64)
                if not numbers or _STOP in numbers:
                    return
                if previous != -1:
                    with contextlib.suppress(OSError):  # a loop whose wake-up call cannot be passed on polls anyway
                        os.write(previous, numbers)
                self._receive(numbers.count(signal.SIGINT))
            elif waits:
                told = True
                _say("Interrupted: ends as soon as nothing is half done. Ctrl-C again ends at once.")

    def _receive(self, count: int) -> None:
        with self._lock:
            self._seen += count
            if self._seen and self.since is None:
                self.since = time.monotonic()
            if self.ends_process and (self._seen > 1 or (self._seen and not self._blocks)):
                self.end()


def leave(code: int = EXIT_CODE) -> NoReturn:
    """End the process without taking it down: all files are closed, what is left are threads of libraries.

    They may hold up an orderly end for ever, or crash in it; where they do not, it takes most of a second.
    """
    failed: list[OSError] = []

    def flush() -> None:
        for file in (sys.stdout, sys.stderr):
            try:
                file.flush()
            except BrokenPipeError:
                pass  # nobody reads it
            except OSError as error:
                failed.append(error)

    # After Ctrl-C it is worth a second, but no more: perhaps nobody reads it.
    thread = threading.Thread(target=flush, daemon=True)
    thread.start()
    thread.join(1.0 if code == EXIT_CODE else None)
    if failed and code == 0:
        _say(f"Cannot write the output: {failed[0].strerror}. Free some space, and repeat the command.")
        code = 2
    os._exit(code)


def _say(text: str) -> None:
    # Not through Python's files: the main thread may hold their locks.
    shown = f"{_SHOW_CURSOR if os.isatty(2) else ''}\nmcfo: {text}\n"
    with contextlib.suppress(OSError):
        os.write(2, shown.encode())


_INTERRUPTS = _Interrupts()
check, deferred = _INTERRUPTS.check, _INTERRUPTS.deferred


def take_over() -> None:
    """Let Ctrl-C end this process at once with exit code 130, outside of `deferred`; for the command line."""
    _INTERRUPTS.held = _INTERRUPTS.listen(ends_process=True) or _INTERRUPTS.held


def requested() -> float | None:
    """Return the time of the first Ctrl-C, in seconds of `time.monotonic`; None if none came."""
    return _INTERRUPTS.since


def set_outcome(text: str) -> None:
    """Set the sentence that says what is left if Ctrl-C comes from now on."""
    _INTERRUPTS.outcome = text


def outcome() -> str:
    """Return that sentence."""
    return _INTERRUPTS.outcome


def end(text: str | None = None) -> NoReturn:
    """End the process as Ctrl-C does, with this message or the usual one."""
    _INTERRUPTS.end(text)
