"""Sequential Monte Carlo: the one scan that every objective and every task runs."""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from mcfo.missing import draw_noise, from_noise, impute, log_prob, observed_log_prob
from mcfo.models.base import MarkovModel, Model
from mcfo.proposals.base import Proposal
from mcfo.series import Frame, Series
from mcfo.smc.checks import (
    Fit,
    check_arguments,
    check_fit,
    check_frame,
    check_instance,
    check_series,
    is_positive,
    whole_number,
)
from mcfo.smc.frames import frame_at, frames, step_key
from mcfo.smc.keys import Keys, all_keys, keys_of
from mcfo.smc.resampling import Criterion, ESSBelow, Never, Resampling, Systematic
from mcfo.smc.trace import History, Move, Record, State, Trace
from mcfo.smc.weights import normalize, relative, uniform_log_weights
from mcfo.types import Ancestors, Key, LogWeights, Memory, Scalar


class SMC(eqx.Module):
    """Sequential Monte Carlo with K particles (Algorithm 1 of the paper; Doucet and Johansen, 2009).

    At each step the histories are resampled by the last weights if the criterion asks for it, each particle draws
    z_t ~ q(z_t | h_t-1, x_t), and its weight is multiplied by

        w_t = p(z_t | h_t-1) p(x_t | z_t, h_t-1) / q(z_t | h_t-1, x_t).

    The weights are carried where nothing was resampled, so exp(`log_evidence`) is unbiased for p(x_1:T) with every
    scheme and every criterion. Particles carry their memory with them, so histories are true ancestral paths.

    **Arguments:**

    - `particles`: K.
    - `resampling`: how ancestors are drawn; systematic by default.
    - `criterion`: when; by default if the effective sample size falls below half of K.
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
        """Runs over a whole series.

        **Arguments:**

        - `history`: keep every particle of every step (memory grows with the length); needed for smoothing.
        """
        check_arguments(model, proposal, key)
        check_series(series)
        return _run(self, model, proposal, series, key, history)

    def init(self, model: Model, proposal: Proposal, frame: Frame, *, key: Key) -> tuple[State, Record]:
        """The first step. `key` is the run's: each step derives its own from it and the frame's number and time."""
        check_arguments(model, proposal, key)
        check_frame(frame)
        return _public_init(self, model, proposal, frame, key)

    def step(self, model: Model, proposal: Proposal, state: State, frame: Frame, *, key: Key) -> tuple[State, Record]:
        """One more step."""
        check_arguments(model, proposal, key)
        check_frame(frame)
        if len(state.log_weights) != self.particles:
            raise ValueError(
                f"The state has {len(state.log_weights)} particles, but this sampler has {self.particles}. Go on with "
                "the sampler that made the state."
            )
        return _public_step(self, model, proposal, state, frame, key)


def sis(particles: int) -> SMC:
    """Sequential importance sampling: a filter that never resamples."""
    return SMC(particles, criterion=Never())


@eqx.filter_jit
def _run(sampler: SMC, model: Model, proposal: Proposal, series: Series, key: Key, history: bool) -> Trace:
    steps = frames(proposal, series)
    fit = check_fit(model, proposal, frame_at(steps, 0))
    # All keys at once, so that the loop does not hash them one by one.
    keys = all_keys(key, steps.series_id, steps.time)

    def keep(outcome: Outcome) -> tuple[Record, History | None]:
        state, record, move = outcome
        return record, History(state.latents, state.log_weights, move.ancestors) if history else None

    def body(state: State, frame_and_keys: tuple[Frame, Keys]) -> tuple[State, tuple[Record, History | None]]:
        outcome = next_step(sampler, model, proposal, state, *frame_and_keys, fit)
        return outcome.state, keep(outcome)

    (first, first_keys), rest = split_first((steps, keys))
    outcome = first_step(sampler, model, proposal, first, first_keys, fit)
    state, continued = jax.lax.scan(body, outcome.state, rest)
    record, kept = jax.tree.map(lambda one, rest: jnp.concatenate([one[None], rest]), keep(outcome), continued)
    return Trace(state=state, record=record, history=kept, length=series.length, series_id=series.series_id)


@eqx.filter_jit
def _public_init(sampler: SMC, model: Model, proposal: Proposal, frame: Frame, key: Key) -> tuple[State, Record]:
    fit = check_fit(model, proposal, frame)
    outcome = first_step(sampler, model, proposal, frame, keys_of(step_key(key, frame)), fit)
    return outcome.state, outcome.record


@eqx.filter_jit
def _public_step(
    sampler: SMC, model: Model, proposal: Proposal, state: State, frame: Frame, key: Key
) -> tuple[State, Record]:
    fit = check_fit(model, proposal, frame)
    outcome = next_step(sampler, model, proposal, state, frame, keys_of(step_key(key, frame)), fit)
    return outcome.state, outcome.record


class Outcome(NamedTuple):
    """What a step leaves behind."""

    state: State
    record: Record
    move: Move


def split_first(tree: Any) -> tuple[Any, Any]:
    """The first step, and the others."""
    return jax.tree.map(lambda array: array[0], tree), jax.tree.map(lambda array: array[1:], tree)


def first_step(
    sampler: SMC, model: Model, proposal: Proposal, frame: Frame, keys: Keys, fit: Fit, noise: Any = None
) -> Outcome:
    """The step from nothing to K weighted particles. Its noise is drawn now, unless it was before."""
    noise = draw_noise(fit.initial, sampler.particles, key=keys.noise) if noise is None else noise
    imputation = imputation_keys(model, frame, keys, sampler.particles)
    memory = model.start(frame.inputs)

    def extend(noise: Any, imputation: Key | None) -> Drawn:
        return draw(model, *first_laws(model, proposal, memory, frame), memory, noise, frame, imputation)

    drawn = jax.vmap(extend)(noise, imputation)
    uniform = uniform_log_weights(sampler.particles, drawn.log_weight.dtype)
    log_weights, increment = weigh(uniform, drawn.log_weight, frame)
    themselves = jnp.arange(sampler.particles, dtype=jnp.int32)
    record = Record.of(increment, log_weights, themselves, False)
    move = Move(themselves, record.resampled, None, uniform, noise, drawn.latent, log_weights, imputation)
    return Outcome(State(drawn.memory, drawn.latent, log_weights), record, move)


def resampled_step(
    sampler: SMC, model: Model, proposal: Proposal, state: State, frame: Frame, keys: Keys, fit: Fit, noise: Any
) -> tuple[State, Scalar, Move]:
    """`next_step` of a filter that resamples before it whatever the weights are, of a step that is not padding.

    The log-weights of the states are relative ones, before and after it; the largest comes with them. Resampling needs
    no more, and the rest of what normalizing takes can be done for many steps at once. There is no record.
    """
    log_weights = state.log_weights
    if not sampler.resampling.scale_free:
        log_weights, _ = normalize(log_weights)
    ancestors = sampler.resampling(log_weights, key=keys.resampling)
    memory = inherit(state.memory, ancestors)
    imputation = imputation_keys(model, frame, keys, sampler.particles)
    carried = uniform_log_weights(sampler.particles, log_weights.dtype)
    drawn = _extended(model, proposal, memory, noise, frame, imputation)
    log_weights, largest = relative(carried + drawn.log_weight.astype(carried.dtype))
    move = Move(ancestors, jnp.asarray(True), memory, carried, noise, drawn.latent, None, imputation)
    return State(drawn.memory, drawn.latent, log_weights), largest, move


def next_step(
    sampler: SMC, model: Model, proposal: Proposal, state: State, frame: Frame, keys: Keys, fit: Fit, noise: Any = None
) -> Outcome:
    """One more step. Its noise is drawn now, unless it was before: `draw_noise(fit.step, ..., key=keys.noise)`."""
    state, ancestors, resampled = _resample(sampler, state, frame, keys.resampling)
    noise = draw_noise(fit.step, sampler.particles, key=keys.noise) if noise is None else noise
    imputation = imputation_keys(model, frame, keys, sampler.particles)
    drawn = _extended(model, proposal, state.memory, noise, frame, imputation)
    log_weights, increment = weigh(state.log_weights, drawn.log_weight, frame)
    after = frame.unless_padding(State(drawn.memory, drawn.latent, log_weights), state)
    record = Record.of(increment, after.log_weights, ancestors, resampled)
    move = Move(
        ancestors, record.resampled, state.memory, state.log_weights, noise, drawn.latent, after.log_weights, imputation
    )
    return Outcome(after, record, move)


def _extended(model: Model, proposal: Proposal, memories: Memory, noise: Any, frame: Frame, imputation: Any) -> Drawn:
    """All particles after the step."""

    def extend(memory: Memory, noise: Any, imputation: Key | None) -> Drawn:
        return draw(model, *next_laws(model, proposal, memory, frame), memory, noise, frame, imputation)

    return jax.vmap(extend)(memories, noise, imputation)


def first_laws(model: Model, proposal: Proposal, memory: Memory, frame: Frame) -> tuple[Any, Any]:
    """p(z_1) and q(z_1 | x); the same object for a proposal that returns its prior."""
    prior = model.initial(memory, frame.inputs)
    return prior, proposal.initial(prior, frame.context)


def next_laws(model: Model, proposal: Proposal, memory: Memory, frame: Frame) -> tuple[Any, Any]:
    """p(z_t | h_t-1) and q(z_t | h_t-1, x)."""
    prior = model.transition(memory, frame.inputs)
    return prior, proposal.step(prior, memory, frame.context)


def weigh(carried: LogWeights, log_weights: LogWeights, frame: Frame) -> tuple[LogWeights, Scalar]:
    """The carried weights times the new ones, normalized, and the evidence increment."""
    # A dead particle stays dead, also where its log-weight is NaN because it wandered off.
    alive = carried > -jnp.inf
    log_weights = jnp.where(alive, carried + jnp.where(alive, log_weights.astype(carried.dtype), 0.0), -jnp.inf)
    if frame.present is None:
        return normalize(log_weights)
    # Before normalizing, so that no gradient passes through what a padded step would have weighed.
    log_weights, increment = normalize(jnp.where(frame.present, log_weights, carried))
    return log_weights, jnp.where(frame.present, increment, 0.0)


def _resample(sampler: SMC, state: State, frame: Frame, key: Key) -> tuple[State, Ancestors, Any]:
    """The state with resampled histories and even weights, if the criterion asks for it."""
    themselves = jnp.arange(sampler.particles, dtype=jnp.int32)
    wanted = sampler.criterion(state.log_weights)
    if wanted is False:
        return state, themselves, False
    if frame.present is not None:
        wanted = jnp.logical_and(wanted, frame.present)
    ancestors = sampler.resampling(state.log_weights, key=key)
    log_weights = uniform_log_weights(sampler.particles, state.log_weights.dtype)
    if wanted is not True:
        ancestors = jnp.where(wanted, ancestors, themselves)
        log_weights = jnp.where(wanted, log_weights, state.log_weights)
    # The latents move with the memory only where a padded step must hand them on unchanged.
    return State(inherit(state.memory, ancestors), state.latents, log_weights), ancestors, wanted


def inherit(tree: Any, ancestors: Ancestors) -> Any:
    """What the ancestors had, for their descendants."""
    return jax.tree.map(lambda array: array.at[ancestors].get(mode="promise_in_bounds", indices_are_sorted=True), tree)


class Drawn(NamedTuple):
    """One particle after a step.

    `log_joint` is log p(z_t, x_t | h_t-1) of what was observed of x_t, `log_imputed` log p of what was imputed given
    that; `log_proposal` is log q(z_t | h_t-1, x); `log_weight` is log_joint - log_proposal, with the score of what was
    imputed.
    """

    latent: Any
    log_joint: Scalar
    log_imputed: Scalar
    log_proposal: Scalar
    log_weight: Scalar
    memory: Memory


def draw(
    model: Model,
    prior: Any,
    law: Any,
    memory: Memory,
    noise: Any,
    frame: Frame,
    imputation: Key | None,
    *,
    latent: Any = None,
    density: Any = None,
) -> Drawn:
    """One particle's z_t, its densities and its memory after the step.

    **Arguments:**

    - `latent`: z_t itself, where it is given; otherwise it is made from the noise.
    - `density`: the law whose density is divided by, where that is another object than the one drawn from.
    """
    latent = from_noise(law, noise) if latent is None else latent
    density = law if density is None else density
    emission = model.emission(memory, latent, frame.inputs)
    log_emission = observed_log_prob(emission, frame.observation, frame.observed)
    log_prior, log_proposal = log_prob(prior, latent), log_prob(density, latent)
    log_joint = log_prior + log_emission
    log_weight = log_emission if density is prior else log_emission + log_prior - log_proposal
    observation, log_imputed = frame.observation, jnp.zeros_like(log_joint)
    if imputation is not None and frame.observed is not None:
        # A memory that reads x_t needs all of it. What is missing is drawn from its own law given the rest, which
        # multiplies the weight by one: the evidence stays unbiased.
        observation = jax.lax.stop_gradient(impute(emission, observation, frame.observed, key=imputation))
        # The draw is stopped, as it may be discrete; its score takes the place of the gradient through it. Where the
        # observed part is impossible there is none.
        possible = jnp.isfinite(log_emission)
        log_drawn = log_prob(emission, observation) - jnp.where(possible, log_emission, 0.0)
        log_drawn = jnp.where(possible, log_drawn, 0.0)
        log_imputed = log_drawn
        log_weight = log_weight + (log_drawn - jax.lax.stop_gradient(log_drawn))
    return Drawn(latent, log_joint, log_imputed, log_proposal, log_weight, model.advance(memory, latent, observation))


def imputation_keys(model: Model, frame: Frame, keys: Keys, particles: int):
    """A key for each particle where its memory needs values that are missing; otherwise None."""
    if frame.observed is None or isinstance(model, MarkovModel):
        return None
    return jax.random.split(keys.imputation, particles)
