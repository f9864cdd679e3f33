"""Gaussian distributions of observations, and of their transforms: means, quantiles and scores in the data's unit.

Everything is computed on the host in float64. Where a model is linear and Gaussian in y = g(x), quantiles of x are
those of y mapped back, densities count the Jacobian, and means and scores are integrals over y by quadrature.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float
from scipy.special import ndtr, ndtri

from mcfo.precision import in_float64
from mcfo.transforms import Transform

_REACH = 8.0
"""Standard deviations within which distributions are integrated; beyond are 1e-15 of them."""
_NODES = 96
"""Nodes of Gauss and Legendre on each interval."""


@in_float64
def applied(function: Callable[[Any], Any], values: np.ndarray) -> Any:
    """Apply a function of JAX arrays in float64."""
    return function(jnp.asarray(values))


class ObservationLaws(NamedTuple):
    """N(mean, covariance) of y = g(x) for many forecasts; x is the observation, and g is None for x itself.

    - `proper`: False where nothing is known yet, as before the first observation of a diffuse start.
    """

    mean: Float[np.ndarray, "*forecasts dimensions"]
    covariance: Float[np.ndarray, "*forecasts dimensions dimensions"]
    proper: Bool[np.ndarray, "*forecasts dimensions"]
    transform: Transform | None

    @property
    def scale(self) -> Float[np.ndarray, "*forecasts dimensions"]:
        """The standard deviation of each dimension of y; NaN where the distribution is improper."""
        variance = np.maximum(np.diagonal(self.covariance, axis1=-2, axis2=-1), 0.0)
        return np.where(self.proper, np.sqrt(variance), np.nan)

    def means(self) -> Float[np.ndarray, "*forecasts dimensions"]:
        """E[x]."""
        if self.transform is None:
            return np.where(self.proper, self.mean, np.nan)
        return self._integral(lambda x, u: x, _REACH)

    def quantiles(self, levels: Any) -> Float[np.ndarray, "*forecasts levels dimensions"]:
        """The quantiles of each dimension of x."""
        u = ndtri(np.asarray(levels, np.float64))[:, None]
        return self._inverse(self.mean[..., None, :] + self.scale[..., None, :] * u)

    def log_density(self, values: Float[np.ndarray, "*forecasts dimensions"]) -> Float[np.ndarray, "*forecasts"]:
        """log p(x) of the dimensions that are not NaN, jointly; NaN where there is none, or no proper distribution."""
        known = ~np.isnan(values)
        residual = np.where(known, self._forward(values) - self.mean, 0.0)
        both = known[..., :, None] & known[..., None, :]
        covariance = np.where(both, self.covariance, np.eye(values.shape[-1]))
        usable = known.any(axis=-1) & np.all(self.proper | ~known, axis=-1)
        factor = np.linalg.cholesky(np.where(usable[..., None, None], covariance, np.eye(values.shape[-1])))
        whitened = np.linalg.solve(factor, residual[..., None])[..., 0]
        log_determinant = np.sum(np.log(np.diagonal(factor, axis1=-2, axis2=-1)), axis=-1)
        log_density = -0.5 * np.sum(whitened**2, axis=-1) - log_determinant
        log_density = log_density - 0.5 * np.log(2 * np.pi) * known.sum(axis=-1)
        if self.transform is not None:
            slopes = applied(self.transform.log_jacobian, np.where(known, values, 1.0))
            log_density = log_density + np.sum(np.where(known, slopes, 0.0), axis=-1)
        return np.where(usable, log_density, np.nan)

    def below(self, values: Float[np.ndarray, "*forecasts dimensions"]) -> Float[np.ndarray, "*forecasts dimensions"]:
        """P(X ≤ x) for each dimension."""
        return ndtr(self._standard(values))

    def crps(self, values: Float[np.ndarray, "*forecasts dimensions"]) -> Float[np.ndarray, "*forecasts dimensions"]:
        """E|X - x| - E|X - X'| / 2 for each dimension. Closed form for a Gaussian: Gneiting et al. (2005)."""
        u = self._standard(values)
        if self.transform is None:
            density = np.exp(-0.5 * u**2) / np.sqrt(2 * np.pi)
            return self.scale * (u * (2 * ndtr(u) - 1) + 2 * density - 1 / np.sqrt(np.pi))
        # E|X - x| = x (2 F(x) - 1) + E[X] - 2 E[X; X < x], and E|X - X'| / 2 = E[X (2 F(X) - 1)].
        lower = self._integral(lambda x, _: x, np.clip(u, -_REACH, _REACH))
        distance = values * (2 * ndtr(u) - 1) + self.means() - 2 * lower
        return distance - self._integral(lambda x, u: x * (2 * ndtr(u) - 1), _REACH)

    def _standard(self, values: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore", invalid="ignore"):
            return (self._forward(values) - self.mean) / self.scale

    def _integral(self, of: Callable[[np.ndarray, np.ndarray], np.ndarray], upper: Any) -> np.ndarray:
        """∫ of(x, u) φ(u) du for u from the left end up to `upper`, where x is the quantile at u."""
        nodes, weights = np.polynomial.legendre.leggauss(_NODES)
        width = (np.broadcast_to(upper, self.mean.shape) + _REACH)[..., None] / 2
        u = width * (nodes + 1) - _REACH
        x = self._inverse(np.moveaxis(self.mean[..., None] + self.scale[..., None] * u, -1, -2))
        density = np.exp(-0.5 * u**2) / np.sqrt(2 * np.pi)
        return np.sum(of(np.moveaxis(x, -2, -1), u) * density * weights * width, axis=-1)

    def _forward(self, values: np.ndarray) -> np.ndarray:
        if self.transform is None:
            return values
        known = ~np.isnan(values)
        # Where nothing is known, one is inside the domain of every transform.
        return np.where(known, applied(self.transform.forward, np.where(known, values, 1.0)), np.nan)

    def _inverse(self, values: np.ndarray) -> np.ndarray:
        return values if self.transform is None else applied(self.transform.inverse, values)
