"""Batching: groups of series of similar lengths, and the series of each update."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Int

from mcfo.data.tables import series_of
from mcfo.errors import InputError
from mcfo.series import Series, stack, with_ids

Buckets = tuple[Series, ...]
"""Batches of series; those of one batch are padded to the longest of them."""

MOST = 4
"""The largest number of buckets by default: each compiles a program."""
_ENOUGH = 1.25
"""The ratio of padded to actual steps below which more buckets are not worth compiling."""
_WORTH = 2000
"""The number of padded steps below which one bucket is enough."""


def as_buckets(data: Any, *, most: int | None = None, batch: int = 1, multiple: int = 1) -> Buckets:
    """Return series as padded batches, from whatever holds series; batches are returned unchanged.

    **Arguments:**

    - `most`: the largest number of buckets; by default up to 4, if they save enough padding.
    - `batch`: the least number of series in each bucket.
    - `multiple`: a divisor of the number of series in each bucket but the last.
    """
    data = series_of(data)
    series_list = [data] if isinstance(data, Series) else list(data)
    for index, one in enumerate(series_list):
        if not isinstance(one, Series):
            raise InputError(
                f"The data hold {type(one).__name__} at index {index}, but series are wanted. Read each series with "
                "Series.from_values."
            )
    if series_list and all(one.observations.ndim == 3 for one in series_list):
        return tuple(series_list)
    series_list = with_ids(series_list)
    lengths = np.array([one.steps for one in series_list])
    order = np.argsort(lengths, kind="stable")
    groups = np.split(order, _cuts(lengths[order], most, batch, multiple))
    return tuple(stack([series_list[index] for index in np.sort(group)]) for group in groups)


def count_steps(batch: Series) -> int:
    """Return the number of steps of a batch, without padding."""
    series, longest = batch.observations.shape[:2]
    return series * longest if batch.length is None else int(np.sum(np.asarray(batch.length)))


def count_observed_steps(batch: Series) -> int:
    """Return the number of steps of a batch at which something was observed."""
    if batch.observed is None:
        return count_steps(batch)
    known = np.any(np.asarray(batch.observed), axis=-1)
    if batch.length is not None:
        known = known & (np.arange(known.shape[1]) < np.asarray(batch.length)[:, None])
    return int(np.sum(known))


def unstacked(batch: Series) -> list[Series]:
    """Return the series of a batch, padding included."""
    return [jax.tree.map(lambda leaf, index=index: leaf[index], batch) for index in range(len(batch.observations))]


def _cuts(lengths: np.ndarray, most: int | None, batch: int, multiple: int) -> Sequence[int]:
    """Return where to cut a list of increasing lengths so that padding is least."""
    total, count = int(lengths.sum()), len(lengths)
    limit = MOST if most is None else most
    if most is None and count * int(lengths[-1]) - total < _WORTH:
        return []
    ends = np.append(np.arange(multiple, count, multiple), count)
    # cost[i]: the padded steps of the first ends[i] series in the groups so far; before[g][i]: where the last starts.
    cost = ends * lengths[ends - 1].astype(float)
    cost[ends < batch] = np.inf
    before: list[np.ndarray] = []
    while len(before) + 1 < limit and not (most is None and cost[-1] <= _ENOUGH * total):
        size = ends[None, :] - ends[:, None]
        with_one_more = np.where(size >= batch, cost[:, None] + size * lengths[ends - 1], np.inf)
        best = with_one_more.argmin(axis=0)
        new_cost = with_one_more[best, np.arange(len(ends))]
        if not new_cost[-1] < cost[-1]:
            break
        before.append(best)
        cost = new_cost
    cuts, index = [], len(ends) - 1
    for best in reversed(before):
        index = int(best[index])
        cuts.append(int(ends[index]))
    return cuts[::-1]


class Batches:
    """Batches without replacement: each epoch is a new order of all series; the last few, which fill no batch, are
    left out of it.

    Each batch comes from one bucket. The number of batches from a bucket is proportional to its share of the series,
    randomly rounded so that all series are used equally often. The order of the buckets is the same for all seeds.
    """

    def __init__(self, counts: tuple[int, ...], batch: int, seeds: tuple[int, ...]):
        self._counts, self._seeds = counts, seeds
        self.size = min(batch, *counts)
        self._in_epoch = sum(counts) // self.size
        self._orders: dict[tuple[int, int, int], np.ndarray] = {}

    def __call__(
        self, first: int, steps: int
    ) -> tuple[Int[np.ndarray, " steps"], Int[np.ndarray, "steps seeds batch"]]:
        """Return the bucket of each step, and the indices into it for each seed."""
        batches = [self._at(step) for step in range(first, first + steps)]
        buckets, indices = zip(*batches, strict=True)
        return np.array(buckets, np.int32), np.stack(indices)

    def _at(self, step: int) -> tuple[int, Int[np.ndarray, "seeds batch"]]:
        epoch, index = divmod(step, self._in_epoch)
        course = self._course(epoch)
        bucket = int(course[index])
        index = int(np.sum(course[:index] == bucket))
        within = slice(index * self.size, (index + 1) * self.size)
        return bucket, np.stack([self._order(seed, epoch, bucket)[within] for seed in self._seeds])

    def _course(self, epoch: int) -> Int[np.ndarray, " updates"]:
        """Return the bucket of each update of an epoch."""
        if len(self._counts) == 1:
            return np.zeros(self._in_epoch, np.int32)
        random = np.random.default_rng(epoch)
        shares = np.cumsum(self._counts) / sum(self._counts) * self._in_epoch
        shares[-1] = self._in_epoch
        updates = np.diff(np.floor(shares - random.uniform()), prepend=-1.0)
        return random.permutation(np.repeat(np.arange(len(self._counts)), updates.astype(int)))

    def _order(self, seed: int, epoch: int, bucket: int) -> np.ndarray:
        """Return a random order of the series of a bucket, and a second one in case its share was rounded up."""
        if (seed, epoch, bucket) not in self._orders:
            # The orders of earlier epochs are not needed again.
            self._orders = {known: order for known, order in self._orders.items() if known[1] >= epoch - 1}
            random = np.random.default_rng([seed, epoch] if len(self._counts) == 1 else [seed, epoch, bucket])
            orders = [random.permutation(self._counts[bucket]) for _ in range(2)]
            self._orders[seed, epoch, bucket] = np.concatenate(orders).astype(np.int32)
        return self._orders[seed, epoch, bucket]
