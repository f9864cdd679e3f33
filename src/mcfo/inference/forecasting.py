"""Forecasts after the last observation of a series."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from mcfo.data.run_columns import complete_inputs
from mcfo.inference.angles import Angles, Circular, answers_exactly, find_angles, wrapped
from mcfo.inference.datasets import NamedSeries, Progress, dataset_of, named_series
from mcfo.inference.exact_laws import forecast_arrays
from mcfo.inference.quantiles import LEVELS, Summary, check_levels, flat
from mcfo.models.base import Model, Path, simulate_from_memory
from mcfo.proposals.base import Proposal
from mcfo.series import Series, with_ids
from mcfo.smc.filter import SMC
from mcfo.smc.resampling import systematic_indices
from mcfo.smc.weights import uniform_log_weights
from mcfo.types import Key

if TYPE_CHECKING:
    import xarray

_TAG = 0x666F7265
"""Separates the random numbers of forecasts from those of the filter."""


class Forecast(eqx.Module):
    """Paths drawn from p(z_T+1:T+h, x_T+1:T+h | x_1:T).

    `finite` is True if the filter reached the last observation; otherwise the draws are meaningless.
    """

    paths: Path
    finite: Bool[Array, "*batch"]

    @property
    def mean(self) -> Float[Array, "*batch steps dimensions"]:
        """E[x_T+s | x_1:T]: the average of E[x | z] if emissions have a mean, otherwise of the draws of x."""
        values = self.paths.observations if self.paths.means is None else self.paths.means
        return jnp.mean(values, axis=-3)

    def quantiles(self, levels: Sequence[float]) -> Float[Array, "levels *batch steps dimensions"]:
        """Return quantiles of each x_T+s given x_1:T."""
        return jnp.quantile(self.paths.observations.astype(float), jnp.asarray(levels, float), axis=-3)


def forecast_series(
    model: Model,
    proposal: Proposal,
    series: Series,
    *,
    steps: int,
    key: Key,
    sampler: SMC | None = None,
    draws: int = 200,
    inputs: Any = None,
) -> Forecast:
    """Filter a series, and simulate the model from its end.

    **Arguments:**

    - `steps`: the number of steps after the last observation.
    - `sampler`: the filter; by default with 1000 particles.
    - `draws`: the number of paths, each from a particle drawn by the last weights.
    - `inputs`: the coming inputs, (steps, inputs), for a model that takes them.
    """
    _check(series, steps, draws, inputs)
    inputs = None if inputs is None else jnp.asarray(inputs, float)
    return _forecast(model, proposal, series, sampler or SMC(1000), steps, draws, inputs, key)


def _check(series: Series, steps: int, draws: int, inputs: Any) -> None:
    if steps < 1 or draws < 1:
        raise ValueError(f"A forecast needs at least one step and one draw, but got {steps} steps and {draws} draws.")
    if (inputs is None) != (series.inputs is None) or (inputs is not None and len(inputs) != steps):
        raise ValueError(
            f"The forecast of {steps} steps needs as many rows of inputs if the series has inputs, and none if not."
        )


@eqx.filter_jit
def _forecast(
    model: Model,
    proposal: Proposal,
    series: Series,
    sampler: SMC,
    steps: int,
    draws: int,
    inputs: Any,
    key: Key,
) -> Forecast:
    trace = sampler(model, proposal, series, key=key)
    of_choice, of_paths = jax.random.split(jax.random.fold_in(jax.random.fold_in(key, series.series_id), _TAG))
    chosen = systematic_indices(trace.state.log_weights, draws, key=of_choice)
    memories = jax.tree.map(lambda array: array[chosen], trace.state.memory)
    keys = jax.random.split(of_paths, (draws, steps))
    paths = jax.vmap(lambda memory, keys: simulate_from_memory(model, memory, inputs, keys))(memories, keys)
    return Forecast(paths, jnp.isfinite(trace.log_evidence))


def forecast(
    model: Model,
    proposal: Proposal,
    data: Any,
    steps: int,
    *,
    particles: int | None = None,
    draws: int = 1000,
    levels: Sequence[float] = LEVELS,
    inputs: Any = None,
    seed: int = 0,
    method: str | None = None,
    circular: Circular = (),
    progress: Progress = iter,
) -> xarray.Dataset:
    """Forecast p(z_T+s, x_T+s | x_1:T) for s = 1..`steps` after the end of every series: means and quantiles.

    The times are s, and `length` is T. The draws are paths, and all are returned. Where the filter lost a series before
    its end, `finite` is False, and its forecast means little.

    **Arguments:**

    - `draws`: the number of paths.
    - `inputs`: the coming inputs, (steps, inputs), for a model that takes them. Those that the data's dates tell, the
      calendar and the time between steps, may be left out.
    - `data`, `particles`, `levels`, `seed`, `method`, `circular`: as in `filter`.
    """
    levels, key = check_levels(levels), jax.random.key(seed)
    named = named_series(data)
    ids = [int(series.series_id) for series in with_ids(named.series_list)]
    driven = dict(zip(ids, _coming_inputs(named, steps, inputs), strict=True))
    angles = find_angles(model, named.series_list, named.columns, circular)
    about: dict[str, Any] = {"seed": seed, **angles.attributes()}
    if answers_exactly(model, method, particles, angles):

        def exactly(series: Series) -> dict[str, Any]:
            coming = driven[int(series.series_id)]
            _check(series, steps, draws, coming)
            arrays = forecast_arrays(model, series, steps, coming, levels, draws, key=key)
            return wrapped(arrays, angles, levels)

        about = {"exact": 1, **about}
        names = model.state_names
        return dataset_of("forecast", named, exactly, levels, about, progress, future=True, latent_names=names)
    particles, several = particles or 1000, jnp.asarray(levels, float)

    def one(series: Series) -> dict[str, Any]:
        result = forecast_series(
            model,
            proposal,
            series,
            steps=steps,
            sampler=SMC(particles),
            draws=draws,
            inputs=driven[int(series.series_id)],
            key=key,
        )
        return future_arrays(result, several, model, angles)

    about = {"particles": particles, **about}
    return dataset_of("forecast", named, one, levels, about, progress, future=True, latent_names=model.latent_names)


def _coming_inputs(data: NamedSeries, steps: int, inputs: Any) -> list[Any]:
    """Return the coming inputs of each series, with those that its dates tell."""
    known, rows = data.inputs, None if inputs is None else np.asarray(inputs, float)
    if known.size == len(known.names) or (rows is not None and rows.shape[-1] == known.size):
        return [inputs] * len(data.names)
    coming = data.coming(steps) or [None] * len(data.names)
    return [complete_inputs(known, rows, steps, one) for one in coming]


def future_arrays(result: Forecast, levels: Any, model: Model, angles: Angles) -> dict[str, Any]:
    """Return a forecast by the names of a data set."""
    paths = jax.tree.map(lambda array: jnp.swapaxes(array, 0, 1), result.paths)
    even = uniform_log_weights(paths.observations.shape[1], levels.dtype)

    def summary(values: Any, means: Any, chosen: Any) -> Summary:
        return jax.lax.map(lambda now: Summary.of(now[0], even, levels, now[1], chosen), (values, means))

    latents = jax.vmap(jax.vmap(model.latent_summary))(paths.latents)
    latent = summary(latents, None, angles.latents)
    observed = summary(paths.observations, paths.means, angles.observations)
    return {
        "latent_mean": latent.mean,
        "latent_quantiles": latent.quantiles,
        "observation_mean": observed.mean,
        "observation_quantiles": observed.quantiles,
        "finite": result.finite,
        "latent_draws": jax.vmap(flat)(latents),
        "observation_draws": jax.vmap(flat)(paths.observations),
    }
