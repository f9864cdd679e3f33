"""When learning by particles is over: looks at the improvement, each after twice as many updates as the one before.

The bound of one update is too noisy to say whether parameters still improve, and so is the difference of two estimates
of the likelihood. A look asks instead what the gradients say of the way between two averages. The parameters of the
second half of the updates so far are averaged, θ̄ (Polyak and Juditsky, 1992), and so are the gradients of the
log-likelihood that the updates followed, ḡ. From one look to the next the log-likelihood grows by

    (ḡ + ḡ') · (θ̄' - θ̄) / 2,

the trapezoidal rule. Its noise is that of hundreds of gradients, times a way that vanishes as the parameters come to
rest; its standard error follows from the means of eight parts of the updates. A run ends where this gain and two
standard errors together are below the tolerance: doubling the updates gained next to nothing, and to double them again
would hardly gain more. The gradients are those of the rules that learn: a biased rule comes to rest at its own optimum.

Beside that, each look estimates the log-likelihood of θ̄ by several filters, always with the same random numbers, so
that an end below what came before is noticed whatever the rules believe.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from mcfo.learning.settings import Settings
from mcfo.learning.step import PARTS, Looking, part_of

LOG_LIKELIHOODS = "log_likelihoods"
GAIN = "gain"
"""Where a line of the metrics has what a look saw: estimates, and the gain over the look before with its error."""
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
    looks = [line for line in lines if LOG_LIKELIHOODS in line]
    last = [line[GAIN] for line in looks if line["step"] == looks[-1]["step"]]
    return bool(last) and all(gain is not None and gain[0] + _ERRORS * gain[1] <= settings.tolerance for gain in last)


def last_gain(lines: Iterable[Mapping[str, Any]]) -> tuple[float, float]:
    """Return the largest gain of a seed at the last look, with its standard error."""
    gains = [(line["step"], *line[GAIN]) for line in lines if line.get(GAIN) is not None]
    _, gain, error = max(gains, key=lambda one: (one[0], one[1] + _ERRORS * one[2]))
    return gain, error


class Gains:
    """The gains of looks, from the averages of parameters and gradients.

    **Arguments:**

    - `looks`, `restarts`: the updates after which a run is looked at, and from which averages start anew.
    - `series`: the number of series; gradients are those of one.
    """

    def __init__(self, looks: tuple[int, ...], restarts: tuple[int, ...], series: int):
        self._looks, self._restarts, self._series = looks, restarts, series

    def _counts(self, step: int) -> np.ndarray:
        """The number of updates in each part of those that a look at this step averages."""
        since = max(one for one in self._restarts if one < step)
        return np.bincount(part_of(np.arange(since, step), since, step), minlength=PARTS)

    def look(
        self, looking: Looking, averages: np.ndarray, step: int
    ) -> tuple[Looking, list[tuple[float, float] | None]]:
        """Return what the next look needs, and the gain of each seed with its error; None at the first look."""
        counts = self._counts(step)
        # The loss falls where the log-likelihood grows.
        means = -self._series * np.asarray(looking.gradients, np.float64) / np.maximum(counts, 1)[:, None]
        gains: list[tuple[float, float] | None] = [None] * len(averages)
        if step != self._looks[0]:
            way = averages - np.asarray(looking.average, np.float64)
            before = self._counts(self._looks[self._looks.index(step) - 1])
            both = ((np.asarray(looking.before, np.float64), before), (means, counts))
            slopes = [((parts @ way[..., None])[..., 0], shares / shares.sum()) for parts, shares in both]
            values = np.sum([parts @ shares for parts, shares in slopes], axis=0) / 2
            errors = np.sqrt(np.sum([parts.var(axis=1, ddof=1) for parts, _ in slopes], axis=0) / PARTS) / 2
            found = [(float(value), float(error)) for value, error in zip(values, errors, strict=True)]
            gains = [one if all(map(math.isfinite, one)) else None for one in found]
        dtype = looking.gradients.dtype
        return Looking(looking.gradients, jnp.asarray(means, dtype), jnp.asarray(averages, dtype)), gains


def clear_loss(looks: Iterable[Look], tolerance: float) -> tuple[Look, float] | None:
    """Return the best look, and by how much the last one is worse, if that is more than chance and the tolerance."""
    *before, end = looks
    losses = [(one, *one.gain_over(end)) for one in before]
    clear = [(one, loss) for one, loss, error in losses if loss > max(tolerance, _CLEAR * error)]
    return max(clear, key=lambda found: found[1], default=None)
