"""The step that every filter, objective and task shares: resample, propose, weight, and update the memory."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp

from mcfo.missing import impute, log_prob, observed_log_prob
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.series import Frame
from mcfo.smc.noise import Randomness, from_noise
from mcfo.smc.resampling import Criterion, Resampling
from mcfo.smc.trace import Record, State, StepDraw
from mcfo.smc.weights import effective_sample_size, normalize, uniform_log_weights
from mcfo.types import Ancestors, Key, LogWeights, Memory, Observation, Scalar


@runtime_checkable
class Filter(Protocol):
    """The attributes that a step needs of a sampler."""

    @property
    def particles(self) -> Any: ...

    @property
    def resampling(self) -> Resampling: ...

    @property
    def criterion(self) -> Criterion: ...


class Outcome(NamedTuple):
    """The result of a step: the state after it, log R_t, and its draws."""

    state: State
    increment: Scalar
    draw: StepDraw

    @property
    def record(self) -> Record:
        """The diagnostics of the step."""
        return step_record(self.increment, self.state.log_weights, self.draw.ancestors, self.draw.resampled)


def take_step(
    sampler: Filter, model: Model, proposal: Proposal, state: State | None, frame: Frame, randomness: Randomness
) -> Outcome:
    """Take one step of K particles; if `state` is None, the first step."""
    particles, noise = sampler.particles, randomness.noise
    imputation = imputation_keys(model, frame, randomness.imputation, particles)
    if state is None:
        memory, ancestors, resampled = model.start(frame.inputs), jnp.arange(particles, dtype=jnp.int32), False
    else:
        state, ancestors, resampled = _resample(sampler, state, frame, randomness.resampling)
        memory = state.memory

    def extend(memory: Memory, noise: Any, imputation: Key | None) -> tuple[Any, Scalar, Memory]:
        prior, proposed = prior_and_proposed(model, proposal, memory, frame, first=state is None)
        latent = from_noise(proposed, noise)
        densities = log_densities(model, prior, proposed, memory, latent, frame, imputation)
        later = model.advance_with(memory, latent, densities.observation, frame.observed, frame.inputs)
        return latent, densities.log_weight, later

    in_axes = (None if state is None else 0, 0, 0)
    latents, log_ratios, later = jax.vmap(extend, in_axes=in_axes)(memory, noise, imputation)
    carried = uniform_log_weights(particles, log_ratios.dtype) if state is None else state.log_weights
    log_weights, increment = weigh(carried, log_ratios, frame)
    after = State(later, latents, log_weights)
    if state is not None:
        after = frame.unless_padding(after, state)
    draw = StepDraw(
        ancestors=ancestors,
        resampled=jnp.asarray(resampled),
        memory=None if state is None else memory,
        carried=carried,
        noise=noise,
        latents=latents,
        log_weights=after.log_weights,
        imputation=imputation,
    )
    return Outcome(after, increment, draw)


def _resample(sampler: Filter, state: State, frame: Frame, numbers: Any) -> tuple[State, Ancestors, Any]:
    """Return the state with resampled histories and equal weights if the criterion is met."""
    themselves = jnp.arange(sampler.particles, dtype=jnp.int32)
    wanted = sampler.criterion(state.log_weights)
    if wanted is False:
        return state, themselves, False
    if frame.present is not None:
        wanted = jnp.logical_and(wanted, frame.present)
    ancestors = sampler.resampling.ancestors(state.log_weights, numbers)
    log_weights = uniform_log_weights(sampler.particles, state.log_weights.dtype)
    if wanted is not True:
        ancestors = jnp.where(wanted, ancestors, themselves)
        log_weights = jnp.where(wanted, log_weights, state.log_weights)
    # The latents are not resampled: only a padded step passes them on, and it does not resample.
    return State(inherit(state.memory, ancestors), state.latents, log_weights), ancestors, wanted


def inherit(tree: Any, ancestors: Ancestors) -> Any:
    """Return the arrays with each particle's entry replaced by that of its ancestor."""
    return jax.tree.map(lambda array: array.at[ancestors].get(mode="promise_in_bounds", indices_are_sorted=True), tree)


def prior_and_proposed(
    model: Model, proposal: Proposal, memory: Memory, frame: Frame, *, first: bool
) -> tuple[Any, Any]:
    """Return p(z_t | h_t-1) and q(z_t | h_t-1, x); they are the same object if a proposal returns its prior."""
    if first:
        prior = model.initial(memory, frame.inputs)
        return prior, proposal.initial(prior, frame.context)
    prior = model.transition(memory, frame.inputs)
    return prior, proposal.step(prior, memory, frame.context)


class Densities(NamedTuple):
    """The log-densities of one particle at a step, and the observation that its memory reads.

    - `log_joint`: log p(z_t, x_t | h_t-1), for the observed part of x_t.
    - `log_imputed`: log p of the imputed part, given the observed part.
    - `log_proposal`: log q(z_t | h_t-1, x).
    - `log_weight`: log_joint - log_proposal, with the score of the imputed part.
    """

    log_joint: Scalar
    log_imputed: Scalar
    log_proposal: Scalar
    log_weight: Scalar
    observation: Observation


def log_densities(
    model: Model, prior: Any, proposed: Any, memory: Memory, latent: Any, frame: Frame, imputation: Key | None
) -> Densities:
    """Return the densities of z_t and x_t for one particle. Values of x_t that its memory needs are imputed."""
    emission = model.emission(memory, latent, frame.inputs)
    log_emission = observed_log_prob(emission, frame.observation, frame.observed)
    log_prior, log_proposal = log_prob(prior, latent), log_prob(proposed, latent)
    log_joint = log_prior + log_emission
    # A proposal that returns its prior cancels exactly: the difference of two equal infinities would be NaN.
    log_weight = log_emission if proposed is prior else log_emission + log_prior - log_proposal
    if imputation is None or frame.observed is None:
        return Densities(log_joint, jnp.zeros_like(log_joint), log_proposal, log_weight, frame.observation)
    # A memory that reads x_t needs all of it. Missing values are drawn from their conditional distribution given the
    # observed ones, which multiplies the weight by one: the evidence stays unbiased.
    observation = imputed_observation(emission, frame, imputation)
    # No gradient passes through the draw, because it may be discrete; its score takes the place of that gradient.
    # There is no score if the observed part is impossible.
    possible = jnp.isfinite(log_emission)
    log_imputed = log_prob(emission, observation) - jnp.where(possible, log_emission, 0.0)
    log_imputed = jnp.where(possible, log_imputed, 0.0)
    log_weight = log_weight + (log_imputed - jax.lax.stop_gradient(log_imputed))
    return Densities(log_joint, log_imputed, log_proposal, log_weight, observation)


def imputed_observation(emission: Any, frame: Frame, imputation: Key) -> Observation:
    """Return x_t with its missing values drawn given the observed ones."""
    assert frame.observed is not None
    return jax.lax.stop_gradient(impute(emission, frame.observation, frame.observed, key=imputation))


def imputation_keys(model: Model, frame: Frame, key: Key, particles: int) -> Any:
    """Return a key for each particle if its memory reads values that are missing; otherwise None."""
    if frame.observed is None or not model.imputes:
        return None
    return jax.random.split(key, particles)


def weigh(carried: LogWeights, log_weights: LogWeights, frame: Frame) -> tuple[LogWeights, Scalar]:
    """Return the product of the carried and the new weights, normalized, and log R_t."""
    # The weight of a zero-weight particle stays zero, also if its latent is so far off that its log-weight is NaN.
    alive = carried > -jnp.inf
    log_weights = jnp.where(alive, carried + jnp.where(alive, log_weights.astype(carried.dtype), 0.0), -jnp.inf)
    if frame.present is None:
        return normalize(log_weights)
    # Padding is masked before normalization, so that no gradient passes through the weights of a padded step.
    log_weights, increment = normalize(jnp.where(frame.present, log_weights, carried))
    return log_weights, jnp.where(frame.present, increment, 0.0)


def step_record(increment: Scalar, log_weights: LogWeights, ancestors: Ancestors, resampled: Any) -> Record:
    """Return the diagnostics of a step, from its increment, the weights after it and its ancestors."""
    # Ancestors are in ascending order, so comparing neighbors counts the distinct ones.
    changes = jnp.sum(ancestors[1:] != ancestors[:-1])
    return Record(
        log_evidence=increment,
        ess=effective_sample_size(log_weights),
        unique_ancestors=(1 + changes).astype(jnp.int32),
        resampled=jnp.asarray(resampled),
    )
