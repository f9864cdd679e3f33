"""A bound at one K and T, from blocks of weights or from samples of log p̂."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from mcfo.experiments.bounds_sampling import Blocks, controlled_mean, mean
from mcfo.experiments.outcomes import Estimate


class Point(NamedTuple):
    """A bound at one K and T.

    - `gap`: log p - E log p̂; `ratio`: the mean of p̂ / p, or of R_t / p over all steps with exact histories: one, up to
      its standard error.
    - `spread`: the standard deviation of one log p̂; `limit`: of K x gap, in closed form; NaN where none is known.
    - `increase`: how much the bound grew since the K before, paired; None where the K do not share their weights.
    """

    particles: int
    gap: Estimate
    ratio: Estimate
    spread: float
    limit: float
    increase: Estimate | None = None

    @property
    def k_gap(self) -> Estimate:
        return Estimate(*(self.particles * part for part in self.gap))


def points_of_blocks(sizes: tuple[int, ...], blocks: Mapping[str, np.ndarray], limit: float) -> list[Point]:
    """The points of each K from blocks of one estimate a step, or of one estimate a path."""
    log_ratio, excess, square = (blocks[name].reshape(*blocks[name].shape[:2], -1) for name in Blocks._fields)
    spreads = np.sqrt(np.sum(square.mean(0) - log_ratio.mean(0) ** 2, axis=-1))
    totals = log_ratio.sum(-1)
    return [
        Point(
            size,
            controlled_mean(-log_ratio[:, place], excess[:, place]),
            mean(1 + excess[:, place].mean(-1)),
            float(spreads[place]),
            limit,
            mean(totals[:, place] - totals[:, place - 1]) if place else None,
        )
        for place, size in enumerate(sizes)
    ]


def point_of_samples(particles: int, values: np.ndarray, limit: float) -> Point:
    """A point from independent values of log p̂ / p."""
    gap, ratio = controlled_mean(-values, np.expm1(values)), mean(np.exp(values))
    return Point(particles, gap, ratio, float(values.std(ddof=1)), limit)


def point_of_first_steps(particles: int, blocks: Mapping[str, np.ndarray], time: int, limit: float) -> Point:
    """A point of the first steps of exact histories."""
    log_ratio, excess = (blocks[name][:, 0, :time] for name in ("log_ratio", "excess"))
    spread = float(log_ratio.sum(-1).std(ddof=1))
    return Point(particles, controlled_mean(-log_ratio, excess), mean(1 + excess.mean(-1)), spread, limit)
