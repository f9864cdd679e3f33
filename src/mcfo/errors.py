"""Errors for users, and suggestions for unknown names. This module imports nothing that takes time."""

from __future__ import annotations

import difflib
import itertools
import reprlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_COMMAND_LINE: ContextVar[bool] = ContextVar("command_line", default=False)
_BEGINNING, _END = 1200, 600
"""Characters of a longer message that are shown: what came stands at its beginning, the remedy at its end."""
_COMPARED = 10_000
"""Names that are compared with an unknown one, each up to `_LONGEST` characters: a comparison takes quadratic time."""
_LONGEST, _LISTED = 80, 40


class _Message(Exception):
    """An error whose message is of bounded length, and of which a terminal does nothing but show it."""

    def __init__(self, message: object = ""):
        super().__init__(bounded(printable(str(message))))


class InputError(_Message, ValueError):
    """The user's input cannot be used; the message says what came, what was wanted and what to do."""


class OtherRunError(InputError):
    """A folder holds another run than the one that should be resumed."""


class PartlyMissingError(ValueError):
    """Single dimensions of an observation are missing, which its emission cannot leave out."""


class RunError(_Message, RuntimeError):
    """A run cannot continue; what it saved is complete, and the message says how to resume."""


def printable(text: str) -> str:
    """Escape what a terminal acts on instead of showing it: control characters, and marks that turn the text around."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def bounded(text: str) -> str:
    """Return the text, or its beginning and its end."""
    return text if len(text) <= _BEGINNING + _END else f"{text[:_BEGINNING]} … {text[-_END:]}"


class _Shown(reprlib.Repr):
    def repr_int(self, x: int, level: int) -> str:
        # Python refuses to write integers of more than some thousand digits.
        return super().repr_int(x, level) if x.bit_length() < 8192 else f"a number of {x.bit_length()} bits"


_SHOWN = _Shown()
_SHOWN.maxlevel, _SHOWN.maxstring, _SHOWN.maxother = 2, 60, 60


def shown(value: Any) -> str:
    """Return the beginning of a value as text, however large or deeply nested it is."""
    return _SHOWN.repr(value)


def machine_message(error: BaseException) -> str | None:
    """Return what to do about an error of the machine, such as a full disk; None for other errors."""
    if isinstance(error, MemoryError) or _exhausted(error):
        return "There is not enough memory. Use fewer series, shorter ones, fewer particles or a smaller model."
    if isinstance(error, RecursionError):
        return "Something in the input is nested too deeply. Flatten it, or get the file from its source again."
    if isinstance(error, UnicodeError):
        return f"A text cannot be read or written ({error.reason if hasattr(error, 'reason') else error}). Use UTF-8."  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(error, OSError):
        where = f" {error.filename}" if error.filename is not None else ""
        return bounded(printable(f"Cannot read or write{where}: {error.strerror or error}. Change that and try again."))
    return None


def _exhausted(error: BaseException) -> bool:
    """Whether XLA found no memory, of which only the status at the beginning of its text tells."""
    jax = sys.modules.get("jax")
    return (
        jax is not None
        and isinstance(error, jax.errors.JaxRuntimeError)
        and str(error).startswith("RESOURCE_EXHAUSTED")
    )


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a sentence with the nearest known name, if one is near, and the known names."""
    known = sorted(known)
    short = [one[:_LONGEST] for one in known[:_COMPARED]]
    near = difflib.get_close_matches(name[:_LONGEST], short, 1, 0.5)
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    there_are = ", ".join(
        one if len(one) <= _LONGEST else f"{one[:_LONGEST]}…" for one in itertools.islice(known, _LISTED)
    )
    return (f"Did you mean {near[0]!r}? " if near else "") + f"There are: {there_are}{more}."


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
