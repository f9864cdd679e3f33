"""Series of similar lengths in batches of their own: few shapes to compile, and little padding."""

from __future__ import annotations

from collections.abc import Sequence as Listing
from typing import Any

import numpy as np

from mcfo.files import InputError
from mcfo.sequences import Sequence, numbered, stack

Buckets = tuple[Sequence, ...]
"""Batches, each of series that are padded to the longest of them."""

MOST = 4
"""Buckets by default, at most: each is a program to compile."""
_ENOUGH = 1.25
"""Padded steps for each of the data's, with which more buckets are not worth their programs."""
_WORTH = 2000
"""Steps of padding below which one bucket serves."""


def as_buckets(data: Any, *, most: int | None = None, batch: int = 1, multiple: int = 1) -> Buckets:
    """Series as padded batches: from a list, from one series, or as they are where they are batches already.

    **Arguments:**

    - `most`: buckets at most; by default up to 4, and no more than pay.
    - `batch`: series that each must have at least.
    - `multiple`: what the number of series of each but the last is to be divisible by.
    """
    sequences = [data] if isinstance(data, Sequence) else list(data)
    for place, one in enumerate(sequences):
        if not isinstance(one, Sequence):
            raise InputError(
                f"The data hold {type(one).__name__} at place {place}, but sequences are wanted. Read each series with "
                "Sequence.from_values."
            )
    if sequences and all(one.observations.ndim == 3 for one in sequences):
        return tuple(sequences)
    sequences = numbered(sequences)
    lengths = np.array([one.steps for one in sequences])
    order = np.argsort(lengths, kind="stable")
    groups = np.split(order, _cuts(lengths[order], most, batch, multiple))
    return tuple(stack([sequences[place] for place in np.sort(group)]) for group in groups)


def steps_of(batch: Sequence) -> int:
    """The steps of a batch, without padding."""
    series, longest = batch.observations.shape[:2]
    return series * longest if batch.length is None else int(np.sum(np.asarray(batch.length)))


def _cuts(lengths: np.ndarray, most: int | None, batch: int, multiple: int) -> Listing[int]:
    """Where to cut a list of increasing lengths, so that least is padded."""
    total, count = int(lengths.sum()), len(lengths)
    limit = MOST if most is None else most
    if most is None and count * int(lengths[-1]) - total < _WORTH:
        return []
    ends = np.append(np.arange(multiple, count, multiple), count)
    # cost[i]: the padded steps of the first ends[i] series in the groups so far; before[g][i]: where the last begins.
    cost = ends * lengths[ends - 1].astype(float)
    cost[ends < batch] = np.inf
    before: list[np.ndarray] = []
    while len(before) + 1 < limit and not (most is None and cost[-1] <= _ENOUGH * total):
        size = ends[None, :] - ends[:, None]
        with_one_more = np.where(size >= batch, cost[:, None] + size * lengths[ends - 1], np.inf)
        best = with_one_more.argmin(axis=0)
        found = with_one_more[best, np.arange(len(ends))]
        if not found[-1] < cost[-1]:
            break
        before.append(best)
        cost = found
    cuts, place = [], len(ends) - 1
    for best in reversed(before):
        place = int(best[place])
        cuts.append(int(ends[place]))
    return cuts[::-1]
