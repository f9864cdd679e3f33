"""Smoothing expectations without bias, and the unbiased score, from independent pairs of coupled chains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from mcfo.errors import InputError, nearest
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.series import Frame, Series
from mcfo.smc.compatibility import check_arguments, check_instance, check_series, is_positive, whole_number
from mcfo.smc.conditional import ConditionalSMC
from mcfo.smc.coupled import Average, CoupledChains, Pair, advance, start, withheld
from mcfo.smc.trajectory import Trajectory, path_score
from mcfo.types import HostArray, LogWeights

_MOST, _AT_ONCE = 256, 2**21
"""Pairs that go on together, and particles of all their steps."""


class UnbiasedSmoothing(NamedTuple):
    """Means of independent replicates, each unbiased.

    - `estimate`, `standard_error`: of the statistic, with its structure; None where a replicate has not met, because
      without it the mean of the others is biased.
    - `replicates`: each one's value, a new first axis; NaN where the chains have not met.
    - `meeting_times`: of each replicate; 0 where the chains have not met by the limit.
    - `sweeps`: the filters that each took to run.
    - `unmet`: the number of replicates that have not met.
    """

    estimate: Any
    standard_error: Any
    replicates: Any
    meeting_times: Int[np.ndarray, " replicates"]
    sweeps: Int[np.ndarray, " replicates"]
    unmet: int

    def describe(self) -> str:
        """Meeting times and cost in a sentence."""
        count = len(self.meeting_times)
        cost = f"{self.sweeps.mean():.1f} filters a replicate"
        if self.unmet:
            return (
                f"{self.unmet} of {count} pairs of chains had not met by the limit, so that there is no estimate: the "
                f"mean of the others would be biased. Use more particles, or a larger limit ({cost})."
            )
        median, late = np.median(self.meeting_times), np.quantile(self.meeting_times, 0.99, method="higher")
        return f"All {count} pairs of chains met, half of them by sweep {median:g}, 99 % by sweep {late:g}; {cost}."


def unbiased_smoothing(
    model: Model,
    proposal: Proposal,
    series: Series,
    *,
    chains: CoupledChains | None = None,
    statistic: str | Callable[[Array], Any] = "mean",
    replicates: int = 1000,
    seed: int = 0,
) -> UnbiasedSmoothing:
    """Estimate E[h(z_1:T) | x_1:T] without bias, whatever the number of particles, with a standard error.

    Each replicate is the average over two coupled chains of [`CoupledChains`][].

    **Arguments:**

    - `chains`: the sampler and its lengths; by default `CoupledChains(ConditionalSMC(50))`.
    - `statistic`: h. "mean", the states at every step; "score", the derivative of log p(x_1:T) with respect to the
      model, by Fisher's identity; or a function of the path z_1:T, (steps, ...), with finite variance.
    - `replicates`: the number of pairs.
    """
    chains = CoupledChains(ConditionalSMC(50)) if chains is None else chains
    key = jax.random.key(seed)
    check_arguments(model, proposal, key)
    check_series(series)
    check_instance(chains, CoupledChains, "chains", "Use CoupledChains(ConditionalSMC(50)), say")
    if not is_positive(whole_number(replicates)) or replicates < 2:
        raise InputError(f"A standard error needs at least 2 replicates, but got {replicates!r}.")
    if isinstance(statistic, str) and statistic not in _STATISTICS:
        raise InputError(f"There is no statistic {statistic!r}. {nearest(statistic, _STATISTICS)}")
    average = _STATISTICS[statistic] if isinstance(statistic, str) else _OfPath(statistic)
    pair = _all_pairs(chains, model, proposal, series, average, jax.random.split(key, replicates))
    values = jax.tree.map(np.asarray, withheld(pair))
    unmet = int(np.sum(np.asarray(pair.meeting) == 0))
    estimate = error = None
    if not unmet:
        estimate = jax.tree.map(lambda array: array.mean(axis=0), values)
        error = jax.tree.map(lambda array: array.std(axis=0, ddof=1) / replicates**0.5, values)
    return UnbiasedSmoothing(estimate, error, values, np.asarray(pair.meeting), np.asarray(pair.sweeps), unmet)


def _all_pairs(
    chains: CoupledChains, model: Model, proposal: Proposal, series: Series, average: Average, keys: Any
) -> Pair:
    """All pairs, done. Those that are not done go on together, so that none waits for the slowest."""
    setting = chains, model, proposal, series, average
    width = max(1, min(_MOST, _AT_ONCE // (chains.particles * series.steps), len(keys)))
    pairs = _started(*setting, keys, width)
    count = max(8, chains.sweeps)
    while len(left := np.flatnonzero(~np.asarray(chains.is_done(pairs)))):
        # Always as many, so that one program serves all: a pair that is there twice does the same twice.
        pairs = _continued(*setting, pairs, np.resize(left[:width], width), count)
    return pairs


@eqx.filter_jit
def _started(
    chains: CoupledChains, model: Model, proposal: Proposal, series: Series, average: Average, keys: Any, width: int
) -> Pair:
    return jax.lax.map(lambda key: start(chains, model, proposal, series, average, key), keys, batch_size=width)


@eqx.filter_jit
def _continued(
    chains: CoupledChains,
    model: Model,
    proposal: Proposal,
    series: Series,
    average: Average,
    pairs: Pair,
    indices: Int[HostArray, " width"],
    count: int,
) -> Pair:
    """The same with some pairs so many sweeps further, or done."""

    def one(pair: Pair) -> Pair:
        return advance(chains, model, proposal, series, average, pair)

    def body(carry: tuple[Pair, Int[Array, ""]]) -> tuple[Pair, Int[Array, ""]]:
        some, number = carry
        return jax.vmap(one)(some), number + 1

    def goes_on(carry: tuple[Pair, Int[Array, ""]]) -> Array:
        some, number = carry
        return (number < count) & ~jnp.all(chains.is_done(some))

    some = jax.tree.map(lambda array: array[indices], pairs)
    some, _ = jax.lax.while_loop(goes_on, body, (some, jnp.zeros((), jnp.int32)))
    return jax.tree.map(lambda array, new: array.at[indices].set(new), pairs, some)


def _mean(model: Model, steps: Frame, paths: Trajectory, log_weights: LogWeights) -> Array:
    states = jax.vmap(jax.vmap(model.latent_summary))(paths.latents)
    return jnp.einsum("k,tk...->t...", jnp.exp(log_weights), states)


class _OfPath(eqx.Module):
    """The average of a function of the path."""

    function: Callable[[Array], Any] = eqx.field(static=True)

    def __call__(self, model: Model, steps: Frame, paths: Trajectory, log_weights: LogWeights) -> Any:
        values = jax.vmap(self.function, in_axes=1)(paths.latents)
        return jax.tree.map(lambda array: jnp.einsum("k,k...->...", jnp.exp(log_weights), array), values)


_STATISTICS: dict[str, Average] = {"mean": _mean, "score": path_score}
