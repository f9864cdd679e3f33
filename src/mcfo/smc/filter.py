"""Sequential Monte Carlo: a filter over a whole series, or one step at a time."""

from __future__ import annotations

import equinox as eqx

from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.series import Frame, Series
from mcfo.smc.compatibility import (
    check_arguments,
    check_fit,
    check_frame,
    check_instance,
    check_series,
    is_positive,
    whole_number,
)
from mcfo.smc.noise import step_randomness
from mcfo.smc.resampling import Criterion, ESSBelow, Never, Resampling, Systematic
from mcfo.smc.step import Outcome, take_step
from mcfo.smc.step_scan import step_scan
from mcfo.smc.trace import History, Record, State, Trace
from mcfo.types import Key


class SMC(eqx.Module):
    """Sequential Monte Carlo with K particles (Algorithm 1 of the paper; Doucet and Johansen, 2009).

    At each step the histories are resampled by the last weights if the criterion is met. Then each particle draws
    z_t ~ q(z_t | h_t-1, x_t), and its weight is multiplied by

        w_t = p(z_t | h_t-1) p(x_t | z_t, h_t-1) / q(z_t | h_t-1, x_t).

    If nothing is resampled, the weights are carried over, so exp(`log_evidence`) is unbiased for p(x_1:T) with every
    scheme and every criterion. Memories are resampled with their particles, so histories are true ancestral paths.

    **Arguments:**

    - `particles`: K.
    - `resampling`: how ancestors are drawn; systematic by default.
    - `criterion`: when to resample; by default when the effective sample size falls below half of K.
    """

    particles: int = eqx.field(static=True, converter=whole_number)
    resampling: Resampling = Systematic()
    criterion: Criterion = eqx.field(default_factory=ESSBelow)

    def __check_init__(self):
        if not is_positive(self.particles):
            raise ValueError(
                f"A filter needs a whole number of particles, at least one particle, but got {self.particles!r}."
            )
        check_instance(self.resampling, Resampling, "resampling", "Use resampling=Systematic(), say")
        check_instance(self.criterion, Criterion, "criterion", "Use criterion=ESSBelow(0.5), say")

    def __call__(self, model: Model, proposal: Proposal, series: Series, *, key: Key, history: bool = False) -> Trace:
        """Run the filter over a whole series.

        **Arguments:**

        - `history`: whether to save every particle of every step, for smoothing; memory then grows with the length.
        """
        check_arguments(model, proposal, key)
        check_series(series)
        return _run(self, model, proposal, series, key, history)

    def init(self, model: Model, proposal: Proposal, frame: Frame, *, key: Key) -> tuple[State, Record]:
        """Take the first step. `key` is the run's; each step derives its own from it, the series_id and the time."""
        check_arguments(model, proposal, key)
        check_frame(frame)
        return _one_step(self, model, proposal, None, frame, key)

    def step(self, model: Model, proposal: Proposal, state: State, frame: Frame, *, key: Key) -> tuple[State, Record]:
        """Take one more step, with the same `key` as the first."""
        check_arguments(model, proposal, key)
        check_frame(frame)
        if len(state.log_weights) != self.particles:
            raise ValueError(
                f"The state has {len(state.log_weights)} particles, but this sampler has {self.particles}. Continue "
                "with the sampler that returned the state."
            )
        return _one_step(self, model, proposal, state, frame, key)


def sis(particles: int) -> SMC:
    """Return sequential importance sampling: a filter that never resamples."""
    return SMC(particles, criterion=Never())


@eqx.filter_jit
def _run(sampler: SMC, model: Model, proposal: Proposal, series: Series, key: Key, history: bool) -> Trace:
    def save(before: State | None, outcome: Outcome, frame: Frame, extra: None) -> tuple[Record, History | None]:
        state = outcome.state
        return outcome.record, History(state.latents, state.log_weights, outcome.draw.ancestors) if history else None

    state, (record, saved) = step_scan(sampler, model, proposal, series, save, key=key)
    return Trace(state=state, record=record, history=saved, length=series.length, series_id=series.series_id)


@eqx.filter_jit
def _one_step(
    sampler: SMC, model: Model, proposal: Proposal, state: State | None, frame: Frame, key: Key
) -> tuple[State, Record]:
    fit = check_fit(model, proposal, frame)
    noise, dtype = (fit.initial, None) if state is None else (fit.step, state.log_weights.dtype)
    randomness = step_randomness(sampler, noise, dtype, key, frame)
    outcome = take_step(sampler, model, proposal, state, frame, randomness)
    return outcome.state, outcome.record
