"""Priors on the parameters as people mean them, by name or as distributions of numpyro."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mcfo.errors import InputError, nearest
from mcfo.learning.coordinates import Coordinates
from mcfo.learning.prior_families import prior_text, read_prior
from mcfo.learning.readable import readable_arrays
from mcfo.models.base import Model
from mcfo.types import Scalar

_DRAWS = 2000


class Prior(eqx.Module):
    """A distribution of one array of parameters, of each of its entries or of one of them.

    `entries` are the indices of the entries that move; a distribution with an event shape is of the whole array.
    """

    distribution: Any
    name: str = eqx.field(static=True)
    entries: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    def log_density(self, arrays: Mapping[str, Any]) -> Scalar:
        """Return the log-density; -inf outside of the support."""
        array = arrays[self.name]
        if not self.distribution.event_shape:
            array = jnp.stack([array[index] for index in self.entries])
        inside = jnp.all(self.distribution.support(array))
        # A value outside may have no finite density, nor a finite derivative of it.
        density = jnp.sum(self.distribution.log_prob(array))
        return jnp.where(inside, density, -jnp.inf).astype(jnp.result_type(array))


class Priors(eqx.Module):
    """Independent priors of some parameters; the others have a flat one on the scale on which people mean them."""

    priors: tuple[Prior, ...]

    @classmethod
    def build(cls, wanted: Mapping[str, Any], coordinates: Coordinates) -> Priors:
        """Find the parameters that are named, and check that the model's values are possible.

        **Arguments:**

        - `wanted`: a text, "half-normal:1", or a distribution of numpyro, for each name: "emission_noise",
          "log_variance.persistence", "transition_matrix[0, 1]".
        """
        priors, arrays = [], readable_arrays(coordinates.model(coordinates.vector()))
        for given, prior in wanted.items():
            name, indices = _find(given, coordinates)
            one = Prior(read_prior(prior, given), name, indices)
            _check(one, given, prior_text(prior), coordinates, arrays)
            if any(name == other.name and set(indices) & set(other.entries) for other in priors):
                raise InputError(f"There are two priors on {name}. Give one.")
            priors.append(one)
        return cls(tuple(priors))

    def log_density(self, model: Model) -> Scalar:
        """Return the log-density of the parameters as people mean them, without any Jacobian."""
        arrays = readable_arrays(model)
        return sum((prior.log_density(arrays) for prior in self.priors), jnp.zeros(()))


def _find(given: str, coordinates: Coordinates) -> tuple[str, tuple[tuple[int, ...], ...]]:
    """Return the array that a name means, and the entries of it that are learned."""
    wanted, index = re.fullmatch(r"(?:model\.)?(.*?)(?:\[([\d, ]+)\])?", given).groups()  # pyright: ignore[reportOptionalMemberAccess]
    names = list(dict.fromkeys(entry.name for entry in coordinates.entries))
    near = [wanted] if wanted in names else [name for name in names if f".{wanted}." in f".{name}."]
    if len(near) > 1:
        # A noise means its standard deviation; its correlations are named.
        near = [name for name in near if not name.endswith(".correlation")] if index is None else near
    if not near:
        raise InputError(f"There is no learned parameter {given!r} to give a prior. {nearest(wanted, names)}")
    if len(near) > 1:
        raise InputError(f"{given!r} may mean {' or '.join(near)}. Name one of them.")
    entries = tuple(entry.position for entry in coordinates.entries if entry.name == near[0])
    if index is None:
        return near[0], entries
    one = tuple(int(word) for word in index.split(","))
    if one not in entries:
        raise InputError(
            f"{near[0]} has no learned entry [{index}]. There are: {', '.join(str(list(each)) for each in entries)}."
        )
    return near[0], (one,)


def _check(prior: Prior, given: str, text: str, coordinates: Coordinates, arrays: Mapping[str, Any]) -> None:
    """Refuse a prior that has no mass where the parameter may lie, or no density at its present value."""
    try:
        # Compiled, because numpyro warns of values outside of the support where it sees them.
        value = np.asarray(eqx.filter_jit(Prior.log_density)(prior, arrays))
    except (TypeError, ValueError) as error:
        raise InputError(f"The prior {text} does not fit the shape of {given}: {error}") from error
    entry = next(one for one in coordinates.entries if one.name == prior.name and one.position in prior.entries)
    if not prior.distribution.event_shape:
        draws = np.asarray(prior.distribution.sample(jax.random.key(0), (_DRAWS,)))
        if not np.any((draws > entry.low) & (draws < entry.high)):
            raise InputError(
                f"The prior {text} lies outside the range of {entry.label}, {_range_text(entry)}. Give one inside it."
            )
    if not np.isfinite(value):
        present = ", ".join(f"{float(arrays[prior.name][index]):.4g}" for index in prior.entries[:4])
        raise InputError(
            f"The prior {text} gives no density to the present value of {given}, {present}. Widen it, or start from "
            "another value."
        )


def _range_text(entry: Any) -> str:
    if np.isfinite(entry.low) and np.isfinite(entry.high):
        return f"between {entry.low:g} and {entry.high:g}"
    return f"above {entry.low:g}" if np.isfinite(entry.low) else f"below {entry.high:g}"
