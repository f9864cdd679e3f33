"""Parameters as people mean them: a standard deviation instead of the logarithm that is stored."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import equinox as eqx
import jax
import numpy as np

from mcfo.learning.parameters import Modules, finite_or_none, split


def readable_arrays(module: Any) -> dict[str, Any]:
    """Every array of a module by its dotted path, where a module names in `readable` the attributes that stand for its
    arrays: "model.transition_noise.standard_deviation" instead of "model.transition_noise.log_diagonal"."""
    return dict(_walk(module, ""))


def readable_fixed(modules: Modules, fixed: Iterable[str]) -> list[str]:
    """The readable parameters that no update changes: those that stay when everything learned is moved."""
    learned, rest = split(modules, fixed)
    moved = eqx.combine(jax.tree.map(lambda array: array + 0.5, learned), rest)
    before, after = readable_arrays(modules), readable_arrays(moved)
    return [name for name in before if np.array_equal(before[name], after[name], equal_nan=True)]


def finite_lists(array: Any) -> Any:
    """An array as nested lists for JSON, None where an entry is not finite."""
    return finite_or_none(array) if np.ndim(array) == 0 else [finite_lists(part) for part in np.asarray(array)]


def _walk(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if eqx.is_inexact_array(value):
        yield path, value
        return
    if isinstance(value, eqx.Module):
        names = getattr(type(value), "readable", None) or [field.name for field in dataclasses.fields(value)]
        parts = [(name, getattr(value, name)) for name in names]
    elif isinstance(value, dict):
        parts = list(value.items())
    elif isinstance(value, list | tuple):
        parts = list(enumerate(value))
    else:
        return
    for name, part in parts:
        yield from _walk(part, f"{path}.{name}" if path else str(name))
