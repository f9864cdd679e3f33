"""Errors for users, and suggestions for unknown names. This module imports nothing that takes time."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_COMMAND_LINE: ContextVar[bool] = ContextVar("command_line", default=False)


class InputError(ValueError):
    """The user's input cannot be used; the message says what came, what was wanted and what to do."""


class OtherRunError(InputError):
    """A folder holds another run than the one that should be resumed."""


class PartlyMissingError(ValueError):
    """Single dimensions of an observation are missing, which its emission cannot leave out."""


class RunError(RuntimeError):
    """A run cannot continue; what it saved is complete, and the message says how to resume."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a sentence with the nearest known name, if one is near, and all known names."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, 1, 0.5)
    return (f"Did you mean {near[0]!r}? " if near else "") + f"There are: {', '.join(known)}."


@contextmanager
def for_the_command_line() -> Iterator[None]:
    """Let messages name options as they are written on the command line, while it lasts."""
    token = _COMMAND_LINE.set(True)
    try:
        yield
    finally:
        _COMMAND_LINE.reset(token)


def spelled(name: str, value: Any) -> str:
    """Return an option as the caller writes it: phi="inclusive-kl" in Python, --phi inclusive-kl on a command line."""
    if _COMMAND_LINE.get():
        return f"--{name.replace('_', '-')} {value}"
    return f'{name}="{value}"' if isinstance(value, str) else f"{name}={value!r}"


def spoken(python: str, command_line: str) -> str:
    """Return the remedy in the caller's language, where the two are not one option."""
    return command_line if _COMMAND_LINE.get() else python
