"""A sampler's run over a batch, and the surrogate whose gradient the rules want.

Ordinary reverse mode serves where a gradient crosses the whole series. Elsewhere the gradient is computed in the
forward pass, block by block, and the backward pass only scales it: memory then grows with the block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from mcfo.gradients.backward import Accumulated, Backward, Reverse, choose
from mcfo.gradients.draws import Run, Sampler, batch_frames, draw_source, remaining_steps, run_only
from mcfo.gradients.replay import Replay, Strand, Taken, frozen, has_zero_weight
from mcfo.gradients.rules import SERIES, Lane, has_networks
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.series import Series
from mcfo.smc.step_scan import join_first, scan_blocks, split_first
from mcfo.types import Key, Scalar

Gradient = Any

_PARTICLES_AT_ONCE = 2**20
"""Particles of several steps whose random numbers are drawn together where only the value is wanted."""


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
    if isinstance(backward, Reverse) and _is_whole(backward, batch):
        return _whole(sampler, lanes, model, proposal, batch, key, backward.checkpoint)
    return _early((model, proposal), backward, sampler, lanes, batch, key)


def _is_whole(backward: Reverse, batch: Series) -> bool:
    """Whether neither the steps nor the series are cut into blocks."""
    series, steps, _ = batch.observations.shape
    return (backward.window or steps) >= steps and (backward.series or series) >= series


def _whole(
    sampler: Sampler,
    lanes: tuple[Lane, ...],
    model: Model,
    proposal: Proposal,
    batch: Series,
    key: Key,
    checkpoint: bool,
) -> tuple[Scalar, Run]:
    """A gradient-free run, then all steps as the lanes replay them; ordinary reverse mode goes back through that."""
    steps, remaining = batch_frames(proposal, batch), remaining_steps(batch)
    source = draw_source(sampler, frozen(model), frozen(proposal), batch, frozen(steps), key)
    (first, first_remaining), (rest, rest_remaining) = split_first((steps, remaining))
    state, first_record, first_draw = source.first(frozen(first))
    last, records, draws = source.block(state, frozen(rest), source.rows)
    total, strands = _surrogate(
        lanes,
        (model, proposal),
        Taken(first, first_draw, first_remaining),
        Taken(rest, draws, rest_remaining),
        None,
        key,
        checkpoint=checkpoint,
    )

    def ends(strands: Any, log_weights: Any) -> Scalar:
        replays = [Replay(lane, model, proposal, key) for lane in lanes]
        return sum(
            (one.finish(strand, log_weights) for one, strand in zip(replays, strands, strict=True)), start=jnp.zeros(())
        )

    total = total + jnp.sum(jax.vmap(ends)(strands, source.log_weights(last)))
    return total, source.finish(join_first(first_record, records))


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
    size = _PARTICLES_AT_ONCE // (len(batch.observations) * sampler.particles)
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

            def surrogate(live: Any) -> tuple[Scalar, Run]:
                model, proposal = eqx.combine(live, constant)
                return _whole(sampler, lanes, model, proposal, group, key, checkpoint)

            gradient, run = jax.grad(surrogate, has_aux=True)(live)
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
        arguments = live, _contexts(first), _contexts(rest)

        def surrogate(arguments: Any, guard: bool) -> tuple[Scalar, Any]:
            live, first_contexts, rest_contexts = arguments
            taken = _with_contexts(first, first_contexts), _with_contexts(rest, rest_contexts)
            modules = eqx.combine(live, constant)
            total, after = _surrogate(
                lanes, modules, taken[0], taken[1], strands, key, guard=guard, checkpoint=checkpoint
            )
            return total, frozen(after) if carries else None

        found, after = jax.grad(surrogate, has_aux=True)(arguments, not shared)
        if shared:
            absent = [jnp.any(has_zero_weight(one.draw)) for one in (first, rest) if one is not None]
            found = _repaired(
                jnp.any(jnp.stack(absent)), found, lambda: jax.grad(surrogate, has_aux=True)(arguments, True)[0]
            )
        return found, after

    (frame, first_remaining), rest = split_first((steps, remaining))
    state, first_record, draw = source.first(frame)
    near, far = (
        jax.tree.map(cut, (*rest, source.rows))
        for cut in (lambda array: array[: head - 1], lambda array: array[head - 1 :])
    )
    state, records, draws = source.block(state, near[0], near[2]) if head > 1 else (state, None, None)
    taken = None if draws is None else Taken(near[0], draws, near[1])
    (total, first_contexts, contexts), strands = gradient(Taken(frame, draw, first_remaining), taken, None)

    def of_block(carry: Any, rows: Any) -> tuple[Any, Any]:
        state, strands, total = carry
        frames, remaining, own = rows
        state, records, draws = source.block(state, frames, own)
        (found, _, contexts), strands = gradient(None, Taken(frames, draws, remaining), strands)
        return (state, strands, jax.tree.map(jnp.add, total, found)), (records, contexts)

    outputs = [] if taken is None else [(records, contexts)]
    if len(far[1]):
        (_, _, total), later = scan_blocks(of_block, (state, strands, total), far, size=size)
        outputs.append(later)
    records, contexts = _joined((first_record, first_contexts), *outputs)
    # The contexts were computed once for all steps, outside of the scan; so is their share of the gradient.
    (encoded,) = jax.vjp(lambda live: _encoded(eqx.combine(live, constant)[1], batch), live)[1](contexts)
    return jax.tree.map(jnp.add, total, encoded), source.finish(records)


def _joined(first: Any, *blocks: Any) -> Any:
    """The outputs of the first step and of the blocks after it."""
    return jax.tree.map(lambda one, *rest: jnp.concatenate([one[None], *rest]), first, *blocks)


def _repaired(absent: Bool[Array, ""], once: Gradient, again: Callable[[], Gradient]) -> Gradient:
    """The gradient, computed again where a particle had weight zero.

    A loop of at most one iteration, not a condition: under `vmap` both branches of a condition are computed.
    """
    state = jax.lax.while_loop(lambda state: state[0], lambda state: (jnp.zeros_like(absent), again()), (absent, once))
    return state[1]


def _encoded(proposal: Proposal, batch: Series) -> Any:
    return eqx.filter(batch_frames(proposal, batch).context, eqx.is_inexact_array)


def _contexts(taken: Taken | None) -> Any:
    """What is differentiable of the contexts."""
    return None if taken is None else eqx.filter(taken.frame.context, eqx.is_inexact_array)


def _with_contexts(taken: Taken | None, contexts: Any) -> Taken | None:
    """The same steps with these contexts."""
    if taken is None:
        return None
    whole = eqx.combine(contexts, eqx.filter(taken.frame.context, eqx.is_inexact_array, inverse=True))
    frame = eqx.tree_at(lambda f: f.context, taken.frame, whole, is_leaf=lambda leaf: leaf is None)
    return Taken(frame, taken.draw, taken.remaining)
