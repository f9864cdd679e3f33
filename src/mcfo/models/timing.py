"""How models read their inputs: the time since the step before, where times are uneven, and then what was measured."""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Float

from mcfo.types import Inputs, Numbers, Scalar


def gap_of(inputs: Inputs, timed: bool) -> Scalar | None:
    """The time since the step before, δ_t, which is the first input of a timed model."""
    if not timed:
        return None
    if inputs is None:
        raise ValueError(
            "The model takes the time since the step before as its first input, but the sequence has no inputs. Give "
            "Sequence.from_values(..., inputs=gaps), or read the file with read_series(...).with_gaps()."
        )
    return inputs[0]


def effect_of(
    weights: Float[Array, "size driving"] | None, inputs: Inputs, timed: bool
) -> Float[Array, " size"] | None:
    """D u_t, where u_t are the inputs without δ_t; None without weights."""
    if weights is None:
        return None
    if inputs is None:
        raise ValueError("The model has weights for inputs but the sequence has none. Give Sequence(inputs=...).")
    return weights @ (inputs[1:] if timed else inputs)


def read_weights(weights: Numbers | None) -> Float[Array, "size driving"] | None:
    """A matrix with a row for each dimension, or None."""
    return None if weights is None else jnp.atleast_2d(jnp.asarray(weights, float))
