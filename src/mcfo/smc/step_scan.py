"""The loop over the steps of a series: the first step, the scan over the others, and scans in blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.series import Frame, Series
from mcfo.smc.compatibility import check_fit
from mcfo.smc.noise import draw_randomness, step_randomness
from mcfo.smc.step import Filter, Outcome, take_step
from mcfo.smc.trace import State
from mcfo.types import Key

Visitor = Callable[[State | None, Outcome, Frame, Any], Any]
"""A function of the state before a step (None at the first), the outcome of the step, its frame, and an extra."""


def step_scan(
    sampler: Filter,
    model: Model,
    proposal: Proposal,
    series: Series,
    visit: Visitor,
    *,
    key: Key,
    extras: Any = None,
) -> tuple[State, Any]:
    """Filter a series and call `visit` at every step.

    **Arguments:**

    - `visit`: computes an output at each step; only these outputs are saved.
    - `extras`: other arrays with one row for each step, time first; `visit` receives the row of its step.

    **Returns:** the last state, and the outputs of `visit`, stacked over the steps.
    """
    steps = frames(proposal, series)
    fit = check_fit(model, proposal, frame_at(steps, 0))
    (frame, extra), rest = split_first((steps, extras))
    outcome = take_step(sampler, model, proposal, None, frame, step_randomness(sampler, fit.initial, None, key, frame))
    first = visit(None, outcome, frame, extra)
    dtype = outcome.state.log_weights.dtype

    def of_block(state: State, rows: Any) -> tuple[State, Any]:
        # Outside of the inner loop: random bits for one step at a time take longer than the step of a small filter.
        randomness = draw_randomness(sampler, fit.step, dtype, key, rows[0].series_id, rows[0].time)

        def body(state: State, step: Any) -> tuple[State, Any]:
            (frame, extra), own = step
            outcome = take_step(sampler, model, proposal, state, frame, own)
            return outcome.state, visit(state, outcome, frame, extra)

        return jax.lax.scan(body, state, (rows, randomness))

    numbers = sampler.particles * (1 if fit.step is None else fit.step.size)
    state, others = scan_blocks(of_block, outcome.state, rest, size=_steps_at_once(numbers))
    return state, join_first(first, others)


def _steps_at_once(numbers: int) -> int:
    """Return the number of steps whose random numbers are drawn together, if one step needs this many numbers.

    A draw for eight steps is large enough. Steps that need few numbers take more steps at once, so that the outer loop
    has fewer iterations, but not more than fit the caches when `vmap` runs the filters of many series. There are at
    least two steps: see `map_in_rounds`.
    """
    return max(2, min(max(8, 2**13 // numbers), 2**17 // numbers))


def split_first(tree: Any) -> tuple[Any, Any]:
    """Return the first step, and the others."""
    return jax.tree.map(lambda array: array[0], tree), jax.tree.map(lambda array: array[1:], tree)


def join_first(first: Any, *others: Any) -> Any:
    """Join the first step and the others, which may come in several blocks."""
    return jax.tree.map(lambda one, *rest: jnp.concatenate([one[None], *rest]), first, *others)


@eqx.filter_jit
def frames(proposal: Proposal, series: Series) -> Frame:
    """Return all steps of a series, the time axis first, with the proposal's contexts."""
    clean = series.sanitized()
    return clean.frames(proposal.encode(clean))


def frame_at(steps: Frame, time: int) -> Frame:
    """Return one step of `frames`."""
    count = len(steps.observation)
    if not -count <= time < count:
        raise IndexError(f"There is no step {time}: the series has {count}, counted from 0.")
    return jax.tree.map(lambda array: array[time], steps)


def frame(proposal: Proposal, values: Any, *, time: int, inputs: Any = None, series_id: int = 0) -> Frame:
    """Return the frame of one step of a stream from its values, any or all of which may be missing (NaN).

    `time` counts from 0 and determines the random numbers of the step, so every step needs its own. The proposal must
    not read other steps.
    """
    row = np.asarray(values).reshape(1, -1)
    known = ~np.isnan(row.astype(float))
    # `Series` refuses a series without any value, but such a step is valid, so the mask is set afterwards. If possible
    # it has one column, so that complete and missing steps run the same program.
    series = Series.from_values(
        np.where(known, row, 0), inputs=None if inputs is None else np.reshape(inputs, (1, -1)), series_id=series_id
    )
    mask = known[:, :1] if known.all() or not known.any() else known
    series = eqx.tree_at(lambda s: s.observed, series, jnp.asarray(mask), is_leaf=lambda x: x is None)
    return eqx.tree_at(lambda f: f.time, frame_at(frames(proposal, series), 0), jnp.asarray(time, jnp.int32))


def scan_blocks(
    of_block: Callable[[Any, Any], tuple[Any, Any]], carry: Any, rows: Any, *, size: int
) -> tuple[Any, Any]:
    """Call `of_block(carry, rows of one block)` for one block after the other; with `size` = 1 it is `jax.lax.scan`.

    **Arguments:**

    - `of_block`: returns the next carry and an output for each row of the block.
    - `size`: the largest number of rows of a block.

    **Returns:** the last carry and the outputs of all rows.
    """
    count = len(jax.tree.leaves(rows)[0])
    if count <= size:
        return of_block(carry, rows)
    size = max(1, size)
    # A remainder compiles the block a second time: prefer smaller blocks that leave none, down to half the size.
    divisor = max(part for part in range(1, size + 1) if count % part == 0)
    size = divisor if 2 * divisor >= size else size
    whole = count - count % size
    table = jax.tree.map(lambda array: array[:whole].reshape(-1, size, *array.shape[1:]), rows)
    carry, outputs = jax.lax.scan(of_block, carry, table)
    outputs = jax.tree.map(lambda array: array.reshape(whole, *array.shape[2:]), outputs)
    if whole == count:
        return carry, outputs
    carry, rest = of_block(carry, jax.tree.map(lambda array: array[whole:], rows))
    return carry, jax.tree.map(lambda some, more: jnp.concatenate([some, more]), outputs, rest)
