"""A learned model applied to data, as an xarray data set: what `.filter`, `.smooth` and `.forecast` of a run do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from mcfo.data.tables import Table, read_series
from mcfo.inference.datasets import make_dataset
from mcfo.inference.filtering import Filtered, filter_series
from mcfo.inference.forecasting import Forecast, forecast_series
from mcfo.inference.smoothing import Smoothed, smooth_series
from mcfo.inference.summaries import LEVELS, Summary, checked_levels, flat
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.series import Series, stack
from mcfo.smc.filter import SMC
from mcfo.smc.weights import uniform_log_weights

if TYPE_CHECKING:
    import xarray

Progress = Callable[[list[int]], Any]
"""Goes through places, and shows how far it is."""


class Named(NamedTuple):
    """Series with their names and those of their columns, and when each step was, if that is known."""

    series_list: list[Series]
    names: list[str]
    columns: list[str]
    moments: list[np.ndarray] | None = None


def named(data: Any) -> Named:
    """Series from whatever holds some: a file, what was read from one, a series, several, or an array."""
    if isinstance(data, str | Path):
        data = read_series(Path(data))
    if isinstance(data, Table | Named):
        return Named(list(data.series_list), list(data.names), list(data.columns), data.moments)
    if isinstance(data, Series):
        data = [data] if data.observations.ndim == 2 else _unstacked(data)
    elif not (isinstance(data, list | tuple) and data and all(isinstance(one, Series) for one in data)):
        data = [Series.from_values(data)]
    series_list = list(data)
    columns = [f"x{place + 1}" for place in range(series_list[0].observations.shape[1])]
    return Named(series_list, [str(place + 1) for place in range(len(series_list))], columns)


def _unstacked(batch: Series) -> list[Series]:
    return [jax.tree.map(lambda array, place=place: array[place], batch) for place in range(len(batch.observations))]


def filter(
    model: Model,
    proposal: Proposal,
    data: Any,
    *,
    particles: int = 1000,
    levels: Sequence[float] = LEVELS,
    draws: int = 0,
    seed: int = 0,
    progress: Progress = iter,
) -> xarray.Dataset:
    """p(z_t | x_1:t) and p(x_t | x_1:t-1) for every step of every series: means and quantiles, ESS, log evidence.

    **Arguments:**

    - `data`: a CSV or NPZ file, what [`read_series`][] read, one [`Series`][] or several, or an array with NaN for
      what is missing.
    - `particles`: of the filter.
    - `levels`: of the quantiles.
    - `draws`: how many are kept beside the summaries, for ArviZ; those of different steps are not connected.
    - `seed`: of all random numbers.
    """

    def one(series: Series) -> dict[str, Any]:
        result = filter_series(
            model, proposal, series, key=jax.random.key(seed), sampler=SMC(particles), levels=levels, draws=draws
        )
        return _arrays(result, result.predicted)

    return _dataset("filter", named(data), one, levels, {"particles": particles, "seed": seed}, progress)


def smooth(
    model: Model,
    proposal: Proposal,
    data: Any,
    *,
    particles: int = 1000,
    paths: int = 500,
    levels: Sequence[float] = LEVELS,
    draws: int = 0,
    seed: int = 0,
    progress: Progress = iter,
) -> xarray.Dataset:
    """p(z_t | x_1:T) for every step of every series, and the law of another x_t; `filled` has the means of what was
    missing in its place, whose intervals are the observation's quantiles.

    **Arguments:**

    - `particles`: of the filter; all of them are kept at every step.
    - `paths`: drawn backwards through them.
    - `draws`: how many paths are kept beside the summaries, for ArviZ.
    - `data`, `levels`, `seed`: as those of `filter`.
    """

    def one(series: Series) -> dict[str, Any]:
        result = smooth_series(
            model,
            proposal,
            series,
            key=jax.random.key(seed),
            sampler=SMC(particles),
            paths=paths,
            levels=levels,
            draws=draws,
        )
        filled = np.where(np.asarray(series.mask()), series.observations, result.observed.mean)
        return {**_arrays(result, result.observed), "filled": filled}

    about = {"particles": particles, "paths": paths, "seed": seed}
    return _dataset("smooth", named(data), one, levels, about, progress)


def forecast(
    model: Model,
    proposal: Proposal,
    data: Any,
    steps: int,
    *,
    particles: int = 1000,
    draws: int = 1000,
    levels: Sequence[float] = LEVELS,
    inputs: Any = None,
    seed: int = 0,
    progress: Progress = iter,
) -> xarray.Dataset:
    """p(z_T+s, x_T+s | x_1:T) for s = 1..`steps` after the end of every series: means and quantiles.

    The times are s, and `length` is T. The draws are paths, and all of them are kept. Where the filter lost a series
    before its end, `finite` is False, and its forecast means little.

    **Arguments:**

    - `draws`: paths into the future.
    - `inputs`: (steps, inputs), of the future, for a model that takes them.
    - `data`, `particles`, `levels`, `seed`: as those of `filter`.
    """
    several = jnp.asarray(checked_levels(levels), float)

    def one(series: Series) -> dict[str, Any]:
        result = forecast_series(
            model,
            proposal,
            series,
            steps=steps,
            sampler=SMC(particles),
            draws=draws,
            inputs=inputs,
            key=jax.random.key(seed),
        )
        return future_arrays(result, several)

    about = {"particles": particles, "seed": seed}
    return _dataset("forecast", named(data), one, levels, about, progress)


def _dataset(
    kind: str,
    data: Named,
    compute: Callable[[Series], dict[str, Any]],
    levels: Sequence[float],
    about: Mapping[str, Any],
    progress: Progress,
) -> xarray.Dataset:
    # Padded to one length, so that one program serves all of them.
    batch = stack(data.series_list)
    found, lengths = [], []
    for place in progress(list(range(len(data.series_list)))):
        series = jax.tree.map(lambda array, place=place: array[place], batch)
        length = series.steps if series.length is None else int(series.length)
        arrays = {name: np.asarray(array) for name, array in compute(series).items()}
        if kind != "forecast":
            known = np.where(np.asarray(series.mask()), np.asarray(series.observations, float), np.nan)
            arrays = _of_length({**arrays, "observation": known}, length)
        found.append(arrays)
        lengths.append(length)
    return make_dataset(
        found,
        series=data.names,
        columns=data.columns,
        levels=checked_levels(levels),
        lengths=lengths,
        attributes={"kind": kind, **about},
        moments=None if kind == "forecast" else data.moments,
    )


def _of_length(arrays: Mapping[str, np.ndarray], steps: int) -> dict[str, np.ndarray]:
    """Without padding."""
    return {name: array if array.ndim == 0 else array[:steps] for name, array in arrays.items()}


def _arrays(result: Filtered | Smoothed, observed: Summary) -> dict[str, Any]:
    arrays: dict[str, Any] = {
        "latent_mean": result.latent.mean,
        "latent_quantiles": result.latent.quantiles,
        "observation_mean": observed.mean,
        "observation_quantiles": observed.quantiles,
        "ess": result.record.ess,
        "log_predictive": result.record.log_evidence,
        "log_evidence": jnp.sum(result.record.log_evidence),
    }
    if result.draws is not None:
        arrays |= {"latent_draws": result.draws.latents, "observation_draws": result.draws.observations}
    return arrays


def future_arrays(result: Forecast, levels: Any) -> dict[str, Any]:
    """A forecast as a data set has it; its paths have the draws in front of the time."""
    paths = jax.tree.map(lambda array: jnp.swapaxes(array, 0, 1), result.paths)
    even = uniform_log_weights(paths.observations.shape[1], levels.dtype)

    def summary(values: Any, means: Any) -> Summary:
        return jax.lax.map(lambda now: Summary.of(now[0], even, levels, now[1]), (values, means))

    latent, observed = summary(paths.latents, None), summary(paths.observations, paths.means)
    return {
        "latent_mean": latent.mean,
        "latent_quantiles": latent.quantiles,
        "observation_mean": observed.mean,
        "observation_quantiles": observed.quantiles,
        "finite": result.finite,
        "latent_draws": jax.vmap(flat)(paths.latents),
        "observation_draws": jax.vmap(flat)(paths.observations),
    }
