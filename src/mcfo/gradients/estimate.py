"""A sampler's run over a batch, and the surrogate whose gradient the rules want.

Ordinary reverse mode serves where a gradient crosses the whole series. Elsewhere the gradient is computed in the
forward pass, block by block, and the backward pass only scales it: memory then grows with the block.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from mcfo.gradients.draws import (
    Run,
    Sampler,
    Taken,
    batch_frames,
    draw_source,
    has_zero_weight,
    live_contexts,
    remaining_steps,
    run_only,
    with_contexts,
)
from mcfo.gradients.replay import Replay, Strand, frozen, repaired
from mcfo.gradients.rules import SERIES, Lane, StepRule, has_networks, is_local
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.series import Series
from mcfo.smc.compatibility import is_positive, whole_number
from mcfo.smc.step_scan import join_first, scan_blocks, split_first
from mcfo.types import Key, Scalar

Gradient = Any

_FILTERED_AT_ONCE = 2**20
"""Particles of several steps whose random numbers are drawn together where only the value is wanted."""
_REPLAYED_AT_ONCE = 2**17
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
        replayed = max(getattr(lane.rule, "draws", None) or sampler.particles for lane in lanes)
        return Accumulated(1 if networks else max(1, _REPLAYED_AT_ONCE // (series * replayed)))
    if networks or not all(isinstance(lane.rule, StepRule) for lane in lanes):
        return Reverse()
    # With few parameters next to nothing is computed for each number that is saved: writing and reading takes the time.
    return Reverse(series=min(series, max(1, _REPLAYED_AT_ONCE // (steps * sampler.particles))))


def differentiable_run(
    sampler: Sampler,
    lanes: tuple[Lane, ...],
    model: Model,
    proposal: Proposal,
    batch: Series,
    key: Key,
    backward: Backward | None,
) -> tuple[Scalar, Run]:
    """The sum of the lanes' surrogates over a batch, of which only the gradient means something, and the run itself."""
    backward = choose(sampler, lanes, model, proposal, batch) if backward is None else backward
    return _early((model, proposal), backward, sampler, lanes, batch, key)


def _across_time(
    sampler: Sampler,
    lanes: tuple[Lane, ...],
    model: Model,
    proposal: Proposal,
    batch: Series,
    key: Key,
    *,
    checkpoint: bool,
    guard: bool,
) -> tuple[Scalar, tuple[Run, Bool[Array, ""]]]:
    """The surrogate of all steps, for ordinary reverse mode; the run, and whether a particle had weight zero in it."""
    steps, remaining = batch_frames(proposal, batch), remaining_steps(batch)
    source = draw_source(sampler, frozen(model), frozen(proposal), batch, frozen(steps), key)
    # A network's densities are computed for all steps at once, after the filter. With few parameters each step is
    # replayed right after the filter took it: XLA computes once what both need, and writes less to memory.
    stepwise = not has_networks(model, proposal)

    def replay(first: Taken | None, rest: Taken | None, strands: Any) -> tuple[Scalar, list[Strand]]:
        return _surrogate(lanes, (model, proposal), first, rest, strands, key, guard=guard, checkpoint=checkpoint)

    def of_block(carry: Any, rows: Any) -> tuple[Any, Any]:
        state, strands, total = carry
        frames, remaining, numbers = rows
        state, records, draws = source.block(state, frozen(frames), numbers)
        again = jax.checkpoint(replay) if checkpoint and stepwise else replay
        term, strands = again(None, Taken(frames, draws, remaining), strands)
        return (state, strands, total + term), (records, jnp.any(has_zero_weight(draws), axis=-1))

    (first, first_remaining), rest = split_first((steps, remaining))
    state, first_record, draw = source.first(frozen(first))
    total, strands = replay(Taken(first, draw, first_remaining), None, None)
    absent, blocks = jnp.any(has_zero_weight(draw)), []
    if len(rest[1]):
        rows = (*rest, source.numbers(state, source.rows))
        size = 1 if stepwise else len(rest[1])
        (state, strands, total), (later, found) = scan_blocks(of_block, (state, strands, total), rows, size=size)
        absent, blocks = absent | jnp.any(found), [later]

    def ends(strands: Any, log_weights: Any) -> Scalar:
        replays = [Replay(lane, model, proposal, key) for lane in lanes]
        return sum(
            (one.finish(strand, log_weights) for one, strand in zip(replays, strands, strict=True)), start=jnp.zeros(())
        )

    total = total + jnp.sum(jax.vmap(ends)(strands, source.log_weights(state)))
    return total, (source.finish(join_first(first_record, *blocks)), absent)


def _surrogate(
    lanes: tuple[Lane, ...],
    modules: tuple[Model, Proposal],
    first: Taken | None,
    rest: Taken | None,
    strands: list[Strand] | None,
    key: Key,
    *,
    guard: bool = True,
    checkpoint: bool = False,
) -> tuple[Scalar, list[Strand]]:
    """The sum of the lanes' surrogates over a block of steps of all series, and the strands after it."""

    def of_series(first: Taken | None, rest: Taken | None, strands: list[Strand] | None) -> tuple[Scalar, list[Strand]]:
        total, after = [], []
        for index, lane in enumerate(lanes):
            replay = Replay(lane, *modules, key, guard=guard, checkpoint=checkpoint)
            strand = None if strands is None else strands[index]
            if first is not None:
                term, strand = replay.first(first)
                total.append(term)
            if rest is not None and len(rest.remaining):
                term, strand = replay.rest(rest, strand)
                total.append(term)
            after.append(strand)
        return jnp.sum(jnp.stack(total)), after

    # The series first, then the time: other orders of nested `vmap` put a transposition around every operation.
    rest = jax.tree.map(lambda array: jnp.swapaxes(array, 0, 1), rest)
    totals, after = jax.vmap(of_series, axis_name=SERIES)(first, rest, strands)
    return jnp.sum(totals), after


@eqx.filter_custom_vjp
def _early(
    modules: tuple[Model, Proposal],
    backward: Backward,
    sampler: Sampler,
    lanes: tuple[Lane, ...],
    batch: Series,
    key: Key,
) -> tuple[Scalar, Run]:
    """A surrogate whose gradient is computed together with its value. The value alone costs no gradient."""
    steps = batch_frames(modules[1], batch)
    source = draw_source(sampler, *modules, batch, steps, key)
    size = _FILTERED_AT_ONCE // (len(batch.observations) * sampler.particles)
    run = run_only(source, steps, size=size)
    return _placeholder(run), run


@_early.def_fwd
def _forward(perturbed: Any, modules: tuple[Model, Proposal], *others: Any) -> tuple[Any, Gradient]:
    live, constant = eqx.partition(modules, perturbed)
    gradient, run = _gradient(live, constant, *others)
    return (_placeholder(run), run), gradient


@_early.def_bwd
def _scale(gradient: Gradient, cotangent: Any, *others: Any) -> Gradient:
    return jax.tree.map(lambda array: array * cotangent[0].astype(array.dtype), gradient)


def _placeholder(run: Run) -> Scalar:
    """The surrogate's value, which means nothing. It depends on the run, so that `vmap` sees that it varies with what
    the run does: a constant would get the sum of all cotangents."""
    return jax.lax.stop_gradient(jnp.sum(run.log_evidence))


def _gradient(
    live: Any,
    constant: Any,
    backward: Backward,
    sampler: Sampler,
    lanes: tuple[Lane, ...],
    batch: Series,
    key: Key,
) -> tuple[Gradient, Run]:
    """The gradient by the live parameters, in blocks of steps, of series, or of both."""
    if isinstance(backward, Accumulated):
        return _over_steps(live, constant, sampler, lanes, batch, key, head=1, size=backward.steps or 1, carries=False)
    assert isinstance(backward, Reverse)
    steps, checkpoint = batch.observations.shape[1], backward.checkpoint
    window = backward.window or steps

    def of_group(total: Gradient, group: Series) -> tuple[Gradient, Run]:
        if window < steps:
            gradient, run = _over_steps(
                live, constant, sampler, lanes, group, key, head=window, size=window, checkpoint=checkpoint
            )
        else:

            def surrogate(live: Any, guard: bool) -> tuple[Scalar, Any]:
                modules = eqx.combine(live, constant)
                return _across_time(sampler, lanes, *modules, group, key, checkpoint=checkpoint, guard=guard)

            gradient, (run, absent) = jax.grad(surrogate, has_aux=True)(live, False)
            gradient = repaired(absent, gradient, lambda: jax.grad(surrogate, has_aux=True)(live, True)[0])
        return jax.tree.map(jnp.add, total, gradient), run

    zero = jax.tree.map(jnp.zeros_like, live)
    return scan_blocks(of_group, zero, batch, size=backward.series or len(batch.observations))


def _over_steps(
    live: Any,
    constant: Any,
    sampler: Sampler,
    lanes: tuple[Lane, ...],
    batch: Series,
    key: Key,
    *,
    head: int,
    size: int,
    carries: bool = True,
    checkpoint: bool = False,
) -> tuple[Gradient, Run]:
    """The gradients of blocks of steps, added up: the first `head` steps, then `size` at a time.

    Particles, weights and, with `carries`, the lanes' memories continue from block to block; gradients do not.
    """
    model, proposal = eqx.combine(live, constant)
    steps, remaining = batch_frames(proposal, batch), remaining_steps(batch)
    source = draw_source(sampler, model, proposal, batch, steps, key)
    # A network's densities at a single step are the sampler's own numbers, which XLA then computes once. Stand-ins for
    # zero-weight particles are other numbers, so they are taken only where such a particle appeared.
    shared = size == 1 and not carries and has_networks(model, proposal)

    def gradient(first: Taken | None, rest: Taken | None, strands: Any) -> tuple[Gradient, Any]:
        arguments = live, *(None if one is None else live_contexts(one.frame) for one in (first, rest))

        def surrogate(arguments: Any, guard: bool) -> tuple[Scalar, Any]:
            live, first_contexts, rest_contexts = arguments
            taken = with_contexts(first, first_contexts), with_contexts(rest, rest_contexts)
            modules = eqx.combine(live, constant)
            total, after = _surrogate(
                lanes, modules, taken[0], taken[1], strands, key, guard=guard, checkpoint=checkpoint
            )
            return total, frozen(after) if carries else None

        found, after = jax.grad(surrogate, has_aux=True)(arguments, not shared)
        if shared:
            absent = [jnp.any(has_zero_weight(one.draw)) for one in (first, rest) if one is not None]
            found = repaired(
                jnp.any(jnp.stack(absent)), found, lambda: jax.grad(surrogate, has_aux=True)(arguments, True)[0]
            )
        return found, after

    (frame, first_remaining), rest = split_first((steps, remaining))
    state, first_record, draw = source.first(frame)
    near, far = (
        jax.tree.map(cut, (*rest, source.rows))
        for cut in (lambda array: array[: head - 1], lambda array: array[head - 1 :])
    )
    state, records, draws = (
        source.block(state, near[0], source.numbers(state, near[2])) if head > 1 else (state, None, None)
    )
    taken = None if draws is None else Taken(near[0], draws, near[1])
    (total, first_contexts, contexts), strands = gradient(Taken(frame, draw, first_remaining), taken, None)

    def of_block(carry: Any, rows: Any) -> tuple[Any, Any]:
        state, strands, total = carry
        frames, remaining, own = rows
        state, records, draws = source.block(state, frames, source.numbers(state, own))
        (found, _, contexts), strands = gradient(None, Taken(frames, draws, remaining), strands)
        return (state, strands, jax.tree.map(jnp.add, total, found)), (records, contexts)

    outputs = [] if taken is None else [(records, contexts)]
    if len(far[1]):
        (_, _, total), later = scan_blocks(of_block, (state, strands, total), far, size=size)
        outputs.append(later)
    records, contexts = join_first((first_record, first_contexts), *outputs)
    # The contexts were computed once for all steps, outside of the scan; so is their share of the gradient.
    _, pullback = jax.vjp(lambda live: live_contexts(batch_frames(eqx.combine(live, constant)[1], batch)), live)
    return jax.tree.map(jnp.add, total, *pullback(contexts)), source.finish(records)
