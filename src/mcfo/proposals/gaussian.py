"""Gaussian proposals: the paper's affine one, and the locally optimal one of a linear Gaussian model."""

from __future__ import annotations

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float

from mcfo.covariance import Covariance
from mcfo.linear_algebra import cholesky
from mcfo.models.linear_gaussian import LinearGaussian
from mcfo.precision import in_float64
from mcfo.proposals.base import Proposal
from mcfo.series import Series
from mcfo.types import Context, Distribution, Inputs, Memory, Numbers


class AffineGaussian(Proposal):
    """q(z_1 | x_1) = N(φ_1 x_1 + φ_2, Σ_q,1);  q(z_t | z_t-1, x_t) = N(φ_3 z_t-1 + φ_4 x_t + φ_5, Σ_q,t).

    The paper's proposal, for vectors. At a step where any dimension of x_t is missing the mean and the variances
    are the prior's: an affine map of half an observation means nothing.
    """

    initial_weight: Float[Array, "latent dimensions"]
    initial_offset: Float[Array, " latent"]
    initial_noise: Covariance
    latent_weight: Float[Array, "latent latent"]
    observation_weight: Float[Array, "latent dimensions"]
    offset: Float[Array, " latent"]
    noise: Covariance

    def __init__(
        self,
        *,
        initial_weight: Numbers,
        initial_offset: Numbers,
        initial_noise: Numbers,
        latent_weight: Numbers,
        observation_weight: Numbers,
        offset: Numbers,
        covariance: Numbers,
    ):
        self.initial_weight = jnp.atleast_2d(jnp.asarray(initial_weight, float))
        self.initial_offset = jnp.atleast_1d(jnp.asarray(initial_offset, float))
        self.initial_noise = Covariance.from_matrix(initial_noise, name="initial_noise")
        self.latent_weight = jnp.atleast_2d(jnp.asarray(latent_weight, float))
        self.observation_weight = jnp.atleast_2d(jnp.asarray(observation_weight, float))
        self.offset = jnp.atleast_1d(jnp.asarray(offset, float))
        self.noise = Covariance.from_matrix(covariance)

    @classmethod
    def optimal(cls, model: LinearGaussian) -> AffineGaussian:
        """The locally optimal proposal p(z_t | z_t-1, x_t) in affine form: the paper's φ* and Σ_q.

        With the gain G = Q Cᵀ (C Q Cᵀ + R)⁻¹: φ_3 = (I - G C) A, φ_4 = G, φ_5 = (I - G C) a - G c and
        Σ_q,t = (I - G C) Q; at the first step the same with the initial distribution, N(m, P), instead of the prior.
        """
        if model.transition_inputs is not None or model.emission_inputs is not None:
            raise ValueError(
                "An affine proposal has no inputs, so it cannot be optimal for a model with inputs. Use "
                "LocallyOptimal(model)."
            )
        everything = jnp.ones(model.observed_size, bool)
        first = model.condition(model.initial_noise.matrix, everything)
        later = model.condition(model.transition_noise.matrix, everything)
        unseen = jnp.eye(model.latent_size) - later.gain @ model.emission_matrix
        first_unseen = jnp.eye(model.latent_size) - first.gain @ model.emission_matrix
        emission_offset = jnp.zeros(model.observed_size) if model.emission_offset is None else model.emission_offset
        transition_offset = jnp.zeros(model.latent_size) if model.transition_offset is None else model.transition_offset
        return cls(
            initial_weight=first.gain,
            initial_offset=first_unseen @ model.initial_mean - first.gain @ emission_offset,
            initial_noise=first.covariance,
            latent_weight=unseen @ model.transition_matrix,
            observation_weight=later.gain,
            offset=unseen @ transition_offset - later.gain @ emission_offset,
            covariance=later.covariance,
        )

    @classmethod
    def prior(cls, model: LinearGaussian) -> AffineGaussian:
        """p(z_t | z_t-1) in affine form, which runs the same program as other affine proposals."""
        nothing = jnp.zeros((model.latent_size, model.observed_size))
        return cls(
            initial_weight=nothing,
            initial_offset=model.initial_mean,
            initial_noise=model.initial_noise.matrix,
            latent_weight=model.transition_matrix,
            observation_weight=nothing,
            offset=jnp.zeros(model.latent_size) if model.transition_offset is None else model.transition_offset,
            covariance=model.transition_noise.matrix,
        )

    def following(self, model: Any) -> Proposal:
        return _optimal(model) if type(model) is LinearGaussian else self

    def encode(self, series: Series) -> Context:
        complete = None if series.observed is None else jnp.all(series.observed, axis=-1)
        return series.observations.astype(self.offset.dtype), complete

    def initial(self, prior: Any, context: Context) -> Distribution:
        observation, complete = context
        mean = self.initial_weight @ observation + self.initial_offset
        return _unless_missing(self.initial_noise, mean, prior, complete)

    def step(self, prior: Any, memory: Memory, context: Context) -> Distribution:
        observation, complete = context
        mean = self.latent_weight @ memory + self.observation_weight @ observation + self.offset
        return _unless_missing(self.noise, mean, prior, complete)


_optimal = in_float64(eqx.filter_jit(AffineGaussian.optimal))


class LocallyOptimal(Proposal):
    """p(z_t | z_t-1, x_t) of a linear Gaussian model, whatever is missing in x_t.

    Minimizes the variance of the weight given the past, which is then p(x_t | z_t-1): it still varies with the
    history. It holds the model for which it is optimal. Doucet, Godsill and Andrieu (2000), proposition 2.
    """

    model: LinearGaussian
    follows: ClassVar[bool] = True

    def __check_init__(self):
        if not isinstance(self.model, LinearGaussian):
            raise TypeError(
                f"LocallyOptimal knows the optimum of a LinearGaussian model only, but got "
                f"{type(self.model).__name__}. Use Bootstrap(), or a proposal of your own."
            )

    def following(self, model: Any) -> Proposal:
        return LocallyOptimal(model) if isinstance(model, LinearGaussian) else self

    def encode(self, series: Series) -> Context:
        model = self.model
        observations = series.observations.astype(model.initial_mean.dtype)
        observed = series.observed
        if observed is None:
            observed = jnp.ones((1, 1), bool)

        def table(covariances: Float[Array, "rows latent latent"]):
            # One row serves for all steps if nothing is missing and the steps are alike.
            count = max(len(covariances), len(observed))
            masks = jnp.broadcast_to(observed, (count, observed.shape[1]))
            covariances = jnp.broadcast_to(covariances, (count, *covariances.shape[1:]))
            rows = jax.vmap(lambda covariance, mask: _gain_and_factor(model, covariance, mask))(covariances, masks)
            return jax.tree.map(lambda array: jnp.broadcast_to(array, (series.steps, *array.shape[1:])), rows)

        later = self._covariances(series)
        return observations, series.inputs, table(model.initial_noise.matrix[None]), table(later)

    def _covariances(self, series: Series) -> Float[Array, "steps latent latent"]:
        """Q of each step."""
        if series.inputs is None:
            return self.model.dynamics(None).covariance[None]
        return jax.vmap(lambda inputs: self.model.dynamics(inputs).covariance)(series.inputs)

    def initial(self, prior: Any, context: Context) -> Distribution:
        observation, inputs, first, _ = context
        return self._posterior(prior, observation, inputs, *first)

    def step(self, prior: Any, memory: Memory, context: Context) -> Distribution:
        observation, inputs, _, later = context
        return self._posterior(prior, observation, inputs, *later)

    def _posterior(self, prior: Any, observation: Array, inputs: Inputs, gain: Array, factor: Array) -> Distribution:
        mean = prior.mean + gain @ (observation - self.model.emission_mean(prior.mean, inputs))
        if self.model.latent_size == 1:
            return dist.Normal(mean, factor[0]).to_event(1)
        return dist.MultivariateNormal(mean, scale_tril=factor)


def _gain_and_factor(
    model: LinearGaussian, covariance: Float[Array, "latent latent"], observed: Bool[Array, " #dimensions"]
):
    observed = jnp.broadcast_to(observed, (model.observed_size,))
    posterior = model.condition(covariance, observed)
    return posterior.gain, cholesky(posterior.covariance)


def _unless_missing(noise: Covariance, mean: Array, prior: Any, complete: Bool[Array, ""] | None) -> Distribution:
    if complete is None:
        return noise.gaussian(mean)
    mean = jnp.where(complete, mean, prior.mean)
    deviations = jnp.sqrt(prior.variance)
    if noise.below is None:
        return dist.Normal(mean, jnp.where(complete, jnp.exp(noise.log_diagonal), deviations)).to_event(1)
    return dist.MultivariateNormal(mean, scale_tril=jnp.where(complete, noise.factor, jnp.diag(deviations)))
