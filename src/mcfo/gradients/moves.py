"""Where the moves come from that rules go through again: a filter as it runs, or a sweep that PIMH accepted."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from mcfo.gradients.flow import frozen
from mcfo.missing import NoiseShape, draw_noise, draw_words, noise_from_words
from mcfo.models.base import MarkovModel, Model
from mcfo.proposals.base import Proposal
from mcfo.series import Frame, Series
from mcfo.smc.blocks import map_in_rounds, scan_in_blocks
from mcfo.smc.checks import Fit, check_fit
from mcfo.smc.filter import SMC, first_step, imputation_keys, inherit, next_step, resampled_step, split_first
from mcfo.smc.frames import frames, step_key
from mcfo.smc.keys import Keys, all_keys, keys_at, keys_of
from mcfo.smc.pimh import PIMH, Chain
from mcfo.smc.resampling import Always
from mcfo.smc.trace import Move, Record
from mcfo.smc.weights import uniform_log_weights
from mcfo.types import Key, LogWeights

Sampler = SMC | PIMH

_FRESH = 0x66726573
"""Keeps the noise that is drawn anew for an accepted sweep apart from the sweep's own."""


class Run(eqx.Module):
    """How a sampler's run over a batch went.

    - `log_evidence`: log p̂(x_1:T) of each series; of PIMH, the mean over all sweeps.
    - `record`: how every step went; of PIMH, in the accepted sweep.
    """

    log_evidence: Float[Array, " series"]
    record: Record


class Data(NamedTuple):
    """All steps of a batch, time in front; `remaining` counts the steps from each to its series's last."""

    frames: Frame
    remaining: Int[Array, "steps series"]


class Source(NamedTuple):
    """Where moves come from: the filter as it runs, or a sweep that ran before.

    `first` gives the state after the first step, `next` after one more, each with the record and the move. What the
    latter is given, beside the frame, `given` makes of `rest`, for several steps at once: keys and random numbers,
    `size` of these a step.

    `unnormalized`, where every step is resampled, is `next` of states whose log-weights are not normalized, without the
    record: see `resampled_step`.
    """

    first: Callable[[Frame], Any]
    next: Callable[[Any, Any, Frame], Any]
    rest: Any
    given: Callable[[Any], Any]
    size: int
    last_log_weights: Callable[[Any], LogWeights]
    log_evidence: Callable[[Record], Float[Array, " series"]]
    unnormalized: Callable[[Any, Any, Frame], Any] | None = None

    def scan(self, body: Callable[[Any, Any], tuple[Any, Any]], carry: Any, steps: Any) -> tuple[Any, Any]:
        """A scan over these steps after the first, each with what it is given, in memory that does not grow with T."""

        def prepare(now: Any) -> Any:
            return now[0], self.given(now[1])

        return scan_in_blocks(body, carry, (steps, self.rest), prepare, size=self.size)


def read_data(proposal: Proposal, batch: Series) -> Data:
    """A batch as the passes go through it, with the proposal's contexts."""
    steps = _time_first(jax.vmap(lambda one: frames(proposal, one))(batch))
    count = batch.observations.shape[1]
    lengths = jnp.full(len(batch.observations), count) if batch.length is None else batch.length
    return Data(steps, lengths[None, :] - jnp.arange(count)[:, None])


def _time_first(tree: Any) -> Any:
    return jax.tree.map(lambda array: jnp.swapaxes(array, 0, 1), tree)


def make_source(
    sampler: Sampler, model: Model, proposal: Proposal, batch: Series, steps: Frame, key: Key, *, freeze: bool = True
) -> Source:
    """The moves of a sampler on frozen parameters: it decides what is drawn, the rules what is differentiated.

    **Arguments:**

    - `freeze`: not needed where nobody differentiates by these parameters.
    """
    if freeze:
        model, proposal, steps = frozen(model), frozen(proposal), frozen(steps)
    fit = check_fit(model, proposal, jax.tree.map(lambda array: array[0, 0], steps))
    if isinstance(sampler, SMC):
        return _riding(sampler, model, proposal, steps, key, fit)
    return _replaying(sampler, model, proposal, batch, steps, key, fit)


def _riding(sampler: SMC, model: Model, proposal: Proposal, steps: Frame, key: Key, fit: Fit) -> Source:
    """Moves as the filter makes them."""

    def first(frame: Frame):
        def step(frame: Frame, keys: Keys, noise: Any):
            return first_step(sampler, model, proposal, frame, keys, fit, noise)

        keys = jax.vmap(partial(keys_at, key))(frame.series_id, frame.time)
        words = map_in_rounds(lambda key: draw_words(fit.initial, sampler.particles, key=key), keys.noise)
        return jax.vmap(step)(frame, keys, _numbers(fit.initial, words))

    # Numbers of several steps are made faster than those of each, and once for all that use them.
    def given(rest: tuple[Any, Any]) -> tuple[Keys, Any]:
        def hashes(keys: Keys) -> tuple[Keys, Any]:
            return keys, jax.vmap(lambda key: draw_words(fit.step, sampler.particles, key=key))(keys.noise)

        keys, words = map_in_rounds(hashes, all_keys(key, *rest))
        return keys, _numbers(fit.step, words)

    def following(state: Any, given: tuple[Keys, Any], frame: Frame):
        def step(state: Any, frame: Frame, keys: Keys, noise: Any):
            return next_step(sampler, model, proposal, state, frame, keys, fit, noise)

        return jax.vmap(step)(state, frame, *given)

    def unnormalized(state: Any, given: tuple[Keys, Any], frame: Frame):
        def step(state: Any, frame: Frame, keys: Keys, noise: Any):
            return resampled_step(sampler, model, proposal, state, frame, keys, fit, noise)

        return jax.vmap(step)(state, frame, *given)

    always = isinstance(sampler.criterion, Always) and steps.present is None
    return Source(
        first,
        following,
        split_first((steps.series_id, steps.time))[1],
        given,
        steps.time.shape[1] * sampler.particles * (1 if fit.step is None else math.prod(fit.step.shape)),
        lambda state: state.log_weights,
        lambda record: jnp.sum(record.log_evidence, axis=-1),
        unnormalized if always else None,
    )


def _numbers(noise: NoiseShape | None, words: Shaped[Array, "rows ..."]) -> Shaped[Array, "rows ..."]:
    """Noise from words, in a loop of its own: it would be made again by each of those that use it. Each row of words is
    a long one there, because the last few of every row are made one by one."""
    if noise is None:
        return words
    rows = words.reshape(len(words), math.prod(words.shape[1:]))
    return map_in_rounds(lambda row: noise_from_words(noise, row), rows).reshape(words.shape)


def _replaying(pimh: PIMH, model: Model, proposal: Proposal, batch: Series, steps: Frame, key: Key, fit: Fit) -> Source:
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
            return Move(ancestors, resampled, memory, carried, noise, latents, None, imputation)

        return move(one, None, first_noise), move(rest, memory, noise)

    first_moves, rest_moves = jax.vmap(moves, in_axes=(0, 1), out_axes=(0, 1))(chains, steps)
    record, log_weights = _time_first((chains.trace.record, chains.trace.require_history().log_weights))
    (first_record, first_weights), rest = split_first((record, log_weights))
    return Source(
        lambda frame: (first_weights, first_record, first_moves),
        lambda state, now, frame: (now[1], now[0], now[2]),
        (*rest, rest_moves),
        lambda now: now,
        0,
        lambda state: state,
        lambda record: chains.log_evidence,
    )


def finish(source: Source, first: Record, rest: Record) -> Run:
    """How it went, from the records of the first step and of the others."""
    record = jax.tree.map(lambda one, rest: jnp.swapaxes(jnp.concatenate([one[None], rest]), 0, 1), first, rest)
    return Run(source.log_evidence(record), record)
