"""Types of the arrays and objects that all parts of the library share."""

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray, Shaped

Key: TypeAlias = PRNGKeyArray
Scalar: TypeAlias = Float[Array, ""]
LogWeights: TypeAlias = Float[Array, " particles"]
Ancestors: TypeAlias = Int[Array, " particles"]

if TYPE_CHECKING:
    # Inside of programs it is an array of JAX, outside of them often one of numpy: no type checker can tell.
    HostArray: TypeAlias = Any
else:
    HostArray: TypeAlias = Array | np.ndarray
    """An array of JAX, or one on the host that a compiled program will convert to the session's precision."""

Numbers: TypeAlias = ArrayLike | list[Any] | tuple[Any, ...]
"""Numbers as users write them: one number, an array, or nested lists."""

Memory: TypeAlias = Any
"""The memory of a particle: a pytree of arrays, or None before the first step of a Markov model."""

Context: TypeAlias = Any
"""What a proposal computed from the observations for one step: a pytree of arrays, or None."""

Latent: TypeAlias = Shaped[Array, "*latent"]
Observation: TypeAlias = Shaped[Array, " dimensions"]
Inputs: TypeAlias = Float[Array, " inputs"] | None


@runtime_checkable
class Distribution(Protocol):
    """The distributions of models and proposals: those of `numpyro`, or any object with these two methods."""

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any: ...

    def log_prob(self, value: Any) -> Any: ...


def is_known(value: Any) -> bool:
    """Whether the value is concrete, and not being traced by JAX."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(value))
