"""Linear Gaussian models in other units: the same model of data and states that are shifted and scaled."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from mcfo.covariance import Covariance
from mcfo.models.linear_gaussian import LinearGaussian
from mcfo.precision import widened


class Units(NamedTuple):
    """New units: x' = (x - location) / scale and z' = (z - latent_location) / latent_scale."""

    location: Float[np.ndarray, " dimensions"]
    scale: Float[np.ndarray, " dimensions"]
    latent_location: Float[np.ndarray, " latent"]
    latent_scale: Float[np.ndarray, " latent"]

    def inverse(self) -> Units:
        """Return the way back."""
        return Units(
            -self.location / self.scale,
            1 / self.scale,
            -self.latent_location / self.latent_scale,
            1 / self.latent_scale,
        )


def standard_units(model: LinearGaussian, location: np.ndarray, scale: np.ndarray) -> Units:
    """Return units in which data of this location and scale, and the states, are of order one.

    The location of the data is that of the emission's offset, or else of states that stay there; a model with neither
    has no other location than zero. States are scaled by their initial standard deviations.
    """
    size = model.latent_size
    scales = _standard_deviation(widened(model.initial_noise))
    if model.emission_offset is not None:
        return Units(location, scale, np.zeros(size), scales)
    rows, wanted = [np.asarray(model.emission_matrix)], [location]
    if model.transition_offset is None:
        rows.append(np.eye(size) - np.asarray(model.transition_matrix))
        wanted.append(np.zeros(size))
    matrix, target = np.concatenate(rows), np.concatenate(wanted)
    latent = np.linalg.lstsq(matrix, target, rcond=None)[0]
    if not np.allclose(matrix @ latent, target, rtol=1e-12, atol=1e-12 * np.abs(location).max(initial=0.0)):
        location, latent = np.zeros_like(location), np.zeros(size)
    return Units(location, scale, latent, scales)


def in_units(model: LinearGaussian, units: Units) -> LinearGaussian:
    """Return the model of x' that corresponds to the model of x; which arrays it has stays the same."""
    if not all(isinstance(leaf, np.ndarray) and leaf.dtype == np.float64 for leaf in jax.tree.leaves(model)):
        model = widened(model)
    location, scale, shift, latent_scale = units
    matrix, emission = np.asarray(model.transition_matrix), np.asarray(model.emission_matrix)
    # z' moves as z does around its own location: a' = (a + A m - m) / scale.
    changed = {
        "initial_mean": (np.asarray(model.initial_mean) - shift) / latent_scale,
        "initial_noise": _scaled(model.initial_noise, latent_scale),
        "transition_matrix": matrix * latent_scale / latent_scale[:, None],
        "transition_noise": _scaled(model.transition_noise, latent_scale),
        "emission_matrix": emission * latent_scale / scale[:, None],
        "emission_noise": _scaled(model.emission_noise, scale),
    }
    if model.transition_offset is not None:
        changed["transition_offset"] = (np.asarray(model.transition_offset) + matrix @ shift - shift) / latent_scale
    if model.emission_offset is not None:
        moved = np.asarray(model.emission_offset) + emission @ shift - location
        changed["emission_offset"] = moved / scale
    if model.transition_inputs is not None:
        changed["transition_inputs"] = np.asarray(model.transition_inputs) / latent_scale[:, None]
    if model.emission_inputs is not None:
        changed["emission_inputs"] = np.asarray(model.emission_inputs) / scale[:, None]
    names = list(changed)
    return eqx.tree_at(lambda m: [getattr(m, name) for name in names], model, [changed[name] for name in names])


def _standard_deviation(noise: Covariance) -> np.ndarray:
    """Return the square roots of the diagonal; in numpy, in float64."""
    factor = np.diag(np.exp(noise.log_diagonal))
    if noise.below is not None:
        factor[np.tril_indices(noise.size, -1)] = noise.below
    return np.sqrt(np.sum(factor**2, axis=-1))


def _scaled(noise: Covariance, scale: np.ndarray) -> Covariance:
    rows = np.tril_indices(noise.size, -1)[0]
    return eqx.tree_at(
        lambda n: (n.log_diagonal, n.below),
        noise,
        (np.asarray(noise.log_diagonal) - np.log(scale), None if noise.below is None else noise.below / scale[rows]),
        is_leaf=lambda leaf: leaf is None,
    )
