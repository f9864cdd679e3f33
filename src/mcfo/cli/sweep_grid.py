"""The grid of a sweep file: which runs of `mcfo fit` it asks for, by name."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from mcfo.errors import InputError, nearest

MOST_RUNS = 10_000
_MOST_BYTES = 1_000_000
_LONGEST_NAME = 80
_FILES = ("data", "validation")
"""Options that name files: relative to the folder of the sweep file, wherever the command runs."""
_OWN = ("model", "proposal")
"""Options that may name one's own code, `path/to/file.py:Name`."""
_OURS = ("out", "resume")
"""Options that the sweep itself gives to every run."""


class Option(NamedTuple):
    """An option of `mcfo fit`: its flag (empty for the argument), what turns it off, and whether it is repeated."""

    flag: str
    off: str
    multiple: bool
    switch: bool


class Planned(NamedTuple):
    """One run of the grid: its name, its values on the axes, and the words after `mcfo fit`."""

    name: str
    values: dict[str, str]
    arguments: list[str]


def read_grid(path: Path, options: Mapping[str, Option]) -> list[Planned]:
    """Read a sweep file: every key is an option of `mcfo fit`, and every list an axis of the grid.

    **Arguments:**

    - `options`: those of `mcfo fit` by name. Options of the form name=value are tables here, `[set]`.
    """
    content = _read(path)
    settings: dict[tuple[str, ...], list[Any]] = {}
    for key, value in content.items():
        name = key.replace("_", "-")
        if name in _OURS:
            raise InputError(f"{path} gives {key}, but a sweep chooses it for every run. Leave it out.")
        if name not in options:
            raise InputError(f"{path}: mcfo fit has no option {key!r}. {nearest(name, set(options) - set(_OURS))}")
        if isinstance(value, dict) != (options[name].multiple and name != "fix"):
            wanted = f"a table, [{name}]" if options[name].multiple else "a value or a list of values, not a table"
            raise InputError(f"{path}: {key} is {wanted}.")
        if name == "fix":
            settings[name,] = [_names(path, key, value)]
        elif isinstance(value, dict):
            settings |= {(name, inner): _axis(path, f"{key}.{inner}", each) for inner, each in value.items()}
        else:
            settings[name,] = _axis(path, key, value)
    for name in ("model", "data"):
        if (name,) not in settings:
            raise InputError(f"{path} gives no {name}. Write {name} = ..., or a list of several.")
    axes = [key for key, values in settings.items() if len(values) > 1]
    count = 1
    for key in axes:
        count *= len(settings[key])
    if count > MOST_RUNS:
        raise InputError(f"{path} asks for {count} runs, but a sweep has at most {MOST_RUNS}. Split the file.")
    digits = len(str(count))
    runs = []
    for number, combination in enumerate(itertools.product(*settings.values()), 1):
        chosen = dict(zip(settings, combination, strict=True))
        values = {".".join(key): _word(chosen[key]) for key in axes}
        label = "-".join(f"{key.rpartition('.')[2]}={Path(word).name}" for key, word in values.items())
        name = f"{number:0{digits}}-{label}" if label else "run"
        words = _arguments(chosen, options, path.parent)
        runs.append(Planned(re.sub(r"[^\w.=-]+", "_", name)[:_LONGEST_NAME], values, words))
    return runs


def _read(path: Path) -> dict[str, Any]:
    try:
        content = path.read_bytes()[: _MOST_BYTES + 1]
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}. Give a sweep file in TOML.") from error
    if len(content) > _MOST_BYTES:
        raise InputError(f"{path} has more than {_MOST_BYTES} bytes, too many for a sweep file.")
    try:
        return tomllib.loads(content.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not TOML: {error}. Write lines such as particles = [10, 100].") from error


def _axis(path: Path, key: str, value: Any) -> list[Any]:
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(one, str | int | float) for one in values):
        raise InputError(f"{path}: {key} must be text, a number, true or false, or a list of them.")
    if len(set(map(_word, values))) < len(values):
        raise InputError(f"{path}: {key} lists a value twice. Give each value once.")
    return values


def _names(path: Path, key: str, value: Any) -> list[str]:
    names = value if isinstance(value, list) else [value]
    if not all(isinstance(one, str) for one in names):
        raise InputError(f"{path}: {key} must be the name of a parameter, or a list of names.")
    return names


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _arguments(chosen: Mapping[tuple[str, ...], Any], options: Mapping[str, Option], folder: Path) -> list[str]:
    """The words of one run after `mcfo fit`."""
    words = [_own_file(folder, str(chosen["model",]))]
    for key, value in chosen.items():
        option = options[key[0]]
        if key[0] == "model":
            continue
        if len(key) == 2:
            words += [option.flag, f"{key[1]}={_word(value)}"]
        elif key[0] == "fix":
            words += [word for name in value for word in (option.flag, name)]
        elif option.switch:
            words += [option.flag] if value is True else [option.off] if option.off else []
        elif key[0] in _FILES:
            words += [option.flag, str((folder / str(value)).resolve())]
        else:
            words += [option.flag, _own_file(folder, _word(value)) if key[0] in _OWN else _word(value)]
    return words


def _own_file(folder: Path, value: str) -> str:
    file, colon, name = value.rpartition(":")
    return f"{(folder / file).resolve()}:{name}" if colon and file.endswith(".py") else value
