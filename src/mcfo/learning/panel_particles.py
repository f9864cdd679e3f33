"""Learning by particles for each series of a panel, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
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
from mcfo.learning.step import COMPILER_OPTIONS, Sums, apply_update, bound_and_gradients
from mcfo.objectives.objective import Objective
from mcfo.series import Series
from mcfo.smc.filter import SMC

_EVALUATION_TAG = 0x70616E65
"""Separates the random numbers of the last evaluation from those of the updates."""


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
        update = partial(apply_update, self._optimizer, settings.averaged_from)
        keys = jax.random.key(settings.seeds[0])

        def of_series(state: Any, fixed: Any, batch: Series, step: Any) -> tuple[Any, Sums]:
            learned, optimizer, average = state
            rest: Modules = eqx.combine(fixed, static)
            key = jax.random.fold_in(keys, step)
            outcome = bound_and_gradients(objective, learned, rest, batch, key=key)
            *state, sums = update(learned, optimizer, average, outcome, step)
            return tuple(state), sums

        def updates(state: Any, fixed: Any, batch: Series, first: Any) -> tuple[Any, Sums]:
            def body(state: Any, step: Any) -> tuple[Any, Sums]:
                return jax.vmap(of_series, in_axes=(0, 0, 0, None))(state, fixed, batch, step)

            state, sums = jax.lax.scan(body, state, first + jnp.arange(settings.log_every))
            return state, jax.tree.map(lambda array: jnp.sum(array, axis=0), sums)

        def evaluate(average: Any, fixed: Any, batch: Series) -> Any:
            def one(average: Any, fixed: Any, batch: Series) -> Any:
                modules: Modules = eqx.combine(average, eqx.combine(fixed, static)).current()
                series = jax.tree.map(lambda array: array[0], batch)
                key = jax.random.fold_in(keys, _EVALUATION_TAG)
                return SMC(particles)(modules.model, modules.proposal, series, key=key).log_evidence, eqx.filter(
                    modules, eqx.is_array
                )

            return jax.lax.map(lambda each: one(*each), (average, fixed, batch))

        self._updates = _shared(updates, mesh, 3, 1)
        self._evaluate = _shared(evaluate, mesh, 3, 0)

    def rows(self, starts: Sequence[PanelStart]) -> Iterator[PanelRow]:
        """Learn the series, as many as there are slots at once, and yield what was found."""
        for first in range(0, len(starts), self.slots):
            yield from self._rows(list(starts[first : first + self.slots]))

    def _modules(self, one: PanelStart) -> Modules:
        return Modules.learned_by(one.start.model, one.start.proposal, self._fixed)

    def _rows(self, starts: list[PanelStart]) -> Iterator[PanelRow]:
        # A program has one number of slots: those that are left over repeat the last series.
        filled = starts + [starts[-1]] * (self.slots - len(starts))
        parts = [split(self._modules(one), self._fixed) for one in filled]
        learned = _stacked([part[0] for part in parts])
        fixed = _stacked([eqx.filter(part[1], eqx.is_array) for part in parts])
        batch = _stacked([one.batch for one in filled])
        state = (learned, jax.vmap(self._optimizer.init)(learned), learned)
        bounds = []
        for step in range(0, self._settings.steps, self._settings.log_every):
            state, sums = self._updates(state, fixed, batch, np.int32(step))
            with np.errstate(invalid="ignore", divide="ignore"):
                bounds.append(np.asarray(sums.log_evidence) / np.asarray(sums.updates))
        log_likelihoods, modules = self._evaluate(state[2], fixed, batch)
        arrays = {name: np.asarray(array) for name, array in named_arrays(modules).items()}
        converged = _has_settled(np.array(bounds))
        for slot, one in enumerate(starts):
            value = float(log_likelihoods[slot])
            problem = "" if np.isfinite(value) else "The filter lost the series with what it learned."
            yield PanelRow(
                index=one.index,
                arrays={} if problem else {name: array[slot] for name, array in arrays.items()},
                log_likelihood=value,
                converged=bool(converged[slot]) and not problem,
                rounds=len(bounds) * self._settings.log_every,
                problem=problem,
            )


def _has_settled(bounds: np.ndarray) -> np.ndarray:
    """Whether the mean bound of the last fifth of the updates is that of the fifth before, within three standard
    errors; not where an update was skipped in every line of either."""
    lines = max(2, len(bounds) // 5)
    before, last = bounds[-2 * lines : -lines], bounds[-lines:]
    if len(before) < 2:
        return np.zeros(bounds.shape[1], bool)
    error = np.sqrt((before.var(axis=0, ddof=1) + last.var(axis=0, ddof=1)) / lines)
    return np.abs(last.mean(axis=0) - before.mean(axis=0)) <= 3 * error


def _stacked(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack([np.asarray(leaf) for leaf in leaves])), *trees)


def _shared(function: Any, mesh: Mesh, shared: int, whole: int) -> Any:
    """Compile a function for the devices of a mesh; its first arguments and all results are shared over the series."""
    if mesh.size > 1:
        specs = (PartitionSpec(AXIS),) * shared + (PartitionSpec(),) * whole
        function = jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=PartitionSpec(AXIS), check_vma=False)
    return jax.jit(function, compiler_options=COMPILER_OPTIONS)
