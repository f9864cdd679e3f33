"""Errors that a user sees, and what they say about an unknown name. Nothing here takes time to import."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """What the user handed over cannot be used; the message says what came, what was wanted and what to do."""


class OtherRunError(InputError):
    """A folder holds the beginning of another run than the one that was asked for."""


class PartlyMissingError(ValueError):
    """Single dimensions of an observation are missing, which its emission cannot leave out."""


class RunError(RuntimeError):
    """A run cannot go on; what it kept before is whole, and the message says how to go on."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The nearest known name, if one is near, and all of them."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, 1, 0.5)
    return (f"Did you mean {near[0]!r}? " if near else "") + f"There are: {', '.join(known)}."
