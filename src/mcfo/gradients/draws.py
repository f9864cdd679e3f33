"""The draws of a sampler, for rules to replay: the steps of a running filter, or those of an accepted sweep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from mcfo.models.base import MarkovModel, Model
from mcfo.proposals.base import Proposal
from mcfo.series import Frame, Series
from mcfo.smc.compatibility import Fit, check_fit
from mcfo.smc.filter import SMC
from mcfo.smc.noise import Randomness, draw_noise, draw_randomness, step_keys
from mcfo.smc.pimh import PIMH, Chain
from mcfo.smc.step import imputation_keys, inherit, step_record, take_step
from mcfo.smc.step_scan import frames, join_first, scan_blocks, split_first
from mcfo.smc.trace import Record, StepDraw
from mcfo.smc.weights import uniform_log_weights
from mcfo.types import Key

Sampler = SMC | PIMH

_FRESH_TAG = 0x66726573
"""Separates the fresh noise for an accepted sweep from the sweep's own noise."""


class Run(eqx.Module):
    """The evidence and the diagnostics of a sampler's run over a batch.

    - `log_evidence`: log p̂(x_1:T) of each series; for PIMH, the mean over all sweeps.
    - `record`: the diagnostics of every step; for PIMH, those of the accepted sweep.
    """

    log_evidence: Float[Array, " series"]
    record: Record


class Taken(NamedTuple):
    """One step of one series as the sampler took it, or several with the time axis first.

    `remaining` is the number of steps from each to the last of its series.
    """

    frame: Frame
    draw: StepDraw
    remaining: Int[Array, "*steps"]


class Source(NamedTuple):
    """Functions that give the draws of a sampler, block by block. The time axis comes first, then the series.

    - `first`: maps the first frame to the state after it, its record and its draw.
    - `rows`: data that belong to each later step, for `numbers`.
    - `numbers`: maps the state before a block of steps, and their rows, to the random numbers of these steps.
    - `block`: maps a state, the frames and the numbers of a block to the state after it, its records and its draws.
    - `log_weights`: maps a state to its log-weights.
    - `finish`: maps the records of all steps to the run.
    """

    first: Callable[[Frame], tuple[Any, Record, StepDraw]]
    rows: Any
    numbers: Callable[[Any, Any], Any]
    block: Callable[[Any, Frame, Any], tuple[Any, Record, StepDraw]]
    log_weights: Callable[[Any], Float[Array, "series particles"]]
    finish: Callable[[Record], Run]


def batch_frames(proposal: Proposal, batch: Series) -> Frame:
    """Return all steps of a batch with the proposal's contexts; the time axis comes first."""
    return time_first(jax.vmap(lambda series: frames(proposal, series))(batch))


def remaining_steps(batch: Series) -> Int[Array, "steps series"]:
    """Return the number of steps from each step to the last of its series."""
    count = batch.observations.shape[1]
    lengths = jnp.full(len(batch.observations), count) if batch.length is None else batch.length
    return lengths[None, :] - jnp.arange(count)[:, None]


def batch_fit(model: Model, proposal: Proposal, steps: Frame) -> Fit:
    """Check a model and a proposal on a batch, and return the shape of the noise that the proposal needs."""
    return check_fit(model, proposal, jax.tree.map(lambda array: array[0, 0], steps))


def time_first(tree: Any) -> Any:
    """Return the arrays with their first two axes, series and time, exchanged."""
    return jax.tree.map(lambda array: jnp.swapaxes(array, 0, 1), tree)


def draw_source(sampler: Sampler, model: Model, proposal: Proposal, batch: Series, steps: Frame, key: Key) -> Source:
    """Return the draws of a sampler over a batch, with constant parameters: rules decide what is differentiated."""
    # A model and a proposal that do not fit together are refused here, once, while the program is traced.
    fit = batch_fit(model, proposal, steps)
    if isinstance(sampler, SMC):
        return _filtered(sampler, model, proposal, steps, key, fit)
    return _accepted(sampler, model, proposal, batch, steps, key, fit)


def _filtered(sampler: SMC, model: Model, proposal: Proposal, steps: Frame, key: Key, fit: Fit) -> Source:
    """Return the draws of a filter as it runs."""

    def first(frame: Frame) -> tuple[Any, Record, StepDraw]:
        randomness = draw_randomness(sampler, fit.initial, None, key, frame.series_id[None], frame.time[None])

        def step(frame: Frame, randomness: Randomness):
            return take_step(sampler, model, proposal, None, frame, randomness)

        outcome = jax.vmap(step)(frame, jax.tree.map(lambda array: array[0], randomness))
        return outcome.state, _records(outcome.increment, outcome.draw), outcome.draw

    def numbers(state: Any, rows: tuple[Any, Any]) -> Randomness:
        return draw_randomness(sampler, fit.step, state.log_weights.dtype, key, *rows)

    def block(state: Any, frames: Frame, randomness: Randomness) -> tuple[Any, Record, StepDraw]:
        def body(state: Any, step: Any) -> tuple[Any, tuple[Any, StepDraw]]:
            def of_series(state: Any, frame: Frame, randomness: Randomness):
                return take_step(sampler, model, proposal, state, frame, randomness)

            outcome = jax.vmap(of_series)(state, *step)
            # Neither is saved twice: the noise is an input of the loop, and the carried weights follow from its other
            # outputs.
            lean = eqx.tree_at(lambda draw: (draw.noise, draw.carried), outcome.draw, (None, None))
            return outcome.state, (outcome.increment, lean)

        inputs = (frames, randomness)
        if len(frames.time) == 1:  # no loop: XLA then merges the rule's computations with the filter's
            last, found = body(state, jax.tree.map(lambda array: array[0], inputs))
            increments, draws = jax.tree.map(lambda array: array[None], found)
        else:
            last, (increments, draws) = jax.lax.scan(body, state, inputs)
        # Quantities that follow from the weights are computed for all steps at once, outside of the loop: the time of a
        # small step is proportional to the number of its operations, whatever their size.
        log_weights: Any = draws.log_weights
        uniform = uniform_log_weights(sampler.particles, log_weights.dtype)
        before = jnp.concatenate([state.log_weights[None], log_weights[:-1]])
        carried = jnp.where(draws.resampled[..., None], uniform, before)
        draws = eqx.tree_at(
            lambda draw: (draw.noise, draw.carried),
            draws,
            (randomness.noise, carried),
            is_leaf=lambda leaf: leaf is None,
        )
        return last, jax.vmap(_records)(increments, draws), draws

    return Source(
        first=first,
        rows=split_first((steps.series_id, steps.time))[1],
        numbers=numbers,
        block=block,
        log_weights=lambda state: state.log_weights,
        finish=lambda record: Run(jnp.sum(record.log_evidence, axis=0), time_first(record)),
    )


def _records(increments: Float[Array, " series"], draws: Any) -> Record:
    """Return the diagnostics of one step of each series."""
    return jax.vmap(step_record)(increments, draws.log_weights, draws.ancestors, draws.resampled)


def _accepted(pimh: PIMH, model: Model, proposal: Proposal, batch: Series, steps: Frame, key: Key, fit: Fit) -> Source:
    """Return the draws of the sweep that PIMH accepted, with fresh noise.

    Acceptance selects the sweep by its noise, so a gradient through that noise is biased, also at the optimal proposal.
    The resampled histories are those of the sweep, and the latents are drawn from them again.
    """
    chains = jax.vmap(lambda series: pimh(model, proposal, series, key=key, history=True))(batch)

    def draws(chain: Chain, frames: Frame) -> tuple[StepDraw, StepDraw]:
        history, record = chain.trace.require_history(), chain.trace.record
        particles = history.ancestors.shape[-1]
        fresh = chain.key if pimh.reuse_noise else jax.random.fold_in(chain.key, _FRESH_TAG)
        noise_keys = step_keys(fresh, frames.series_id, frames.time).noise
        # Imputed values are not drawn again: the memories of later steps have read them.
        own_keys = step_keys(chain.key, frames.series_id, frames.time).imputation
        imputation = jax.vmap(lambda frame, key: imputation_keys(model, frame, key, particles))(frames, own_keys)
        uniform = uniform_log_weights(particles, history.log_weights.dtype)
        before = history.log_weights[:-1]
        carried = jnp.concatenate([uniform[None], jnp.where(record.resampled[1:, None], uniform, before)])
        # A Markov model remembers its last latent. Other memories are not in the history: a rule computes them again.
        markov = isinstance(model, MarkovModel)
        memory = jax.vmap(inherit)(history.latents[:-1], history.ancestors[1:]) if markov else None
        first_noise = draw_noise(fit.initial, particles, noise_keys[:1])[0]
        noise = draw_noise(fit.step, particles, noise_keys[1:])
        shared = (history.ancestors, record.resampled, carried, history.latents, imputation)
        first, rest = split_first(shared)

        def draw(shared: Any, memory: Any, noise: Any) -> StepDraw:
            ancestors, resampled, carried, latents, imputation = shared
            return StepDraw(ancestors, resampled, memory, carried, noise, latents, None, imputation)

        return draw(first, None, first_noise), draw(rest, memory, noise)

    first_draw, rest_draws = jax.vmap(draws, in_axes=(0, 1), out_axes=(0, 1))(chains, steps)
    record, log_weights = time_first((chains.trace.record, chains.trace.require_history().log_weights))
    (first_record, first_weights), rest = split_first((record, log_weights))

    def block(state: Any, frames: Frame, rows: Any) -> tuple[Any, Record, StepDraw]:
        records, log_weights, draws = rows
        return jnp.concatenate([state[None], log_weights])[-1], records, draws

    return Source(
        first=lambda frame: (first_weights, first_record, first_draw),
        rows=(*rest, rest_draws),
        numbers=lambda state, rows: rows,
        block=block,
        log_weights=lambda log_weights: log_weights,
        finish=lambda record: Run(chains.log_evidence, time_first(record)),
    )


def run_only(source: Source, steps: Frame, *, size: int) -> Run:
    """Return the run without a gradient, in blocks of steps: only the records grow with the length of the series."""
    first, rest = split_first(steps)
    state, first_record, _ = source.first(first)

    def of_block(state: Any, rows: Any) -> tuple[Any, Record]:
        frames, own = rows
        state, records, _ = source.block(state, frames, source.numbers(state, own))
        return state, records

    _, records = scan_blocks(of_block, state, (rest, source.rows), size=size)
    return source.finish(join_first(first_record, records))


def has_zero_weight(draw: StepDraw) -> Bool[Array, "*steps particles"]:
    """Return a mask of the particles whose weight is zero before or after the step."""
    before = draw.carried == -jnp.inf
    # Latents that are drawn again get new weights, so only the weights before the step are known.
    return before if draw.log_weights is None else before | (draw.log_weights == -jnp.inf)


def stand_in(tree: Any, draw: StepDraw) -> Any:
    """Return the arrays with a stand-in for each zero-weight particle: the values of the particle of largest weight.

    A zero-weight particle may be anywhere, and zero times an infinite derivative is NaN. A stand-in has finite
    derivatives, and its weight is still zero.
    """
    absent = has_zero_weight(draw)
    # If any particle has finite densities, the particle of largest weight does.
    best = jnp.argmax(draw.carried if draw.log_weights is None else draw.log_weights)

    def replace(array: Array) -> Array:
        return jnp.where(absent.reshape(-1, *[1] * (array.ndim - 1)), array[best], array)

    return jax.tree.map(replace, tree)


def live_contexts(frame: Frame) -> Any:
    """Return the differentiable arrays of the contexts."""
    return eqx.filter(frame.context, eqx.is_inexact_array)


def with_contexts(taken: Taken | None, contexts: Any) -> Taken | None:
    """Return the same steps with these contexts."""
    if taken is None:
        return None
    whole = eqx.combine(contexts, eqx.filter(taken.frame.context, eqx.is_inexact_array, inverse=True))
    frame = eqx.tree_at(lambda f: f.context, taken.frame, whole, is_leaf=lambda leaf: leaf is None)
    return Taken(frame, taken.draw, taken.remaining)
