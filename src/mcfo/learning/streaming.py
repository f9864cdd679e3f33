"""Streams: a filter that takes one observation at a time, in constant memory, and learns from it if asked to.

    state = online.init(model, proposal, key=jax.random.key(0), particles=1000)
    for x in stream:
        state, output = online.step(state, x)

The program is compiled once. A state is a pytree of arrays of constant shapes: it can be scanned over, and restoring a
saved one is bit-identical. With the same key the numbers are those of `SMC(particles)` over the whole series.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int

from mcfo.data.npz import load_arrays, write_npz
from mcfo.errors import InputError, PartlyMissingError
from mcfo.gradients.draws import Taken
from mcfo.gradients.replay import Replay
from mcfo.gradients.rules import Lane
from mcfo.inference.quantiles import LEVELS, Summary, check_levels
from mcfo.learning.parameters import Modules, fill, named_arrays, split
from mcfo.learning.settings import Learning
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.series import Frame, Series
from mcfo.smc.compatibility import check_arguments, check_fit
from mcfo.smc.filter import SMC
from mcfo.smc.noise import step_randomness
from mcfo.smc.step import Outcome, take_step
from mcfo.smc.step_scan import frame_at, frames
from mcfo.smc.trace import Record
from mcfo.smc.trace import State as FilterState
from mcfo.types import Key, Scalar, is_known


class State(eqx.Module):
    """The state of a stream after a step: all that the next one needs besides the observation.

    `time` counts the steps so far, `skipped` the updates that were skipped because they were not finite.
    """

    modules: Modules
    filter: FilterState
    time: Int[Array, ""]
    key: Key
    optimizer: Any
    skipped: Int[Array, ""]
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
    """The output of one step: mean and quantiles of p(z_t | x_1:t), the effective sample size, log p(x_t | x_1:t-1)."""

    mean: Float[Array, " latent"]
    quantiles: Float[Array, "levels latent"]
    ess: Scalar
    log_predictive: Scalar


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
    optimizer = None
    if learning is not None:
        series = _one_row(jnp.zeros(dimensions), jnp.ones(1, bool), example, jnp.zeros((), jnp.int32))
        learning.objective(sampler).check(model, proposal, series)
        learned, _ = split(modules, learning.fixed)
        if not jax.tree.leaves(learned):
            raise InputError("Nothing is left to learn: every parameter is fixed. Fix fewer of them.")
        optimizer = learning.transformation().init(learned)  # pyright: ignore[reportArgumentType]

    def first_state(key: Key, apart: bool) -> FilterState:
        mask = jnp.ones(dimensions if apart else 1, bool)
        frame = _frame(proposal, jnp.zeros(dimensions), mask, example, jnp.zeros((), jnp.int32))
        fit = check_fit(model, proposal, frame)
        return take_step(
            sampler, model, proposal, None, frame, step_randomness(sampler, fit.initial, None, key, frame)
        ).state

    try:
        shapes, apart = eqx.filter_eval_shape(first_state, key, True), True
    except PartlyMissingError:
        shapes, apart = eqx.filter_eval_shape(first_state, key, False), False
    empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    zero = jnp.zeros((), jnp.int32)
    plain = all(map(eqx.is_array, jax.tree.leaves((modules, sampler, optimizer))))
    return State(
        modules, empty, zero, key, optimizer, zero, sampler, check_levels(levels), learning, dimensions, apart, plain
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
    model, proposal, key = state.model, state.proposal, state.key
    frame = _frame(proposal, values, mask, inputs, state.time)
    fit = check_fit(model, proposal, frame)

    def after(outcome: Outcome, first: bool) -> tuple[FilterState, Record, Any]:
        gradients = _gradients(state, values, mask, inputs, outcome, first)
        return outcome.state, outcome.record, gradients

    def first_outcome() -> tuple[FilterState, Record, Any]:
        randomness = step_randomness(state.sampler, fit.initial, None, key, frame)
        return after(take_step(state.sampler, model, proposal, None, frame, randomness), True)

    def next_outcome() -> tuple[FilterState, Record, Any]:
        dtype = state.filter.log_weights.dtype
        randomness = step_randomness(state.sampler, fit.step, dtype, key, frame)
        return after(take_step(state.sampler, model, proposal, state.filter, frame, randomness), False)

    filtered, record, gradients = jax.lax.cond(state.time == 0, first_outcome, next_outcome)
    levels = jnp.asarray(state.levels, float)
    latents = jax.vmap(model.latent_summary)(filtered.latents)
    summary = Summary.of(latents, filtered.log_weights, levels)
    output = Output(summary.mean, summary.quantiles, record.ess, record.log_evidence)
    later = eqx.tree_at(lambda s: (s.filter, s.time), state, (filtered, state.time + 1))
    if state.learning is not None:
        later = _learned(later, gradients, jnp.any(mask) & record.finite)
    return later, output


_compiled = jax.jit(_advanced)
_compiled_among_others = eqx.filter_jit(_advanced)


def _gradients(state: State, values: Array, mask: Array, inputs: Any, outcome: Outcome, first: bool) -> Any:
    """Return the gradient of minus the rules' terms of this step."""
    if state.learning is None:
        return None
    objective = state.learning.objective(state.sampler)
    lanes = (Lane(objective.theta.rule, True, False),)
    if objective.phi is not None and not state.modules.follows and _has_numbers(state.proposal):
        lanes = (*lanes, Lane(objective.phi.rule, False, True))
    learned, rest = split(state.modules, state.learning.fixed)
    remaining = jnp.ones((), jnp.int32)

    def surrogate(learned: Any) -> Scalar:
        modules: Modules = eqx.combine(learned, rest)
        taken = Taken(_frame(modules.proposal, values, mask, inputs, state.time), outcome.draw, remaining)
        replays = [Replay(lane, modules.model, modules.proposal, state.key) for lane in lanes]
        if first:
            return -sum((replay.first(taken)[0] for replay in replays), start=jnp.zeros(()))
        several = jax.tree.map(lambda array: array[None], taken)
        return -sum((replay.rest(several, None)[0] for replay in replays), start=jnp.zeros(()))

    return jax.grad(surrogate)(learned)


def _has_numbers(proposal: Proposal) -> bool:
    return any(map(eqx.is_inexact_array, jax.tree.leaves(proposal)))


def _learned(state: State, gradients: Any, wanted: Bool[Array, ""]) -> State:
    """Return the state with updated parameters, if the update is finite."""
    assert state.learning is not None
    learned, rest = split(state.modules, state.learning.fixed)
    changes, optimizer = state.learning.transformation().update(gradients, state.optimizer, learned)  # pyright: ignore[reportArgumentType]
    new = optax.apply_updates(learned, changes)  # pyright: ignore[reportArgumentType]
    numbers = [leaf for leaf in jax.tree.leaves((gradients, new, optimizer)) if eqx.is_inexact_array(leaf)]
    finite = jnp.all(jnp.stack([jnp.all(jnp.isfinite(leaf)) for leaf in numbers]))
    accepted = jax.tree.map(
        lambda new, old: jnp.where(wanted & finite, new, old), (new, optimizer), (learned, state.optimizer)
    )
    modules = eqx.combine(accepted[0], rest).current()
    skipped = state.skipped + (wanted & ~finite)
    return eqx.tree_at(lambda s: (s.modules, s.optimizer, s.skipped), state, (modules, accepted[1], skipped))


def _one_row(values: Array, mask: Array, inputs: Any, time: Int[Array, ""]) -> Series:
    rows = None if inputs is None else inputs[None]
    return Series(values[None], mask[None], rows, None, jnp.zeros((), jnp.int32), time)


def _frame(proposal: Proposal, values: Array, mask: Array, inputs: Any, time: Int[Array, ""]) -> Frame:
    return frame_at(frames(proposal, _one_row(values, mask, inputs, time)), 0)


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
    alone = _frame(proposal, rows[1], jnp.ones(1, bool), inputs, zero).context
    same = jax.tree.map(lambda all_of_them, one: jnp.allclose(all_of_them[1], one, rtol=1e-3, atol=1e-5), whole, alone)
    if not all(bool(one) for one in jax.tree.leaves(same)):
        raise InputError(
            f"{type(proposal).__name__} reads other steps than its own, but a stream has none. Use Bootstrap(), "
            "or a proposal whose encode() reads each step alone."
        )


def save(path: str | Path, state: State, *, about: Mapping[str, Any] | None = None) -> None:
    """Write a state into an NPZ file, without pickles; the file is complete or absent.

    **Arguments:**

    - `about`: further facts that must be the same when it is restored, as data for JSON.
    """
    arrays = {name: np.asarray(array) for name, array in named_arrays(_storable(state)).items()}
    write_npz(Path(path), {**arrays, "about": np.array(_about(state, about))})


def restore(path: str | Path, like: State, *, about: Mapping[str, Any] | None = None) -> State:
    """Restore a state that [`save`][] wrote, bit-identically.

    **Arguments:**

    - `like`: a state from [`init`][], with the same arguments as the saved one.
    - `about`: the facts that were saved.
    """
    arrays = load_arrays(Path(path))
    saved = _as_data(str(arrays.pop("about", "")))
    wanted = json.loads(_about(like, about))
    for name in wanted:
        if saved.get(name) != wanted[name]:
            raise InputError(
                f"{path} holds the state of another stream: {name} was {saved.get(name)} and is {wanted[name]}. Give "
                "the arguments of the saved stream, or another file."
            )
    restored = fill(_storable(like), arrays, source=str(path))
    return eqx.tree_at(lambda s: s.key, restored, jax.random.wrap_key_data(restored.key))


def _storable(state: State) -> State:
    """Return the state with its key as numbers."""
    return eqx.tree_at(lambda s: s.key, state, jax.random.key_data(state.key))


def _about(state: State, about: Mapping[str, Any] | None) -> str:
    learning = None if state.learning is None else asdict(state.learning)
    own = {
        "particles": state.sampler.particles,
        "levels": list(state.levels),
        "learning": learning,
        "precision": str(state.filter.log_weights.dtype),
    }
    return json.dumps(own | dict(about or {}), sort_keys=True)


def _as_data(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except ValueError:
        data = {}
    return data if isinstance(data, dict) else {}
