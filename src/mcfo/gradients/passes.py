"""How surrogates are differentiated over a batch, and which way serves which problem.

| | for | memory | time |
|---|---|---|---|
| accumulated | rules that stay within the step, Markov models | does not grow with T (SMC) | best for large steps |
| batched | the same, of few parameters, or after PIMH | T x B x K | best for small ones: all go back at once |
| kept | networks; also rules that weigh a step by what comes later | T x B x K | the same, and forwards once |
| grouped | rules of a step, of few parameters, where gradients cross time | T x K x few | stays in caches |
| in reverse | everything else | T x B x K; with `frugal`, less, for a second forward pass | |
| windowed | rules of a step, where gradients cross time | window x B x K | truncates what crosses a window's end |

The sampler runs on frozen parameters in all of them: it decides what is drawn, the rules decide what is differentiated.
"""

from __future__ import annotations

from functools import partial

from mcfo.gradients.accumulated import accumulated
from mcfo.gradients.early import early
from mcfo.gradients.groups import grouped
from mcfo.gradients.kept import kept
from mcfo.gradients.lanes import Lane, has_local_densities, is_deep, is_local
from mcfo.gradients.moves import Run, Sampler
from mcfo.gradients.reverse import in_reverse, reversed_
from mcfo.gradients.rules import StepRule
from mcfo.gradients.wide import batched
from mcfo.gradients.windows import windowed
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.series import Series
from mcfo.smc.filter import SMC
from mcfo.types import Key, Scalar


def differentiable_run(
    sampler: Sampler,
    lanes: tuple[Lane, ...],
    model: Model,
    proposal: Proposal,
    batch: Series,
    key: Key,
    *,
    frugal: bool | None,
    window: int | None = None,
) -> tuple[Scalar, Run]:
    """The sum of the lanes' surrogates over a batch, of which only the gradient means something, and the run itself.

    **Arguments:**

    - `frugal`: spend time to save memory; None chooses by the size of the problem.
    - `window`: how many steps a gradient may cross.
    """
    deep = is_deep(model, proposal)
    local = all(is_local(lane.rule, model) for lane in lanes)
    if local and (_is_large(sampler, lanes, batch, deep) if frugal is None else frugal):
        return early((model, proposal), accumulated, sampler, lanes, batch, key)
    if not local and window is not None and window < batch.observations.shape[1]:
        return early((model, proposal), partial(windowed, window=window), sampler, lanes, batch, key)
    if deep and not frugal:
        # What goes through other particles than the filter's shares nothing with its run.
        shares = isinstance(sampler, SMC) and not any(_thins_to(lane) for lane in lanes)
        stays = all(has_local_densities(lane.rule, model) for lane in lanes)
        several = batch.observations.shape[1] > 1
        if shares and stays and several:
            return early((model, proposal), kept, sampler, lanes, batch, key)
        if several and not local:
            return early((model, proposal), reversed_, sampler, lanes, batch, key)
    if local:
        return batched(sampler, lanes, model, proposal, batch, key)
    if not deep and all(isinstance(lane.rule, StepRule) for lane in lanes):
        return early((model, proposal), partial(grouped, frugal=bool(frugal)), sampler, lanes, batch, key)
    return in_reverse(sampler, lanes, model, proposal, batch, key, frugal=bool(frugal))[:2]


def _is_large(sampler: Sampler, lanes: tuple[Lane, ...], batch: Series, deep: bool) -> bool:
    """Whether accumulating in the scan is the better way, by measurement (`benchmarks/gradients.py`).

    With a few parameters the batched pass took 0.87 to 0.98 of the accumulated one's time at up to 50 000 particles in
    all, and 1.24 at 500 000; with networks, 0.75 at a thousand and 1.29 at ten thousand. Its memory grows with all
    three sizes. So it serves where that is small.
    """
    series_list, steps, _ = batch.observations.shape
    gone_through = max(_thins_to(lane) or sampler.particles for lane in lanes)
    return series_list * steps * gone_through > (2000 if deep else 200_000)


def _thins_to(lane: Lane) -> int | None:
    return lane.rule.thins_to if isinstance(lane.rule, StepRule) else None
