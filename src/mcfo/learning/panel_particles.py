"""Learning by particles for each series of a panel, side by side.

Updates are run in blocks. A series has converged when the mean bound of a block is no longer better than that of the
block before by more than two standard errors; what it learned is the average over its last block, and its slot is given
to the next series.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from mcfo.learning.many_searches import AXIS
from mcfo.learning.panel_problems import PanelRow, PanelStart
from mcfo.learning.parameters import Modules, named_arrays, split
from mcfo.learning.settings import Settings
from mcfo.learning.standardization import Standardized, standardize_for_particles
from mcfo.learning.step import COMPILER_OPTIONS, apply_update, bound_and_gradients
from mcfo.objectives.objective import Objective
from mcfo.series import Series
from mcfo.smc.filter import SMC

_EVALUATION_TAG = 0x70616E65
"""Separates the random numbers of the last evaluation from those of the updates."""
_BLOCKS = 10
"""Blocks in the largest number of updates."""
_FEWEST = 3
"""Blocks of a series before its convergence is judged."""


class ParticlePanel:
    """The compiled updates of as many series as there are slots.

    Every series has parameters, an optimizer's state and an average of its own, and is a batch of one. The random
    numbers of an update depend on the seed, on the number of the update and on the series, not on its slot.
    """

    def __init__(self, objective: Objective, example: PanelStart, settings: Settings, slots: int, mesh: Mesh):
        self.slots, self._settings = slots, settings
        self._fixed = (*example.start.fixed, *settings.fixed)
        modules = self._modules(example)
        objective.check(modules.model, modules.proposal, example.batch)
        self._optimizer: Any = settings.transformation()
        static = eqx.partition(split(modules, self._fixed)[1], eqx.is_array)[1]
        particles = settings.evaluation_particles or 1000
        self._block = max(1, settings.steps // _BLOCKS)
        keys = jax.random.key(settings.seeds[0])

        def of_series(state: Any, fixed: Any, batch: Series, first: Any) -> tuple[Any, Any]:
            rest: Modules = eqx.combine(fixed, static)

            def body(state: Any, step: Any) -> tuple[Any, Any]:
                learned, optimizer, average = state
                key = jax.random.fold_in(keys, step)
                outcome = bound_and_gradients(objective, learned, rest, batch, key=key)
                share = 1.0 / (step - first + 1)
                *state, sums = apply_update(self._optimizer, learned, optimizer, average, outcome, share)
                return tuple(state), jnp.where(sums.updates > 0, sums.log_evidence, jnp.nan)

            return jax.lax.scan(body, state, first + jnp.arange(self._block))

        def evaluate(average: Any, fixed: Any, batch: Series) -> Any:
            def one(average: Any, fixed: Any, batch: Series) -> Any:
                modules: Modules = eqx.combine(average, eqx.combine(fixed, static)).current()
                series = jax.tree.map(lambda array: array[0], batch)
                key = jax.random.fold_in(keys, _EVALUATION_TAG)
                run = SMC(particles)(modules.model, modules.proposal, series, key=key)
                return run.log_evidence, eqx.filter(modules, eqx.is_array)

            return jax.lax.map(lambda each: one(*each), (average, fixed, batch))

        self._updates = _shared(jax.vmap(of_series), mesh)
        self._evaluate = _shared(evaluate, mesh)

    def rows(self, starts: Sequence[PanelStart]) -> Iterator[PanelRow]:
        """Learn the series, as many as there are slots at once, and yield what was found."""
        waiting = iter(starts)
        first, _ = self._placed(starts[0])
        # Slots that nobody needs repeat a series.
        slots: list[Any] = [np.repeat(leaf[None], self.slots, axis=0) for leaf in jax.tree.leaves(first)]
        owners: list[PanelStart | None] = [None] * self.slots
        standards: list[Any] = [None] * self.slots
        bounds: list[list[np.ndarray]] = [[] for _ in owners]
        while True:
            for slot, owner in enumerate(owners):
                if owner is None and (one := next(waiting, None)) is not None:
                    owners[slot], bounds[slot] = one, []
                    placed, standards[slot] = self._placed(one)
                    for stacked, leaf in zip(slots, jax.tree.leaves(placed), strict=True):
                        stacked[slot] = leaf
            if all(owner is None for owner in owners):
                return
            state, fixed, batch = jax.tree.unflatten(jax.tree.structure(first), slots)
            before = np.array([len(own) * self._block for own in bounds], np.int32)
            state, values = jax.tree.map(np.array, self._updates(state, fixed, batch, before))
            for slot, own in enumerate(bounds):
                own.append(values[slot])
            ended = [slot for slot, owner in enumerate(owners) if owner is not None and _has_ended(bounds[slot])]
            slots = jax.tree.leaves((state, fixed, batch))
            if not ended:
                continue
            found = jax.tree.map(np.asarray, self._evaluate(state[2], fixed, batch))
            for slot in ended:
                owner = owners[slot]
                assert owner is not None
                log_likelihood, modules = jax.tree.map(lambda array, slot=slot: array[slot], found)
                yield self._row(owner, standards[slot], float(log_likelihood), modules, bounds[slot])
                owners[slot] = None

    def _modules(self, one: PanelStart) -> Modules:
        return Modules.learned_by(one.start.model, one.start.proposal, self._fixed)

    def _placed(self, one: PanelStart) -> tuple[Any, Standardized]:
        """Return the state of a series before its first update, what is fixed of it, and its data, in numpy and in
        standard units; and the way back."""
        modules, standard = standardize_for_particles(self._modules(one), (one.batch,), self._fixed)
        learned, rest = split(modules, self._fixed)
        state = learned, self._optimizer.init(learned), learned
        arrays = state, eqx.filter(rest, eqx.is_array), standard.data[0]
        return jax.tree.map(np.asarray, arrays), standard

    def _row(
        self, owner: PanelStart, standard: Standardized, value: float, modules: Modules, bounds: list[np.ndarray]
    ) -> PanelRow:
        problem = "" if np.isfinite(value) else "The filter lost the series with what it learned."
        # A proposal that follows the model is built from it again.
        proposal = {} if modules.follows else {f"proposal.{n}": a for n, a in named_arrays(modules.proposal).items()}
        model = named_arrays(standard.restored(modules.model))
        return PanelRow(
            index=owner.index,
            arrays={}
            if problem
            else {**{f"model.{name}": np.asarray(array) for name, array in model.items()}, **proposal},
            log_likelihood=value + standard.log_jacobian,
            converged=_has_settled(bounds) and not problem,
            rounds=len(bounds) * self._block,
            problem=problem,
        )


def _has_ended(bounds: list[np.ndarray]) -> bool:
    return len(bounds) >= _BLOCKS or _has_settled(bounds)


def _has_settled(bounds: list[np.ndarray]) -> bool:
    """Whether the last block is not better than the one before by more than two standard errors; never where an update
    of either was not finite."""
    if len(bounds) < _FEWEST:
        return False
    before, last = bounds[-2:]
    error = np.sqrt((before.var() + last.var()) / len(last))
    return bool(last.mean() - before.mean() <= 2 * error)


def _shared(function: Any, mesh: Mesh) -> Any:
    """Compile a function for the devices of a mesh, which share the series of all its arguments and results."""
    if mesh.size > 1:
        spec = PartitionSpec(AXIS)
        function = jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    return jax.jit(function, compiler_options=COMPILER_OPTIONS)
