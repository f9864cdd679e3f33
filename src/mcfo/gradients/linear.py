"""Linear maps, one for each step of a scan, transposed together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Literal


def linearised_scan(
    body: Callable[[Any, Any], tuple[Any, Callable[[Any, Any], Any], Any]],
    state: Any,
    steps: Any,
    shared: Any,
    own: Any,
) -> tuple[Any, Any, Any, Callable[[Any], tuple[Any, Any]]]:
    """A scan each of whose steps makes values of what all of them share and of what each has of its own.

    Reverse mode goes back step by step and writes the gradient of what is shared at every one. Here each step leaves
    the residuals of its linearization, as reverse mode would, and one linear map of all steps is transposed: where a
    step multiplies by a shared matrix, all steps do so in one multiplication.

    **Arguments:**

    - `body`: from the state and a step to the next state, the values as a function of what is shared and of the step's
      own, and outputs. No gradient passes through the state.
    - `own`: for each step, in front.

    **Returns:** the last state, the stacked values, the stacked outputs, and the function that takes cotangents of the
    values to gradients by `shared` and `own`.
    """

    def linearized(state: Any, now: Any) -> tuple[Any, Any, Any]:
        step, own = now
        state, function, outputs = body(state, step)
        values, linear = jax.linearize(function, shared, own)
        return state, linear, (values, outputs)

    one = jax.tree.map(lambda array: array[0], (steps, own))
    closed, (_, linear, _) = jax.make_jaxpr(linearized, return_shape=True)(state, one)
    structure = jax.tree.structure(linear)
    before, count = len(jax.tree.leaves(state)), structure.num_leaves
    varies = _varying(closed)[before : before + count]

    def following(state: Any, now: Any) -> tuple[Any, Any]:
        state, linear, outputs = linearized(state, now)
        residuals = [leaf for leaf, one in zip(jax.tree.leaves(linear), varies, strict=True) if one]
        return state, (residuals, outputs)

    last, (residuals, (values, outputs)) = jax.lax.scan(following, state, (steps, own))
    # Weights are residuals too, the same ones for each step: they are read where they are, not once for each.
    constants = jax.tree.leaves(linearized(state, one)[1])
    stacked = iter(residuals)
    leaves = [next(stacked) if one else leaf for leaf, one in zip(constants, varies, strict=True)]

    def together(shared: Any, own: Any) -> Any:
        def of_step(leaves: Any, own: Any) -> Any:
            return jax.tree.unflatten(structure, leaves)(shared, own)

        return jax.vmap(of_step, in_axes=([0 if one else None for one in varies], 0))(leaves, own)

    return last, values, outputs, jax.linear_transpose(together, shared, own)


def _varying(closed: ClosedJaxpr) -> list[bool]:
    """Which outputs depend on inputs, rather than on constants alone."""
    varying = set(closed.jaxpr.invars)
    for equation in closed.jaxpr.eqns:
        if any(not isinstance(one, Literal) and one in varying for one in equation.invars):
            varying.update(equation.outvars)
    return [not isinstance(one, Literal) and one in varying for one in closed.jaxpr.outvars]
