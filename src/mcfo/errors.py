"""Errors for users, and suggestions for unknown names. This module imports nothing that takes time."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


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
