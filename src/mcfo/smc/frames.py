"""A series as the steps of a filter take it, all at once or as a stream brings them."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mcfo.proposals.base import Proposal
from mcfo.series import Frame, Series
from mcfo.types import Key


@eqx.filter_jit
def frames(proposal: Proposal, series: Series) -> Frame:
    """All steps of a series, with the time in front and the proposal's contexts in them."""
    clean = series.sanitized()
    return clean.frames(proposal.encode(clean))


def frame_at(steps: Frame, time: int) -> Frame:
    """One step out of `frames`."""
    count = len(steps.observation)
    if not -count <= time < count:
        raise IndexError(f"There is no step {time}: the series has {count}, counted from 0.")
    return jax.tree.map(lambda array: array[time], steps)


def frame(proposal: Proposal, values: Any, *, time: int, inputs: Any = None, series_id: int = 0) -> Frame:
    """One step of a stream, from the values that have just come in; any or all of them may be missing (NaN).

    `time` counts from 0 and decides which random numbers the step uses: give every step its own. The proposal must be
    one that reads no other step than its own.
    """
    row = np.asarray(values).reshape(1, -1)
    known = ~np.isnan(row.astype(float))
    # A series that is missing altogether is refused, a step is not: so the mask is set afterwards. Where it can, it has
    # one column, so that complete and missing steps run the same program.
    series = Series.from_values(
        np.where(known, row, 0), inputs=None if inputs is None else np.reshape(inputs, (1, -1)), series_id=series_id
    )
    mask = known[:, :1] if known.all() or not known.any() else known
    series = eqx.tree_at(lambda s: s.observed, series, jnp.asarray(mask), is_leaf=lambda x: x is None)
    one = frame_at(frames(proposal, series), 0)
    return eqx.tree_at(lambda f: f.time, one, jnp.asarray(time, jnp.int32))


def step_key(key: Key, frame: Frame) -> Key:
    """The key of one step of one series."""
    return jax.random.fold_in(jax.random.fold_in(key, frame.series_id), frame.time)
