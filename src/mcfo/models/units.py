"""Models in other units: the same model of data and states that are shifted and scaled."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Float

from mcfo.covariance import Covariance
from mcfo.models.autoregression import LeveragedVolatility, StochasticVolatility
from mcfo.models.base import Model
from mcfo.models.hidden_markov import GaussianEmission, HiddenMarkov
from mcfo.models.linear_gaussian import IrregularLinearGaussian, LinearGaussian
from mcfo.models.structural_model import EmittedStructural, GaussianStructural, VolatileStructural
from mcfo.models.switching import SwitchingLinearGaussian
from mcfo.precision import widened
from mcfo.types import is_known

LINEAR = (LinearGaussian, IrregularLinearGaussian)
"""The linear models whose units are known here; a derived class may have arrays of other units."""
_VOLATILITY = (StochasticVolatility, LeveragedVolatility)
_STRUCTURAL = (GaussianStructural, EmittedStructural, VolatileStructural)


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


def standard_units(model: Model, learned: Model, location: np.ndarray, scale: np.ndarray) -> Units | None:
    """Return units in which data of this location and scale, and the states, are of order one; None for a model that
    is not known to be the same model in other units.

    The location of the data is that of the emission's offset, or else of states that stay there; a model with neither
    has no other location than zero. States of linear models are scaled by their initial standard deviations.

    **Arguments:**

    - `learned`: the model with None in place of what is fixed: what is fixed in one unit must be so in the other.
    """
    model = widened(model)
    nothing, nowhere = np.zeros(0), np.zeros_like(location)
    if type(model) in LINEAR:
        return _linear_units(model, learned, location, scale)  # pyright: ignore[reportArgumentType]
    if type(model) is SwitchingLinearGaussian:
        return _linear_units(model.regimes, learned.regimes, location, scale)  # pyright: ignore[reportAttributeAccessIssue]
    if type(model) in _VOLATILITY:
        return Units(nowhere, scale, nothing, nothing)
    if type(model) is HiddenMarkov and type(model.emissions) is GaussianEmission:
        return Units(location, scale, nothing, nothing)
    if type(model) in _STRUCTURAL and _has_unit(model):
        return Units(nowhere if model.trend is None else location, scale, nothing, nothing)  # pyright: ignore[reportAttributeAccessIssue]
    return None


def in_units(model: Model, units: Units) -> Model:
    """Return the model of x' that corresponds to the model of x; which arrays it has stays the same."""
    # In float64 where it can be; a function that is being traced has the precision of its session.
    model = widened(model) if is_known(model) else model
    if isinstance(model, LinearGaussian):
        return _linear_in_units(model, units)
    if isinstance(model, SwitchingLinearGaussian):
        return eqx.tree_at(lambda m: m.regimes, model, _linear_in_units(model.regimes, units))
    if isinstance(model, HiddenMarkov):
        return eqx.tree_at(lambda m: m.emissions, model, _gaussians_in_units(model.emissions, units))
    if isinstance(model, _VOLATILITY):
        level = model.log_variance.level - 2 * np.log(units.scale)
        model = eqx.tree_at(lambda m: m.log_variance.level, model, level)
        weights = getattr(model, "input_weights", None)
        return model if weights is None else _replaced(model, {"input_weights": weights / units.scale[:, None]})
    assert isinstance(model, _STRUCTURAL)
    return _structural_in_units(model, units)


def _linear_units(model: LinearGaussian, learned: Any, location: np.ndarray, scale: np.ndarray) -> Units:
    """Units of a linear Gaussian model, or of several that share a state, stacked."""
    size = model.latent_size
    scales = _standard_deviation(model.initial_noise)
    if learned.emission_offset is not None:
        return Units(location, scale, np.zeros(size), scales)
    # The data are shifted with the state, by m with C m + c = location. Then a' = (a + A m - m) / scale, which is as
    # fixed as a is, unless A is learned: so either a is learned too, or A is fixed.
    moves = learned.transition_offset is not None
    if learned.emission_matrix is None and (moves or learned.transition_matrix is None):
        offset = 0.0 if model.emission_offset is None else model.emission_offset
        rows = [np.asarray(model.emission_matrix).reshape(-1, size)]
        wanted = [(location - offset + np.zeros(np.shape(model.emission_matrix)[:-1])).ravel()]
        if model.transition_offset is None:
            rows.append((np.eye(size) - np.asarray(model.transition_matrix)).reshape(-1, size))
            wanted.append(np.zeros(len(rows[-1])))
        matrix, target = np.concatenate(rows), np.concatenate(wanted)
        latent = np.linalg.lstsq(matrix, target, rcond=None)[0]
        if np.allclose(matrix @ latent, target, rtol=1e-12, atol=1e-12 * np.abs(location).max(initial=0.0)):
            return Units(location, scale, latent, scales)
    return Units(np.zeros_like(location), scale, np.zeros(size), scales)


def _linear_in_units(model: LinearGaussian, units: Units) -> LinearGaussian:
    location, scale, shift, latent_scale = units
    matrix, emission = model.transition_matrix, model.emission_matrix
    # z' moves as z does around its own location: a' = (a + A m - m) / scale.
    changed: dict[str, Any] = {
        "initial_mean": (model.initial_mean - shift) / latent_scale,
        "initial_noise": _scaled(model.initial_noise, latent_scale),
        "transition_matrix": matrix * latent_scale / latent_scale[:, None],
        "transition_noise": _scaled(model.transition_noise, latent_scale),
        "emission_matrix": emission * latent_scale / scale[:, None],
        "emission_noise": _scaled(model.emission_noise, scale),
    }
    if model.transition_offset is not None:
        changed["transition_offset"] = (model.transition_offset + matrix @ shift - shift) / latent_scale
    if model.emission_offset is not None:
        changed["emission_offset"] = (model.emission_offset + emission @ shift - location) / scale
    if model.transition_inputs is not None:
        changed["transition_inputs"] = model.transition_inputs / latent_scale[:, None]
    if model.emission_inputs is not None:
        changed["emission_inputs"] = model.emission_inputs / scale[:, None]
    return _replaced(model, changed)


def _standard_deviation(noise: Covariance) -> Float[np.ndarray, " size"]:
    """Return the standard deviations of a covariance, or of the first of several; in numpy, which is much faster."""
    factor = np.diag(np.exp(np.asarray(noise.log_diagonal, np.float64).reshape(-1, noise.size)[0]))
    if noise.below is not None:
        rows = np.tril_indices(noise.size, -1)
        factor[rows] = np.asarray(noise.below, np.float64).reshape(-1, len(rows[0]))[0]
    return np.sqrt(np.sum(factor**2, axis=-1))


def _scaled(noise: Covariance, scale: np.ndarray) -> Covariance:
    rows = np.tril_indices(noise.size, -1)[0]
    changed: dict[str, Any] = {"log_diagonal": noise.log_diagonal - np.log(scale)}
    if noise.below is not None:
        changed["below"] = noise.below / scale[rows]
    return _replaced(noise, changed)


def _gaussians_in_units(emissions: Any, units: Units) -> Any:
    changed = {
        "mean": (emissions.mean - units.location) / units.scale,
        "log_scale": emissions.log_scale - np.log(units.scale),
        "least": emissions.least / units.scale,
    }
    if emissions.input_weights is not None:
        changed["input_weights"] = emissions.input_weights / units.scale[:, None]
    return _replaced(emissions, changed)


def _structural_in_units(model: Any, units: Units) -> Any:
    location, scale = units.location[0], units.scale[0]

    def moved(path: Any, leaf: Any) -> Any:
        names = [str(getattr(one, "name", "")) for one in path]
        if not eqx.is_inexact_array(leaf):
            return leaf
        if names[0] == "log_variance":
            return leaf - 2 * np.log(scale) if names[-1] == "level" else leaf
        if names[-1].startswith("log_") and names[-1].endswith("scale"):
            return leaf - np.log(scale)
        return leaf / scale if names[-1] == "input_weights" else leaf

    # A level is the first entry of the state, and the only one that the location of the data moves.
    shift = np.zeros(len(model.state_names))
    shift[:1] = location
    state = (model.initial_state - shift) / scale
    return _replaced(jax.tree_util.tree_map_with_path(moved, model), {"initial_state": state})


def _has_unit(model: Any) -> bool:
    """Whether the data themselves are the sum of the components: neither counts nor transformed."""
    observation = model if isinstance(model, GaussianStructural | VolatileStructural) else model.observation
    return getattr(observation, "transform", model) is None


def _replaced(module: Any, changed: dict[str, Any]) -> Any:
    names = list(changed)
    return eqx.tree_at(lambda m: [getattr(m, name) for name in names], module, [changed[name] for name in names])
