"""What must hold of every case: it is read, or refused with one message, within limits of time and memory, and nothing
outside of its folder is read, written or called."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from fuzz.cases import Case

SECONDS = 5.0
"""Of the processor, for one case."""
PATIENCE = 120.0
"""Seconds until a case counts as endless, also on a busy machine."""
LONGEST = 2000
"""Characters of a message."""
_NOISE = ("Exception ignored", "Traceback", "terminate called", "Fatal Python error")
_ROOT = Path(__file__).parents[2]


class Worker:
    """A process that reads one case after the other; a new one is started when it ends."""

    def __init__(self, folder: Path, *, commands: bool = False):
        self._folder, self._commands = folder.resolve(), commands
        self._case = self._folder / "case"
        self._errors = self._folder / "stderr"
        self._process: subprocess.Popen[bytes] | None = None
        self.restarts = -1

    def violations(self, case: Case, words: list[str] | None = None) -> list[str]:
        """Return what does not hold of a case; `words` are those of a command that is run on it."""
        shutil.rmtree(self._case, ignore_errors=True)
        self._case.mkdir(parents=True)
        for name, content in case.files.items():
            (self._case / name).write_bytes(content)
        path = self._case if words is not None else self._case / next(iter(case.files))
        request: dict[str, Any] = {"reader": case.reader, "path": str(path)}
        request |= {} if words is None else {"words": words}
        if self._process is None:
            self._start()
        before = self._errors.stat().st_size
        answer = self._ask(request)
        noise = self._errors.read_bytes()[before:].decode(errors="replace")
        found = [f"printed: {noise[-2000:]}"] if any(one in noise for one in _NOISE) else []
        if answer is None:
            return [*found, "the process died, or did not end"]
        if answer["end"] not in ("read", "refused"):
            found.append(answer["text"])
        if answer["end"] == "refused" and not (answer["text"].isprintable() and len(answer["text"]) <= LONGEST):
            found.append(f"a message that cannot be shown: {answer['text'][:300]!r}")
        if answer["seconds"] > SECONDS:
            found.append(f"took {answer['seconds']:.1f} s")
        return found + answer["outside"]

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self.restarts += 1
        places = [str(_ROOT / "src"), str(_ROOT / "tests"), *sys.path]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, places)),
            "MPLCONFIGDIR": str(self._folder / "matplotlib"),
            "XDG_CONFIG_HOME": str(self._folder / "config"),
            "PYTHONDONTWRITEBYTECODE": "1",
            # The others reserve a gigabyte of addresses at once, which counts as memory here.
            "ARROW_DEFAULT_MEMORY_POOL": "system",
            "COLUMNS": "200",
        }
        command = [sys.executable, "-m", "fuzz.worker", str(self._folder), *(["commands"] if self._commands else [])]
        pipe = subprocess.PIPE
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, env=environment)
        ready = self._answer()
        assert ready == {"end": "ready"}, self._errors.read_text(errors="replace")[-3000:]

    def _ask(self, request: dict[str, Any]) -> dict[str, Any] | None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self.close()
            return None
        return self._answer()

    def _answer(self) -> dict[str, Any] | None:
        assert self._process is not None
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            self.close()
            return None
        return json.loads(line)
