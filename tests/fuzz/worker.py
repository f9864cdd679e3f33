"""A process that reads the files it is told of, under limits, and says how each reading ended.

It is started as `python -m fuzz.worker FOLDER [commands]` and speaks JSON lines: a request with a reader and a path,
an answer with the end, the message, the seconds of the processor and what was touched outside of the folder.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

LIMITS = "elements=1e6,bytes=64e6,document=4e6,line=1e6,columns=1e4"
"""Small limits, so that whatever passes them shows in time and memory."""
MEMORY = 2**30
"""Bytes beyond what the libraries take."""
_HARMLESS = ("/dev/null", "/dev/urandom", "/proc/", "/sys/", "/usr/share/zoneinfo", "/etc/localtime", "/etc/mime.types")
_FORBIDDEN = (
    *("socket.connect", "socket.getaddrinfo", "socket.bind", "subprocess.Popen", "os.system", "os.exec"),
    *("os.posix_spawn", "os.fork", "os.forkpty", "urllib.Request", "webbrowser.open"),
)
_CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.chmod", "os.link", "os.symlink", "os.truncate")


class Watch:
    """Notes what Python opens, changes or calls outside of a folder."""

    def __init__(self, folder: Path):
        self._folder = str(folder)
        places = [sys.prefix, sys.base_prefix, *sys.path, self._folder, os.environ.get("MPLCONFIGDIR", self._folder)]
        # The cache of compiled programs is the user's.
        self._writable = tuple(filter(None, [self._folder, os.environ.get("JAX_COMPILATION_CACHE_DIR")]))
        self._readable = tuple(str(Path(place).resolve()) for place in places if place) + self._writable + _HARMLESS
        self.found: list[str] = []
        sys.addaudithook(self._look)

    def _look(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _FORBIDDEN:
            self._refuse(f"{event}{arguments!r}")
        elif event == "open" and isinstance(arguments[0], str | bytes):
            path = os.path.abspath(os.fsdecode(arguments[0]))
            writes = bool(arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)) and path != "/dev/null"
            if not path.startswith(self._writable if writes else self._readable):
                self._refuse(f"{'writes' if writes else 'reads'} {path}")
        elif event in _CHANGES:
            for one in arguments[:2]:
                if isinstance(one, str | bytes) and not os.path.abspath(os.fsdecode(one)).startswith(self._writable):
                    self._refuse(f"{event} {os.fsdecode(one)}")

    def _refuse(self, text: str) -> None:
        self.found.append(text[:300])
        raise PermissionError(f"the watch of the fuzzer: {text[:300]}")


def read_series(path: Path) -> None:
    from mcfo.data.column_layout import RequestedColumns
    from mcfo.data.table_files import read_file

    raw = read_file(path, RequestedColumns())
    assert all(map(str.isprintable, [*raw.names, *raw.columns, *raw.input_names])), "a name that cannot be shown"


def read_music(path: Path) -> None:
    from mcfo.data.music_files import read_music

    read_music(path)


def read_midi(path: Path) -> None:
    from mcfo.data.piano_rolls import read_midi

    read_midi(path)


def read_holidays(path: Path) -> None:
    from mcfo.data.calendar import read_holidays

    read_holidays(path)


def read_arrays(path: Path) -> None:
    from mcfo.data.npz import read_arrays

    read_arrays(path)


def read_lines(path: Path) -> None:
    from mcfo.data.jsonl import read_line, read_lines
    from mcfo.errors import InputError

    with path.open("rb") as file:
        for line in read_lines(file):
            try:
                if not isinstance(line, InputError):
                    read_line(line, ["x", "y"], ["u"], timed=True)
            except InputError as error:
                json.dumps(str(error))


def read_run(path: Path) -> None:
    from mcfo.data.run_record import read_run
    from mcfo.reports.parameters import model_rows
    from mcfo.reports.predictive import read_checks
    from mcfo.reports.warnings import run_warnings

    run = read_run(path.parent)
    for text in (*run_warnings(run), *(cell for row in model_rows(run)[1] for cell in row)):
        assert text.isprintable(), f"{text[:100]!r} cannot be shown"
    read_checks(path.parent)


READERS: dict[str, Callable[[Path], None]] = {
    "series": read_series,
    "music": read_music,
    "midi": read_midi,
    "holidays": read_holidays,
    "arrays": read_arrays,
    "lines": read_lines,
    "run": read_run,
}


def warm_up(commands: bool) -> None:
    """Import what readers import late: the limit of memory counts from there."""
    for name in ("h5netcdf", "mido", "pyarrow.parquet", "scipy.io", "xarray"):
        importlib.import_module(name)
    for name in ("data.calendar", "data.jsonl", "data.music_files", "data.table_files"):
        importlib.import_module(f"mcfo.{name}")
    for name in ("predictive", "warnings"):
        importlib.import_module(f"mcfo.reports.{name}")
    if commands:
        importlib.import_module("mcfo.cli.main")
        importlib.import_module("jax.numpy").zeros(3).block_until_ready()
    else:
        assert "jax" not in sys.modules, "readers need no JAX"


def answer(request: dict[str, Any], watch: Watch) -> dict[str, Any]:
    from mcfo.errors import InputError

    watch.found.clear()
    start = time.process_time()
    try:
        if "words" in request:
            from fuzz.commands import run_command

            end, text = run_command(request["words"], Path(request["path"]))
        else:
            READERS[request["reader"]](Path(request["path"]))
            end, text = "read", ""
    except InputError as error:
        end, text = "refused", str(error)
    except BaseException:
        end, text = "traceback", traceback.format_exc()[-3000:]
    return {"end": end, "text": text, "seconds": time.process_time() - start, "outside": watch.found[:5]}


def main() -> None:
    folder, commands = Path(sys.argv[1]).resolve(), "commands" in sys.argv[2:]
    os.environ["MCFO_LIMITS"] = LIMITS
    # What libraries print must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warm_up(commands)
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY * (4 if commands else 1),) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if "FUZZ_HARM" in os.environ:
        # A test of the oracle brings readers that do what must not be done.
        sys.path.insert(0, os.environ["FUZZ_HARM"])
        importlib.import_module("harm")
    watch = Watch(folder)
    print(json.dumps({"end": "ready"}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line), watch)), file=answers, flush=True)


if __name__ == "__main__":
    main()
