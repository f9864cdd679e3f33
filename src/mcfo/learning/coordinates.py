"""The learned numbers of a model as one vector, and the parameters that people mean as functions of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float
from scipy.special import expit

from mcfo.errors import InputError
from mcfo.learning.parameters import Modules, dotted, split
from mcfo.learning.readable import readable_arrays
from mcfo.linear_algebra import cholesky
from mcfo.models.base import Model
from mcfo.precision import in_float64
from mcfo.proposals.base import Bootstrap
from mcfo.types import HostArray, Scalar

MOST = 200
"""The largest number of learned numbers with standard errors or a posterior: their information is a matrix."""
_FAR = 300.0
"""A coordinate at which exp, tanh and the logistic function have reached their limits, and no square of exp is NaN."""
_RANGES = {
    "standard_deviation": (0.0, math.inf),
    "correlation": (-1.0, 1.0),
    "probabilities": (0.0, 1.0),
    "transition_probabilities": (0.0, 1.0),
    "initial_probabilities": (0.0, 1.0),
}
"""The ranges of parameters that depend on several coordinates, by the last word of their names."""


class Entry(NamedTuple):
    """One number that people mean.

    - `name`: that of its array, without "model."; `position`: the index into it.
    - `low`, `high`: its open range.
    - `single`: whether it is the only one of its array.
    """

    name: str
    position: tuple[int, ...]
    low: float
    high: float
    single: bool

    @property
    def label(self) -> str:
        """The name with its index, if there are others: "transition_matrix[0, 1]"."""
        return self.name if self.single else f"{self.name}[{', '.join(map(str, self.position))}]"

    def interval(self, value: float, width: float) -> tuple[float, float]:
        """Return the interval y ± `width` to first order, on the scale on which the range is the real line: the
        logarithm of the distance to a bound, the logit between two bounds."""
        above, below = value - self.low, self.high - value
        if min(above, below) <= 0.0:
            # At a bound the scale of the interval is infinite: rounding has taken what was left of the distance.
            return max(self.low, value - width), min(self.high, value + width)
        if math.isinf(above) and math.isinf(below):
            return value - width, value + width
        if math.isinf(below):
            return self.low + above * math.exp(-width / above), self.low + above * _exp(width / above)
        if math.isinf(above):
            return self.high - below * _exp(width / below), self.high - below * math.exp(-width / below)
        center, width = math.log(above / below), width * (1 / above + 1 / below)
        low, high = ((self.high - self.low) * float(expit(center + side * width)) for side in (-1, 1))
        return self.low + low, self.low + high


class Coordinates(eqx.Module):
    """The learned arrays of a model as a vector θ, and the numbers y(θ) that people mean.

    - `learned`, `rest`: what is learned, and all else of the model.
    - `names`: the name of each coordinate: "emission_noise.log_diagonal[0]".
    - `entries`: the numbers y that change with θ. A symmetric matrix has each of its entries once.
    - `free`: the indices of entries that determine the others; with `superfluous` coordinates, which no entry
      determines, they are as many as there are coordinates, and θ → (y_free, θ_superfluous) is a change of variables.
    """

    learned: Model
    rest: Model
    names: tuple[str, ...] = eqx.field(static=True)
    entries: tuple[Entry, ...] = eqx.field(static=True)
    free: tuple[int, ...] = eqx.field(static=True)
    superfluous: tuple[int, ...] = eqx.field(static=True)

    @classmethod
    def build(cls, model: Model, fixed: Iterable[str] = ()) -> Coordinates:
        """Split a model into what is learned and what is fixed; paths of the proposal are passed over."""
        paths = [path for path in fixed if path.split(".")[0] != "proposal"]
        learned, rest = (modules.model for modules in split(Modules(model, Bootstrap()), paths))
        size = sum(np.size(leaf) for leaf in jax.tree.leaves(learned))
        if not size:
            raise InputError("Every parameter of the model is fixed, so that none is uncertain. Fix fewer of them.")
        if size > MOST:
            raise InputError(
                f"The model has {size} learned numbers. Standard errors and posteriors are for models of up to {MOST}."
            )
        names = tuple(
            dotted(path) + "".join(f"[{one}]" for one in index)
            for path, leaf in jax.tree_util.tree_leaves_with_path(learned)
            for index in np.ndindex(np.shape(leaf))
        )
        return _described(cls(learned, rest, names, (), (), ()))

    @property
    def size(self) -> int:
        """The number of coordinates."""
        return len(self.names)

    def vector(self) -> Float[Array, " size"]:
        """Return θ of the model that this was built from."""
        return ravel_pytree(self.learned)[0]

    def model(self, vector: Float[HostArray, " size"]) -> Any:
        """Return the model at θ."""
        return eqx.combine(ravel_pytree(self.learned)[1](vector), self.rest)

    def values(self, vector: Float[HostArray, " size"]) -> Float[Array, " entries"]:
        """Return y(θ)."""
        arrays = readable_arrays(self.model(vector))
        return jnp.stack([arrays[entry.name][entry.position] for entry in self.entries])

    def log_jacobian(self, vector: Float[HostArray, " size"]) -> Scalar:
        """Return log |det d(y_free, θ_superfluous) / dθ|, which turns a density of the parameters into one of θ."""
        free = np.array(self.free, int)
        rows = jax.jacfwd(lambda theta: self.values(theta)[free])(jnp.asarray(vector))
        rows = jnp.concatenate([rows, jnp.eye(self.size, dtype=rows.dtype)[np.array(self.superfluous, int)]])
        # log|det J| = ½ log det J Jᵀ, with rows of length one, because no LAPACK may run inside a compiled loop.
        lengths = jnp.sqrt(jnp.sum(rows**2, axis=1))
        rows = rows / lengths[:, None]
        return jnp.sum(jnp.log(lengths)) + jnp.sum(jnp.log(jnp.diagonal(cholesky(rows @ rows.T))))


@in_float64
def _described(bare: Coordinates) -> Coordinates:
    """Find which entries change with θ, their ranges, and a set of them that determines θ."""
    vector = np.asarray(bare.vector())
    # A little off the model's own θ, where a derivative may vanish by chance.
    generic = vector + 0.1 * np.random.default_rng(0).normal(size=len(vector))
    names: list[str] = []

    def probe() -> dict[str, Any]:
        arrays = readable_arrays(bare.model(generic))
        names.extend(arrays)  # in the model's order, which JAX's dictionaries lose
        return arrays

    arrays = jax.eval_shape(probe)
    whole = [
        Entry(name, index, -math.inf, math.inf, math.prod(arrays[name].shape) == 1)
        for name in names
        for index in np.ndindex(arrays[name].shape)
        if not (name.endswith(".correlation") and index[-1] >= index[-2])
    ]
    draft = Coordinates(bare.learned, bare.rest, bare.names, tuple(whole), (), ())
    # Each coordinate at four values far out, the others as they are: one program, because each costs a compilation.
    far_out = np.where(np.eye(len(vector), dtype=bool), np.array([-2, -1, 1, 2])[:, None, None] * _FAR, generic)
    slopes, far = map(np.asarray, _probed(draft, generic, far_out))
    entries, rows = [], []
    for index, row in enumerate(slopes):
        if not np.any(row != 0):
            continue
        entry = whole[index]
        low, high = _RANGES.get(entry.name.rpartition(".")[2], (-math.inf, math.inf))
        if np.sum(row != 0) == 1:
            ends = far[:, int(np.flatnonzero(row)[0]), index]
            low, high = sorted((_limit(ends[1], ends[0]), _limit(ends[2], ends[3])))
        entries.append(entry._replace(low=low, high=high))
        rows.append(row)
    free, superfluous = _basis(np.array(rows).reshape(-1, len(vector)))
    return Coordinates(bare.learned, bare.rest, bare.names, tuple(entries), free, superfluous)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


@eqx.filter_jit
def _probed(draft: Coordinates, vector: Any, far_out: Any) -> Any:
    return jax.jacfwd(draft.values)(vector), jax.vmap(jax.vmap(draft.values))(far_out)


def _limit(near: Any, far: Any) -> float:
    """Return the limit of a monotone function from its values far out."""
    if np.isfinite(far) and np.isclose(near, far, rtol=1e-9, atol=1e-9):
        return float(np.round(far, 9)) + 0.0
    return math.inf if far > near or far == math.inf else -math.inf


def _basis(rows: np.ndarray) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the first rows that are linearly independent, and the unit vectors that complete them to a basis."""
    size = rows.shape[1]
    basis = np.zeros((0, size))
    chosen: tuple[list[int], list[int]] = ([], [])
    for which, candidates in enumerate((rows, np.eye(size))):
        for index, row in enumerate(candidates):
            left = row / np.linalg.norm(row)
            left = left - basis.T @ (basis @ left)
            left = left - basis.T @ (basis @ left)
            if np.linalg.norm(left) > 1e-6:
                basis = np.vstack([basis, left / np.linalg.norm(left)])
                chosen[which].append(index)
    return tuple(chosen[0]), tuple(chosen[1])
