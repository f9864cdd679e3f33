"""Double precision for exact answers, whatever the precision of the session is."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
import numpy as np

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Tree = TypeVar("_Tree")


def in_float64(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Run a function in float64: real arrays among its arguments are widened, and those that it returns are numpy's.

    A float64 array of JAX must not leave the function, because a session in float32 cannot compute with it; one of
    numpy is converted by the next program that takes it.
    """

    @functools.wraps(function)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        args, kwargs = widened((args, kwargs))  # pyright: ignore[reportAssignmentType]
        with jax.enable_x64(True):
            return widened(function(*args, **kwargs))

    return wrapped


def settled(tree: _Tree) -> _Tree:
    """Return a tree whose numpy arrays are JAX's where the session is in float64; elsewhere they stay, unrounded."""
    if not jax.config.jax_enable_x64:
        return tree
    return jax.tree.map(lambda leaf: jax.device_put(leaf) if isinstance(leaf, np.ndarray) else leaf, tree)


def widened(tree: _Tree) -> _Tree:
    """Return a tree with its arrays on the host, the real ones in float64; keys and what is no array stay."""

    def widen(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array | np.ndarray) or jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return leaf
        array = np.asarray(leaf)
        return array.astype(np.float64) if np.issubdtype(array.dtype, np.floating) else array

    return jax.tree.map(widen, tree)
