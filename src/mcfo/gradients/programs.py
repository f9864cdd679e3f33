"""Traced functions, taken apart by what their operations depend on: what does not depend on a loop is taken out of it.

XLA keeps in a loop what belongs to a step, though it may need nothing of the step before. On small arrays a step costs
what the number of its operations does, and a hundred of them more than one that is a hundred times as large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, Literal, Var, jaxpr_as_fun

_CALLS = {
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "remat2": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}
"""Operations that are programs themselves, and under which name they have them."""


class Traced(NamedTuple):
    """A function of some arguments as a list of operations, all of them of use."""

    closed: ClosedJaxpr
    results: Any
    """Shapes and types, in their tree."""

    def depending_on(self, chosen: Iterable[bool]) -> set[Var]:
        """What is computed from the chosen arguments (leaves), these included."""
        variables = self.closed.jaxpr.invars
        found = {one for one, wanted in zip(variables, chosen, strict=True) if wanted}
        for equation in self.closed.jaxpr.eqns:
            if any(is_in(one, found) for one in equation.invars):
                found.update(equation.outvars)
        return found


class Split(NamedTuple):
    """A program in two parts, of which the second waits for some of the arguments.

    `before` goes from the other arguments to the values of `handed`, and `after` from these, and from the arguments
    that were waited for, to the results.
    """

    before: Callable[..., list[Any]]
    handed: list[Var]
    after: ClosedJaxpr


def is_in(atom: Any, variables: set[Var]) -> bool:
    return not isinstance(atom, Literal) and atom in variables


def traced(function: Callable[..., Any], *arguments: Any) -> Traced:
    """The operations of a function."""
    leaves = jax.tree.leaves(arguments)
    closed, results = jax.make_jaxpr(function, return_shape=True)(*arguments)
    written = jax.make_jaxpr(lambda *leaves: _written_out(closed.jaxpr, closed.consts, leaves))(*leaves)
    return Traced(_useful(_once(written)), results)


def split(program: Traced, waits: Iterable[bool], *, widen_late: bool = False) -> Split:
    """Two parts of a program, of which the second waits for some of the arguments (leaves).

    **Arguments:**

    - `widen_late`: values are handed over before they are broadcast, rather than after it.
    """
    waits = list(waits)
    jaxpr, late = program.closed.jaxpr, program.depending_on(waits)
    later = [one for one in jaxpr.eqns if any(is_in(atom, late) for atom in one.invars)]
    now = [one for one in jaxpr.eqns if not any(is_in(atom, late) for atom in one.invars)]
    if widen_late:
        wanted = {one for one in jaxpr.outvars if not isinstance(one, Literal)}
        later = [*_broadcasts_for(later, now), *later]
        late = late | {variable for one in later for variable in one.outvars if variable not in wanted}
    read = [atom for one in later for atom in one.invars] + list(jaxpr.outvars)
    handed = list(dict.fromkeys(atom for atom in read if not isinstance(atom, Literal) and atom not in late))
    early = [one for one, wait in zip(jaxpr.invars, waits, strict=True) if not wait]
    last = [one for one, wait in zip(jaxpr.invars, waits, strict=True) if wait]
    before = ClosedJaxpr(jaxpr.replace(invars=early, outvars=handed, eqns=now), program.closed.consts)
    after = ClosedJaxpr(jaxpr.replace(constvars=[], invars=[*handed, *last], eqns=later), [])
    return Split(jaxpr_as_fun(before), handed, after)


def _broadcasts_for(later: list[Any], now: list[Any]) -> list[Any]:
    """The broadcasts among the earlier operations that the later ones read."""
    found, read = [], {atom for one in later for atom in one.invars if not isinstance(atom, Literal)}
    for one in reversed(now):
        if one.primitive.name == "broadcast_in_dim" and one.outvars[0] in read:
            found.append(one)
            read.update(atom for atom in one.invars if not isinstance(atom, Literal))
    return found[::-1]


def lifted_scan(
    body: Callable[[Any, Any], tuple[Any, Any]], carry: Any, steps: Any, *, reverse: bool = False
) -> tuple[Any, Any, Any]:
    """`jax.lax.scan`, but what needs nothing of the carry is computed for all steps at once, before the loop.

    **Returns:** the last carry, the outputs, and for each of them whether it is stacked. Outputs that are the same at
    every step are not.
    """
    held, structure = jax.tree.flatten(carry)
    leaves, of_steps = jax.tree.flatten(steps)
    # What is given twice is one variable, so that nothing is computed with both.
    places = {id(leaf): leaf for leaf in leaves}
    given, order = list(places.values()), {one: place for place, one in enumerate(places)}

    def of_step(carry: Any, now: list[Any]) -> tuple[Any, Any]:
        return body(carry, jax.tree.unflatten(of_steps, [now[order[id(leaf)]] for leaf in leaves]))

    program = traced(of_step, carry, [array[0] for array in given])
    jaxpr = program.closed.jaxpr
    waits = [*[True] * len(held), *[False] * len(given)]
    late, varying = program.depending_on(waits), program.depending_on(not wait for wait in waits)
    parts = split(program, waits, widen_late=True)
    stacked = [one in varying for one in parts.handed]
    axes = [0 if one else None for one in stacked]
    values = jax.vmap(parts.before, out_axes=axes)(*given) if parts.handed else []
    outputs = jaxpr.outvars[len(held) :]
    # Some are the same: a sum hands its cotangent on to all that it is of.
    emitted = list(dict.fromkeys(one for one in outputs if is_in(one, late)))
    following = jaxpr_as_fun(
        ClosedJaxpr(parts.after.jaxpr.replace(outvars=[*jaxpr.outvars[: len(held)], *emitted]), [])
    )

    def step(carry: list[Any], now: list[Any]) -> tuple[list[Any], list[Any]]:
        own = iter(now)
        handed = [next(own) if one else value for one, value in zip(stacked, values, strict=True)]
        found = following(*handed, *carry)
        return found[: len(held)], found[len(held) :]

    xs = [value for one, value in zip(stacked, values, strict=True) if one]
    last, ys = jax.lax.scan(step, held, xs, length=len(given[0]), reverse=reverse)
    known = {one: (value, flag) for one, value, flag in zip(parts.handed, values, stacked, strict=True)}
    known.update({one: (value, True) for one, value in zip(emitted, ys, strict=True)})
    found = [(jnp.asarray(one.val), False) if isinstance(one, Literal) else known[one] for one in outputs]
    tree = jax.tree.structure(program.results[1])
    return (
        jax.tree.unflatten(structure, last),
        jax.tree.unflatten(tree, [value for value, _ in found]),
        jax.tree.unflatten(tree, [flag for _, flag in found]),
    )


def stacked_outputs(outputs: Any, stacked: Any, count: int) -> Any:
    """Outputs of `lifted_scan`, all of them stacked."""
    return jax.tree.map(
        lambda array, one: array if one else jnp.broadcast_to(array, (count, *array.shape)), outputs, stacked
    )


def _written_out(jaxpr: Any, constants: Any, arguments: Any) -> list[Any]:
    """The results of a program, whose calls are replaced with what they call."""
    values = dict(zip(jaxpr.constvars, constants, strict=True)) | dict(zip(jaxpr.invars, arguments, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for equation in jaxpr.eqns:
        operands = [read(atom) for atom in equation.invars]
        inner = equation.params.get(_CALLS.get(equation.primitive.name, ""))
        if _changes_nothing(equation):
            found = operands
        elif inner is not None:
            found = _written_out(
                *((inner.jaxpr, inner.consts) if isinstance(inner, ClosedJaxpr) else (inner, [])), operands
            )
        else:
            read_once = list(dict.fromkeys(atom for atom in equation.invars if not isinstance(atom, Literal)))
            alone = jaxpr.replace(constvars=[], invars=read_once, outvars=equation.outvars, eqns=[equation])
            found = jaxpr_as_fun(ClosedJaxpr(alone, []))(*map(read, read_once))
        values.update(zip(equation.outvars, found, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def _changes_nothing(equation: Any) -> bool:
    """Marks for derivatives, which have been taken, and those of `jax.checkpoint` at what is kept."""
    if equation.primitive.name == "reduce_precision":
        kind = jnp.finfo(equation.outvars[0].aval.dtype)
        return equation.params["exponent_bits"] >= kind.nexp and equation.params["mantissa_bits"] >= kind.nmant
    return equation.primitive.name == "stop_gradient"


def _once(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same program, which computes nothing twice. The compiler sees to that too, but not where a loop is given the
    same value under two names."""
    jaxpr, found, names, kept = closed.jaxpr, {}, {}, []

    def renamed(atom: Any) -> Any:
        return atom if isinstance(atom, Literal) else names.get(atom, atom)

    for one in jaxpr.eqns:
        equation = one.replace(invars=[renamed(atom) for atom in one.invars])
        read = tuple((str(atom.val), atom.aval) if isinstance(atom, Literal) else atom for atom in equation.invars)
        try:
            same = found.setdefault((one.primitive, read, tuple(sorted(one.params.items()))), equation)
        except TypeError:  # parameters that cannot be compared
            same = equation
        if same is equation or one.effects:
            kept.append(equation)
        else:
            names.update(zip(one.outvars, same.outvars, strict=True))
    return ClosedJaxpr(jaxpr.replace(eqns=kept, outvars=[renamed(atom) for atom in jaxpr.outvars]), closed.consts)


def _useful(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same program without the operations of which nothing is used."""
    jaxpr, kept = closed.jaxpr, []
    used = {one for one in jaxpr.outvars if not isinstance(one, Literal)}
    for equation in reversed(jaxpr.eqns):
        if equation.effects or any(one in used for one in equation.outvars):
            kept.append(equation)
            used.update(one for one in equation.invars if not isinstance(one, Literal))
    return ClosedJaxpr(jaxpr.replace(eqns=kept[::-1]), closed.consts)
