"""When learning by particles is over: looks at the likelihood, each after twice as many updates as the one before.

The bound of one update is too noisy to say whether parameters still improve. A look compares parameters instead of
updates: those of the second half of the updates so far are averaged (Polyak and Juditsky, 1992), and log p(x) of the
average is estimated by several filters with many particles. Their random numbers are the same at every look, so that
the noise of two looks is nearly the same too, and vanishes as the parameters come to rest. The gain of a look over the
one before has a standard error, from the independent filters. A run ends where the gain and two standard errors
together are below the tolerance: then doubling the updates gained next to nothing, and to double them again would
hardly gain more.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from mcfo.learning.settings import Settings

LOG_LIKELIHOODS = "log_likelihoods"
"""Where a line of the metrics has what a look saw."""
_FIRST = 100
"""The least number of updates before a look: Adam moves a parameter by about the learning rate in each."""
_ERRORS = 2.0
_CLEAR = 4.0
"""Standard errors beyond which a loss is no chance; each is itself estimated from a few filters."""


class Look(NamedTuple):
    """log p(x) of all series after a number of updates, from independent filters."""

    step: int
    log_likelihoods: tuple[float, ...]

    def gain_over(self, other: Look) -> tuple[float, float]:
        """Return how much higher the log-likelihood is than in another look, and the standard error of that."""
        gains = np.subtract(self.log_likelihoods, other.log_likelihoods)
        if not np.all(np.isfinite(gains)):
            return math.nan, math.nan
        return float(gains.mean()), float(gains.std(ddof=1) / math.sqrt(len(gains)))

    def as_data(self) -> dict[str, Any]:
        """Return what results.json holds."""
        values = np.asarray(self.log_likelihoods)
        finite = bool(np.all(np.isfinite(values)))
        return {
            "step": self.step,
            "log_likelihood": float(values.mean()) if finite else None,
            "error": float(values.std(ddof=1) / math.sqrt(len(values))) if finite else None,
        }


def look_steps(settings: Settings) -> tuple[int, ...]:
    """Return the numbers of updates after which a run is looked at: 1/2, 1/4, 1/8, ... of its limit, as long as there
    are a hundred."""
    steps, half = [], settings.steps // 2
    while settings.tolerance and half >= _FIRST:
        steps.append(half - half % settings.log_every)
        half //= 2
    # The first look has none to be compared with.
    return tuple(sorted(set(steps) - {0})) if len(set(steps) - {0}) > 1 else ()


def averaged_from(settings: Settings, looks: tuple[int, ...]) -> tuple[int, ...]:
    """Return the updates from which parameters are averaged anew: for each look, and for the end."""
    return (*((looks[0] // 2,) if looks else ()), *looks, settings.averaged_from)


def looks_of(seed: int, lines: Iterable[Mapping[str, Any]]) -> list[Look]:
    """Return the looks of a seed that are in the metrics."""
    own = [line for line in lines if line["seed"] == seed and LOG_LIKELIHOODS in line]
    return [Look(line["step"], tuple(math.nan if x is None else x for x in line[LOG_LIKELIHOODS])) for line in own]


def is_settled(settings: Settings, lines: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the last look gained too little over the one before, for every seed."""
    lines = [line for line in lines if LOG_LIKELIHOODS in line]
    return all(_has_settled(looks_of(seed, lines), settings.tolerance) for seed in settings.seeds)


def _has_settled(looks: list[Look], tolerance: float) -> bool:
    if len(looks) < 2:
        return False
    gain, error = gain_of_last(looks)
    return gain + _ERRORS * error <= tolerance


def gain_of_last(looks: list[Look]) -> tuple[float, float]:
    """Return how much the last look gained over the one before, and the standard error of that."""
    return looks[-1].gain_over(looks[-2])


def clear_loss(looks: Iterable[Look], tolerance: float) -> tuple[Look, float] | None:
    """Return the best look, and by how much the last one is worse, if that is more than chance and the tolerance."""
    *before, end = looks
    losses = [(one, *one.gain_over(end)) for one in before]
    clear = [(one, loss) for one, loss, error in losses if loss > max(tolerance, _CLEAR * error)]
    return max(clear, key=lambda found: found[1], default=None)
