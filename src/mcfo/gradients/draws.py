"""What a sampler drew, for rules to replay: a filter's steps as it takes them, or those of an accepted sweep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from mcfo.models.base import MarkovModel, Model
from mcfo.proposals.base import Proposal
from mcfo.series import Frame, Series
from mcfo.smc.compatibility import Fit, check_fit
from mcfo.smc.filter import SMC
from mcfo.smc.noise import Keys, block_keys, block_noise, draw_noise, step_keys
from mcfo.smc.pimh import PIMH, Chain
from mcfo.smc.step import imputation_keys, inherit, step_record, take_step
from mcfo.smc.step_scan import frames, join_first, scan_blocks, split_first
from mcfo.smc.trace import Record, StepDraw
from mcfo.smc.weights import uniform_log_weights
from mcfo.types import Key

Sampler = SMC | PIMH

_FRESH_TAG = 0x66726573
"""Separates the noise that is drawn anew for an accepted sweep from the sweep's own."""


class Run(eqx.Module):
    """How a sampler's run over a batch went.

    - `log_evidence`: log p̂(x_1:T) of each series; of PIMH, the mean over all sweeps.
    - `record`: how every step went; of PIMH, in the accepted sweep.
    """

    log_evidence: Float[Array, " series"]
    record: Record


class Source(NamedTuple):
    """Where draws come from; the time axis comes first, then the series.

    - `first`: from the first frame to the state after it, the record and the draw.
    - `block`: the same for several more steps, from a state, their frames, and their rows of `rows`.
    - `log_weights`: those of a state.
    - `finish`: the run, from the records of all steps.
    """

    first: Callable[[Frame], tuple[Any, Record, StepDraw]]
    block: Callable[[Any, Frame, Any], tuple[Any, Record, StepDraw]]
    rows: Any
    log_weights: Callable[[Any], Float[Array, "series particles"]]
    finish: Callable[[Record], Run]


def batch_frames(proposal: Proposal, batch: Series) -> Frame:
    """All steps of a batch with the proposal's contexts; the time axis comes first."""
    return _time_first(jax.vmap(lambda series: frames(proposal, series))(batch))


def remaining_steps(batch: Series) -> Int[Array, "steps series"]:
    """How many steps there are from each to its series's last."""
    count = batch.observations.shape[1]
    lengths = jnp.full(len(batch.observations), count) if batch.length is None else batch.length
    return lengths[None, :] - jnp.arange(count)[:, None]


def batch_fit(model: Model, proposal: Proposal, steps: Frame) -> Fit:
    """What noise the proposal wants, for the steps of a batch."""
    return check_fit(model, proposal, jax.tree.map(lambda array: array[0, 0], steps))


def _time_first(tree: Any) -> Any:
    return jax.tree.map(lambda array: jnp.swapaxes(array, 0, 1), tree)


def draw_source(sampler: Sampler, model: Model, proposal: Proposal, batch: Series, steps: Frame, key: Key) -> Source:
    """The draws of a sampler over a batch. Its parameters are numbers here: rules decide what is differentiated."""
    fit = batch_fit(model, proposal, steps)
    if isinstance(sampler, SMC):
        return _filtered(sampler, model, proposal, steps, key, fit)
    return _accepted(sampler, model, proposal, batch, steps, key, fit)


def _filtered(sampler: SMC, model: Model, proposal: Proposal, steps: Frame, key: Key, fit: Fit) -> Source:
    """Draws as the filter takes its steps."""

    def first(frame: Frame) -> tuple[Any, Record, StepDraw]:
        one = jax.tree.map(lambda array: array[None], frame)
        keys = block_keys(key, one.series_id, one.time)
        noise = block_noise(fit.initial, sampler.particles, keys)

        def step(frame: Frame, keys: Keys, noise: Any):
            return take_step(sampler, model, proposal, None, frame, keys, fit.initial, noise)

        outcome = jax.vmap(step)(frame, *jax.tree.map(lambda array: array[0], (keys, noise)))
        return outcome.state, _records(outcome.increment, outcome.draw), outcome.draw

    def block(state: Any, frames: Frame, rows: tuple[Any, Any]) -> tuple[Any, Record, StepDraw]:
        keys = block_keys(key, *rows)
        noise = block_noise(fit.step, sampler.particles, keys)

        def body(state: Any, step: Any) -> tuple[Any, tuple[Any, StepDraw]]:
            def of_series(state: Any, frame: Frame, keys: Keys, noise: Any):
                return take_step(sampler, model, proposal, state, frame, keys, fit.step, noise)

            outcome = jax.vmap(of_series)(state, *step)
            # What the loop was given, or what follows from its other outputs, is not saved a second time.
            lean = eqx.tree_at(lambda draw: (draw.noise, draw.carried), outcome.draw, (None, None))
            return outcome.state, (outcome.increment, lean)

        inputs = (frames, keys, noise)
        if len(frames.time) == 1:  # no loop: XLA then sees what a rule computes again
            last, found = body(state, jax.tree.map(lambda array: array[0], inputs))
            increments, draws = jax.tree.map(lambda array: array[None], found)
        else:
            last, (increments, draws) = jax.lax.scan(body, state, inputs)
        log_weights: Any = draws.log_weights
        uniform = uniform_log_weights(sampler.particles, log_weights.dtype)
        before = jnp.concatenate([state.log_weights[None], log_weights[:-1]])
        carried = jnp.where(draws.resampled[..., None], uniform, before)
        draws = eqx.tree_at(
            lambda draw: (draw.noise, draw.carried), draws, (noise, carried), is_leaf=lambda leaf: leaf is None
        )
        return last, jax.vmap(_records)(increments, draws), draws

    return Source(
        first=first,
        block=block,
        rows=split_first((steps.series_id, steps.time))[1],
        log_weights=lambda state: state.log_weights,
        finish=lambda record: Run(jnp.sum(record.log_evidence, axis=0), _time_first(record)),
    )


def _records(increments: Float[Array, " series"], draws: Any) -> Record:
    """How one step of each series went."""
    return jax.vmap(step_record)(increments, draws.log_weights, draws.ancestors, draws.resampled)


def _accepted(pimh: PIMH, model: Model, proposal: Proposal, batch: Series, steps: Frame, key: Key, fit: Fit) -> Source:
    """Draws of the sweep that PIMH accepted, with fresh noise.

    Acceptance chose the sweep by its noise, so a gradient through that noise is biased, also at the optimal proposal.
    The resampled histories are the sweep's; what is drawn from them is drawn anew.
    """
    chains = jax.vmap(lambda series: pimh(model, proposal, series, key=key, history=True))(batch)

    def draws(chain: Chain, frames: Frame) -> tuple[StepDraw, StepDraw]:
        history, record = chain.trace.require_history(), chain.trace.record
        particles = history.ancestors.shape[-1]
        fresh = chain.key if pimh.reuse_noise else jax.random.fold_in(chain.key, _FRESH_TAG)
        noise_keys = jax.vmap(lambda frame: step_keys(fresh, frame).noise)(frames)
        own_keys = jax.vmap(lambda frame: step_keys(chain.key, frame))(frames)
        imputation = jax.vmap(lambda frame, keys: imputation_keys(model, frame, keys, particles))(frames, own_keys)
        uniform = uniform_log_weights(particles, history.log_weights.dtype)
        before = history.log_weights[:-1]
        carried = jnp.concatenate([uniform[None], jnp.where(record.resampled[1:, None], uniform, before)])
        markov = isinstance(model, MarkovModel)
        memory = jax.vmap(inherit)(history.latents[:-1], history.ancestors[1:]) if markov else None
        first_noise = draw_noise(fit.initial, particles, key=noise_keys[0])
        noise = jax.vmap(lambda key: draw_noise(fit.step, particles, key=key))(noise_keys[1:])
        shared = (history.ancestors, record.resampled, carried, history.latents, imputation)
        first, rest = split_first(shared)

        def draw(shared: Any, memory: Any, noise: Any) -> StepDraw:
            ancestors, resampled, carried, latents, imputation = shared
            return StepDraw(ancestors, resampled, memory, carried, noise, latents, None, imputation)

        return draw(first, None, first_noise), draw(rest, memory, noise)

    first_draw, rest_draws = jax.vmap(draws, in_axes=(0, 1), out_axes=(0, 1))(chains, steps)
    record, log_weights = _time_first((chains.trace.record, chains.trace.require_history().log_weights))
    (first_record, first_weights), rest = split_first((record, log_weights))

    def block(state: Any, frames: Frame, rows: Any) -> tuple[Any, Record, StepDraw]:
        records, log_weights, draws = rows
        return jnp.concatenate([state[None], log_weights])[-1], records, draws

    return Source(
        first=lambda frame: (first_weights, first_record, first_draw),
        block=block,
        rows=(*rest, rest_draws),
        log_weights=lambda log_weights: log_weights,
        finish=lambda record: Run(chains.log_evidence, _time_first(record)),
    )


def run_only(source: Source, steps: Frame, *, size: int) -> Run:
    """The run without any gradient, in blocks of steps: memory does not grow with the series but for the records."""
    first, rest = split_first(steps)
    state, first_record, _ = source.first(first)

    def of_block(state: Any, rows: Any) -> tuple[Any, Record]:
        state, records, _ = source.block(state, *rows)
        return state, records

    _, records = scan_blocks(of_block, state, (rest, source.rows), size=size)
    return source.finish(join_first(first_record, records))
