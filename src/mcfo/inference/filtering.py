"""Filtering: p(z_t | x_1:t), and before it p(x_t | x_1:t-1), for every step of a series."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mcfo.inference.angles import NO_ANGLES, Angles, Circular, answers_exactly, find_angles, wrapped
from mcfo.inference.datasets import Draws, Progress, dataset_of, named_series, state_arrays
from mcfo.inference.exact_laws import filter_arrays
from mcfo.inference.quantiles import LEVELS, Summary, check_levels, flat
from mcfo.models.base import Model, emission_mean
from mcfo.proposals.base import Proposal
from mcfo.series import Frame, Series
from mcfo.smc.compatibility import check_arguments, check_series
from mcfo.smc.filter import SMC
from mcfo.smc.noise import step_key
from mcfo.smc.resampling import systematic_indices
from mcfo.smc.step import Outcome
from mcfo.smc.step_scan import step_scan
from mcfo.smc.trace import Record, State
from mcfo.smc.weights import uniform_log_weights
from mcfo.types import Key, Memory

if TYPE_CHECKING:
    import xarray

_PREDICTION_TAG = 0x70726576
"""Separates the random numbers of predictions from those of the filter."""
_DRAW_TAG = 0x6B657074


class Filtered(eqx.Module):
    """Summaries of p(z_t | x_1:t) and p(x_t | x_1:t-1) for each step t, and the record of the filter.

    The draws of different steps are not connected: they are not paths.
    """

    latent: Summary
    predicted: Summary
    record: Record
    draws: Draws | None


def filter_series(
    model: Model,
    proposal: Proposal,
    series: Series,
    *,
    key: Key,
    sampler: SMC | None = None,
    levels: Any = LEVELS,
    draws: int = 0,
    angles: Angles = NO_ANGLES,
) -> Filtered:
    """Filter one series; memory grows with its length by the summaries alone.

    **Arguments:**

    - `sampler`: the filter; by default with 1000 particles.
    - `levels`: the levels of the quantiles.
    - `draws`: the number of draws that are returned.
    - `angles`: what is summarized by circular means.
    """
    check_arguments(model, proposal, key)
    check_series(series)
    several = jnp.asarray(check_levels(levels), float)
    return _filtered(sampler or SMC(1000), model, proposal, series, several, draws, angles, key)


@eqx.filter_jit
def _filtered(
    sampler: SMC,
    model: Model,
    proposal: Proposal,
    series: Series,
    levels: Float[Array, " levels"],
    draws: int,
    angles: Angles,
    key: Key,
) -> Filtered:
    def visit(before: State | None, outcome: Outcome, frame: Frame, extra: None) -> Filtered:
        state = outcome.state
        latents = jax.vmap(model.latent_summary)(state.latents)
        observations, means = _predict(model, before, frame, sampler.particles, key)
        carried = uniform_log_weights(sampler.particles, state.log_weights.dtype)
        carried = carried if before is None else before.log_weights
        saved = None
        if draws:
            of_latents, of_observations = jax.random.split(jax.random.fold_in(step_key(key, frame), _DRAW_TAG))
            saved = Draws(
                flat(latents[systematic_indices(state.log_weights, draws, key=of_latents)]),
                flat(observations[systematic_indices(carried, draws, key=of_observations)]),
            )
        return Filtered(
            Summary.of(latents, state.log_weights, levels, angles=angles.latents),
            Summary.of(observations, carried, levels, means, angles.observations),
            outcome.record,
            saved,
        )

    return step_scan(sampler, model, proposal, series, visit, key=key)[1]


def _predict(model: Model, before: State | None, frame: Frame, particles: int, key: Key) -> tuple[Any, Any]:
    """Draw x_t for every particle before it is observed; return its mean too, if the emission has one."""

    def one(memory: Memory, key: Key) -> tuple[Any, Any]:
        of_latent, of_observation = jax.random.split(key)
        prior = (model.initial if before is None else model.transition)(memory, frame.inputs)
        emission = model.emission(memory, prior.sample(of_latent), frame.inputs)
        observation = emission.sample(of_observation)
        return observation, emission_mean(emission, observation)

    keys = jax.random.split(jax.random.fold_in(step_key(key, frame), _PREDICTION_TAG), particles)
    memory = model.start(frame.inputs) if before is None else before.memory
    return jax.vmap(one, in_axes=(None if before is None else 0, 0))(memory, keys)


def filter(
    model: Model,
    proposal: Proposal,
    data: Any,
    *,
    particles: int | None = None,
    levels: Sequence[float] = LEVELS,
    draws: int = 0,
    seed: int = 0,
    method: str | None = None,
    circular: Circular = (),
    progress: Progress = iter,
) -> xarray.Dataset:
    """Compute p(z_t | x_1:t) and p(x_t | x_1:t-1) for every step: means and quantiles, log evidence.

    Models whose distributions are known are filtered exactly, which the attribute `exact` of the data set says, unless
    particles are asked for; a particle filter also reports its ESS.

    **Arguments:**

    - `data`: a CSV or NPZ file, a table of [`read_series`][], one [`Series`][] or several, or an array with NaN where
      values are missing.
    - `particles`: the number of particles, 1000 by default where there is no exact answer.
    - `levels`: the levels of the quantiles.
    - `draws`: the number of draws beside the summaries, for ArviZ; those of different steps are not connected.
    - `seed`: the seed of all random numbers.
    - `method`: "exact" or "particles"; by default exact where that is possible and `particles` is not given.
    - `circular`: names of columns and states that are angles, in radians, or with their periods: {"heading": 360}.
      Their means are circular, and their quantiles lie within half a turn of the mean.
    """
    levels, key, named = check_levels(levels), jax.random.key(seed), named_series(data)
    angles = find_angles(model, named.series_list, named.columns, circular)
    about: dict[str, Any] = {"seed": seed, **angles.attributes()}
    if answers_exactly(model, method, particles, angles):
        return dataset_of(
            "filter",
            named,
            lambda series: wrapped(filter_arrays(model, series, levels, draws, key=key), angles, levels),
            levels,
            {"exact": 1, **about},
            progress,
            latent_names=model.state_names,
        )
    particles = particles or 1000

    def one(series: Series) -> dict[str, Any]:
        how: Any = {"sampler": SMC(particles), "levels": levels, "draws": draws, "angles": angles}
        result = filter_series(model, proposal, series, key=key, **how)
        return state_arrays(result.latent, result.predicted, result.record, result.draws)

    about = {"particles": particles, **about}
    return dataset_of("filter", named, one, levels, about, progress, latent_names=model.latent_names)
