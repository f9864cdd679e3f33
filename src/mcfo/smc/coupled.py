"""Coupled chains: two lagged chains over trajectories that meet, and what is unbiased for the smoothing law by them.

Let X and Y be chains with the smoothing law π as stationary law, Y_l distributed as X_l, and the pair (X_l, Y_l-1)
coupled so that the two meet at a time τ and then stay together. For every burn-in k and length m >= k

    H = 1/(m-k+1) Σ_{l=k}^{m} h(X_l) + Σ_{l=k+1}^{τ} min(1, (l-k)/(m-k+1)) (h(X_l) - h(Y_l-1))

has the expectation π(h): the first sum is a chain's average, the second takes off its bias. Jacob, O'Leary and Atchadé
(2020). Here h is averaged over all particles of a sweep, weighted, instead of the one trajectory that the chain goes on
with; the mean is the same, the variance is less.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.series import Frame, Series
from mcfo.smc.compatibility import check_instance, is_positive, whole_number
from mcfo.smc.conditional import ConditionalSMC, Sweep
from mcfo.smc.filter import SMC
from mcfo.smc.noise import typed, uniform
from mcfo.smc.resampling import Conditional, Multinomial, pick
from mcfo.smc.step_scan import frames
from mcfo.smc.trace import Record
from mcfo.smc.trajectory import Trajectory
from mcfo.types import Ancestors, Key, LogWeights, Scalar

_PAIR = "mcfo.pair"
"""The name of the axis of two coupled chains."""
_ROUNDING = 2.0**10
"""Trajectories that differ by so many units of rounding are the same: elementwise operations may round otherwise for
one of the two."""

Average = Callable[[Model, Frame, Trajectory, LogWeights], Any]
"""An average of a function h of the path over weighted paths, (steps, particles, ...)."""


class CoupledChains(eqx.Module):
    """Two lagged chains that meet, and an average that is unbiased for every K, burn-in and length.

    **Arguments:**

    - `sampler`: an [`SMC`][] makes them chains of particle independent Metropolis-Hastings that share all proposals and
      meet when both accept one (Middleton, Deligiannidis, Doucet and Jacob, 2019): K such that log p̂ has a variance
      near one, so K grows with T. A [`ConditionalSMC`][] makes them chains of conditional SMC that share the noise and
      whose ancestors are drawn from a maximal coupling, index by index (Jacob, Lindsten and Schön, 2020); its
      resampling is multinomial.
    - `burn_in`: k; beyond most meeting times the second sum is rarely needed.
    - `sweeps`: m, the last sweep of the average.
    - `limit`: the number of sweeps after which chains that have not met are given up. Their average is NaN: to drop
      them would be biased.
    """

    sampler: SMC | ConditionalSMC
    burn_in: int = eqx.field(static=True, default=10, converter=whole_number)
    sweeps: int = eqx.field(static=True, default=50, converter=whole_number)
    limit: int = eqx.field(static=True, default=10_000, converter=whole_number)

    def __check_init__(self):
        if not isinstance(self.sampler, ConditionalSMC):
            check_instance(self.sampler, SMC, "sampler", "Use CoupledChains(ConditionalSMC(50)), or an SMC for PIMH")
        elif self.sampler.sampling == "backward":
            raise ValueError("Coupled chains average over the filter's own paths. Use sampling='ancestors'.")
        elif self.sampler.lag is not None:
            raise ValueError(
                "Truncated ancestor sampling is approximate: nothing is unbiased by it. Leave out the lag."
            )
        if self.sampler.particles < 2:
            raise ValueError("Coupled chains need at least 2 particles. Use CoupledChains(SMC(100)), say.")
        if not (is_positive(self.sweeps) and isinstance(self.burn_in, int) and 0 <= self.burn_in <= self.sweeps):
            raise ValueError(
                f"The average begins with sweep burn_in and ends with sweep sweeps, 0 <= burn_in <= sweeps, but got "
                f"{self.burn_in!r} and {self.sweeps!r}."
            )
        if not is_positive(self.limit) or self.limit < self.sweeps:
            raise ValueError(f"The limit is at least sweeps, {self.sweeps}, but got {self.limit!r}.")

    @property
    def particles(self) -> int:
        return self.sampler.particles

    def is_done(self, pair: Pair) -> Bool[Array, "*replicates"]:
        """Whether the average is complete, or given up."""
        return (pair.meeting > 0) & (pair.time >= self.sweeps) | (pair.time >= self.limit)


class Pair(eqx.Module):
    """Where two coupled chains stand.

    - `first`, `second`: X_l and Y_l-1.
    - `time`: l; `meeting`: τ, or 0 before they have met.
    - `total`: H so far.
    - `sweeps`: how many runs over the series they took.
    - `log_evidence`, `record`: of the filter that found X_0.
    """

    first: Any
    second: Any
    time: Int[Array, "*replicates"]
    meeting: Int[Array, "*replicates"]
    total: Any
    sweeps: Int[Array, "*replicates"]
    log_evidence: Float[Array, "*replicates"]
    record: Record
    key: Key


class _Independent(NamedTuple):
    """A state of a PIMH chain: which sweep it is, log p̂ and the average over its particles."""

    number: Int[Array, ""]
    log_evidence: Scalar
    average: Any


class Coupled(Conditional):
    """Multinomial resampling given one ancestor, coupled with that of another chain: equal indices have equal ancestors
    as often as two marginal laws allow. The reference has the index 0."""

    ascending: ClassVar[bool] = False

    def numbers(self, particles: int, dtype: Any, *, key: Key) -> Any:
        drawn = uniform(key, (particles + 1, 3), dtype)
        return drawn[:-1], drawn[-1]

    def choose(self, log_weights: LogWeights, numbers: Any) -> Int[Array, ""]:
        return _maximally_coupled(log_weights, numbers[1][None])[0]

    def given(self, log_weights: LogWeights, numbers: Any, parent: Int[Array, ""]) -> tuple[Ancestors, Int[Array, ""]]:
        return _maximally_coupled(log_weights, numbers[0]).at[0].set(parent), jnp.zeros((), jnp.int32)


def _maximally_coupled(log_weights: LogWeights, uniforms: Float[Array, "count 3"]) -> Int[Array, " count"]:
    """Draws from this chain's weights that equal those of the other chain with the largest probability."""
    weights = jnp.exp(jax.lax.all_gather(log_weights, _PAIR))
    common = jnp.min(weights, axis=0)
    # Exactly one for equal weights: chains that have met stay together.
    overlap = jnp.sum(common) / jnp.max(jnp.sum(weights, axis=1))
    rest = weights[jax.lax.axis_index(_PAIR)] - common

    def draw(own: Float[Array, "3"]) -> Int[Array, ""]:
        return jnp.where(own[0] < overlap, pick(common, own[1]), pick(rest, own[2]))

    return jax.vmap(draw)(uniforms)


def start(chains: CoupledChains, model: Model, proposal: Proposal, series: Series, average: Average, key: Key) -> Pair:
    """X_0, X_1 and Y_0."""
    begin, second, later, own = jax.random.split(typed(key), 4)
    steps = frames(proposal, series)
    sampler = chains.sampler

    def measured(sweep: Sweep) -> Any:
        return average(model, steps, sweep.paths, sweep.trace.state.log_weights)

    if isinstance(sampler, SMC):
        initial, found = _propose(sampler, model, proposal, series, average, begin, 0)
        candidate, _ = _propose(sampler, model, proposal, series, average, second, 1)
        first, other = _accept(initial, candidate, later), candidate
        values, trace = (initial.average, first.average, candidate.average), found.trace
        met, count = first.number == candidate.number, 2
    else:
        sampler = eqx.tree_at(lambda s: s.resampling, sampler, Multinomial())
        sweep = sampler(model, proposal, series, None, key=begin)
        after = sampler(model, proposal, series, sweep.trajectory, key=later)
        lagged = sampler(model, proposal, series, None, key=second)
        first, other = after.trajectory, lagged.trajectory
        values, trace = (measured(sweep), measured(after), measured(lagged)), sweep.trace
        met, count = _are_equal(first, other), 3
    one = jnp.ones((), jnp.int32)
    total = jax.tree.map(lambda value: _share(chains, jnp.zeros((), jnp.int32)) * value, values[0])
    return Pair(
        first=first,
        second=other,
        time=one,
        meeting=met.astype(jnp.int32),
        total=_added(chains, total, one, values[1], values[2]),
        sweeps=jnp.asarray(count, jnp.int32),
        log_evidence=trace.log_evidence,
        record=trace.record,
        key=own,
    )


def advance(
    chains: CoupledChains, model: Model, proposal: Proposal, series: Series, average: Average, pair: Pair
) -> Pair:
    """One more sweep of both chains; nothing where they are done."""
    time = pair.time + 1
    key = jax.random.fold_in(pair.key, time)
    met, sampler = pair.meeting > 0, chains.sampler
    if isinstance(sampler, SMC):
        propose, accept = jax.random.split(key)
        candidate, _ = _propose(sampler, model, proposal, series, average, propose, time)
        first, second = (_accept(state, candidate, accept) for state in (pair.first, pair.second))
        values, meets, count = (first.average, second.average), first.number == second.number, 1
    else:
        coupled = eqx.tree_at(lambda s: s.resampling, sampler, Coupled(Multinomial()))
        both = jax.tree.map(lambda one, other: jnp.stack([one, other]), pair.first, pair.second)
        sweeps = jax.vmap(lambda path: coupled(model, proposal, series, path, key=key), axis_name=_PAIR)(both)
        steps = frames(proposal, series)
        found = jax.vmap(lambda sweep: average(model, steps, sweep.paths, sweep.trace.state.log_weights))(sweeps)
        first, second = _halves(sweeps.trajectory)
        values, meets, count = _halves(found), _are_equal(first, second), 2
    # Beyond the meeting the difference is zero, but for rounding.
    lagged = jax.tree.map(lambda one, other: jnp.where(met, one, other), *values)
    after = Pair(
        first=first,
        second=second,
        time=time,
        meeting=jnp.where(met, pair.meeting, jnp.where(meets, time, 0)),
        total=_added(chains, pair.total, time, values[0], lagged),
        sweeps=pair.sweeps + count,
        log_evidence=pair.log_evidence,
        record=pair.record,
        key=pair.key,
    )
    done = chains.is_done(pair)
    return jax.tree.map(lambda old, new: jnp.where(done, old, new), pair, after)


def complete(
    chains: CoupledChains, model: Model, proposal: Proposal, series: Series, average: Average, pair: Pair
) -> Pair:
    """The chains when they are done, with NaN for the average if they have not met."""

    def body(pair: Pair) -> Pair:
        return advance(chains, model, proposal, series, average, pair)

    pair = jax.lax.while_loop(lambda pair: ~chains.is_done(pair), body, pair)
    return eqx.tree_at(lambda p: p.total, pair, withheld(pair))


def withheld(pair: Pair) -> Any:
    """H of chains that have met, NaN of others."""

    def of_leaf(total: Float[Array, "..."]) -> Float[Array, "..."]:
        met = (pair.meeting > 0).reshape(*pair.meeting.shape, *[1] * (total.ndim - pair.meeting.ndim))
        return jnp.where(met, total, jnp.nan)

    return jax.tree.map(of_leaf, pair.total)


def _propose(
    sampler: SMC, model: Model, proposal: Proposal, series: Series, average: Average, key: Key, number: Any
) -> tuple[_Independent, Sweep]:
    """A sweep of an ordinary filter, as a chain of PIMH proposes it."""
    filtering = ConditionalSMC(sampler.particles, sampler.resampling, sampler.criterion, sampling="none")
    sweep = filtering(model, proposal, series, None, key=key)
    value = average(model, frames(proposal, series), sweep.paths, sweep.trace.state.log_weights)
    return _Independent(jnp.asarray(number, jnp.int32), sweep.trace.log_evidence, value), sweep


def _accept(state: _Independent, candidate: _Independent, key: Key) -> _Independent:
    old, new = (jnp.where(jnp.isnan(one), -jnp.inf, one) for one in (state.log_evidence, candidate.log_evidence))
    log_uniform = -jax.random.exponential(key, (), new.dtype)
    moves = (log_uniform < new - old) | jnp.isneginf(old)
    return jax.tree.map(lambda one, other: jnp.where(moves, one, other), candidate, state)


def _share(chains: CoupledChains, time: Int[Array, ""]) -> Float[Array, ""]:
    within = (time >= chains.burn_in) & (time <= chains.sweeps)
    return within / (chains.sweeps - chains.burn_in + 1.0)


def _added(chains: CoupledChains, total: Any, time: Int[Array, ""], first: Any, lagged: Any) -> Any:
    """H with the terms of one more time."""
    direct = _share(chains, time)
    correction = jnp.clip((time - chains.burn_in) / (chains.sweeps - chains.burn_in + 1.0), 0.0, 1.0)

    def of_leaf(total: Any, one: Any, other: Any) -> Any:
        return (total + direct * one + correction * (one - other)).astype(jnp.result_type(total))

    return jax.tree.map(of_leaf, total, first, lagged)


def _halves(tree: Any) -> tuple[Any, Any]:
    first, second = (jax.tree.map(lambda array, at=at: array[at], tree) for at in (0, 1))
    return first, second


def _are_equal(first: Trajectory, second: Trajectory) -> Bool[Array, ""]:
    def of_leaf(one: Array, other: Array) -> Bool[Array, ""]:
        if not jnp.issubdtype(one.dtype, jnp.floating):
            return jnp.all(one == other)
        return jnp.all(jnp.abs(one - other) <= _ROUNDING * jnp.finfo(one.dtype).eps * (1 + jnp.abs(one)))

    return jnp.all(jnp.stack(jax.tree.leaves(jax.tree.map(of_leaf, first, second))))
