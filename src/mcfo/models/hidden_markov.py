"""Hidden Markov models: each regime of a Markov chain has its own distribution of the observation."""

from __future__ import annotations

import abc
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float

from mcfo.missing import observed_log_prob
from mcfo.models.autoregression import effect_of
from mcfo.models.base import MarkovModel
from mcfo.models.regimes import MarkovChain, Regimes, ascending
from mcfo.types import Distribution, Inputs, Latent, Memory, Numbers, Observation


class RegimeEmission(eqx.Module):
    """The distributions of x_t in all regimes: each array has a leading axis over them.

    `distribution` is written for one regime, without that axis.
    """

    @abc.abstractmethod
    def distribution(self, inputs: Inputs) -> Distribution:
        """Return p(x_t | u_t) in one regime; the columns are independent."""

    @abc.abstractmethod
    def order(self) -> np.ndarray:
        """Return the regimes in the order in which people number them."""


class GaussianEmission(RegimeEmission):
    """x_t ~ N(μ_k + D_k u_t, σ_k²) in each column, with σ_k² = least² + exp(2 `log_scale`).

    A least standard deviation keeps the likelihood bounded, which otherwise grows without end as one regime contracts
    to a single value.
    """

    mean: Float[Array, "*regimes dimensions"]
    log_scale: Float[Array, "*regimes dimensions"]
    least: Float[Array, "*regimes dimensions"]
    input_weights: Float[Array, "*regimes dimensions inputs"] | None
    readable: ClassVar = ("mean", "standard_deviation", "input_weights")

    def __init__(
        self, mean: Numbers, standard_deviation: Numbers, *, least: Numbers = 0.0, input_weights: Numbers | None = None
    ):
        self.mean = _columns(mean, "mean")
        scale = np.broadcast_to(_columns(standard_deviation, "standard deviation"), self.mean.shape)
        floor = np.broadcast_to(np.asarray(least, np.float64), self.mean.shape)
        if not ((floor >= 0) & (scale > floor)).all():
            raise ValueError(
                f"Every standard deviation must exceed the least one, {floor.ravel()[0]:g}, but got {scale.tolist()}."
            )
        self.log_scale = jnp.asarray(0.5 * np.log(np.square(scale, dtype=np.float64) - floor**2), float)
        self.least = jnp.asarray(floor, float)
        self.input_weights = _weights(input_weights, self.mean)

    @property
    def standard_deviation(self) -> Float[Array, "*regimes dimensions"]:
        """σ_k."""
        return jnp.sqrt(self.least**2 + jnp.exp(2 * self.log_scale))

    def distribution(self, inputs: Inputs) -> Distribution:
        return dist.Normal(_moved(self.mean, self.input_weights, inputs), self.standard_deviation).to_event(1)

    def order(self) -> np.ndarray:
        return ascending(self.mean[:, 0], self.standard_deviation[:, 0])


class PoissonEmission(RegimeEmission):
    """x_t ~ Poisson(exp(`log_rate`_k + D_k u_t)) in each column."""

    log_rate: Float[Array, "*regimes dimensions"]
    input_weights: Float[Array, "*regimes dimensions inputs"] | None
    readable: ClassVar = ("rate", "input_weights")

    def __init__(self, rate: Numbers, *, input_weights: Numbers | None = None):
        rates = _columns(rate, "rate")
        if not (np.asarray(rates) > 0).all():
            raise ValueError(f"Every rate must be positive, but got {rates.tolist()}.")
        self.log_rate = jnp.log(rates)
        self.input_weights = _weights(input_weights, rates)

    @property
    def rate(self) -> Float[Array, "*regimes dimensions"]:
        """The mean count without inputs."""
        return jnp.exp(self.log_rate)

    def distribution(self, inputs: Inputs) -> Distribution:
        return dist.Poisson(jnp.exp(_moved(self.log_rate, self.input_weights, inputs))).to_event(1)

    def order(self) -> np.ndarray:
        return np.argsort(np.asarray(self.log_rate[:, 0]), kind="stable")


class CategoricalEmission(RegimeEmission):
    """x_t is one of the categories 0, ..., C - 1 in each column; `logits` are log-odds against category 0."""

    logits: Float[Array, "*regimes dimensions others"]
    readable: ClassVar = ("probabilities",)

    def __init__(self, probabilities: Numbers):
        table = np.asarray(probabilities, np.float64)
        if table.ndim == 2:
            table = table[:, None]
        valid = table.ndim == 3 and table.shape[-1] > 1 and (table > 0).all()
        if not (valid and np.allclose(table.sum(axis=-1), 1.0, atol=1e-6)):
            raise ValueError(
                "The probabilities of the categories must be positive and sum to one, with shape (regimes, categories) "
                f"or (regimes, dimensions, categories), but got shape {table.shape}: {table.tolist()}."
            )
        logs = np.log(table)
        self.logits = jnp.asarray(logs[..., 1:] - logs[..., :1], float)

    @property
    def probabilities(self) -> Float[Array, "*regimes dimensions categories"]:
        """The probabilities of the categories."""
        return jax.nn.softmax(_with_reference(self.logits), axis=-1)

    def distribution(self, inputs: Inputs) -> Distribution:
        return Categories(_with_reference(self.logits)).to_event(1)

    def order(self) -> np.ndarray:
        codes = np.arange(self.logits.shape[-1] + 1)
        return np.argsort(np.asarray(self.probabilities[:, 0]) @ codes, kind="stable")


class Categories(dist.CategoricalLogits):
    """A categorical distribution whose values may be stored as real numbers, as those of a series with gaps are.

    Its mean is that of the codes 0, 1, ..., which says something of ordered categories alone.
    """

    def log_prob(self, value: Any) -> Any:
        return super().log_prob(jnp.asarray(value).astype(jnp.int32))

    def cdf(self, value: Any) -> Any:
        probabilities, codes = self._table()
        return jnp.sum(jnp.where(codes <= jnp.asarray(value)[..., None], probabilities, 0.0), axis=-1)

    @property
    def mean(self) -> Any:
        probabilities, codes = self._table()
        return probabilities @ codes

    @property
    def variance(self) -> Any:
        probabilities, codes = self._table()
        return jnp.sum((codes - self.mean[..., None]) ** 2 * probabilities, axis=-1)

    def _table(self) -> tuple[Array, Array]:
        logits: Any = self.logits
        probabilities = jax.nn.softmax(logits, axis=-1)
        return probabilities, jnp.arange(probabilities.shape[-1], dtype=probabilities.dtype)


class HiddenMarkov(MarkovModel):
    """z_t is one of K regimes of a Markov chain, x_t has the distribution of its regime.

    The likelihood, the filter and the smoother are exact: see `mcfo.forward_algorithm`. A transition matrix with equal
    rows makes it a mixture. Rabiner (1989).
    """

    chain: MarkovChain
    emissions: RegimeEmission

    def __init__(
        self,
        emissions: RegimeEmission,
        *,
        transition_probabilities: Numbers,
        initial_probabilities: Numbers | None = None,
    ):
        self.chain = MarkovChain.from_probabilities(transition_probabilities, initial_probabilities)
        self.emissions = emissions

    def __check_init__(self):
        count = {len(leaf) for leaf in jax.tree.leaves(self.emissions)}
        if count != {self.chain.count}:
            raise ValueError(
                f"The chain has {self.chain.count} regimes, but the emissions have {sorted(count)}. Give them the same "
                "number."
            )

    @property
    def finite_states(self) -> int:
        return self.chain.count

    @property
    def latent_names(self) -> tuple[str, ...]:
        return tuple(f"regime {number + 1}" for number in range(self.finite_states))

    def latent_summary(self, latent: Latent) -> Float[Array, " regimes"]:
        return jax.nn.one_hot(latent, self.finite_states)

    def canonical(self) -> HiddenMarkov:
        order = self.emissions.order()
        emissions = jax.tree.map(lambda array: array[order], self.emissions)
        return eqx.tree_at(lambda m: (m.chain, m.emissions), self, (self.chain.permuted(jnp.asarray(order)), emissions))

    def initial(self, memory: Memory, inputs: Inputs) -> Distribution:
        return self._regimes(self.chain.log_initial, inputs)

    def transition(self, memory: Memory, inputs: Inputs) -> Distribution:
        return self._regimes(self.chain.log_transition[memory], inputs)

    def emission(self, memory: Memory, latent: Latent, inputs: Inputs) -> Distribution:
        # By jnp: the arrays of an exact fit are numpy's, which a tracer cannot index.
        return jax.tree.map(lambda array: jnp.asarray(array)[latent], self.emissions).distribution(inputs)

    def _regimes(self, log_probabilities: Float[Array, " regimes"], inputs: Inputs) -> Regimes:
        def log_likelihoods(
            observation: Observation, observed: Bool[Array, " #dimensions"] | None
        ) -> Float[Array, " regimes"]:
            def of_regime(emission: RegimeEmission) -> Any:
                return observed_log_prob(emission.distribution(inputs), observation, observed)

            return jax.vmap(of_regime)(self.emissions)

        return Regimes(log_probabilities, log_likelihoods)


def _columns(values: Numbers, name: str) -> Float[Array, "regimes dimensions"]:
    table = jnp.asarray(values, float)
    table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2:
        raise ValueError(f"The {name} has shape {table.shape}, but (regimes, dimensions) is wanted.")
    return table


def _weights(weights: Numbers | None, like: Array) -> Float[Array, "regimes dimensions inputs"] | None:
    if weights is None:
        return None
    table = jnp.asarray(weights, float)
    if table.ndim != 3 or table.shape[:2] != like.shape:
        raise ValueError(f"The input weights have shape {table.shape}, but (*{like.shape}, inputs) is wanted.")
    return table


def _moved(center: Array, weights: Array | None, inputs: Inputs) -> Array:
    effect = effect_of(weights, inputs, timed=False)
    return center if effect is None else center + effect


def _with_reference(logits: Float[Array, "*others"]) -> Float[Array, "*all"]:
    return jnp.concatenate([jnp.zeros_like(logits[..., :1]), logits], axis=-1)
