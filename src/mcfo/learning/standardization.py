"""Data and model in standard units, in which a likelihood is maximized whatever the user's units are."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from mcfo.data.batching import Buckets
from mcfo.inference.observation_laws import applied
from mcfo.learning.parameters import dotted
from mcfo.models.base import Model
from mcfo.models.linear_gaussian import IrregularLinearGaussian, LinearGaussian
from mcfo.models.units import Units, in_units, standard_units
from mcfo.precision import widened
from mcfo.series import Series


class Standardized(NamedTuple):
    """A model and its data in standard units.

    - `log_jacobian`: what the log-likelihood of the data in their own unit has beyond that in standard units.
    - `units`: the standard units; None where the model has no other units than the data's.
    """

    model: Model
    data: Buckets
    log_jacobian: float
    units: Units | None

    def restored(self, model: Model) -> Model:
        """Return a model in standard units as one of the data."""
        return model if self.units is None else in_units(model, self.units.inverse())  # pyright: ignore[reportArgumentType]

    def steps(self, learned: Model) -> Float[np.ndarray, " size"]:
        """Return what a step of one in standard units is for each learned number in the data's unit."""
        here = self.restored(self.model)
        sizes = []
        for path, _ in jax.tree_util.tree_leaves_with_path(learned):

            def pick(tree: Model, name: str = dotted(path)) -> np.ndarray:
                leaves = jax.tree_util.tree_leaves_with_path(tree)
                return next(np.asarray(leaf) for place, leaf in leaves if dotted(place) == name)

            def moved(place: Any, leaf: Any, name: str = dotted(path)) -> Any:
                return leaf + 1.0 if dotted(place) == name else leaf

            there = self.restored(jax.tree_util.tree_map_with_path(moved, self.model))
            sizes.append((pick(there) - pick(here)).ravel())
        return np.concatenate(sizes)


def standardize(model: Model, data: Buckets) -> Standardized:
    """Remove the location and the scale of each column from the data, and change the model accordingly.

    A model with a diffuse start has scales and weights of its own, which its initial values fit to the data.
    """
    model = widened(model)
    # A derived class may have arrays whose units are not known here.
    if type(model) not in (LinearGaussian, IrregularLinearGaussian):
        return Standardized(model, data, 0.0, None)
    pooled = [np.where(_known(batch), np.asarray(batch.observations, np.float64), np.nan) for batch in data]
    values = np.concatenate([batch.reshape(-1, batch.shape[-1]) for batch in pooled])
    location, scale = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    units = standard_units(model, location, scale)  # pyright: ignore[reportArgumentType]
    standard = tuple(
        eqx.tree_at(lambda s: s.observations, batch, np.nan_to_num((own - units.location) / scale))
        for batch, own in zip(data, pooled, strict=True)
    )
    counts = np.sum(~np.isnan(values), axis=0)
    return Standardized(in_units(model, units), standard, -float(counts @ np.log(scale)), units)  # pyright: ignore[reportArgumentType]


def coordinate_units(learned: Model, standard: Standardized) -> Float[np.ndarray, " size"]:
    """Return the unit in which a search moves each learned number: one, but for the means of regimes, whose unit is
    that of their column, and the weights of inputs, whose unit is that of the data over that of the input."""
    inputs = [np.asarray(batch.inputs, np.float64) for batch in standard.data if batch.inputs is not None]
    spread = np.concatenate([one.reshape(-1, one.shape[-1]) for one in inputs]).std(axis=0) if inputs else np.ones(0)
    spread = np.where(spread > 0, spread, 1.0)
    of_data = 1.0 if standard.units is not None else _spread(standard)
    units = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(learned):
        own: np.ndarray = np.ones(np.shape(leaf))
        if dotted(path) == "emissions.mean":
            own = own * np.asarray(_column_spreads(standard.data))
        elif "input" in dotted(path).rpartition(".")[2] and own.ndim and own.shape[-1] <= len(spread):
            own = own * of_data / spread[len(spread) - own.shape[-1] :]
        units.append(own.ravel())
    return np.concatenate(units)


def _column_spreads(data: Buckets) -> Float[np.ndarray, " dimensions"]:
    values = [np.where(_known(batch), np.asarray(batch.observations, np.float64), np.nan) for batch in data]
    spread = np.nanstd(np.concatenate([one.reshape(-1, one.shape[-1]) for one in values]), axis=0)
    return np.where(spread > 0, spread, 1.0)


def _spread(standard: Standardized) -> float:
    """The standard deviation of the data, as the model transforms them."""
    values = np.concatenate([np.asarray(batch.observations, np.float64)[_known(batch)] for batch in standard.data])
    transform = standard.model.observation_transform
    return float(np.std(values if transform is None else applied(transform.forward, values))) or 1.0


def _known(batch: Series) -> np.ndarray:
    known = np.broadcast_to(True if batch.observed is None else np.asarray(batch.observed), batch.observations.shape)
    if batch.length is None:
        return known
    return known & (np.arange(known.shape[1]) < np.asarray(batch.length)[:, None])[..., None]
