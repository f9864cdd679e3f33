"""A contender's process, as the driver sees it."""

from __future__ import annotations

import json
import os
import re
import selectors
import subprocess
import tempfile
from typing import Any


class Crashed(Exception):
    """The worker ended, did not answer in time, or answered with an error; the text says which."""


class Worker:
    """A process that answers one JSON object with one. To be closed, or used in a `with` statement.

    **Arguments:**

    - `command`: what is run.
    - `variant`: how many threads or devices it may use.
    - `timeout`: seconds that an answer may take.
    """

    def __init__(self, command: list[str], *, variant: int = 1, timeout: float = 600.0):
        self._errors = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115, closed with the worker
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=os.environ | {"BENCH_VARIANT": str(variant), "OMP_NUM_THREADS": str(variant)},
        )
        self._timeout = timeout
        self._unread = b""
        try:
            self.versions: dict[str, str] = self._answer(timeout)["versions"]
        except BaseException:
            self.close()
            raise

    def ask(self, timeout: float | None = None, **request: Any) -> dict[str, Any]:
        """The answer, or Crashed."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as error:
            raise Crashed(self._last_words()) from error
        return self._answer(self._timeout if timeout is None else timeout)

    def _answer(self, timeout: float) -> dict[str, Any]:
        answer = json.loads(self._line(timeout))
        if "error" in answer:
            raise Crashed(without_folders(answer["error"]))
        return answer

    def _line(self, timeout: float) -> bytes:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not selector.select(timeout):
                    self._process.kill()
                    raise Crashed(f"no answer in {timeout:.0f} s")
                part = os.read(self._process.stdout.fileno(), 65536)
                if not part:
                    raise Crashed(self._last_words())
                self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _last_words(self) -> str:
        status = self._process.wait()
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors.read().splitlines() if line.strip()]
        return without_folders(lines[-1] if lines else f"ended with status {status}")[:300]

    def close(self) -> None:
        """Asks it to end, and ends it if it does not."""
        try:
            if self._process.stdin is not None and not self._process.stdin.closed:
                self._process.stdin.write(b'{"quit": true}\n')
                self._process.stdin.close()
            self._process.wait(5)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def without_folders(text: str) -> str:
    """The text with the names of files alone: where things lie on this machine is nobody's business."""
    return re.sub(r"(?<![\w.])/(?:[\w.+@-]+/)+", "", text)
