"""What an error message says about an unknown name. Nothing is imported here that takes time."""

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str]) -> str:
    """The nearest known name, if one is near, and all of them."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, 1, 0.5)
    return (f"Did you mean {near[0]!r}? " if near else "") + f"There are: {', '.join(known)}."
