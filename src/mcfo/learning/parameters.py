"""The arrays of a model and a proposal by name: learned, fixed, and stored in files."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np

from mcfo.errors import InputError, nearest
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal

_Tree = TypeVar("_Tree")


class Modules(eqx.Module):
    """A model and its proposal, which are learned together.

    `follows` is True where the proposal is not learned, because it is the optimum of whatever the model is.
    """

    model: Model
    proposal: Proposal
    follows: bool = eqx.field(static=True, default=False)

    @classmethod
    def learned_by(cls, model: Model, proposal: Proposal, fixed: Iterable[str]) -> Modules:
        """Return both for a run with these fixed parameters: an optimal proposal that is fixed as a whole follows."""
        return cls(model, proposal, "proposal" in fixed and proposal.follows)

    def current(self) -> Modules:
        """Return the modules with the proposal that belongs to the model's present parameters."""
        if not self.follows:
            return self
        # The proposal reads numbers: theta learns by its own rule, and not through what q does with it.
        model = jax.tree.map(lambda leaf: jax.lax.stop_gradient(leaf) if eqx.is_array(leaf) else leaf, self.model)
        return Modules(self.model, self.proposal.following(model), follows=True)


def named_arrays(tree: Any) -> dict[str, Any]:
    """Return every array of a tree by its dotted path: "model.transition_noise.log_diagonal"."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {dotted(path): leaf for path, leaf in leaves if eqx.is_array(leaf)}


def dotted(path: Any) -> str:
    """Return the dotted name of a path in a pytree."""
    return jax.tree_util.keystr(path, simple=True, separator=".")


def split(modules: Modules, fixed: Iterable[str]) -> tuple[Modules, Modules]:
    """Split into what is learned (the real arrays outside the fixed paths) and the rest; `eqx.combine` joins them."""
    names = [dotted(path) for path, leaf in jax.tree_util.tree_leaves_with_path(modules) if eqx.is_inexact_array(leaf)]
    for path in fixed:
        if not any(_lies_under(name, path) for name in names):
            raise InputError(f"There is no parameter {path!r} to fix. {nearest(path, names)}")

    def is_learned(path: Any, leaf: Any) -> bool:
        return eqx.is_inexact_array(leaf) and not any(_lies_under(dotted(path), one) for one in fixed)

    return eqx.partition(modules, jax.tree_util.tree_map_with_path(is_learned, modules))


def _lies_under(name: str, path: str) -> bool:
    return name == path or name.startswith(path + ".")


def fill(like: _Tree, arrays: Mapping[str, np.ndarray], *, source: str) -> _Tree:
    """Return the module with its arrays replaced by those of a file."""
    wanted = named_arrays(like)
    missing, unknown = sorted(wanted.keys() - arrays.keys()), sorted(arrays.keys() - wanted.keys())
    if missing or unknown:
        raise InputError(
            f"{source} holds another model. "
            + (f"It lacks {', '.join(missing)}. " if missing else "")
            + (f"It has {', '.join(unknown)} instead. " if unknown else "")
            + "Give the model and the proposal of the run."
        )
    for name, array in wanted.items():
        if array.shape != arrays[name].shape:
            raise InputError(
                f"{source} holds another model: {name} has shape {arrays[name].shape} there, but {array.shape} is "
                "wanted. Give the model and the proposal of the run."
            )
        if np.dtype(array.dtype).kind != arrays[name].dtype.kind:
            raise InputError(
                f"{source} is damaged: {name} has dtype {arrays[name].dtype} there, but {array.dtype} is wanted. Get "
                "it from its source again, or fit the model again."
            )

    def pick(path: Any, leaf: Any) -> Any:
        if not eqx.is_array(leaf):
            return leaf
        stored = arrays[dotted(path)]
        # An exact fit is in float64, which a session in float32 must not round: exact answers need it.
        exact = stored.dtype == np.float64 and leaf.dtype != np.float64
        return stored if exact else jax.numpy.asarray(stored, leaf.dtype)

    return jax.tree_util.tree_map_with_path(pick, like)


def require_finite(like: Any, arrays: Mapping[str, np.ndarray], *, source: str) -> None:
    """Refuse arrays of a file that have NaN or infinite numbers where those of a module have none."""
    for name, array in named_arrays(like).items():
        if not np.issubdtype(array.dtype, np.floating):
            continue
        wrong = ~np.isfinite(arrays[name]) & np.isfinite(np.asarray(array))
        if wrong.any():
            index = [int(one) for one in np.argwhere(wrong)[0]]
            raise InputError(
                f"{source} is damaged: {name}{index if index else ''} is {arrays[name][tuple(index)]}, but a parameter "
                "is a finite number. Get the file from its source again, or fit the model again."
            )


def digest(tree: Any) -> str:
    """Hash the arrays of a tree: their names, shapes, types and values."""
    result = hashlib.sha256()
    for name, array in sorted(named_arrays(tree).items()):
        values = np.asarray(array)
        result.update(f"{name} {values.dtype} {values.shape};".encode())
        result.update(np.ascontiguousarray(values).tobytes())
    return result.hexdigest()


def describe(value: Any, *, values: bool = True) -> Any:
    """Describe a module as data for config.json: its class and its fields; long arrays by their shapes.

    **Arguments:**

    - `values`: whether short arrays are given by their numbers.
    """
    if eqx.is_array(value) or isinstance(value, np.ndarray):
        array = np.asarray(value)
        return array.tolist() if values and array.size <= 4 else {"shape": list(array.shape)}
    if isinstance(value, eqx.Module):
        names = getattr(value, "__dataclass_fields__", {})
        fields = {name: describe(getattr(value, name), values=values) for name in names}
        return {"kind": type(value).__name__, **fields}
    if isinstance(value, list | tuple):
        return [describe(one, values=values) for one in value]
    if isinstance(value, dict):
        return {str(name): describe(one, values=values) for name, one in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return getattr(value, "__name__", type(value).__name__)


def finite_or_none(value: Any) -> float | None:
    """Return a number as JSON can hold it: None where it is not finite."""
    number = float(value)
    return number if math.isfinite(number) else None
