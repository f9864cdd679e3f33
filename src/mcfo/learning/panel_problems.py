"""One series of a panel: its model at the start, and what it learned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from mcfo.catalogue.from_data import Start, require_steps
from mcfo.data.panels import Panel
from mcfo.errors import InputError
from mcfo.series import Series

Build = Callable[[Series], Start]
"""From a series to the start of its model."""


class PanelStart(NamedTuple):
    """The start of one series: its model, and the series padded to the length of its bucket, as a batch of one."""

    index: int
    start: Start
    batch: Series


class PanelRow(NamedTuple):
    """What one series learned.

    - `arrays`: the arrays of its model, and of its proposal where that is learned, by name.
    - `rounds`: evaluations of the likelihood, or updates.
    - `at_bounds`: the parameters that the likelihood wants at minus infinity.
    - `problem`: why it was not learned; empty if it was.
    """

    index: int
    arrays: Mapping[str, np.ndarray]
    log_likelihood: float = np.nan
    converged: bool = False
    rounds: int = 0
    gradient_norm: float = np.nan
    at_bounds: str = ""
    problem: str = ""


def start_series(
    panel: Panel, indices: np.ndarray, steps: int, build: Build
) -> tuple[list[PanelStart], list[PanelRow]]:
    """Return the starts of some series, padded to `steps`, and a row for each that is unusable."""
    starts, unusable = [], []
    for index in map(int, indices):
        try:
            series = panel.series(index)
            require_steps([series])
            start = build(series)
        except InputError as error:
            unusable.append(PanelRow(index, {}, problem=str(error)))
            continue
        starts.append(PanelStart(index, start, as_batch(series, steps)))
    return _of_one_structure(starts, unusable)


def as_batch(series: Series, steps: int) -> Series:
    """Return a batch of one padded series that has a mask and a length, whether it needs them or not.

    In numpy, and not by the methods of `Series`: for a short series JAX takes longer than the search.
    """
    values = np.asarray(series.observations, np.float64)
    mask = True if series.observed is None else np.asarray(series.observed)

    def padded(array: np.ndarray) -> np.ndarray:
        return np.pad(array, ((0, steps - len(values)), (0, 0)))

    whole = Series(
        observations=padded(values),
        observed=padded(np.broadcast_to(mask, values.shape)),
        inputs=None if series.inputs is None else padded(np.asarray(series.inputs, np.float64)),
        length=np.asarray(len(values), np.int32),  # pyright: ignore[reportArgumentType]
        series_id=series.series_id,
        start=series.start,
    )
    return jax.tree.map(lambda leaf: np.asarray(leaf)[None], whole)


def _of_one_structure(starts: list[PanelStart], unusable: list[PanelRow]) -> tuple[list[PanelStart], list[PanelRow]]:
    """Sort out the series whose model has other shapes than that of the first."""
    if not starts:
        return starts, unusable

    def form(one: PanelStart) -> Any:
        leaves, structure = jax.tree.flatten(one.start[:2])
        return structure, [np.shape(leaf) for leaf in leaves]

    expected, same = form(starts[0]), []
    for one in starts:
        if form(one) == expected:
            same.append(one)
            continue
        text = "Its model has other shapes than that of the first series. Set the options that the data decide."
        unusable.append(PanelRow(one.index, {}, problem=text))
    return same, unusable
