"""Data and model in standard units, in which they are learned whatever the user's units are."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from mcfo.data.batching import Buckets
from mcfo.inference.observation_laws import applied
from mcfo.learning.parameters import Modules, dotted, split
from mcfo.models.base import Model
from mcfo.models.units import LINEAR, Units, in_units, standard_units
from mcfo.precision import widened
from mcfo.series import Series


class Standardized(NamedTuple):
    """A model and its data in standard units.

    - `log_jacobian`: what the log-likelihood of the data in their own unit has beyond that in standard units.
    - `units`: the standard units; None where the model has no other units than the data's.
    - `fixed`: the model in the data's unit, with None in place of what is learned.
    """

    model: Model
    data: Buckets
    log_jacobian: float
    units: Units | None
    fixed: Model

    @property
    def scale(self) -> Float[np.ndarray, " dimensions"] | None:
        """The unit of each column; None where it is the data's own."""
        return None if self.units is None else self.units.scale

    def of_other(self, data: Buckets) -> Standardized:
        """Return the same units for other data of the same columns."""
        if self.units is None:
            return self._replace(data=data)
        return self._replace(data=_in_units(data, self.units), log_jacobian=_log_jacobian(data, self.units))

    def restored(self, model: Model) -> Model:
        """Return a model in standard units as one of the data; what is fixed is as it was, without rounding."""
        if self.units is None:
            return model
        back = in_units(model, self.units.inverse())
        return jax.tree.map(
            lambda old, new: new if old is None else old, self.fixed, back, is_leaf=lambda leaf: leaf is None
        )

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


def standardize(modules: Modules, data: Buckets, fixed: tuple[str, ...]) -> Standardized:
    """Remove the location and the scale of each column from data that are maximized exactly, and change the model
    accordingly.

    Models with a diffuse start, and hidden Markov models, are searched in coordinates of their own: see
    [`coordinate_units`][mcfo.learning.standardization.coordinate_units].
    """
    return _standardized(modules, data, fixed, known=type(modules.model) in LINEAR)


def standardize_for_particles(modules: Modules, data: Buckets, fixed: tuple[str, ...]) -> tuple[Modules, Standardized]:
    """Return modules in standard units in the precision of the session, and what they stand for.

    A proposal whose learned numbers have the data's unit, such as an affine one, is learned in it.
    """
    bound = modules.follows or not any(map(eqx.is_inexact_array, jax.tree.leaves(modules.proposal)))
    standard = _standardized(modules, data, fixed, known=bound)
    if standard.units is None:
        return modules, standard
    model = jax.tree.map(lambda leaf: jnp.asarray(leaf) if eqx.is_array(leaf) else leaf, standard.model)
    proposal = modules.proposal.following(model) if modules.follows else modules.proposal
    return Modules(model, proposal, modules.follows), standard


def as_given(data: Buckets, modules: Modules) -> Standardized:
    """Return what stands for itself: modules and data in the unit that they have."""
    return Standardized(modules.model, data, 0.0, None, modules.model)


def _standardized(modules: Modules, data: Buckets, fixed: tuple[str, ...], *, known: bool) -> Standardized:
    model = widened(modules.model)
    learned, rest = split(Modules(model, modules.proposal), fixed)
    units = None
    if known:
        values = np.concatenate([batch.reshape(-1, batch.shape[-1]) for batch in _pooled(data)])
        scale = np.nanstd(values, axis=0)
        units = standard_units(model, learned.model, np.nanmean(values, axis=0), np.where(scale > 0, scale, 1.0))
    if units is None:
        return Standardized(model, data, 0.0, None, rest.model)
    standard = _in_units(data, units)
    return Standardized(in_units(model, units), standard, _log_jacobian(data, units), units, rest.model)


def _in_units(data: Buckets, units: Units) -> Buckets:
    return tuple(
        eqx.tree_at(lambda s: s.observations, batch, np.nan_to_num((own - units.location) / units.scale))
        for batch, own in zip(data, _pooled(data), strict=True)
    )


def _log_jacobian(data: Buckets, units: Units) -> float:
    counts = [np.sum(~np.isnan(own), axis=(0, 1)) for own in _pooled(data)]
    return -float(np.sum(counts, axis=0) @ np.log(units.scale))


def _pooled(data: Buckets) -> list[np.ndarray]:
    """Return the values of each batch, (series, steps, dimensions), with NaN in place of what is missing."""
    return [np.where(_known(batch), np.asarray(batch.observations, np.float64), np.nan) for batch in data]


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
    spread = np.nanstd(np.concatenate([one.reshape(-1, one.shape[-1]) for one in _pooled(data)]), axis=0)
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
