"""Regimes: the Markov chain that switches between them, and the distribution of the next one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from mcfo.types import Key, Numbers, Observation, Scalar

_LEAST_PROBABILITY = 1e-10
"""Probabilities of zero have no logarithm; a chain is given this one instead."""


class MarkovChain(eqx.Module):
    """P(z_1 = k) = π_k;  P(z_t = j | z_t-1 = i) = A_ij, for K regimes.

    A row of `transition_logits` has the log-odds of each other regime against staying, in the order of the regimes:
    K (K - 1) free numbers, none of them superfluous. `initial_logits` are log-odds against regime 0; without them π is
    the stationary distribution of A.
    """

    transition_logits: Float[Array, "regimes others"]
    initial_logits: Float[Array, " others"] | None
    readable: ClassVar = ("transition_probabilities", "initial_probabilities")

    @classmethod
    def from_probabilities(cls, transition: Numbers, initial: Numbers | None = None) -> MarkovChain:
        """Read A, and π unless it is the stationary distribution."""
        matrix = np.atleast_2d(np.asarray(transition, np.float64))
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(
                f"The transition probabilities have shape {matrix.shape}. Give a square matrix with a row for each "
                "regime."
            )
        _check_probabilities(matrix, "Each row of the transition probabilities")
        count = len(matrix)
        logs = np.log(np.maximum(matrix, _LEAST_PROBABILITY))
        logits = logs - np.diagonal(logs)[:, None]
        others = logits[~np.eye(count, dtype=bool)].reshape(count, count - 1)
        if initial is None:
            return cls(jnp.asarray(others, float), None)
        first = np.asarray(initial, np.float64)
        if first.shape != (count,):
            raise ValueError(f"There are {count} regimes, but the initial probabilities have shape {first.shape}.")
        _check_probabilities(first, "The initial probabilities")
        logs = np.log(np.maximum(first, _LEAST_PROBABILITY))
        return cls(jnp.asarray(others, float), jnp.asarray(logs[1:] - logs[0], float))

    @property
    def count(self) -> int:
        """K."""
        return self.transition_logits.shape[-2]

    @property
    def log_transition(self) -> Float[Array, "regimes regimes"]:
        """log A."""
        given = jnp.asarray(self.transition_logits)
        others = np.nonzero(~np.eye(self.count, dtype=bool))
        logits = jnp.zeros((self.count, self.count), given.dtype).at[others].set(given.ravel())
        return jax.nn.log_softmax(logits, axis=-1)

    @property
    def log_initial(self) -> Float[Array, " regimes"]:
        """log π."""
        if self.initial_logits is None:
            return jnp.log(stationary_distribution(self.transition_probabilities))
        return jax.nn.log_softmax(jnp.pad(jnp.asarray(self.initial_logits), (1, 0)))

    @property
    def transition_probabilities(self) -> Float[Array, "regimes regimes"]:
        """A."""
        return jnp.exp(self.log_transition)

    @property
    def initial_probabilities(self) -> Float[Array, " regimes"]:
        """π."""
        return jnp.exp(self.log_initial)

    def permuted(self, order: Int[Array, " regimes"]) -> MarkovChain:
        """Return the same chain with its regimes in another order."""
        count = self.count
        others = np.nonzero(~np.eye(count, dtype=bool))
        logits = self.log_transition[order][:, order]
        logits = (logits - jnp.diagonal(logits)[:, None])[others].reshape(count, count - 1)
        if self.initial_logits is None:
            return MarkovChain(logits, None)
        initial = self.log_initial[order]
        return MarkovChain(logits, initial[1:] - initial[0])


def stationary_distribution(transition: Float[Array, "regimes regimes"]) -> Float[Array, " regimes"]:
    """Return π with π A = π.

    Regimes are eliminated one by one without a subtraction, so that no digit is lost where a regime hardly ever ends.
    Grassmann, Taksar and Heyman (1985).
    """
    rates = transition
    eliminated = []
    for last in range(len(transition) - 1, 0, -1):
        # How the regimes before the last go on to each other once it is left out, and what they hand to it.
        into = rates[:last, last] / jnp.sum(rates[last, :last])
        rates = rates[:last, :last] + jnp.outer(into, rates[last, :last])
        eliminated.append(into)
    weights = jnp.ones(1, transition.dtype)
    for into in reversed(eliminated):
        weights = jnp.append(weights, weights @ into)
    return weights / jnp.sum(weights)


@dataclass(frozen=True)
class Regimes:
    """The distribution of a regime, 0, ..., K - 1, which knows how each of them would explain the observation.

    - `log_likelihoods`: log p(x_t | z_t = k, past) for each k, from x_t and its mask. With it a proposal can be locally
      optimal, whatever the model: see [`OptimalRegimes`][mcfo.proposals.OptimalRegimes].
    """

    log_probabilities: Float[Array, " regimes"]
    log_likelihoods: Callable[[Observation, Bool[Array, " #dimensions"] | None], Float[Array, " regimes"]]

    def sample(self, key: Key, sample_shape: tuple[int, ...] = ()) -> Int[Array, "*shape"]:
        shape = (*sample_shape, *self.log_probabilities.shape[:-1])
        return jax.random.categorical(key, self.log_probabilities, shape=shape).astype(jnp.int32)

    def log_prob(self, value: Int[Array, ""]) -> Scalar:
        return self.log_probabilities[value]

    def given(self, observation: Observation, observed: Bool[Array, " #dimensions"] | None) -> Regimes:
        """Return p(z_t | past, x_t)."""
        log_joint = self.log_probabilities + self.log_likelihoods(observation, observed)
        # Where no regime can explain the observation, the prior is as good as any.
        possible = jnp.max(log_joint) > -jnp.inf
        log_joint = jnp.where(possible, log_joint, self.log_probabilities)
        return Regimes(jax.nn.log_softmax(log_joint), self.log_likelihoods)


def ascending(location: Any, scale: Any) -> np.ndarray:
    """Return the order of regimes by their locations, or by their scales where those separate them more."""
    location, scale = (np.asarray(values, np.float64) for values in (location, scale))
    apart_in_location = np.ptp(location) / max(float(np.mean(scale)), np.finfo(float).tiny)
    apart_in_scale = np.ptp(np.log(np.maximum(scale, np.finfo(float).tiny)))
    return np.argsort(location if apart_in_location >= apart_in_scale else scale, kind="stable")


def _check_probabilities(values: np.ndarray, name: str) -> None:
    if not (np.isfinite(values).all() and (values >= 0).all() and np.allclose(values.sum(axis=-1), 1.0, atol=1e-6)):
        raise ValueError(f"{name} must be positive and sum to one, but got {values.tolist()}.")
