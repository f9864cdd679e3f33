"""Streams: a filter that takes one observation at a time, in constant memory, and learns from it if asked to.

    state = online.init(model, proposal, key=jax.random.key(0), particles=1000)
    for x in stream:
        state, output = online.step(state, x)

The program is compiled once. A state is a pytree of arrays of constant shapes: it can be scanned over, and restoring a
saved one is bit-identical. With the same key the numbers are those of `SMC(particles)` over the whole series.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from mcfo.errors import InputError, PartlyMissingError
from mcfo.inference.quantiles import LEVELS, Summary, check_levels
from mcfo.learning.parameters import Modules, split
from mcfo.learning.recent_steps import RecentSteps, StepRow
from mcfo.learning.stream_settings import Learning
from mcfo.learning.stream_updates import StreamLanes, lagged_gradient, row_frame, step_gradient, updated
from mcfo.learning.tangent_filter import TangentFilter
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.series import Series
from mcfo.smc.compatibility import check_arguments, check_fit
from mcfo.smc.filter import SMC
from mcfo.smc.noise import step_randomness
from mcfo.smc.step import Outcome, take_step
from mcfo.smc.step_scan import frames
from mcfo.smc.trace import Record
from mcfo.smc.trace import State as FilterState
from mcfo.types import Ancestors, Key, Scalar, is_known


class State(eqx.Module):
    """The state of a stream after a step: all that the next one needs besides the observation.

    - `recent`: the last steps, where a rule looks back.
    - `tangent`: the Kalman filter with its derivatives, where the score is exact.
    - `time`: the number of steps so far.
    - `skipped`: the number of updates that were skipped because they were not finite.
    - `refused`: the number of observations that were taken as missing because they made the filter collapse.
    """

    modules: Modules
    filter: FilterState
    recent: RecentSteps | None
    tangent: TangentFilter | None
    time: Int[Array, ""]
    key: Key
    optimizer: Any
    skipped: Int[Array, ""]
    refused: Int[Array, ""]
    sampler: SMC
    levels: tuple[float, ...] = eqx.field(static=True)
    learning: Learning | None = eqx.field(static=True)
    dimensions: int = eqx.field(static=True)
    apart: bool = eqx.field(static=True)
    plain: bool = eqx.field(static=True)

    @property
    def model(self) -> Model:
        """The model with its current parameters."""
        return self.modules.model

    @property
    def proposal(self) -> Proposal:
        """The proposal with its current parameters."""
        return self.modules.proposal


class Output(eqx.Module):
    """The output of one step: mean and quantiles of p(z_t | x_1:t), the effective sample size, log p(x_t | x_1:t-1).

    `refused` is True where learning took the observation as missing, because the filter collapsed with it; then only
    `log_predictive` is about the observation.
    """

    mean: Float[Array, " latent"]
    quantiles: Float[Array, "levels latent"]
    ess: Scalar
    log_predictive: Scalar
    refused: Bool[Array, ""]


class _Attempt(NamedTuple):
    """A step of the filter as it was tried: with the observation, or as if it had been missing."""

    filter: FilterState
    record: Record
    stored: StepRow | None
    ancestors: Ancestors | None
    gradient: Any


def init(
    model: Model,
    proposal: Proposal,
    *,
    key: Key,
    particles: int = 1000,
    sampler: SMC | None = None,
    levels: Sequence[float] = LEVELS,
    learning: Learning | None = None,
    inputs: int | None = None,
) -> State:
    """Return the state before the first observation.

    **Arguments:**

    - `particles`: the number of particles; a `sampler` has its own.
    - `levels`: the levels of the quantiles.
    - `learning`: how to learn; by default nothing is learned.
    - `inputs`: how many inputs come with each observation, for a model that takes them.
    """
    check_arguments(model, proposal, key)
    sampler = SMC(particles) if sampler is None else sampler
    modules = Modules.learned_by(model, proposal, () if learning is None else learning.fixed)
    example = None if inputs is None else jnp.ones(inputs)  # positive, since the first may be a time difference
    dimensions = _dimensions(model, example)
    _check_local(proposal, dimensions, example)
    optimizer, tangent, longest = None, None, 0
    if learning is not None:
        learning = learning.resolved(model, proposal)
        series = _row(jnp.zeros(dimensions), jnp.ones(1, bool), example, jnp.zeros((), jnp.int32))
        learning.objective(sampler).check(model, proposal, series)
        learned, rest = split(modules, learning.fixed)
        if not jax.tree.leaves(learned):
            raise InputError("Nothing is left to learn: every parameter is fixed. Fix fewer of them.")
        longest = StreamLanes.of(learning, sampler, modules).longest
        if learning.exact and jax.tree.leaves(learned.model):
            tangent = TangentFilter.start(learned.model, rest.model, series)
        optimizer = learning.transformation().init(learned)  # pyright: ignore[reportArgumentType]

    def first_step(key: Key, apart: bool) -> tuple[FilterState, StepRow]:
        mask = jnp.ones(dimensions if apart else 1, bool)
        row = _row(jnp.zeros(dimensions), mask, example, jnp.zeros((), jnp.int32))
        frame = row_frame(proposal, row)
        fit = check_fit(model, proposal, frame)
        randomness = step_randomness(sampler, fit.initial, None, key, frame)
        outcome = take_step(sampler, model, proposal, None, frame, randomness)
        return outcome.state, StepRow.of(row, outcome.draw, outcome.state.memory, jnp.any(mask))

    try:
        shapes, apart = eqx.filter_eval_shape(first_step, key, True), True
    except PartlyMissingError:
        shapes, apart = eqx.filter_eval_shape(first_step, key, False), False
    empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes[0])
    recent = RecentSteps.empty(longest, shapes[1], sampler.particles) if longest else None
    zero = jnp.zeros((), jnp.int32)
    return State(
        modules,
        empty,
        recent,
        tangent,
        zero,
        key,
        optimizer,
        zero,
        zero,
        sampler,
        check_levels(levels),
        learning,
        dimensions,
        apart,
        plain=all(map(eqx.is_array, jax.tree.leaves((modules, sampler, optimizer)))),
    )


def step(state: State, x: Any, *, inputs: Any = None) -> tuple[State, Output]:
    """Process one observation: a number, or one for each dimension; None or NaN where it is missing."""
    # Where every leaf is an array, JAX's own dispatch is possible, which is half a millisecond faster.
    run = _compiled if state.plain else _compiled_among_others
    return run(state, _read(state, x), None if inputs is None else jnp.asarray(inputs, float))


def _read(state: State, x: Any) -> Any:
    if not is_known(x):
        return jnp.reshape(jnp.asarray(x, float), (state.dimensions,))
    values = np.atleast_1d(np.asarray(x, dtype=float))
    if x is None:
        values = np.full(state.dimensions, np.nan)
    if values.shape != (state.dimensions,):
        raise InputError(f"An observation has shape {values.shape}, but {(state.dimensions,)} is wanted.")
    if np.isinf(values).any():
        raise InputError("An observation is infinite. Write NaN or None for what is missing.")
    missing = np.isnan(values)
    if not state.apart and missing.any() and not missing.all():
        raise InputError(
            "Some dimensions of the observation are missing, which this model's emission cannot leave out. Leave out "
            "all of them, or use an emission that factorizes."
        )
    return values


def _advanced(state: State, values: Float[Array, " dimensions"], inputs: Any) -> tuple[State, Output]:
    observed = ~jnp.isnan(values)
    mask = observed if state.apart else jnp.all(observed)[None]
    values = jnp.where(observed, values, 0.0)
    if state.learning is None:
        attempt, log_predictive, refused = _attempted(state, values, mask, inputs), None, jnp.zeros((), bool)
    else:
        attempt, log_predictive, refused = _unless_it_collapses(state, state.learning, values, mask, inputs)
    levels = jnp.asarray(state.levels, float)
    latents = jax.vmap(state.model.latent_summary)(attempt.filter.latents)
    summary = Summary.of(latents, attempt.filter.log_weights, levels)
    record = attempt.record
    log_predictive = record.log_evidence if log_predictive is None else log_predictive
    output = Output(summary.mean, summary.quantiles, record.ess, log_predictive, refused)
    later = state
    if state.learning is not None:
        row = _row(values, mask & ~refused, inputs, state.time)
        later = _learned(state, state.learning, attempt, row)
    counts = state.time + 1, state.refused + refused
    return eqx.tree_at(lambda s: (s.filter, s.time, s.refused), later, (attempt.filter, *counts)), output


_compiled = jax.jit(_advanced)
_compiled_among_others = eqx.filter_jit(_advanced)


def _attempted(state: State, values: Array, mask: Array, inputs: Any) -> _Attempt:
    """Take a step of the filter, with the gradient of the rules that look at this step alone."""
    model, proposal, key, learning = state.model, state.proposal, state.key, state.learning
    row = _row(values, mask, inputs, state.time)
    frame = row_frame(proposal, row)
    fit = check_fit(model, proposal, frame)

    def after(outcome: Outcome, first: bool) -> _Attempt:
        if learning is None:
            return _Attempt(outcome.state, outcome.record, None, None, None)
        lanes = StreamLanes.of(learning, state.sampler, state.modules).present
        gradient = step_gradient(lanes, state.modules, learning.fixed, row, outcome.draw, key=key, first=first)
        if state.recent is None:
            return _Attempt(outcome.state, outcome.record, None, None, gradient)
        stored = StepRow.of(row, outcome.draw, state.filter.memory, jnp.any(mask))
        return _Attempt(outcome.state, outcome.record, stored, outcome.draw.ancestors, gradient)

    def first_outcome() -> _Attempt:
        randomness = step_randomness(state.sampler, fit.initial, None, key, frame)
        return after(take_step(state.sampler, model, proposal, None, frame, randomness), True)

    def next_outcome() -> _Attempt:
        dtype = state.filter.log_weights.dtype
        randomness = step_randomness(state.sampler, fit.step, dtype, key, frame)
        return after(take_step(state.sampler, model, proposal, state.filter, frame, randomness), False)

    return jax.lax.cond(state.time == 0, first_outcome, next_outcome)


def _unless_it_collapses(
    state: State, learning: Learning, values: Array, mask: Array, inputs: Any
) -> tuple[_Attempt, Scalar, Bool[Array, ""]]:
    """Take a step; if the filter collapses with the observation, take it again as if it had been missing.

    Return the last attempt, the log-density of the observation, and whether it was refused.
    """
    dimensions = jnp.sum(mask) if state.apart else state.dimensions
    least = learning.refuse_below * dimensions

    def attempt(mask: Array) -> _Attempt:
        return _attempted(state, values, mask, inputs)

    def body(carry: Any) -> Any:
        _, refused, log_predictive, mask, _ = carry
        latest = attempt(mask)
        found = latest.record.log_evidence
        collapsed = ~refused & jnp.any(mask) & ~(found > least)
        # A loop, not a condition: the step is compiled once.
        return collapsed, collapsed | refused, jnp.where(refused, log_predictive, found), mask & ~collapsed, latest

    shapes = jax.eval_shape(attempt, mask)
    empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    start = jnp.ones((), bool), jnp.zeros((), bool), jnp.zeros_like(empty.record.log_evidence), mask, empty
    _, refused, log_predictive, _, last = jax.lax.while_loop(lambda carry: carry[0], body, start)
    return last, log_predictive, refused


def _learned(state: State, learning: Learning, attempt: _Attempt, row: Series) -> State:
    """Return the state after an update by the present step, and by an earlier one where a rule has a lag."""
    gradient, recent, tangent, modules = attempt.gradient, state.recent, state.tangent, state.modules
    observed = jnp.any(row.mask())
    if tangent is not None:
        learned, rest = split(modules, learning.fixed)
        tangent, score = tangent.step(learned.model, rest.model, row, state.time == 0)
        gradient = eqx.tree_at(lambda g: g.model, gradient, jax.tree.map(jnp.negative, score))
    if recent is not None:
        assert attempt.stored is not None
        assert attempt.ancestors is not None
        recent = recent.push(state.time, attempt.stored, attempt.ancestors)
        for lane, lag in StreamLanes.of(learning, state.sampler, modules).lagged:
            weights = attempt.filter.log_weights
            earlier = lagged_gradient(lane, lag, modules, learning.fixed, recent, weights, state.time, key=state.key)
            gradient = jax.tree.map(jnp.add, gradient, earlier)
        # A step without observations still shows what those before it were; after a gap longer than the lag there is
        # only noise to learn from.
        observed = recent.any_observed
    wanted = observed & attempt.record.finite
    modules, optimizer, skipped = updated(modules, state.optimizer, gradient, learning, wanted)
    return eqx.tree_at(
        lambda s: (s.modules, s.optimizer, s.recent, s.tangent, s.skipped),
        state,
        (modules, optimizer, recent, tangent, state.skipped + skipped),
        is_leaf=lambda leaf: leaf is None,
    )


def _row(values: Array, mask: Array, inputs: Any, time: Int[Array, ""]) -> Series:
    """Return a series of one step."""
    rows = None if inputs is None else inputs[None]
    return Series(values[None], mask[None], rows, None, jnp.zeros((), jnp.int32), time)


def _dimensions(model: Model, inputs: Any) -> int:
    """Return the number of observed dimensions, which is that of the model's emission."""

    def draw(model: Model, key: Key) -> Array:
        memory = model.start(inputs)
        latent = model.initial(memory, inputs).sample(key)
        return model.emission(memory, latent, inputs).sample(key)

    return int(np.prod(eqx.filter_eval_shape(draw, model, jax.random.key(0)).shape))


def _check_local(proposal: Proposal, dimensions: int, inputs: Any) -> None:
    """Refuse a proposal that reads other steps than its own: a stream has none."""
    # The middle row differs from its neighbors; zeros and ones are values of every common emission.
    rows = jnp.tile(jnp.array([[0.0], [1.0], [0.0]]), (1, dimensions))
    several = None if inputs is None else jnp.ones((3, len(inputs)))
    zero = jnp.zeros((), jnp.int32)
    whole = frames(proposal, Series(rows, jnp.ones((3, 1), bool), several, None, zero, zero)).context
    alone = row_frame(proposal, _row(rows[1], jnp.ones(1, bool), inputs, zero)).context
    same = jax.tree.map(lambda all_of_them, one: jnp.allclose(all_of_them[1], one, rtol=1e-3, atol=1e-5), whole, alone)
    if not all(bool(one) for one in jax.tree.leaves(same)):
        raise InputError(
            f"{type(proposal).__name__} reads other steps than its own, but a stream has none. Use Bootstrap(), "
            "or a proposal whose encode() reads each step alone."
        )
