"""Which sequences an update sees: a function of the seed and the step alone, so that a resumed run sees the same."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int


class Batches:
    """Batches without replacement: each epoch is a new order of all sequences, of which the last few that do not fill
    a batch wait for the next.

    A batch is of one bucket. How many of an epoch are, its share of the sequences decides, rounded at random so that
    every sequence is seen equally often; in which order the buckets come is the same for all seeds.
    """

    def __init__(self, counts: tuple[int, ...], batch: int, seeds: tuple[int, ...]):
        self._counts, self._seeds = counts, seeds
        self.size = min(batch, *counts)
        self._in_epoch = sum(counts) // self.size
        self._orders: dict[tuple[int, int, int], np.ndarray] = {}

    def __call__(
        self, first: int, steps: int
    ) -> tuple[Int[np.ndarray, " steps"], Int[np.ndarray, "steps seeds batch"]]:
        """The bucket of each step, and the places in it of the sequences of each seed."""
        found = [self._at(step) for step in range(first, first + steps)]
        buckets, places = zip(*found, strict=True)
        return np.array(buckets, np.int32), np.stack(places)

    def _at(self, step: int) -> tuple[int, Int[np.ndarray, "seeds batch"]]:
        epoch, place = divmod(step, self._in_epoch)
        course = self._course(epoch)
        bucket = int(course[place])
        place = int(np.sum(course[:place] == bucket))
        within = slice(place * self.size, (place + 1) * self.size)
        return bucket, np.stack([self._order(seed, epoch, bucket)[within] for seed in self._seeds])

    def _course(self, epoch: int) -> Int[np.ndarray, " updates"]:
        """The bucket of each update of an epoch."""
        if len(self._counts) == 1:
            return np.zeros(self._in_epoch, np.int32)
        random = np.random.default_rng(epoch)
        shares = np.cumsum(self._counts) / sum(self._counts) * self._in_epoch
        shares[-1] = self._in_epoch
        updates = np.diff(np.floor(shares - random.uniform()), prepend=-1.0)
        return random.permutation(np.repeat(np.arange(len(self._counts)), updates.astype(int)))

    def _order(self, seed: int, epoch: int, bucket: int) -> np.ndarray:
        """The sequences of a bucket in an order of their own; twice, should its share have been rounded up."""
        if (seed, epoch, bucket) not in self._orders:
            # The orders of the epoch before are not asked for again.
            self._orders = {known: order for known, order in self._orders.items() if known[1] >= epoch - 1}
            random = np.random.default_rng([seed, epoch] if len(self._counts) == 1 else [seed, epoch, bucket])
            orders = [random.permutation(self._counts[bucket]) for _ in range(2)]
            self._orders[seed, epoch, bucket] = np.concatenate(orders).astype(np.int32)
        return self._orders[seed, epoch, bucket]
