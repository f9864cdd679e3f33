"""Regime switching: a Markov chain chooses which of several linear Gaussian models moves the state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float, Int

from mcfo.covariance import Covariance
from mcfo.linear_algebra import cholesky
from mcfo.missing import observed_log_prob
from mcfo.models.base import Model
from mcfo.models.linear_gaussian import LinearGaussian
from mcfo.models.regimes import MarkovChain, Regimes, ascending
from mcfo.types import Distribution, Inputs, Latent, Memory, Numbers, Observation


class KalmanMemory(NamedTuple):
    """p(s_t | z_1:t, x_1:t) = N(mean, covariance), and z_t."""

    mean: Float[Array, " state"]
    covariance: Float[Array, "state state"]
    regime: Int[Array, ""]


class SwitchingLinearGaussian(Model):
    """s_t = A_z s_t-1 + B_z u_t + a_z + N(0, Q_z);  x_t = C_z s_t + D_z u_t + c_z + N(0, R_z), z = z_t.

    The latent z_t is the regime alone, one of K. The state s_t is integrated out: a particle remembers its Kalman
    filter, the emission is the predictive distribution of x_t given the regimes so far, and whatever is missing in x_t
    is left out exactly. So a particle filter samples the discrete path, and the rest is exact (Rao-Blackwell). Regimes
    that differ in nothing but R, with equal rows of the transition matrix, give observations with a mixture of Gaussian
    noises: `with_mixed_noise`.
    Chen and Liu (2000); Doucet, de Freitas, Murphy and Russell (2000).

    **Arguments:**

    - `regimes`: one linear Gaussian model for each, all of the same shape; they are stacked, each array with a leading
      axis over the regimes.
    """

    chain: MarkovChain
    regimes: LinearGaussian
    imputes: ClassVar[bool] = False

    def __init__(
        self,
        regimes: Sequence[LinearGaussian],
        *,
        transition_probabilities: Numbers,
        initial_probabilities: Numbers | None = None,
    ):
        structures = {(jax.tree.structure(one), tuple(leaf.shape for leaf in jax.tree.leaves(one))) for one in regimes}
        if len(structures) != 1:
            raise ValueError(
                f"The {len(regimes)} regimes have {len(structures)} different shapes. Give at least one LinearGaussian "
                "model, and all of them the same sizes, offsets and kinds of covariances."
            )
        self.chain = MarkovChain.from_probabilities(transition_probabilities, initial_probabilities)
        if self.chain.count != len(regimes):
            raise ValueError(f"There are {len(regimes)} regimes, but {self.chain.count} rows of probabilities.")
        self.regimes = jax.tree.map(lambda *arrays: jnp.stack(arrays), *regimes)

    @classmethod
    def with_mixed_noise(
        cls, model: LinearGaussian, emission_noises: Sequence[Numbers], probabilities: Numbers
    ) -> SwitchingLinearGaussian:
        """A linear Gaussian model whose observations have a mixture of Gaussian noises, Σ_k π_k N(0, R_k): heavy tails,
        outliers. Which noise an observation has is the regime, drawn anew at every step; the rest stays exact.

        **Arguments:**

        - `emission_noises`: R_k, as matrices, variances or a single variance.
        - `probabilities`: π_k.
        """
        regimes = [
            eqx.tree_at(lambda m: m.emission_noise, model, Covariance.from_matrix(noise, name="emission_noise"))
            for noise in emission_noises
        ]
        weights = np.atleast_1d(np.asarray(probabilities, np.float64))
        rows = np.tile(weights, (len(weights), 1))
        return cls(regimes, transition_probabilities=rows, initial_probabilities=weights)

    @property
    def count(self) -> int:
        """K."""
        return self.chain.count

    @property
    def latent_names(self) -> tuple[str, ...]:
        return tuple(f"regime {number + 1}" for number in range(self.count))

    def latent_summary(self, latent: Latent) -> Float[Array, " regimes"]:
        return jax.nn.one_hot(latent, self.count)

    def canonical(self) -> SwitchingLinearGaussian:
        def first_column(regime: LinearGaussian) -> Any:
            moved = regime.transition_offset
            moved = jnp.zeros(regime.latent_size) if moved is None else moved
            center = regime.emission_matrix @ moved
            center = center if regime.emission_offset is None else center + regime.emission_offset
            spread = regime.emission_matrix @ regime.transition_noise.matrix @ regime.emission_matrix.T
            return center[0], jnp.sqrt((spread + regime.emission_noise.matrix)[0, 0])

        order = ascending(*jax.vmap(first_column)(self.regimes))
        regimes = jax.tree.map(lambda array: array[order], self.regimes)
        return eqx.tree_at(lambda m: (m.chain, m.regimes), self, (self.chain.permuted(jnp.asarray(order)), regimes))

    def start(self, inputs: Inputs) -> Memory:
        return None

    def initial(self, memory: Memory, inputs: Inputs) -> Distribution:
        return self._regimes(self.chain.log_initial, memory, inputs)

    def transition(self, memory: Memory, inputs: Inputs) -> Distribution:
        return self._regimes(self.chain.log_transition[memory.regime], memory, inputs)

    def emission(self, memory: Memory, latent: Latent, inputs: Inputs) -> Distribution:
        regime = self._regime(latent)
        mean, covariance = _predicted(regime, memory, inputs)
        return _observed_distribution(regime, mean, covariance, inputs)

    def advance(self, memory: Memory, latent: Latent, observation: Observation) -> Memory:
        return self.advance_with(memory, latent, observation, None, None)

    def advance_with(
        self,
        memory: Memory,
        latent: Latent,
        observation: Observation,
        observed: Bool[Array, " #dimensions"] | None,
        inputs: Inputs,
    ) -> Memory:
        """Kalman's update by the observed dimensions alone."""
        regime = self._regime(latent)
        mean, covariance = _predicted(regime, memory, inputs)
        mask = jnp.ones(1, bool) if observed is None else observed
        mask = jnp.broadcast_to(mask, (regime.observed_size,))
        posterior = regime.condition(covariance, mask)
        innovation = jnp.where(mask, observation - regime.emission_mean(mean, inputs), 0.0)
        return KalmanMemory(mean + posterior.gain @ innovation, posterior.covariance, latent)

    def _regime(self, index: Int[Array, ""]) -> LinearGaussian:
        return jax.tree.map(lambda array: jnp.asarray(array)[index], self.regimes)

    def _regimes(self, log_probabilities: Float[Array, " regimes"], memory: Memory, inputs: Inputs) -> Regimes:
        def log_likelihoods(
            observation: Observation, observed: Bool[Array, " #dimensions"] | None
        ) -> Float[Array, " regimes"]:
            def of_regime(regime: LinearGaussian) -> Any:
                distribution = _observed_distribution(regime, *_predicted(regime, memory, inputs), inputs)
                return observed_log_prob(distribution, observation, observed)

            return jax.vmap(of_regime)(self.regimes)

        return Regimes(log_probabilities, log_likelihoods)


def _predicted(regime: LinearGaussian, memory: KalmanMemory | None, inputs: Inputs) -> tuple[Array, Array]:
    """The mean and the covariance of s_t before x_t is seen; of the first one where there is no memory yet."""
    if memory is None:
        return regime.initial_mean, regime.initial_noise.matrix
    matrix, noise = regime.dynamics(inputs)
    return regime.transition_mean(memory.mean, inputs), matrix @ memory.covariance @ matrix.T + noise


def _observed_distribution(regime: LinearGaussian, mean: Array, covariance: Array, inputs: Inputs) -> Distribution:
    center = regime.emission_mean(mean, inputs)
    spread = regime.emission_matrix @ covariance @ regime.emission_matrix.T + regime.emission_noise.matrix
    if regime.observed_size == 1:
        return dist.Normal(center, jnp.sqrt(jnp.diagonal(spread))).to_event(1)
    return dist.MultivariateNormal(center, scale_tril=cholesky(spread))
