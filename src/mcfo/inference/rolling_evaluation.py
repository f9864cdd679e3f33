"""Rolling evaluation: the scores of forecasts over many origins, each computed from the observations before it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mcfo.data.batching import as_buckets, unstacked
from mcfo.errors import InputError
from mcfo.inference.exact_evaluation import exact_rolling
from mcfo.inference.exact_laws import uses_exact_laws
from mcfo.inference.naive import naive_rolling
from mcfo.inference.quantiles import LEVELS, check_levels
from mcfo.inference.scoring import Rolling, rolling
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.series import Series
from mcfo.smc.filter import SMC
from mcfo.types import Key

BINS = 10
"""The number of bins in histograms of the probability integral transform."""

LARGEST_ERROR = 0.5
"""The largest Monte Carlo error of a log score, in nats, with which a mean of log scores is reported."""


class Scores(NamedTuple):
    """The scores of all forecasts the same number of steps ahead, over all origins and series.

    - `ahead`: the number of steps after the last observation that was used.
    - `forecasts`: the number of steps that were compared; `values`: the number of values in them.
    - `log_score`: mean of log p(x_t+s | x_1:t), in nats per step with an observation; higher is better. NaN where a
      forecast's Monte Carlo error is above half a nat: a mean over such scores means nothing.
    - `log_score_error`: the Monte Carlo standard error of that mean; zero where the scores are exact.
    - `crps`: mean continuous ranked probability score, in units of the data; lower is better.
    - `rmse`: root mean square error of the forecasts' means.
    - `coverage_50`, `coverage_90`: the share of the values inside the central intervals of that probability.
    - `pit`: the number of values in each tenth of the forecast distribution: equal if forecasts are calibrated.
    """

    ahead: int
    forecasts: int
    values: int
    log_score: float
    log_score_error: float
    crps: float
    rmse: float
    coverage_50: float
    coverage_90: float
    pit: tuple[int, ...]

    def as_data(self) -> dict[str, Any]:
        """Return data for JSON, with None for numbers that are not finite."""
        data = {name: list(value) if isinstance(value, tuple) else value for name, value in self._asdict().items()}
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in data.items()
        }


class RollingEvaluation(NamedTuple):
    """The result of [`evaluate_rolling`][].

    - `scores`: one for each number of steps ahead, 1 to the horizon.
    - `series`: every single forecast, a [`Rolling`][mcfo.inference.scoring.Rolling] of numpy arrays for each
      series, in the order of their ids; two models are best compared there, forecast by forecast.
    - `observations`: the values of each series, with NaN where they are missing.
    - `collapsed`: the number of series that the filter lost; their log scores are -inf or NaN.
    - `exact`: whether the scores are exact; `particles` and `draws` are then None.
    - `naive`: the scores of naive forecasts of the same steps, by name.
    """

    scores: list[Scores]
    series: list[Rolling]
    observations: list[np.ndarray]
    particles: int | None
    draws: int | None
    collapsed: int
    exact: bool
    naive: dict[str, list[Scores]]

    def as_data(self) -> dict[str, Any]:
        """Return the summary as data for JSON."""
        return {
            "exact": self.exact,
            "particles": self.particles,
            "draws": self.draws,
            "series": len(self.series),
            "collapsed": self.collapsed,
            "scores": [one.as_data() for one in self.scores],
            "naive": {name: [one.as_data() for one in scores] for name, scores in self.naive.items()},
        }

    def pit(self, ahead: int = 1) -> np.ndarray:
        """Return all values of the probability integral transform for one number of steps ahead, series by series."""
        values = np.concatenate([one.pit[:, ahead - 1].ravel() for one in self.series])
        return values[~np.isnan(values)]


def evaluate_rolling(
    model: Model,
    proposal: Proposal,
    data: Any,
    *,
    horizon: int = 1,
    first: int = 1,
    last: int | None = None,
    origins: int | None = None,
    particles: int | None = None,
    draws: int = 1000,
    season: int | None = None,
    method: str | None = None,
    levels: Sequence[float] = LEVELS,
    key: Key | None = None,
) -> RollingEvaluation:
    """Forecast from many origins of each series and score each forecast, in one pass of the filter for each series.

    Models whose distributions are known are scored exactly, unless particles are asked for. The parameters are
    fixed. To score data that the model has not learned from, learn from the first part of the series and let `first` be
    the step after it; the filter still reads everything before an origin.

    **Arguments:**

    - `horizon`: the number of steps ahead. Origins have as many steps after them, so that all horizons share them.
    - `first`: the first step that is forecast one step ahead, counted from 1; step 1 is forecast without observations.
    - `last`: instead of `first`, the number of steps at the end of each series that are forecast.
    - `origins`: the number of origins, evenly spread over each series; by default every step is one.
    - `particles`, `draws`: the numbers of particles of the filter (by default 1000) and of draws of each forecast,
      where there is no exact answer.
    - `season`: the number of steps in a season, for the seasonal naive forecast beside the naive one.
    - `method`: "exact" or "particles"; by default exact where that is possible and `particles` is not given.
    - `levels`: those of the quantiles of each forecast.
    """
    sizes = {"horizon": horizon, "first": first, "last": last, "origins": origins, "particles": particles}
    return evaluate_rolling_each(
        lambda series_id: (model, proposal),
        data,
        **sizes,
        draws=draws,
        levels=levels,
        season=season,
        method=method,
        key=key,
    )


def evaluate_rolling_each(
    modules_of: Callable[[int], tuple[Model, Proposal]],
    data: Any,
    *,
    horizon: int = 1,
    first: int = 1,
    last: int | None = None,
    origins: int | None = None,
    particles: int | None = None,
    draws: int = 1000,
    season: int | None = None,
    method: str | None = None,
    key: Key | None = None,
    levels: Sequence[float] = LEVELS,
) -> RollingEvaluation:
    """Score forecasts as [`evaluate_rolling`][] does, of series that have models of their own.

    **Arguments:**

    - `modules_of`: model and proposal of a series, by its id.
    """
    levels = check_levels(levels)
    if season is not None and season < 2:
        raise InputError(f"A season has at least 2 steps, but got {season}. Leave it out if there is none.")
    for name, value, least in (("horizon", horizon, 1), ("first", first, 1), ("draws", draws, 2)):
        if value < least:
            raise InputError(f"{name} must be at least {least}, but got {value}.")
    if origins is not None and origins < 1:
        raise InputError(f"origins must be at least 1, but got {origins}.")
    if last is not None and last < horizon:
        raise InputError(
            f"The last {last} steps are fewer than the horizon, {horizon}. Ask for more, or look less far."
        )
    plans = [_plan(batch, horizon, first, last, origins) for batch in as_buckets(data)]
    for ahead in range(1, horizon + 1):
        if not any(plan.has_targets(ahead) for plan in plans):
            raise InputError(
                f"There is nothing to score {ahead} ahead: no origin from step {first} on has an observation there, "
                f"and {horizon - ahead} more steps after it; the longest series has "
                f"{max(int(plan.lengths.max()) for plan in plans)}. Start earlier (first, on the command line --from), "
                "look less far (horizon), or take more origins."
            )
    example = modules_of(int(plans[0].batch.series_id[0]))[0]
    exact, scored_series = uses_exact_laws(example, method, particles), []
    particles, key = particles or 1000, jax.random.key(0) if key is None else key
    for plan in plans:
        for index, one in enumerate(_scored(modules_of, plan, horizon, exact, particles, draws, levels, key)):
            length = plan.lengths[index]
            one = jax.tree.map(lambda array, length=length: np.asarray(array)[:length], one)
            known = plan.values[index, :length], plan.origins[index, :length]
            scored_series.append((int(plan.batch.series_id[index]), one, *known))
    scored_series.sort(key=lambda each: each[0])
    series, observations = [each[1] for each in scored_series], [each[2] for each in scored_series]
    naive = {}
    for name, steps in {"naive": 1, **({} if season is None else {"seasonal naive": season})}.items():
        simple = [naive_rolling(values, wanted, horizon, steps) for *_, values, wanted in scored_series]
        naive[name] = [summarize_scores(simple, observations, ahead) for ahead in range(1, horizon + 1)]
    return RollingEvaluation(
        scores=[summarize_scores(series, observations, ahead) for ahead in range(1, horizon + 1)],
        series=series,
        observations=observations,
        particles=None if exact else particles,
        draws=None if exact else draws,
        # Steps without an observation have no log score; any other that is not finite comes from the filter.
        collapsed=sum(bool((~np.isfinite(one.log_score[~np.isnan(one.crps).all(axis=-1)])).any()) for one in series),
        exact=exact,
        naive=naive,
    )


def _scored(
    modules_of: Callable[[int], tuple[Model, Proposal]],
    plan: _Plan,
    horizon: int,
    exact: bool,
    particles: int,
    draws: int,
    levels: tuple[float, ...],
    key: Key,
) -> Iterator[Rolling]:
    """Yield the scored forecasts of each series of a batch."""
    ids = [int(one) for one in plan.batch.series_id]
    if exact:
        for series_id, series, wanted in zip(ids, unstacked(plan.batch), plan.origins, strict=True):
            yield exact_rolling(modules_of(series_id)[0], series, wanted, horizon, levels)
        return
    origins = jnp.asarray(plan.origins)
    if _is_shared(modules_of, ids):
        scored = _all(SMC(particles), *modules_of(ids[0]), plan.batch, origins, horizon, draws, levels, key)
        for index in range(len(ids)):
            yield jax.tree.map(lambda array, index=index: np.asarray(array)[index], scored)
        return
    for index, series_id in enumerate(ids):
        one = jax.tree.map(lambda array, index=index: array[index : index + 1], (plan.batch, origins))
        scored = _all(SMC(particles), *modules_of(series_id), *one, horizon, draws, levels, key)
        yield jax.tree.map(lambda array: np.asarray(array)[0], scored)


def _is_shared(modules_of: Callable[[int], tuple[Model, Proposal]], ids: list[int]) -> bool:
    """Whether all series have the very same model."""
    return all(modules_of(one)[0] is modules_of(ids[0])[0] for one in ids)


@eqx.filter_jit
def _all(
    sampler: SMC,
    model: Model,
    proposal: Proposal,
    batch: Series,
    wanted: Any,
    horizon: int,
    draws: int,
    levels: tuple[float, ...],
    key: Key,
) -> Rolling:
    # One series after the other: memory does not grow with their number, and only origins cost a forecast.
    return jax.lax.map(
        lambda one: rolling(
            sampler, model, proposal, one[0], one[1], horizon=horizon, draws=draws, levels=levels, key=key
        ),
        (batch, wanted),
    )


class _Plan(NamedTuple):
    """A batch with the origins of its forecasts, and its values with NaN where they are missing."""

    batch: Series
    origins: np.ndarray
    lengths: np.ndarray
    values: np.ndarray

    def has_targets(self, ahead: int) -> bool:
        """Whether anything was observed `ahead` steps after an origin."""
        known = np.any(~np.isnan(self.values), axis=-1)
        return bool((self.origins[:, : known.shape[1] - ahead + 1] & known[:, ahead - 1 :]).any())


def _plan(batch: Series, horizon: int, first: int, last: int | None, origins: int | None) -> _Plan:
    series, steps = batch.observations.shape[:2]
    lengths = np.full(series, steps) if batch.length is None else np.asarray(batch.length)
    known = np.asarray(jax.vmap(Series.mask)(batch))
    values = np.where(known, np.asarray(batch.observations, float), np.nan)
    firsts = [first if last is None else max(1, int(n) - last + 1) for n in lengths]
    each = [_origins(steps, int(n), horizon, one, origins) for n, one in zip(lengths, firsts, strict=True)]
    return _Plan(batch, np.stack(each), lengths, values)


def _origins(steps: int, length: int, horizon: int, first: int, origins: int | None) -> np.ndarray:
    """Return True at the origins: steps with at least `horizon` steps after them."""
    low, high = first - 1, length - horizon
    flags = np.zeros(steps, bool)
    if low <= high:
        count = high - low + 1
        chosen = np.arange(low, high + 1) if origins is None else np.linspace(low, high, min(origins, count)).round()
        flags[chosen.astype(int)] = True
    return flags


def summarize_scores(series: list[Rolling], observations: list[np.ndarray], ahead: int) -> Scores:
    """Return the scores of all forecasts `ahead` steps ahead."""
    index = ahead - 1
    pit = np.concatenate([one.pit[:, index].ravel() for one in series])
    scored = ~np.isnan(pit)
    errors = np.concatenate(
        [(one.mean[: len(x) - index, index] - x[index:]).ravel() for one, x in zip(series, observations, strict=True)]
    )
    if not scored.any():
        nothing = math.nan
        return Scores(ahead, 0, 0, nothing, nothing, nothing, nothing, nothing, nothing, (0,) * BINS)
    largest = float(np.nanmax(np.abs(errors))) or 1.0  # so that no square overflows
    log_scores = np.concatenate([one.log_score[~np.isnan(one.pit[:, index]).all(axis=-1), index] for one in series])
    log_errors = np.concatenate(
        [one.log_score_error[~np.isnan(one.pit[:, index]).all(axis=-1), index] for one in series]
    )
    crps = np.concatenate([one.crps[:, index].ravel() for one in series])
    pit = pit[scored]
    return Scores(
        ahead=ahead,
        forecasts=len(log_scores),
        values=len(pit),
        log_score=math.nan if (log_errors > LARGEST_ERROR).any() else float(log_scores.mean()),
        log_score_error=math.sqrt(float(np.sum(log_errors**2))) / len(log_scores),
        crps=float(crps[scored].mean()),
        rmse=math.sqrt(float(np.nanmean((errors / largest) ** 2))) * largest,
        coverage_50=float(np.mean(np.abs(pit - 0.5) <= 0.25)),
        coverage_90=float(np.mean(np.abs(pit - 0.5) <= 0.45)),
        pit=tuple(np.histogram(pit, bins=BINS, range=(0, 1))[0].tolist()),
    )
