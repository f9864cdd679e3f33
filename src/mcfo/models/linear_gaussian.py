"""Linear Gaussian state-space models, the only ones here whose every law is known exactly."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float

from mcfo.covariance import Covariance
from mcfo.linear_algebra import cholesky, solve_positive_definite
from mcfo.models.autoregression import gap_of
from mcfo.models.base import InitialForm, LinearForm, MarkovModel
from mcfo.types import Distribution, Inputs, Latent, Memory, Numbers, is_known


class Conditioned(NamedTuple):
    """How an observation changes a Gaussian law of the latent: z | x ~ N(mean + gain (x - C mean - c), covariance)."""

    gain: Float[Array, "latent dimensions"]
    covariance: Float[Array, "latent latent"]
    innovation_factor: Float[Array, "dimensions dimensions"]


class Dynamics(NamedTuple):
    """How the latent moves in one step, beside its mean: z_t | z_t-1 has the covariance Q, and its mean grows by A."""

    matrix: Float[Array, "latent latent"]
    covariance: Float[Array, "latent latent"]


class LinearGaussian(MarkovModel):
    """z_1 ~ N(m, P);  z_t = A z_t-1 + B u_t + a + N(0, Q);  x_t = C z_t + D u_t + c + N(0, R).

    Covariances may be matrices, vectors of variances (diagonal) or, in one dimension, one number. Offsets a, c and
    the input matrices B, D may be left out.
    """

    initial_mean: Float[Array, " latent"]
    initial_noise: Covariance
    transition_matrix: Float[Array, "latent latent"]
    transition_noise: Covariance
    emission_matrix: Float[Array, "dimensions latent"]
    emission_noise: Covariance
    transition_offset: Float[Array, " latent"] | None
    emission_offset: Float[Array, " dimensions"] | None
    transition_inputs: Float[Array, "latent inputs"] | None
    emission_inputs: Float[Array, "dimensions inputs"] | None

    def __init__(
        self,
        *,
        initial_mean: Numbers,
        initial_noise: Numbers,
        transition_matrix: Numbers,
        transition_noise: Numbers,
        emission_matrix: Numbers,
        emission_noise: Numbers,
        transition_offset: Numbers | None = None,
        emission_offset: Numbers | None = None,
        transition_inputs: Numbers | None = None,
        emission_inputs: Numbers | None = None,
    ):
        self.initial_mean = jnp.atleast_1d(jnp.asarray(initial_mean, float))
        self.transition_matrix = jnp.atleast_2d(jnp.asarray(transition_matrix, float))
        self.emission_matrix = jnp.atleast_2d(jnp.asarray(emission_matrix, float))
        self.initial_noise = Covariance.from_matrix(initial_noise, name="initial_noise")
        self.transition_noise = Covariance.from_matrix(transition_noise, name="transition_noise")
        self.emission_noise = Covariance.from_matrix(emission_noise, name="emission_noise")
        self.transition_offset = _optional(transition_offset, jnp.atleast_1d)
        self.emission_offset = _optional(emission_offset, jnp.atleast_1d)
        self.transition_inputs = _optional(transition_inputs, jnp.atleast_2d)
        self.emission_inputs = _optional(emission_inputs, jnp.atleast_2d)

    def __check_init__(self):
        latent, dimensions = self.latent_size, self.observed_size
        wanted = {
            "initial_mean": (latent,),
            "transition_matrix": (latent, latent),
            "emission_matrix": (dimensions, latent),
            "transition_offset": (latent,),
            "emission_offset": (dimensions,),
        }
        for name, shape in wanted.items():
            array = getattr(self, name)
            if array is not None and array.shape != shape:
                raise ValueError(
                    f"{name} has shape {array.shape}, but {shape} is wanted for {latent} latent and {dimensions} "
                    "observed dimensions (taken from transition_matrix and emission_matrix)."
                )
        for name, size in (
            ("initial_noise", latent),
            ("transition_noise", latent),
            ("emission_noise", dimensions),
        ):
            noise: Covariance = getattr(self, name)
            if noise.size != size:
                raise ValueError(f"{name} is of size {noise.size}, but {size} is wanted. Give a matrix of that size.")
        for name, rows in (("transition_inputs", latent), ("emission_inputs", dimensions)):
            array = getattr(self, name)
            if array is not None and array.shape[0] != rows:
                raise ValueError(f"{name} has shape {array.shape}, but {rows} rows are wanted, one for each output.")

    @classmethod
    def scalar(
        cls,
        theta_1: float,
        theta_2: float,
        *,
        transition_variance: float = 1.0,
        emission_variance: float = 1.0,
        initial_mean: float = 0.5,
        initial_variance: float = 1.0,
    ) -> LinearGaussian:
        """The paper's model: z_t = θ_1 z_t-1 + N(0, Σ_Q), x_t = θ_2 z_t + N(0, Σ_R), z_1 ~ N(μ_0, σ_0²)."""
        return cls(
            initial_mean=initial_mean,
            initial_noise=initial_variance,
            transition_matrix=theta_1,
            transition_noise=transition_variance,
            emission_matrix=theta_2,
            emission_noise=emission_variance,
        )

    @property
    def latent_size(self) -> int:
        return self.transition_matrix.shape[-1]

    @property
    def observed_size(self) -> int:
        return self.emission_matrix.shape[-2]

    def transition_mean(self, latent: Float[Array, " latent"], inputs: Inputs) -> Float[Array, " latent"]:
        """A z + B u + a."""
        return _affine(self.transition_matrix, latent, self.transition_offset, self.transition_inputs, inputs)

    def emission_mean(self, latent: Float[Array, " latent"], inputs: Inputs) -> Float[Array, " dimensions"]:
        """C z + D u + c."""
        return _affine(self.emission_matrix, latent, self.emission_offset, self.emission_inputs, inputs)

    def dynamics(self, inputs: Inputs) -> Dynamics:
        """A and Q of the step with these inputs."""
        return Dynamics(self.transition_matrix, self.transition_noise.matrix)

    def initial(self, memory: Memory, inputs: Inputs) -> Distribution:
        return self.initial_noise.gaussian(self.initial_mean)

    def transition(self, memory: Memory, inputs: Inputs) -> Distribution:
        return self.transition_noise.gaussian(self.transition_mean(memory, inputs))

    def emission(self, memory: Memory, latent: Latent, inputs: Inputs) -> Distribution:
        return self.emission_noise.gaussian(self.emission_mean(latent, inputs))

    def linear_form(self, inputs: Inputs) -> LinearForm:
        matrix, covariance = self.dynamics(inputs)
        nothing = jnp.zeros(self.latent_size, matrix.dtype)
        return LinearForm(
            matrix,
            self.transition_mean(nothing, inputs),
            covariance,
            self.emission_matrix,
            self.emission_mean(nothing, inputs),
            self.emission_noise.matrix,
        )

    def initial_form(self, inputs: Inputs) -> InitialForm:
        return InitialForm(self.initial_mean, self.initial_noise.matrix, jnp.zeros((self.latent_size, 0)))

    def condition(self, covariance: Float[Array, "latent latent"], observed: Bool[Array, " dimensions"]) -> Conditioned:
        """The gain P Cᵀ S⁻¹, the covariance (I - G C) P and the Cholesky factor of S = C P Cᵀ + R, for a prior
        covariance P and the observed dimensions of x alone."""
        # A missing dimension sees nothing of the latent, and has a unit noise of its own, which adds nothing.
        emission = jnp.where(observed[:, None], self.emission_matrix, 0.0)
        both = observed[:, None] & observed[None, :]
        noise = jnp.where(both, self.emission_noise.matrix, jnp.eye(self.observed_size))
        factor = cholesky(emission @ covariance @ emission.T + noise)
        gain = solve_positive_definite(factor, emission @ covariance).T
        rest = jnp.eye(self.latent_size) - gain @ emission
        # Joseph's form stays symmetric and positive definite in floating point.
        return Conditioned(gain, rest @ covariance @ rest.T + gain @ noise @ gain.T, factor)


def _optional(value, shape):
    return None if value is None else shape(jnp.asarray(value, float))


def _affine(matrix, latent, offset, input_matrix, inputs):
    mean = matrix @ latent
    if offset is not None:
        mean = mean + offset
    if input_matrix is not None:
        if inputs is None:
            raise ValueError("The model has input matrices but the series has no inputs. Give Series(inputs=...).")
        mean = mean + input_matrix @ inputs
    return mean


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
        return dist.MultivariateNormal(mean, scale_tril=cholesky(self.dynamics(inputs).covariance))

    def linear_form(self, inputs: Inputs) -> LinearForm:
        # Defined here, because the class that last changed a distribution must vouch for the form.
        return super().linear_form(inputs)

    def _gap(self, inputs: Inputs) -> Float[Array, ""]:
        gap = gap_of(inputs, True)
        assert gap is not None
        return gap
