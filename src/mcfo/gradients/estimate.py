"""A sampler's run over a batch, and the surrogate whose gradient is the estimate of the rules.

The gradient is computed in the forward pass, and the backward pass only scales it. Where a gradient crosses time it is
computed by ordinary reverse mode over the whole series or a window; elsewhere block by block, in the memory of a block.
"""

from __future__ import annotations

from functools import partial
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
    time_first,
    with_contexts,
)
from mcfo.gradients.replay import Replay, Strand, frozen, repaired
from mcfo.gradients.rules import SERIES, Accumulated, Backward, Lane, Reverse, StepRule, has_networks, is_local
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.series import Series
from mcfo.smc.step_scan import join_first, scan_blocks, split_first
from mcfo.smc.trace import State
from mcfo.types import Key, Scalar

Gradient = Any

_FILTERED_AT_ONCE = 2**20
"""The number of particles, over several steps, whose random numbers are drawn together if no gradient is needed."""
_REPLAYED_AT_ONCE = 2**17
"""The number of particles, over several steps or series, that are differentiated together: those that fit the caches
of a core."""


def choose(sampler: Sampler, lanes: tuple[Lane, ...], model: Model, proposal: Proposal, batch: Series) -> Backward:
    """Return the fastest way for a problem of this size, as `benchmarks/gradients.py` measured it."""
    series, steps, _ = batch.observations.shape
    networks = has_networks(model, proposal)
    if all(is_local(lane.rule, model) for lane in lanes):
        replayed = max(getattr(lane.rule, "draws", None) or sampler.particles for lane in lanes)
        return Accumulated(1 if networks else max(1, _REPLAYED_AT_ONCE // (series * replayed)))
    if networks or not all(isinstance(lane.rule, StepRule) for lane in lanes):
        return Reverse()
    # With few parameters, writing and reading saved numbers takes longer than computing them. Small groups stay in
    # the caches.
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
    """Return the sum of the lanes' surrogates over a batch, of which only the gradient has a meaning, and the run."""
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
    """Return the surrogate of all steps, for ordinary reverse mode; the run; and whether a particle had weight zero."""
    steps, remaining = batch_frames(proposal, batch), remaining_steps(batch)
    source = draw_source(sampler, frozen(model), frozen(proposal), batch, frozen(steps), key)
    # With few parameters, each step is replayed as a whole right after the filter took it: XLA merges the computations
    # that both share, and little is written to memory. With a network, only the recurrence of the memories is in the
    # loop. The densities of all steps at once are a few large matrix products.
    stepwise = not has_networks(model, proposal)
    replay = partial(_surrogate, lanes, (model, proposal), key, guard=guard, checkpoint=checkpoint)

    def of_step(carry: Any, rows: Any) -> tuple[Any, Any]:
        state, strands, total = carry
        frames, remaining, numbers = rows
        state, records, draws = source.block(state, frozen(frames), numbers)
        taken, saved = Taken(frames, draws, remaining), None
        if stepwise:
            again = jax.checkpoint(replay) if checkpoint else replay
            term, strands = again(None, taken, strands)
            total = total + term
        else:
            strands, saved = _recurred(lanes, (model, proposal), taken, strands, key, guard, checkpoint)
            if saved[0] is not None and isinstance(state, State) and not guard:
                # These equal the sampler's own memories, which then need not be computed. Without this line XLA
                # computes both: it does not see that parameters and frozen parameters are equal (jaxlib 0.10).
                state = eqx.tree_at(lambda state: state.memory, state, frozen(strands[0]))
            saved = draws, saved
        return (state, strands, total), (records, jnp.any(has_zero_weight(draws), axis=-1), saved)

    (first, first_remaining), rest = split_first((steps, remaining))
    state, first_record, draw = source.first(frozen(first))
    total, strands = replay(Taken(first, draw, first_remaining), None, None)
    absent, blocks = jnp.any(has_zero_weight(draw)), []
    if len(rest[1]):
        rows = (*rest, source.numbers(state, source.rows))
        start = strands if stepwise else [strand.memory for strand in strands]
        (state, after, total), (records, found, saved) = scan_blocks(of_step, (state, start, total), rows, size=1)
        absent, blocks = absent | jnp.any(found), [records]
        if stepwise:
            strands = after
        else:
            draws, recurred = saved
            term, strands = replay(None, Taken(rest[0], draws, rest[1]), strands, (after, recurred))
            total = total + term

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
    key: Key,
    first: Taken | None,
    rest: Taken | None,
    strands: list[Strand] | None,
    recurred: tuple[Any, Any] = (None, None),
    *,
    guard: bool,
    checkpoint: bool,
) -> tuple[Scalar, list[Strand]]:
    """Return the sum of the lanes' surrogates over a block of steps of all series, and the strands after it.

    `recurred` is the result of `_recurred` for the block, if it was called before.
    """

    def of_series(first: Taken | None, rest: Taken | None, strands: Any, last: Any, saved: Any):
        total, after = [], []
        for index, lane in enumerate(lanes):
            replay = Replay(lane, *modules, key, guard=guard, checkpoint=checkpoint)
            strand = None if strands is None else strands[index]
            if first is not None:
                term, strand = replay.first(first)
                total.append(term)
            if rest is not None and len(rest.remaining):
                own = None if last is None or saved[index] is None else (last[index], saved[index])
                term, strand = replay.rest(rest, strand, own)
                total.append(term)
            after.append(strand)
        return jnp.sum(jnp.stack(total)), after

    # `vmap` over the series outside, over time inside: the other order puts a transposition around every operation.
    last, saved = recurred
    rest, saved = time_first((rest, saved))
    totals, after = jax.vmap(of_series, axis_name=SERIES)(first, rest, strands, last, saved)
    return jnp.sum(totals), after


def _recurred(
    lanes: tuple[Lane, ...],
    modules: tuple[Model, Proposal],
    taken: Taken,
    memories: list[Any],
    key: Key,
    guard: bool,
    checkpoint: bool,
) -> tuple[list[Any], list[Any]]:
    """Return the lanes' memories after a block of steps, and those before each step with its latents, time first."""

    def of_series(taken: Taken, memories: list[Any]) -> tuple[list[Any], list[Any]]:
        after, saved = [], []
        for lane, memory in zip(lanes, memories, strict=True):
            replay = Replay(lane, *modules, key, guard=guard, checkpoint=checkpoint)
            last, found = replay.recur(taken, memory) or (memory, None)
            after.append(last)
            saved.append(found)
        return after, saved

    after, saved = jax.vmap(of_series, axis_name=SERIES)(time_first(taken), memories)
    return after, time_first(saved)


@eqx.filter_custom_vjp
def _early(
    modules: tuple[Model, Proposal],
    backward: Backward,
    sampler: Sampler,
    lanes: tuple[Lane, ...],
    batch: Series,
    key: Key,
) -> tuple[Scalar, Run]:
    """Return a surrogate whose gradient is computed in the forward pass. The value alone needs no gradient."""
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
    """Return a value for the surrogate, which means nothing.

    It depends on the run, so that `vmap` batches it with the run: a constant would get the sum of all cotangents.
    """
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
    """Return the gradient with respect to the live parameters, in blocks of steps, of series, or of both."""
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
                model, proposal = eqx.combine(live, constant)
                return _across_time(sampler, lanes, model, proposal, group, key, checkpoint=checkpoint, guard=guard)

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
    """Return the sum of the gradients of blocks of steps: the first `head` steps, then `size` at a time.

    Particles, weights and, with `carries`, the lanes' memories continue from block to block; gradients do not.
    """
    model, proposal = eqx.combine(live, constant)
    steps, remaining = batch_frames(proposal, batch), remaining_steps(batch)
    source = draw_source(sampler, model, proposal, batch, steps, key)
    # At a single step, a network's densities equal those of the sampler, and XLA computes them once. Stand-ins for
    # zero-weight particles would have other densities, so they are used only if such a particle appears.
    shared = size == 1 and not carries and has_networks(model, proposal)

    def gradient(first: Taken | None, rest: Taken | None, strands: Any) -> tuple[Gradient, Any]:
        arguments = live, *(None if one is None else live_contexts(one.frame) for one in (first, rest))

        def surrogate(arguments: Any, guard: bool) -> tuple[Scalar, Any]:
            live, first_contexts, rest_contexts = arguments
            taken = with_contexts(first, first_contexts), with_contexts(rest, rest_contexts)
            modules = eqx.combine(live, constant)
            total, after = _surrogate(lanes, modules, key, *taken, strands, guard=guard, checkpoint=checkpoint)
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
    # The contexts are computed once for all steps, outside of the scan, and so is the gradient through them.
    _, pullback = jax.vjp(lambda live: live_contexts(batch_frames(eqx.combine(live, constant)[1], batch)), live)
    return jax.tree.map(jnp.add, total, *pullback(contexts)), source.finish(records)
