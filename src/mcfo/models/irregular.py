"""Linear Gaussian models in continuous time, seen at uneven times."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float

from mcfo.models.linear_gaussian import Dynamics, LinearGaussian
from mcfo.models.timing import gap_of
from mcfo.types import Distribution, Inputs, Memory, is_known


class IrregularLinearGaussian(LinearGaussian):
    """dz = F z dt + dW with Cov(dW) = Q dt and F² = 0, seen at times δ_t apart: x_t = C z_t + D u_t + c + N(0, R).

    So z_t = A(δ) z_t-1 + N(0, Q(δ)) with A(δ) = I + δ F and Q(δ) = δ Q + δ² (F Q + Q Fᵀ) / 2 + δ³ F Q Fᵀ / 3: a random
    walk (F = 0), or a level and its slope, which wanders too. A(1) = I + F is `transition_matrix`, which is not meant
    to be learned, Q is `transition_noise`. The first input is δ_t, the others are u_t. Harvey (1989), chapter 9.
    """

    drifts: bool = eqx.field(static=True)

    def __init__(self, **arguments: Any):
        super().__init__(**arguments)
        self.drifts = True
        if is_known(self.transition_matrix):
            drift = np.asarray(self.transition_matrix) - np.eye(self.latent_size)
            self.drifts = bool(drift.any())
            if (drift @ drift).any():
                raise ValueError(
                    "transition_matrix is not I + F with F² = 0, so that its powers have no simple form. Use 1 for a "
                    "random walk, or [[1, 1], [0, 1]] for a level and its slope."
                )
        if self.transition_offset is not None or self.transition_inputs is not None:
            raise ValueError("A model at uneven times has no transition_offset or transition_inputs. Leave them out.")

    def dynamics(self, inputs: Inputs) -> Dynamics:
        gap = self._gap(inputs)
        drift, noise = self.transition_matrix - jnp.eye(self.latent_size), self.transition_noise.matrix
        moved = drift @ noise
        covariance = gap * noise + gap**2 * (moved + moved.T) / 2 + gap**3 * (moved @ drift.T) / 3
        return Dynamics(jnp.eye(self.latent_size) + gap * drift, covariance)

    def transition_mean(self, latent: Float[Array, " latent"], inputs: Inputs) -> Float[Array, " latent"]:
        """A(δ) z."""
        return latent + self._gap(inputs) * (self.transition_matrix @ latent - latent) if self.drifts else latent

    def emission_mean(self, latent: Float[Array, " latent"], inputs: Inputs) -> Float[Array, " dimensions"]:
        """C z + D u + c."""
        return super().emission_mean(latent, None if inputs is None else inputs[1:])

    def transition(self, memory: Memory, inputs: Inputs) -> Distribution:
        mean = self.transition_mean(memory, inputs)
        if not self.drifts and self.transition_noise.below is None:
            scale = jnp.sqrt(self._gap(inputs)) * jnp.exp(self.transition_noise.log_diagonal)
            return dist.Normal(mean, scale).to_event(1)
        return dist.MultivariateNormal(mean, scale_tril=jnp.linalg.cholesky(self.dynamics(inputs).covariance))

    def _gap(self, inputs: Inputs) -> Float[Array, ""]:
        gap = gap_of(inputs, True)
        assert gap is not None
        return gap
