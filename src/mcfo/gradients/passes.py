"""How surrogates are differentiated over a batch: accumulated in the filter's scan, in one batched pass, or in reverse.

| | for | memory | time |
|---|---|---|---|
| accumulated | rules that stay within the step, Markov models | does not grow with T (SMC) | best for large steps |
| batched | the same | T x B x K | best for small steps: one wide pass after a gradient-free filter |
| in reverse | everything else | T x B x K; with `frugal`, less, for a second forward pass | |

The sampler runs on frozen parameters in all three: it decides what is drawn, the rules decide what is differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from mcfo.distributions import draw_noise
from mcfo.gradients.flow import Strand, frozen, go_through
from mcfo.gradients.rules import SEQUENCES, PathRule, Rule, StepRule
from mcfo.models.base import MarkovModel, Model
from mcfo.proposals.base import Proposal
from mcfo.sequences import Frame, Sequence
from mcfo.smc.checks import Fit, check_fit
from mcfo.smc.filter import (
    SMC,
    Keys,
    first_step,
    imputation_keys,
    inherit,
    keys_of,
    next_step,
    split_first,
)
from mcfo.smc.frames import frames, step_key
from mcfo.smc.pimh import PIMH, Chain
from mcfo.smc.trace import Move, Record
from mcfo.smc.weights import uniform_log_weights
from mcfo.types import Key, LogWeights, Scalar

Sampler = SMC | PIMH

_FRESH = 0x66726573
"""Keeps the noise that is drawn anew for an accepted sweep apart from the sweep's own."""


class Lane(eqx.Module):
    """A rule and the sides that it teaches; the others are frozen in it."""

    rule: Rule
    theta: bool = eqx.field(static=True)
    phi: bool = eqx.field(static=True)


class Run(eqx.Module):
    """How a sampler's run over a batch went.

    - `log_evidence`: log p̂(x_1:T) of each sequence; of PIMH, the mean over all sweeps.
    - `record`: how every step went; of PIMH, in the accepted sweep.
    """

    log_evidence: Float[Array, " sequences"]
    record: Record


def differentiable_run(
    sampler: Sampler,
    lanes: tuple[Lane, ...],
    model: Model,
    proposal: Proposal,
    batch: Sequence,
    key: Key,
    *,
    frugal: bool | None,
) -> tuple[Scalar, Run]:
    """The sum of the lanes' surrogates over a batch, of which only the gradient means something, and the run itself.

    **Arguments:**

    - `frugal`: spend time to save memory; None chooses by the size of the problem.
    """
    if all(is_local(lane.rule, model) for lane in lanes):
        if _is_large(sampler, model, proposal, batch) if frugal is None else frugal:
            return _accumulated((model, proposal), sampler, lanes, batch, key)
        return _batched(sampler, lanes, model, proposal, batch, key)
    return _in_reverse(sampler, lanes, model, proposal, batch, key, bool(frugal))


def is_local(rule: Rule, model: Model) -> bool:
    """Whether no gradient of this rule crosses time."""
    return isinstance(model, MarkovModel) and isinstance(rule, StepRule) and rule.flow.latents != "all"


def _is_large(sampler: Sampler, model: Model, proposal: Proposal, batch: Sequence) -> bool:
    """Whether accumulating in the scan is the better way, by measurement (`make bench`).

    With a few parameters the batched pass took 0.66 to 1.19 of the accumulated one's time, and 1.09 at five million
    particles in all; with networks, 0.75 at a thousand and 1.29 at ten thousand. Its memory grows with all three sizes.
    So it serves where that is small.
    """
    parameters = sum(leaf.size for leaf in jax.tree.leaves((model, proposal)) if eqx.is_inexact_array(leaf))
    sequences, steps, _ = batch.observations.shape
    return parameters > 1000 or sequences * steps * sampler.particles > 1_000_000


class _Data(NamedTuple):
    """All steps of a batch, time in front; `remaining` counts the steps from each to its sequence's last."""

    frames: Frame
    remaining: Int[Array, "steps sequences"]


class _Source(NamedTuple):
    """Where moves come from: the filter as it runs, or a sweep that ran before.

    `first` gives the state after the first step, `next` after one more, each with the record and the move.
    """

    first: Callable[[Frame], Any]
    next: Callable[[Any, Any, Frame], Any]
    rest: Any
    last_log_weights: Callable[[Any], LogWeights]
    log_evidence: Callable[[Record], Float[Array, " sequences"]]


def _data(proposal: Proposal, batch: Sequence) -> _Data:
    steps = _time_first(jax.vmap(lambda one: frames(proposal, one))(batch))
    count = batch.observations.shape[1]
    lengths = jnp.full(len(batch.observations), count) if batch.length is None else batch.length
    return _Data(steps, lengths[None, :] - jnp.arange(count)[:, None])


def _time_first(tree: Any) -> Any:
    return jax.tree.map(lambda array: jnp.swapaxes(array, 0, 1), tree)


def _source(sampler: Sampler, model: Model, proposal: Proposal, batch: Sequence, steps: Frame, key: Key) -> _Source:
    model, proposal, steps = frozen(model), frozen(proposal), frozen(steps)
    fit = check_fit(model, proposal, jax.tree.map(lambda array: array[0, 0], steps))
    if isinstance(sampler, SMC):
        return _riding(sampler, model, proposal, steps, key, fit)
    return _replaying(sampler, model, proposal, batch, steps, key, fit)


def _riding(sampler: SMC, model: Model, proposal: Proposal, steps: Frame, key: Key, fit: Fit) -> _Source:
    """Moves as the filter makes them."""
    keys = jax.vmap(jax.vmap(lambda frame: keys_of(step_key(key, frame))))(steps)
    first_keys, rest = split_first(keys)

    def first(frame: Frame):
        return jax.vmap(lambda frame, keys: first_step(sampler, model, proposal, frame, keys, fit))(frame, first_keys)

    def following(state: Any, keys: Keys, frame: Frame):
        step = jax.vmap(lambda state, frame, keys: next_step(sampler, model, proposal, state, frame, keys, fit))
        return step(state, frame, keys)

    return _Source(
        first,
        following,
        rest,
        lambda state: state.log_weights,
        lambda record: jnp.sum(record.log_evidence, axis=-1),
    )


def _replaying(
    pimh: PIMH, model: Model, proposal: Proposal, batch: Sequence, steps: Frame, key: Key, fit: Fit
) -> _Source:
    """Moves of the sweep that PIMH accepted, with fresh noise.

    Acceptance chose the sweep by its noise, so a gradient through that noise is biased, also at the optimal proposal.
    The resampled histories are the sweep's; what is drawn from them is drawn anew.
    """
    chains = jax.vmap(lambda one: pimh(model, proposal, one, key=key, history=True))(batch)

    def moves(chain: Chain, frames: Frame):
        history = chain.trace.require_history()
        record = chain.trace.record
        particles = history.ancestors.shape[-1]
        fresh = chain.key if pimh.reuse_noise else jax.random.fold_in(chain.key, _FRESH)
        noise_keys = jax.vmap(lambda frame: keys_of(step_key(fresh, frame)).noise)(frames)
        own_keys = jax.vmap(lambda frame: keys_of(step_key(chain.key, frame)))(frames)
        imputation = jax.vmap(lambda frame, keys: imputation_keys(model, frame, keys, particles))(frames, own_keys)
        uniform = uniform_log_weights(particles, history.log_weights.dtype)
        before = history.log_weights[:-1]
        carried = jnp.concatenate([uniform[None], jnp.where(record.resampled[1:, None], uniform, before)])
        markov = isinstance(model, MarkovModel)
        memory = jax.vmap(inherit)(history.latents[:-1], history.ancestors[1:]) if markov else None
        first_noise = draw_noise(fit.initial, particles, key=noise_keys[0])
        noise = jax.vmap(lambda key: draw_noise(fit.step, particles, key=key))(noise_keys[1:])
        shared = (history.ancestors, record.resampled, carried, history.latents, imputation)
        one, rest = split_first(shared)

        def move(shared: Any, memory: Any, noise: Any) -> Move:
            ancestors, resampled, carried, latents, imputation = shared
            # What is drawn anew has weights of its own: of the dead, only those that began so are known.
            return Move(ancestors, resampled, memory, carried, noise, latents, carried, imputation)

        return move(one, None, first_noise), move(rest, memory, noise)

    first_moves, rest_moves = jax.vmap(moves, in_axes=(0, 1), out_axes=(0, 1))(chains, steps)
    record, log_weights = _time_first((chains.trace.record, chains.trace.require_history().log_weights))
    (first_record, first_weights), rest = split_first((record, log_weights))
    return _Source(
        lambda frame: (first_weights, first_record, first_moves),
        lambda state, now, frame: (now[1], now[0], now[2]),
        (*rest, rest_moves),
        lambda state: state,
        lambda record: chains.log_evidence,
    )


def _finish(source: _Source, first: Record, rest: Record) -> Run:
    record = jax.tree.map(lambda one, rest: jnp.swapaxes(jnp.concatenate([one[None], rest]), 0, 1), first, rest)
    return Run(source.log_evidence(record), record)


def _terms(
    lanes: tuple[Lane, ...], model: Model, proposal: Proposal, now: _Data, moves: Move, *, first: bool
) -> Scalar:
    """The surrogate of one step of all sequences, where no gradient crosses time."""

    def of_one(frame: Frame, move: Move, remaining: Any) -> Scalar:
        total = jnp.zeros((), move.carried.dtype)
        for lane in lanes:
            sides = _sides(lane, model, proposal, frame)
            step, _ = go_through(lane.rule.flow, *sides[:2], None, sides[2], move, remaining, first=first)
            term = lane.rule.term(step)  # pyright: ignore[reportAttributeAccessIssue]
            total = total + frame.unless_padding(term, jnp.zeros_like(term))
        return total

    return jnp.sum(jax.vmap(of_one)(now.frames, moves, now.remaining))


def _sides(lane: Lane, model: Model, proposal: Proposal, frame: Frame) -> tuple[Model, Proposal, Frame]:
    """Model, proposal and frame as one lane may differentiate them: it never leaks into the side of another."""
    return (
        model if lane.theta else frozen(model),
        proposal if lane.phi else frozen(proposal),
        frame if lane.phi else frozen(frame),
    )


def _batched(
    sampler: Sampler, lanes: tuple[Lane, ...], model: Model, proposal: Proposal, batch: Sequence, key: Key
) -> tuple[Scalar, Run]:
    """A gradient-free filter that keeps its moves, then all steps at once."""
    data = _data(proposal, batch)
    source = _source(sampler, model, proposal, batch, data.frames, key)
    first, rest = split_first(data)
    state, first_record, first_move = source.first(frozen(first.frames))

    def body(state, now):
        frame, given = now
        state, record, move = source.next(state, given, frame)
        return state, (record, move)

    _, (records, moves) = jax.lax.scan(body, state, (frozen(rest.frames), source.rest))
    surrogate = _terms(lanes, model, proposal, first, first_move, first=True)
    later = jax.vmap(lambda now, moves: _terms(lanes, model, proposal, now, moves, first=False))(rest, moves)
    return surrogate + jnp.sum(later), _finish(source, first_record, records)


@eqx.filter_custom_vjp
def _accumulated(
    modules: tuple[Model, Proposal], sampler: Sampler, lanes: tuple[Lane, ...], batch: Sequence, key: Key
) -> tuple[Scalar, Run]:
    """The value alone costs no gradient."""
    model, proposal = modules
    data = _data(proposal, batch)
    source = _source(sampler, model, proposal, batch, data.frames, key)
    first, rest = split_first(data.frames)
    state, first_record, _ = source.first(first)

    def body(state, now):
        frame, given = now
        state, record, _ = source.next(state, given, frame)
        return state, record

    _, records = jax.lax.scan(body, state, (rest, source.rest))
    run = _finish(source, first_record, records)
    return _stand_in(run), run


@_accumulated.def_fwd
def _accumulate(
    perturbed: Any,
    modules: tuple[Model, Proposal],
    sampler: Sampler,
    lanes: tuple[Lane, ...],
    batch: Sequence,
    key: Key,
) -> tuple[tuple[Scalar, Run], Any]:
    """The filter's scan, with the gradient of each step added up as it goes."""
    live, constant = eqx.partition(modules, perturbed)
    data = _data(modules[1], batch)
    source = _source(sampler, *modules, batch, data.frames, key)
    first, rest = split_first(data)
    state, first_record, first_move = source.first(first.frames)

    def gradient(now: _Data, moves: Move, first: bool) -> Any:
        contexts, other = eqx.partition(now.frames.context, eqx.is_inexact_array)

        def surrogate(arguments: Any) -> Scalar:
            live, contexts = arguments
            model, proposal = eqx.combine(live, constant)
            steps = eqx.tree_at(
                lambda f: f.context, now.frames, eqx.combine(contexts, other), is_leaf=lambda leaf: leaf is None
            )
            return _terms(lanes, model, proposal, _Data(steps, now.remaining), moves, first=first)

        return jax.grad(surrogate)((live, contexts))

    def body(carry, now):
        state, total = carry
        data, given = now
        state, record, move = source.next(state, given, data.frames)
        gradients, contexts = gradient(data, move, False)
        return (state, jax.tree.map(jnp.add, total, gradients)), (record, contexts)

    gradients, first_contexts = gradient(first, first_move, True)
    (_, gradients), (records, contexts) = jax.lax.scan(body, (state, gradients), (rest, source.rest))
    contexts = jax.tree.map(lambda one, rest: jnp.concatenate([one[None], rest]), first_contexts, contexts)

    def encode(live: Any) -> Any:
        proposal = eqx.combine(live, constant)[1]
        return eqx.filter(_data(proposal, batch).frames.context, eqx.is_inexact_array)

    # The contexts were made once for all steps, outside of the scan; so is their share of the gradient.
    (encoded,) = jax.vjp(encode, live)[1](contexts)
    gradients = jax.tree.map(jnp.add, gradients, encoded)
    run = _finish(source, first_record, records)
    return (_stand_in(run), run), gradients


def _stand_in(run: Run) -> Scalar:
    """For the surrogate, whose value means nothing. It depends on the run, so that `vmap` sees that it varies with what
    the run does: a constant would get the sum of all cotangents."""
    return jax.lax.stop_gradient(jnp.sum(run.log_evidence))


@_accumulated.def_bwd
def _scale(residuals: Any, cotangent: Any, perturbed: Any, modules: Any, *others: Any) -> Any:
    return jax.tree.map(lambda array: array * cotangent[0].astype(array.dtype), residuals)


def _in_reverse(
    sampler: Sampler,
    lanes: tuple[Lane, ...],
    model: Model,
    proposal: Proposal,
    batch: Sequence,
    key: Key,
    frugal: bool,
) -> tuple[Scalar, Run]:
    """Ordinary reverse mode through the scan; with `frugal` each step is gone through again on the way back."""
    data = _data(proposal, batch)
    source = _source(sampler, model, proposal, batch, data.frames, key)

    def along(lane: Lane, strand: Any, carried: Any, now: _Data, moves: Move, first: bool):
        def of_one(strand: Strand | None, carried: Any, frame: Frame, move: Move, remaining: Any):
            sides = _sides(lane, model, proposal, frame)
            step, after = go_through(lane.rule.flow, *sides[:2], strand, sides[2], move, remaining, first=first)
            if isinstance(lane.rule, PathRule):
                carried = lane.rule.start(step.log_weights) if first else carried
                later, term = lane.rule.extend(carried, step)
                later = frame.unless_padding(later, carried)
            else:
                later, term = None, lane.rule.term(step)  # pyright: ignore[reportAttributeAccessIssue]
            # A memory through which no gradient passes is the sampler's.
            term = frame.unless_padding(term, jnp.zeros_like(term))
            return None if is_local(lane.rule, model) else after, later, term

        return jax.vmap(of_one, axis_name=SEQUENCES)(strand, carried, now.frames, moves, now.remaining)

    def all_lanes(carries: Any, now: _Data, moves: Move, first: bool):
        strands, carried, terms = [], [], jnp.zeros((), moves.carried.dtype)
        for lane, strand, held in zip(lanes, *carries, strict=True):
            strand, held, term = along(lane, strand, held, now, moves, first)
            strands.append(strand)
            carried.append(held)
            terms = terms + jnp.sum(term)
        return (strands, carried), terms

    nothing = [None] * len(lanes)
    first, rest = split_first(data)
    state, first_record, first_move = source.first(frozen(first.frames))
    carries, surrogate = all_lanes((nothing, nothing), first, first_move, True)

    def body(carry, now):
        state, carries, surrogate = carry
        data, given = now
        state, record, move = source.next(state, given, frozen(data.frames))
        carries, terms = all_lanes(carries, data, move, False)
        return (state, carries, surrogate + terms), record

    body = jax.checkpoint(body) if frugal else body
    (state, (_, carried), surrogate), records = jax.lax.scan(body, (state, carries, surrogate), (rest, source.rest))
    for lane, held in zip(lanes, carried, strict=True):
        if isinstance(lane.rule, PathRule):
            surrogate = surrogate + jnp.sum(jax.vmap(lane.rule.finish)(held, source.last_log_weights(state)))
    return surrogate, _finish(source, first_record, records)
