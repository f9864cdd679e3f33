"""How a surrogate is differentiated over a batch: a value, each with its cost in time and memory."""

from __future__ import annotations

import equinox as eqx

from mcfo.gradients.draws import Sampler
from mcfo.gradients.rules import Lane, StepRule, has_networks, is_local
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.series import Series
from mcfo.smc.compatibility import is_positive, whole_number

_PARTICLES_AT_ONCE = 2**17
"""Particles of several steps or series that are differentiated together: as many as the caches of a core hold."""


class Backward(eqx.Module):
    """How a surrogate is differentiated. The sampler always runs on numbers: it decides what is drawn, the rules decide
    what is differentiated."""


def _count(value: object, name: str) -> None:
    if value is not None and not is_positive(value):
        raise ValueError(f"{name} is a whole number, at least 1, but got {value!r}.")


class Accumulated(Backward):
    """Adds up the gradients of blocks of steps while the filter runs.

    For rules that stay within a step, of Markov models: there no gradient crosses time, and blocks lose nothing.

    - Time: one forward pass of the filter, and forward and backward of the densities. With networks and one step at a
      time XLA computes the densities of filter and rule once.
    - Memory: one block; it does not grow with the length of the series.

    **Arguments:**

    - `steps`: the steps of a block; by default as many as fit into the caches.
    """

    steps: int | None = eqx.field(static=True, default=None, converter=whole_number)

    def __check_init__(self):
        _count(self.steps, "The number of steps of Accumulated")


class Reverse(Backward):
    """Reverse mode across time, after the filter has run. It serves every rule and every model.

    - Time: one forward pass of the filter, forward and backward of what the rule replays; with `checkpoint`, one more
      forward pass of that.
    - Memory: steps x series x particles, times what the densities save; `checkpoint` saves the memories and latents
      alone, `window` bounds the steps and `series` the series.

    **Arguments:**

    - `checkpoint`: compute what the replay computed again on the way back instead of saving it.
    - `window`: how many steps a gradient goes back; None, all of them. Particles, weights and memories continue from
      window to window, so that no value changes; gradients are truncated at the windows' ends.
    - `series`: how many series of a batch are differentiated at once; None, all of them. Small groups stay in the
      caches. Path rules that compare series (`ResamplingScore(baseline="others")`) need all of them.
    """

    checkpoint: bool = eqx.field(static=True, default=False)
    window: int | None = eqx.field(static=True, default=None, converter=whole_number)
    series: int | None = eqx.field(static=True, default=None, converter=whole_number)

    def __check_init__(self):
        _count(self.window, "A window's number of steps")
        _count(self.series, "The number of series of Reverse")


def choose(sampler: Sampler, lanes: tuple[Lane, ...], model: Model, proposal: Proposal, batch: Series) -> Backward:
    """The way for this problem, by measurement (`benchmarks/gradients.py`)."""
    series, steps, _ = batch.observations.shape
    networks = has_networks(model, proposal)
    if all(is_local(lane.rule, model) for lane in lanes):
        replayed = max(_thins_to(lane) or sampler.particles for lane in lanes)
        return Accumulated(1 if networks else max(1, _PARTICLES_AT_ONCE // (series * replayed)))
    if networks or not all(isinstance(lane.rule, StepRule) for lane in lanes):
        return Reverse()
    # With few parameters next to nothing is computed for each number that is saved: writing and reading takes the time.
    return Reverse(series=min(series, max(1, _PARTICLES_AT_ONCE // (steps * sampler.particles))))


def _thins_to(lane: Lane) -> int | None:
    return lane.rule.thins_to if isinstance(lane.rule, StepRule) else None
