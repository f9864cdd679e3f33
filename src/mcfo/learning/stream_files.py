"""The state of a stream as a file: resuming from it is bit-identical."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from mcfo.data.npz import load_arrays, write_npz
from mcfo.errors import InputError
from mcfo.learning.parameters import fill, named_arrays
from mcfo.learning.streaming import State


def save(path: str | Path, state: State, *, about: Mapping[str, Any] | None = None) -> None:
    """Write a state into an NPZ file, without pickles; the file is complete or absent.

    **Arguments:**

    - `about`: further facts that must be the same when it is restored, as data for JSON.
    """
    arrays = {name: np.asarray(array) for name, array in named_arrays(_storable(state)).items()}
    write_npz(Path(path), {**arrays, "about": np.array(_about(state, about))})


def restore(path: str | Path, like: State, *, about: Mapping[str, Any] | None = None) -> State:
    """Restore a state that [`save`][] wrote, bit-identically.

    **Arguments:**

    - `like`: a state from [`init`][], with the same arguments as the saved one.
    - `about`: the facts that were saved.
    """
    arrays = load_arrays(Path(path))
    saved = _as_data(str(arrays.pop("about", "")))
    wanted = json.loads(_about(like, about))
    for name in wanted:
        if saved.get(name) != wanted[name]:
            raise InputError(
                f"{path} holds the state of another stream: {name} was {saved.get(name)} and is {wanted[name]}. Give "
                "the arguments of the saved stream, or another file."
            )
    restored = fill(_storable(like), arrays, source=str(path))
    return eqx.tree_at(lambda s: s.key, restored, jax.random.wrap_key_data(restored.key))


def _storable(state: State) -> State:
    """Return the state with its key as numbers."""
    return eqx.tree_at(lambda s: s.key, state, jax.random.key_data(state.key))


def _about(state: State, about: Mapping[str, Any] | None) -> str:
    learning = None if state.learning is None else asdict(state.learning)
    own = {
        "particles": state.sampler.particles,
        "levels": list(state.levels),
        "learning": learning,
        "precision": str(state.filter.log_weights.dtype),
    }
    return json.dumps(own | dict(about or {}), sort_keys=True)


def _as_data(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except ValueError:
        data = {}
    return data if isinstance(data, dict) else {}
