"""Scans through which gradients pass, of which only what must goes back step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal, Var, jaxpr_as_fun

from mcfo.gradients.programs import Traced, lifted_scan, split, stacked_outputs, traced

_AT_ONCE = 3 * 2**20
"""Bytes of residuals of the steps that go back together: few enough that what is made of them stays in a cache."""


def linearised_recurrence(
    body: Callable[[Any, Any, Any], tuple[Any, Callable[[Any, Any, Any], Any], Any]],
    state: Any,
    strand: Any,
    steps: Any,
    shared: Any,
    own: Any,
) -> tuple[tuple[Any, Any], Any, Callable[[Any], tuple[Any, Any, Any]]]:
    """A scan through which gradients pass along a strand.

    Reverse mode through a scan hoists what does not change out of it, once for each use. The compiler then no longer
    sees that the sampler and the rules compute the same, and does it twice. Here each step is linearized inside of the
    scan, where it does, and what it leaves is the multiplications alone: to write and read the rest costs more than to
    make it again.

    **Arguments:**

    - `body`: from the state, the strand and a step to the next state, a function of what is shared, of the step's own
      and of the strand that returns the next strand and a number, and outputs. No gradient passes through the state.
    - `strand`: real arrays.
    - `own`: for each step, in front.

    **Returns:** the last state and strand, the stacked outputs, and the function that takes a cotangent of the last
    strand to the gradients of it and of the sum of all numbers, by `shared`, `own` and the first strand.
    """

    def following(carry: Any, now: Any) -> tuple[Any, Any]:
        state, strand = carry
        step, own = now
        state, function, outputs = body(state, strand, step)
        function = jax.checkpoint(function, policy=jax.checkpoint_policies.dots_saveable)
        (strand, _), linear = jax.linearize(function, shared, own, strand)
        return (state, strand), (linear, outputs)

    (state, last), (linear, outputs), (of_linear, of_outputs) = lifted_scan(following, (state, strand), (steps, own))
    count = len(jax.tree.leaves(steps)[0])

    def back(cotangent: Any) -> tuple[Any, Any, Any]:
        return _Transposed(linear, of_linear, shared, own, strand).in_blocks(cotangent, count)

    return (state, last), stacked_outputs(outputs, of_outputs, count), back


class _Transposed:
    """The steps of a linear recurrence, each of them transposed.

    A step maps tangents of what is shared, of its own and of the strand to those of the next strand and of a number.
    It is taken apart: what depends on residuals alone; what enters from parameters, as the products of a step's values
    with the tangent of a weight; and what goes along the strand. Only this goes back step by step, and of it only what
    depends on the cotangent of the strand. It leaves the cotangents of what enters, from which all steps of a block go
    on to gradients together: where a step multiplies by a weight, all of them do so in one multiplication.
    """

    def __init__(self, linear: Any, stacked: Any, shared: Any, own: Any, strand: Any):
        leaves, structure = jax.tree.flatten(linear)
        flags = jax.tree.leaves(stacked)
        self._residuals = [leaf for leaf, one in zip(leaves, flags, strict=True) if one]
        self._shared, self._own, self._strand = shared, own, strand
        self._one_own = jax.tree.map(lambda array: array[0], own)

        def of_step(residuals: Any, shared: Any, own: Any, strand: Any) -> Any:
            varying = iter(residuals)
            now = [next(varying) if one else leaf for leaf, one in zip(leaves, flags, strict=True)]
            return jax.tree.unflatten(structure, now)(shared, own, strand)

        sizes = [len(jax.tree.leaves(one)) for one in (self._residuals, shared, own, strand)]
        step = traced(of_step, [leaf[0] for leaf in self._residuals], shared, self._one_own, strand)
        self._results = step.results
        self._values, handed, rest = split(step, _of(sizes, 1, 2, 3))
        varying = step.depending_on(_of(sizes, 0))
        self._axes = [0 if one in varying else None for one in handed]
        tangents = Traced(rest, step.results)
        sizes[0] = len(handed)
        self._entering, self._read, self._along = split(tangents, _of(sizes, 3))
        self._entered = tangents.depending_on(_of(sizes, 1, 2))
        self._widths = _widths(self._along, self._read)
        self._places = {one: place for place, one in enumerate(rest.jaxpr.invars)}

    def in_blocks(self, cotangent: Any, count: int) -> tuple[Any, Any, Any]:
        """From the cotangent of the last strand to the gradients by what is shared, by each step's own, and by the
        first strand."""
        length = _block_length(self._residuals)
        blocks = -(-count // length)
        if blocks == 1:
            return self._block(cotangent, self._residuals, self._own, None)
        # From the last one on; the first has fewer steps, and goes on into the second, of which nothing counts.
        fewer = count - (blocks - 1) * length
        ends = count - length * jnp.arange(blocks)
        starts = jnp.maximum(ends - length, 0)

        def of_block(carry: Any, now: Any) -> tuple[Any, Any]:
            cotangent, total = carry
            start, end = now
            residuals, own = jax.tree.map(
                lambda array: jax.lax.dynamic_slice_in_dim(array, start, length), (self._residuals, self._own)
            )
            counts = None if fewer == length else start + jnp.arange(length) < end
            of_shared, of_own, cotangent = self._block(cotangent, residuals, own, counts)
            return (cotangent, jax.tree.map(jnp.add, total, of_shared)), of_own

        zero = jax.tree.map(jnp.zeros_like, self._shared)
        (cotangent, of_shared), of_own = jax.lax.scan(of_block, (cotangent, zero), (starts, ends))

        def in_order(array: Any) -> Any:
            rest = array[-2::-1].reshape(-1, *array.shape[2:])
            return jnp.concatenate([array[-1, :fewer], rest])

        return of_shared, jax.tree.map(in_order, of_own), cotangent

    def _block(self, cotangent: Any, residuals: Any, own: Any, counts: Any) -> tuple[Any, Any, Any]:
        """Some steps, of which those count that are said to."""
        values = jax.vmap(self._values, out_axes=self._axes)(*residuals)
        stacked = [value for value, axis in zip(values, self._axes, strict=True) if axis == 0]

        def step_back(cotangent: Any, now: Any) -> tuple[Any, Any]:
            own_values = iter(now[0])
            read = [next(own_values) if axis == 0 else value for axis, value in zip(self._axes, values, strict=True)]
            return self._step_back(cotangent, read, now[1])

        cotangent, of_places, flags = lifted_scan(step_back, cotangent, (stacked, counts), reverse=True)
        of_places = stacked_outputs(of_places, flags, len(residuals[0]))

        def together(shared: Any, own: Any) -> list[Any]:
            return jax.vmap(self._enter, in_axes=(self._axes, None, 0))(values, shared, own)

        return *jax.linear_transpose(together, self._shared, own)(of_places), cotangent

    def _enter(self, values: list[Any], shared: Any, own: Any) -> list[Any]:
        """What a step's tangents of parameters become before they meet the strand."""
        found = self._entering(*values, *jax.tree.leaves((shared, own)))
        return [
            jnp.broadcast_to(value, self._widths.get(variable, value.shape))
            for value, variable in zip(found, self._read, strict=True)
            if variable in self._entered
        ]

    def _step_back(self, cotangent: Any, values: list[Any], counts: Any) -> tuple[Any, list[Any]]:
        """The cotangent of the strand before the step, and those of what enters."""

        def along(places: list[Any], strand: Any) -> Any:
            tangents = iter(places)
            read = [
                next(tangents) if variable in self._entered else values[self._places[variable]]
                for variable in self._read
            ]
            found = jaxpr_as_fun(self._along)(*read, *jax.tree.leaves(strand))
            return jax.tree.unflatten(jax.tree.structure(self._results), found)

        number = self._results[1]
        one = jnp.ones(number.shape, number.dtype)
        places = jax.eval_shape(self._enter, values, self._shared, self._one_own)
        pull = jax.linear_transpose(along, places, self._strand)
        if counts is None:
            of_places, before = pull((cotangent, one))
            return before, of_places
        # What counts for nothing comes first on the way back.
        given = jax.tree.map(lambda array: jnp.where(counts, array, 0.0), (cotangent, one))
        of_places, before = pull(given)
        return jax.tree.map(lambda new, old: jnp.where(counts, new, old), before, cotangent), of_places


def _block_length(residuals: list[Any]) -> int:
    """How many steps go back together: blocks of about the same length, as few as have room."""
    count = len(residuals[0])
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in residuals) // count
    return -(-count // -(-count // max(1, _AT_ONCE // max(1, size))))


def _widths(program: ClosedJaxpr, variables: list[Var]) -> dict[Var, tuple[int, ...]]:
    """The shapes of what variables are added to. A bias is narrower: its cotangent is a sum of what the product beside
    it is given as it is, and that sum is better made for all steps at once."""
    found: dict[Var, set[tuple[int, ...]]] = {one: set() for one in variables}
    for equation in program.jaxpr.eqns:
        adds = equation.primitive.name in ("add", "add_any", "sub")
        for atom in equation.invars:
            if not isinstance(atom, Literal) and atom in found:
                found[atom].add(equation.outvars[0].aval.shape if adds else atom.aval.shape)
    for atom in program.jaxpr.outvars:
        if not isinstance(atom, Literal) and atom in found:
            found[atom].add(atom.aval.shape)
    return {one: shapes.pop() for one, shapes in found.items() if len(shapes) == 1}


def _of(sizes: list[int], *chosen: int) -> list[bool]:
    """For the leaves of several trees, whether they are of the chosen ones."""
    return [place in chosen for place, size in enumerate(sizes) for _ in range(size)]
