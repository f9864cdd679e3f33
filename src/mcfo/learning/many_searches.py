"""Many maximum-likelihood problems of equal shapes, searched side by side.

Each problem has a slot with a few starts. The slots run some rounds together; those whose search has ended are given to
the next problems, so that no slot waits for the slowest and one program serves all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Float

from mcfo.learning.maximum_likelihood import (
    FLAT,
    Problem,
    Search,
    initial_search,
    loss_at,
    one_round,
    parameter_names,
)
from mcfo.precision import in_float64

AXIS = "mcfo.problems"
"""The name of the axis over which devices share the slots."""
_BURST = 10
"""Rounds between two looks at the host."""


class Maximum(NamedTuple):
    """Where the searches of one problem ended: the best of its starts.

    - `index`: the number of the problem.
    - `log_likelihood`: in the unit of the search; not finite if no start had a finite one.
    - `gradient_norm`: the largest derivative of the log-likelihood.
    - `rounds`: evaluations of value and gradient, to the next multiple of ten.
    """

    index: int
    point: Float[np.ndarray, " size"]
    log_likelihood: float
    gradient_norm: float
    converged: bool
    rounds: int


def maximize_many(
    program: Rounds, problems: Sequence[Problem], starts: Float[np.ndarray, "lanes size"], *, most: int
) -> Iterator[Maximum]:
    """Yield the maximum of every problem, in the order in which their searches end.

    **Arguments:**

    - `problems`: of equal shapes; their arrays are numpy's.
    - `starts`: displacements from the learned arrays of each.
    - `most`: the largest number of rounds of one problem.
    """
    waiting, slots = iter(range(len(problems))), program.slots
    fresh = initial_search(problems[0], starts)
    owners: list[int | None] = [None] * slots
    ages = np.zeros(slots, int)
    # Slots that nobody needs hold a problem that is over.
    arrays = [np.repeat(leaf[None], slots, axis=0) for leaf in program.arrays_of(problems[0])]
    searches: Search = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[None], slots, axis=0), fresh)
    searches.done[:] = True
    while True:
        for slot, owner in enumerate(owners):
            number = next(waiting, None) if owner is None else None
            if number is None:
                continue
            owners[slot], ages[slot] = number, 0
            for stacked, leaf in zip(arrays, program.arrays_of(problems[number]), strict=True):
                stacked[slot] = leaf
            _place(searches, slot, fresh, _points(problems[number], starts))
        if all(owner is None for owner in owners):
            return
        searches = jax.tree.map(np.array, program(arrays, searches))
        ages += _BURST
        for slot, owner in enumerate(owners):
            if owner is not None and (searches.done[slot].all() or ages[slot] >= most):
                yield _best(owner, problems[owner], searches, slot, int(ages[slot]))
                owners[slot] = None
                searches.done[slot] = True


def flat_parameters(
    problems: Sequence[Problem], points: Float[np.ndarray, "problems size"], best: Float[np.ndarray, " problems"]
) -> list[list[str]]:
    """Return, for each problem, the parameters that its likelihood wants at minus infinity, as that of a zero variance.

    Moving the logarithm of such a scale further down changes nothing.
    """
    names = parameter_names(problems[0].learned)
    candidates = [index for index, name in enumerate(names) if "log_" in name]
    moved = np.repeat(points[:, None], len(candidates), axis=1)
    moved[:, np.arange(len(candidates)), candidates] -= 5.0
    arrays, static = zip(*(eqx.partition(problem, eqx.is_array) for problem in problems), strict=True)
    losses = _losses(jax.tree.map(lambda *leaves: np.stack(leaves), *arrays), static[0], moved)
    values = np.array([float(problem.values) for problem in problems])
    near = np.abs(-losses * values[:, None] - best[:, None]) < FLAT
    return [[names[index] for index, flat in zip(candidates, row, strict=True) if flat] for row in near]


@in_float64
def _losses(arrays: Any, static: Any, points: np.ndarray) -> Any:
    return _losses_of_all(arrays, static, points)


@eqx.filter_jit
def _losses_of_all(arrays: Any, static: Any, points: Any) -> Any:
    def of_problem(arrays: Any, points: Any) -> Any:
        problem = eqx.combine(arrays, static)
        return jax.lax.map(lambda point: loss_at(problem, point), points)

    return jax.vmap(of_problem)(arrays, points)


class Rounds:
    """The compiled rounds of all slots, each device with its share of them.

    **Arguments:**

    - `example`: a problem with the shapes of all.
    - `slots`: how many problems are searched at once; a multiple of the number of devices.
    """

    def __init__(self, example: Problem, slots: int, mesh: Mesh):
        self.slots = slots
        arrays, static = eqx.partition(example, eqx.is_array)
        self._treedef = jax.tree.structure(arrays)

        def round_of(leaves: list[Any], search: Search) -> Search:
            return one_round(eqx.combine(jax.tree.unflatten(self._treedef, leaves), static), search)

        def burst(leaves: list[Any], searches: Search) -> Search:
            def body(carry: Any) -> Any:
                return jax.vmap(round_of)(leaves, carry[0]), carry[1] + 1

            def goes_on(carry: Any) -> Any:
                return (carry[1] < _BURST) & ~jnp.all(carry[0].done)

            return jax.lax.while_loop(goes_on, body, (searches, jnp.zeros((), jnp.int32)))[0]

        if mesh.size > 1:
            spec = PartitionSpec(AXIS)
            burst = jax.shard_map(burst, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
        self._burst = jax.jit(burst)

    def arrays_of(self, problem: Problem) -> list[np.ndarray]:
        """Return the arrays of a problem, which must have the shapes of the others."""
        return [np.asarray(leaf) for leaf in jax.tree.leaves(eqx.filter(problem, eqx.is_array))]

    @in_float64
    def __call__(self, arrays: list[np.ndarray], searches: Search) -> Search:
        return self._burst(arrays, searches)


def _points(problem: Problem, starts: np.ndarray) -> np.ndarray:
    learned = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(problem.learned)])
    return learned / problem.units + starts


def _place(searches: Search, slot: int, fresh: Search, points: np.ndarray) -> None:
    """Put a search that has not begun into a slot."""
    for stacked, leaf in zip(jax.tree.leaves(searches), jax.tree.leaves(fresh), strict=True):
        stacked[slot] = leaf
    searches.point[slot] = searches.trial[slot] = points


def _best(index: int, problem: Problem, searches: Search, slot: int, rounds: int) -> Maximum:
    values = np.where(np.isfinite(searches.value[slot]), searches.value[slot], np.inf)
    lane = int(np.argmin(values))
    scale = float(problem.values)
    return Maximum(
        index=index,
        point=searches.point[slot][lane].copy(),
        log_likelihood=-float(values[lane]) * scale,
        gradient_norm=float(np.max(np.abs(searches.gradient[slot][lane]))) * scale,
        converged=bool(searches.done[slot][lane]) and bool(np.isfinite(values[lane])),
        rounds=rounds,
    )
