"""Names for the arrays and objects that every part of the library speaks of."""

from typing import Any, Protocol, TypeAlias, runtime_checkable

import jax
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray, Shaped

Key: TypeAlias = PRNGKeyArray
Scalar: TypeAlias = Float[Array, ""]
LogWeights: TypeAlias = Float[Array, " particles"]
Ancestors: TypeAlias = Int[Array, " particles"]

Numbers: TypeAlias = ArrayLike | list[Any] | tuple[Any, ...]
"""Numbers as people write them: one, an array, or nested lists."""

Memory: TypeAlias = Any
"""What a particle remembers of its past: a pytree of arrays, or None before the first step."""

Context: TypeAlias = Any
"""What a proposal extracted from the observations for one step: a pytree of arrays, or None."""

Latent: TypeAlias = Shaped[Array, "*latent"]
Observation: TypeAlias = Shaped[Array, " dimensions"]
Inputs: TypeAlias = Float[Array, " inputs"] | None


@runtime_checkable
class Distribution(Protocol):
    """What a model or a proposal returns: `numpyro.distributions`, or anything with these two methods."""

    def sample(self, key: Any, sample_shape: tuple[int, ...] = ()) -> Any: ...

    def log_prob(self, value: Any) -> Any: ...


def is_known(value: Any) -> bool:
    """Whether a value can be looked at now: not while JAX traces a function of it."""
    return not any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(value))
