"""Linear maps, one for each step of a scan, transposed together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal

from mcfo.types import Scalar


def linearised_scan(
    body: Callable[[Any, Any], tuple[Any, Callable[[Any, Any], Scalar], Any]],
    state: Any,
    steps: Any,
    shared: Any,
    own: Any,
) -> tuple[Any, Any]:
    """The gradient of a sum over the steps of a scan, by what they share and by what each has of its own.

    Reverse mode goes back step by step and writes the gradient of what is shared at every one. Here each step leaves
    the residuals of its linearisation, as reverse mode would, and one linear map of all steps is transposed: where a
    step multiplies by a shared matrix, all steps do so in one multiplication.

    **Arguments:**

    - `body`: from the state and a step to the next state, the summand as a function of what is shared and of the step's
      own, and outputs. No gradient passes through the state.
    - `own`: for each step, in front.

    **Returns:** the gradients by `shared` and `own`, and the stacked outputs.
    """

    def linearised(state: Any, now: Any) -> tuple[Any, Any, Any]:
        step, own = now
        state, summand, outputs = body(state, step)
        return state, jax.linearize(summand, shared, own)[1], outputs

    one = jax.tree.map(lambda array: array[0], (steps, own))
    closed, (_, linear, _) = jax.make_jaxpr(linearised, return_shape=True)(state, one)
    structure = jax.tree.structure(linear)
    before, count = len(jax.tree.leaves(state)), structure.num_leaves
    varies = _varying(closed)[before : before + count]

    def following(state: Any, now: Any) -> tuple[Any, Any]:
        state, linear, outputs = linearised(state, now)
        residuals = [leaf for leaf, one in zip(jax.tree.leaves(linear), varies, strict=True) if one]
        return state, (residuals, outputs)

    _, (residuals, outputs) = jax.lax.scan(following, state, (steps, own))
    # Weights are residuals too, the same ones for each step: they are read where they are, not once for each.
    constants = jax.tree.leaves(linearised(state, one)[1])
    stacked = iter(residuals)
    leaves = [next(stacked) if one else leaf for leaf, one in zip(constants, varies, strict=True)]

    def together(shared: Any, own: Any) -> Scalar:
        def of_step(leaves: Any, own: Any) -> Scalar:
            return jax.tree.unflatten(structure, leaves)(shared, own)

        axes = [0 if one else None for one in varies]
        return jnp.sum(jax.vmap(of_step, in_axes=(axes, 0))(leaves, own))

    transposed = jax.linear_transpose(together, shared, own)
    return transposed(jnp.ones((), jax.eval_shape(together, shared, own).dtype)), outputs


def _varying(closed: ClosedJaxpr) -> list[bool]:
    """Which outputs depend on inputs, rather than on constants alone."""
    varying = set(closed.jaxpr.invars)
    for equation in closed.jaxpr.eqns:
        if any(not isinstance(one, Literal) and one in varying for one in equation.invars):
            varying.update(equation.outvars)
    return [not isinstance(one, Literal) and one in varying for one in closed.jaxpr.outvars]
