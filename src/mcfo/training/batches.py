"""Which sequences an update sees: a function of the seed and the step alone, so that a resumed run sees the same."""

from __future__ import annotations

import numpy as np
from jaxtyping import Int


class Batches:
    """Batches without replacement: each epoch is a new order of all sequences, of which the last few that do not fill
    a batch wait for the next."""

    def __init__(self, count: int, batch: int, seeds: tuple[int, ...]):
        self._count, self._seeds = count, seeds
        self.size = min(batch, count)
        self._in_epoch = count // self.size
        self._orders: dict[tuple[int, int], np.ndarray] = {}

    def __call__(self, first: int, steps: int) -> Int[np.ndarray, "steps seeds batch"]:
        """The places in the data of the sequences of each step and seed."""
        return np.stack([[self._at(seed, step) for seed in self._seeds] for step in range(first, first + steps)])

    def _at(self, seed: int, step: int) -> np.ndarray:
        epoch, place = divmod(step, self._in_epoch)
        if (seed, epoch) not in self._orders:
            # The orders of the epoch before are not asked for again.
            self._orders = {known: order for known, order in self._orders.items() if known[1] >= epoch - 1}
            self._orders[seed, epoch] = np.random.default_rng([seed, epoch]).permutation(self._count).astype(np.int32)
        return self._orders[seed, epoch][place * self.size : (place + 1) * self.size]
