"""Smoothing: p(z_t | x_1:T) for every step of a series, and the imputation of missing values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from mcfo.inference.angles import NO_ANGLES, Angles, Circular, answers_exactly, find_angles, wrapped
from mcfo.inference.datasets import Draws, Progress, dataset_of, named_series, state_arrays
from mcfo.inference.exact_laws import smooth_arrays
from mcfo.inference.quantiles import LEVELS, Summary, check_levels, flat
from mcfo.missing import fill, impute
from mcfo.models.base import MarkovModel, Model, emission_mean
from mcfo.proposals.base import Proposal
from mcfo.series import Frame, Series
from mcfo.smc.compatibility import check_arguments, check_series
from mcfo.smc.filter import SMC
from mcfo.smc.noise import step_key
from mcfo.smc.resampling import draw_indices
from mcfo.smc.smoothing import backward_simulation
from mcfo.smc.step import Outcome
from mcfo.smc.step_scan import frames, join_first, split_first, step_scan
from mcfo.smc.trace import Record, State
from mcfo.smc.weights import uniform_log_weights
from mcfo.types import Key, Memory

if TYPE_CHECKING:
    import xarray

_TAG = 0x66696C6C
"""Separates the random numbers of observations from those of filter and smoother."""


class Smoothed(eqx.Module):
    """Summaries of p(z_t | x_1:T) and of the predictive distribution of x_t given x_1:T; the record of the filter.

    `observed` is about a new observation where x_t was observed. Where it is missing, it is about the missing value
    itself, given also the observed dimensions of the same step. `components` are those of a structural model.
    """

    latent: Summary
    observed: Summary
    record: Record
    draws: Draws | None
    components: Summary | None = None


def smooth_series(
    model: Model,
    proposal: Proposal,
    series: Series,
    *,
    key: Key,
    sampler: SMC | None = None,
    paths: int = 500,
    levels: Any = LEVELS,
    draws: int = 0,
    angles: Angles = NO_ANGLES,
) -> Smoothed:
    """Smooth one series: filter it, then draw paths backwards.

    For a model that is not Markov, paths are drawn from the genealogy, whose early steps descend from few particles.

    **Arguments:**

    - `sampler`: the filter; by default with 1000 particles. The particles of all steps are stored.
    - `paths`: the number of paths that are drawn.
    - `levels`: the levels of the quantiles.
    - `draws`: the number of paths that are returned, at most `paths`.
    - `angles`: what is summarized by circular means.
    """
    check_arguments(model, proposal, key)
    check_series(series)
    if paths < 1 or not 0 <= draws <= paths:
        raise ValueError(
            f"At least one path is drawn, and at most all are returned; but got {paths} paths and {draws} draws."
        )
    chosen = sampler or SMC(1000)
    if isinstance(model, MarkovModel):
        drawn = _of_markov(chosen, model, proposal, series, paths, key)
    else:
        drawn = _of_memory(chosen, model, proposal, series, paths, key)
    return _summarized(drawn, jnp.asarray(check_levels(levels), float), draws, angles)


class _Paths(NamedTuple):
    """Equally weighted paths with a leading time axis: states as the model summarizes them, observations, the
    emissions' means if they exist, and the components if the model has any."""

    latents: Float[Array, "steps paths latent"]
    observations: Shaped[Array, "steps paths dimensions"]
    means: Float[Array, "steps paths dimensions"] | None
    record: Record
    components: Float[Array, "steps paths components"] | None = None


@eqx.filter_jit
def _summarized(paths: _Paths, levels: Float[Array, " levels"], draws: int, angles: Angles) -> Smoothed:
    count = paths.latents.shape[1]
    even = uniform_log_weights(count, levels.dtype)

    def summary(values: Array, means: Array | None, chosen: Any) -> Summary:
        return jax.lax.map(lambda now: Summary.of(now[0], even, levels, now[1], chosen), (values, means))

    saved = None
    if draws:
        # The paths are independent, so that the first ones are as good as any.
        saved = Draws(jax.vmap(flat)(paths.latents[:, :draws]), jax.vmap(flat)(paths.observations[:, :draws]))
    components = None if paths.components is None else summary(paths.components, None, ())
    latent = summary(paths.latents, None, angles.latents)
    observed = summary(paths.observations, paths.means, angles.observations)
    return Smoothed(latent, observed, paths.record, saved, components)


def _summaries(model: Model, latents: Shaped[Array, "steps paths *latent"]) -> Float[Array, "steps paths latent"]:
    return jax.vmap(jax.vmap(model.latent_summary))(latents)


def _seen(model: Model, memory: Memory, latent: Any, frame: Frame, sample: Key, imputation: Key) -> tuple[Any, Any]:
    """Draw x_t again where it was observed, and its missing part given the rest; return the means if they exist."""
    distribution: Any = model.emission(memory, latent, frame.inputs)
    another = distribution.sample(sample)
    mean = emission_mean(distribution, another)
    if frame.observed is None:
        return another, mean
    value = frame.observation.astype(another.dtype)
    missing = impute(distribution, value, frame.observed, key=imputation)
    another = jnp.where(frame.observed, another, missing)
    if mean is not None:
        mean = jnp.where(frame.observed, mean, fill(distribution, mean, value, frame.observed))
    return another, mean


def _keys(key: Key, frame: Frame, count: int) -> Any:
    """Return two keys for each path."""
    return jax.random.split(jax.random.fold_in(step_key(key, frame), _TAG), (2, count))


@eqx.filter_jit
def _of_markov(sampler: SMC, model: MarkovModel, proposal: Proposal, series: Series, paths: int, key: Key) -> _Paths:
    trace = sampler(model, proposal, series, key=key, history=True)
    latents = backward_simulation(model, trace, series, paths, key=key).latents
    first, rest = split_first(frames(proposal, series))

    def observe(memory: Memory, latents: Any, frame: Frame, *, first: bool) -> tuple[Any, Any]:
        def one(memory: Memory, latent: Any, sample: Key, imputation: Key) -> tuple[Any, Any]:
            return _seen(model, memory, latent, frame, sample, imputation)

        return jax.vmap(one, in_axes=(None if first else 0, 0, 0, 0))(memory, latents, *_keys(key, frame, paths))

    one = observe(model.start(first.inputs), latents[0], first, first=True)
    others = jax.lax.map(lambda now: observe(*now, first=False), (latents[:-1], latents[1:], rest))
    observations, means = join_first(one, others)
    return _Paths(_summaries(model, latents), observations, means, trace.record)


@eqx.filter_jit
def _of_memory(sampler: SMC, model: Model, proposal: Proposal, series: Series, paths: int, key: Key) -> _Paths:
    """Draw paths from the genealogy: the values that a particle imputed are part of its past, and were weighted too."""

    def visit(before: State | None, outcome: Outcome, frame: Frame, extra: None) -> Any:
        draw = outcome.draw
        sample, unused = _keys(key, frame, sampler.particles)

        def one(memory: Memory, latent: Any, sample: Key, imputation: Key) -> tuple[Any, ...]:
            seen = _seen(model, memory, latent, frame, sample, imputation)
            return *seen, model.component_values(memory, latent, frame.inputs) if model.component_names else None

        # The filter's own keys reproduce the values in its particles' memories.
        imputation = unused if draw.imputation is None else draw.imputation
        memory = model.start(frame.inputs) if before is None else draw.memory
        in_axes = (None if before is None else 0, 0, 0, 0)
        seen = jax.vmap(one, in_axes=in_axes)(memory, outcome.state.latents, sample, imputation)
        return (outcome.state.latents, *seen), draw.ancestors, outcome.record

    state, (saved, ancestors, record) = step_scan(sampler, model, proposal, series, visit, key=key)

    def step_back(indices: Int[Array, " paths"], now: Any) -> tuple[Int[Array, " paths"], Any]:
        values, ancestors = now
        return ancestors[indices], jax.tree.map(lambda array: array[indices], values)

    of_last = jax.random.fold_in(jax.random.fold_in(key, series.series_id), _TAG)
    last = draw_indices(state.log_weights, paths, key=of_last)
    latents, observations, means, components = jax.lax.scan(step_back, last, (saved, ancestors), reverse=True)[1]
    return _Paths(_summaries(model, latents), observations, means, record, components)


def smooth(
    model: Model,
    proposal: Proposal,
    data: Any,
    *,
    particles: int | None = None,
    paths: int = 500,
    levels: Sequence[float] = LEVELS,
    draws: int = 0,
    seed: int = 0,
    method: str | None = None,
    circular: Circular = (),
    progress: Progress = iter,
) -> xarray.Dataset:
    """Compute p(z_t | x_1:T) for every step of every series, and the predictive distribution of x_t.

    `filled` has the observations, with the means of missing values; their intervals are the observation's quantiles.
    The components of a structural model are `component_mean` and `component_quantiles`, by the coordinate `component`.

    **Arguments:**

    - `particles`: the number of particles; those of all steps are stored.
    - `paths`: the number of paths that are drawn backwards, where there is no exact answer.
    - `draws`: the number of paths beside the summaries, for ArviZ.
    - `data`, `levels`, `seed`, `method`, `circular`: as in `filter`.
    """
    levels, key, named = check_levels(levels), jax.random.key(seed), named_series(data)
    angles = find_angles(model, named.series_list, named.columns, circular)
    about: dict[str, Any] = {"seed": seed, **angles.attributes()}
    exact = answers_exactly(model, method, particles, angles)
    names: dict[str, Any] = {"latent_names": model.state_names if exact else model.latent_names}
    names["component_names"] = model.component_names
    if exact:
        return dataset_of(
            "smooth",
            named,
            lambda series: wrapped(smooth_arrays(model, series, levels, draws, key=key), angles, levels),
            levels,
            {"exact": 1, **about},
            progress,
            **names,
        )
    particles = particles or 1000

    def one(series: Series) -> dict[str, Any]:
        result = smooth_series(
            model,
            proposal,
            series,
            key=key,
            sampler=SMC(particles),
            paths=paths,
            levels=levels,
            draws=draws,
            angles=angles,
        )
        filled = np.where(np.asarray(series.mask()), series.observations, result.observed.mean)
        arrays = state_arrays(result.latent, result.observed, result.record, result.draws, result.components)
        return {**arrays, "filled": filled}

    about = {"particles": particles, "paths": paths, **about}
    return dataset_of("smooth", named, one, levels, about, progress, **names)
