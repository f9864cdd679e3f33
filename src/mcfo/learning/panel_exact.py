"""Exact maximum likelihood for each series of a panel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh
from jaxtyping import Float

from mcfo.learning import maximum_likelihood as search
from mcfo.learning.many_searches import Maximum, Rounds, flat_parameters, maximize_many
from mcfo.learning.panel_problems import PanelRow, PanelStart
from mcfo.learning.parameters import Modules, named_arrays, split
from mcfo.learning.standardization import Standardized, coordinate_units, standardize
from mcfo.models.base import Model
from mcfo.precision import widened


class _Prepared(NamedTuple):
    """A series as a problem in standard units, and the way back."""

    index: int
    problem: search.Problem
    standard: Standardized


class ExactPanel:
    """The compiled searches of as many series as there are slots, and the starts of each.

    **Arguments:**

    - `fixed`: parameters that are not learned, beside those that the model fixes itself.
    - `lanes`: starts of the search for each series.
    - `most`: the largest number of evaluations for one series.
    """

    def __init__(self, fixed: tuple[str, ...], *, lanes: int, most: int, slots: int, mesh: Mesh):
        self._fixed, self._lanes, self._most, self._slots, self._mesh = fixed, lanes, most, slots, mesh
        self._program: Rounds | None = None

    def rows(self, starts: Sequence[PanelStart]) -> Iterator[PanelRow]:
        """Maximize the likelihood of every series, and yield what was found."""
        prepared = _prepare(starts, self._fixed)
        problems = [one.problem for one in prepared]
        if self._program is None:
            self._program = Rounds(problems[0], self._slots, self._mesh)
        displacements = search.perturbations(problems[0].learned, self._lanes, 0)
        maxima = maximize_many(self._program, problems, displacements, most=self._most)
        maxima = sorted(maxima, key=lambda one: one.index)
        best = np.array([one.log_likelihood for one in maxima])
        bounds = flat_parameters(problems, np.stack([one.point for one in maxima]), best)
        for found, own, flat in zip(maxima, prepared, bounds, strict=True):
            yield _row(found, own, flat)


def _prepare(starts: Sequence[PanelStart], fixed: tuple[str, ...]) -> list[_Prepared]:
    prepared, learned_leaves = [], None
    for index, start, batch in starts:
        every = (*start.fixed, *fixed)
        standard = standardize(Modules(start.model, start.proposal), (batch,), every)
        if learned_leaves is None:
            # Which leaves are learned is the same for all series.
            learned = split(Modules(standard.model, start.proposal), every)[0]
            learned_leaves = jax.tree.map(lambda leaf: leaf is not None, learned.model, is_leaf=lambda x: x is None)
        learned, rest = eqx.partition(standard.model, learned_leaves)
        units = coordinate_units(learned, standard)
        values = np.asarray(float(np.sum(batch.observed)))
        prepared.append(_Prepared(index, search.Problem(learned, rest, standard.data, units, values), standard))
    return prepared


def _row(found: Maximum, own: _Prepared, flat: list[str]) -> PanelRow:
    if not np.isfinite(found.log_likelihood):
        text = "The likelihood is not finite at any start. Look for absurd values."
        return PanelRow(own.index, {}, rounds=found.rounds, problem=text)
    model = own.standard.restored(_at(own.problem, found.point))
    return PanelRow(
        index=own.index,
        arrays={f"model.{name}": np.asarray(array) for name, array in named_arrays(model).items()},
        log_likelihood=found.log_likelihood + own.standard.log_jacobian,
        converged=found.converged,
        rounds=found.rounds,
        gradient_norm=found.gradient_norm,
        at_bounds=", ".join(flat),
    )


def _at(problem: search.Problem, point: Float[np.ndarray, " size"]) -> Model:
    """Return the model at a point of a search; in numpy, because JAX takes milliseconds."""
    leaves, structure = jax.tree.flatten(problem.learned)
    parts = np.split(point * problem.units, np.cumsum([np.size(leaf) for leaf in leaves])[:-1])
    shaped: Any = [part.reshape(np.shape(leaf)) for part, leaf in zip(parts, leaves, strict=True)]
    model: Model = eqx.combine(jax.tree.unflatten(structure, shaped), problem.rest)
    return widened(model)
