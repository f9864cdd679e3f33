"""Forecasts, states and scores averaged over a posterior: p(x_new | x) = ∫ p(x_new | x, θ) p(θ | x) dθ.

Every answer is computed for some draws of θ, evenly spread over the chains, and the answers are mixed: means are
averaged, quantiles are those of the pooled draws, densities are averaged before their logarithm is taken. The draws
have equal weights: those of the posterior they were drawn from, whatever a filtered series would add to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logsumexp

from mcfo.errors import InputError
from mcfo.inference.datasets import Progress
from mcfo.inference.forecasting import forecast
from mcfo.inference.quantiles import LEVELS, check_levels
from mcfo.inference.rolling_evaluation import RollingEvaluation, evaluate_rolling, summarize_scores
from mcfo.inference.scoring import Rolling
from mcfo.inference.smoothing import smooth
from mcfo.posterior.result import Posterior

if TYPE_CHECKING:
    import xarray

MODELS = 100
"""Draws of the parameters over which an answer is averaged."""
_PATHS = 2000
"""Paths of all of them together, from which quantiles are taken, unless more are asked for."""

_GRID = 50
"""Levels of the quantiles by which each part of a mixture of forecasts is represented."""


def forecast_over(
    posterior: Posterior,
    data: Any,
    steps: int,
    *,
    models: int = MODELS,
    draws: int = _PATHS,
    levels: Sequence[float] = LEVELS,
    seed: int = 0,
    progress: Progress = iter,
    **options: Any,
) -> xarray.Dataset:
    """Forecast as [`forecast`][mcfo.forecast] does, averaged over a posterior.

    **Arguments:**

    - `models`: the number of draws of the parameters.
    - `draws`: the number of paths in all; the quantiles are theirs.
    - `progress`: an iterator over the draws of the parameters that shows how far it is.
    - `options`: those of `forecast`: `inputs`, `particles`, `method`.
    """

    def one(model: Any, proposal: Any, seed: int, each: int) -> xarray.Dataset:
        return forecast(model, proposal, data, steps, draws=each, levels=levels, seed=seed, **options)

    return _averaged(posterior, one, models, draws, levels, seed, draws, progress)


def smooth_over(
    posterior: Posterior,
    data: Any,
    *,
    models: int = MODELS,
    draws: int = 0,
    paths: int = _PATHS,
    levels: Sequence[float] = LEVELS,
    seed: int = 0,
    progress: Progress = iter,
    **options: Any,
) -> xarray.Dataset:
    """Smooth as [`smooth`][mcfo.smooth] does, averaged over a posterior. The arguments are those of `forecast_over`;
    `paths` are drawn for the quantiles, of which `draws` are returned."""

    def one(model: Any, proposal: Any, seed: int, each: int) -> xarray.Dataset:
        return smooth(model, proposal, data, draws=each, paths=each, levels=levels, seed=seed, **options)

    return _averaged(posterior, one, models, max(paths, draws), levels, seed, draws, progress)


def _averaged(
    posterior: Posterior,
    compute: Callable[[Any, Any, int, int], Any],
    models: int,
    paths: int,
    levels: Sequence[float],
    seed: int,
    draws: int,
    progress: Progress,
) -> xarray.Dataset:
    chosen = _chosen(posterior, models)
    each = -(-paths // len(chosen))
    results = [
        compute(chosen[index][0], chosen[index][1], seed + index, each) for index in progress(list(range(len(chosen))))
    ]
    result = _mixed(results, check_levels(levels))
    result.attrs |= {"posterior_draws": len(chosen), "seed": seed}
    if not draws:
        return result.drop_vars(["latent_draws", "observation_draws", "particle"])
    return result.isel(particle=slice(0, draws))


def _chosen(posterior: Posterior, models: int) -> list[tuple[Any, Any]]:
    if models < 1:
        raise InputError(f"At least one draw of the parameters is needed, but {models} are asked for.")
    return posterior.models(models)


def _mixed(results: list[Any], levels: tuple[float, ...]) -> Any:
    """Mix data sets of equal shapes."""
    import xarray

    pooled = {
        name: np.concatenate([one[name].transpose("particle", ...).values for one in results])
        for name in ("latent_draws", "observation_draws")
    }
    # One model after the other would leave the first draws to the first models.
    count = len(pooled["latent_draws"])
    order = np.argsort(np.arange(count) % (count // len(results)), kind="stable")
    variables = {}
    for name, array in results[0].data_vars.items():
        stacked = np.stack([one[name].values for one in results])
        if name.endswith("_draws"):
            axes = [axis for axis in array.dims if axis != "particle"]
            draws = xarray.DataArray(pooled[name][order], dims=("particle", *axes))
            variables[name] = draws.transpose(*array.dims)
        elif name.endswith("_quantiles"):
            draws = pooled[name.replace("_quantiles", "_draws")]
            axes = tuple(axis for axis in array.dims if axis != "quantile")
            found = xarray.DataArray(_quantiles(draws, levels), dims=("quantile", *axes))
            # Where no model has a quantile, as before a diffuse start is found, there is none.
            variables[name] = found.transpose(*array.dims).where(~np.isnan(stacked).all(axis=0))
        elif name in ("log_evidence", "log_predictive"):
            variables[name] = (array.dims, logsumexp(stacked, axis=0) - np.log(len(results)))
        elif name == "finite":
            variables[name] = (array.dims, stacked.all(axis=0))
        else:
            variables[name] = (array.dims, stacked.mean(axis=0))
    mixed = xarray.Dataset(
        variables, {**results[0].drop_vars("particle").coords, "particle": np.arange(count, dtype=np.int32)}
    )
    mixed.attrs = dict(results[0].attrs)
    for name in mixed.data_vars:
        mixed[name].attrs = dict(results[0][name].attrs)
    return mixed


def _quantiles(draws: np.ndarray, levels: tuple[float, ...]) -> np.ndarray:
    return np.quantile(draws, levels, axis=0)


def evaluate_rolling_over(
    posterior: Posterior, data: Any, *, models: int = MODELS, **options: Any
) -> RollingEvaluation:
    """Score forecasts as [`evaluate_rolling`][mcfo.evaluate_rolling] does, averaged over a posterior.

    Log scores and probability integral transforms are those of the mixture. Its quantiles and CRPS are those of the
    pooled quantiles of its parts, at `_GRID` evenly spaced levels.
    """
    levels = tuple(((np.arange(_GRID) + 0.5) / _GRID).tolist())
    results = [
        evaluate_rolling(model, proposal, data, levels=levels, **options)
        for model, proposal in _chosen(posterior, models)
    ]
    first = results[0]
    series = [
        _mixed_rolling([one.series[index] for one in results], values)
        for index, values in enumerate(first.observations)
    ]
    scores = [summarize_scores(series, first.observations, one.ahead) for one in first.scores]
    return first._replace(scores=scores, series=series, collapsed=max(one.collapsed for one in results))


def _mixed_rolling(parts: list[Rolling], observations: np.ndarray) -> Rolling:
    """Mix the forecasts of one series, (steps, horizon), by all draws of the parameters."""
    count = len(parts)
    log_scores, errors = (np.stack([getattr(one, name) for one in parts]) for name in ("log_score", "log_score_error"))
    with np.errstate(invalid="ignore"):
        log_score = np.asarray(logsumexp(log_scores, axis=0)) - math.log(count)
        # The relative error of a mean of independent estimates.
        shares = np.exp(log_scores - log_score) / count
        error = np.sqrt(np.sum((shares * errors) ** 2, axis=0))
    # (models · levels, steps, horizon, dimensions): equally weighted points of the mixture.
    points = np.sort(np.concatenate([np.moveaxis(one.quantiles, 2, 0) for one in parts]), axis=0)
    steps, horizon, dimensions = points.shape[1:]
    targets = np.full((steps, horizon, dimensions), np.nan)
    for ahead in range(horizon):
        targets[: steps - ahead, ahead] = observations[ahead:steps]
    known = ~np.isnan(parts[0].pit)
    size = len(points)
    ranks = (2 * np.arange(1, size + 1) - size - 1)[:, None, None, None]
    centered = points - targets
    crps = np.mean(np.abs(centered), axis=0) - np.sum(ranks * centered, axis=0) / size**2
    return Rolling(
        log_score=log_score,
        log_score_error=np.where(np.isnan(log_score), np.nan, error),
        crps=np.where(known, crps, np.nan),
        pit=np.mean([one.pit for one in parts], axis=0),
        mean=np.mean([one.mean for one in parts], axis=0),
        quantiles=np.moveaxis(np.quantile(points, LEVELS, axis=0), 0, 2),
    )
