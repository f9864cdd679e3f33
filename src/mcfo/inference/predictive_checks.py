"""Predictive checks: residuals of one-step forecasts, and statistics of simulated series beside those of the data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from mcfo.data.inspection import statistics
from mcfo.data.npz import write_npz
from mcfo.inference.exact_laws import uses_exact_laws
from mcfo.inference.naive import naive_rolling
from mcfo.inference.residuals import PARTICLES, normal_scores
from mcfo.inference.rolling_evaluation import evaluate_rolling
from mcfo.models.base import Model, simulate_from_start
from mcfo.proposals.base import Proposal
from mcfo.series import Series, stack, with_ids
from mcfo.types import Key

_MOST_VALUES = 20_000
"""The largest number of values that are checked, so that the checks of a large data set take seconds."""
_PATHS = 3
_TAG = 0x63686563


class Checks(NamedTuple):
    """The result of [`predictive_checks`][].

    - `residuals`, `values`: for each series (steps, columns); NaN where nothing was observed.
    - `predicted`: the means of the forecasts one step ahead, of the same shape.
    - `naive`: those of the naive and, where there is a season, of the seasonal naive forecast, by name.
    - `observed`: the statistics of the data, (statistics, columns); `simulated`: those of simulated data sets,
      (data sets, statistics, columns), with the same lengths and missing values.
    - `paths`: a few simulated series of the length of the first one, (paths, steps, columns).
    """

    residuals: list[np.ndarray]
    values: list[np.ndarray]
    predicted: list[np.ndarray]
    observed: np.ndarray
    simulated: np.ndarray
    paths: np.ndarray
    naive: dict[str, list[np.ndarray]]


def predictive_checks(
    model: Model,
    proposal: Proposal,
    data: Any,
    *,
    particles: int | None = None,
    draws: int = 500,
    simulations: int = 200,
    season: int | None = None,
    key: Key,
) -> Checks:
    """Compute standardized one-step residuals, and statistics of the data and of simulated series.

    The residual of x_t is Φ⁻¹ of its probability integral transform given x_1:t-1. Under the right model the residuals
    of each column are independent standard normal numbers, also for counts, whose transform is randomized. Rosenblatt
    (1952); Dunn and Smyth (1996). The parameters are fixed: their uncertainty is not accounted for.

    **Arguments:**

    - `particles`, `draws`: the numbers of particles of the filter and of draws of its forecasts; without them, 500
      where the forecasts are not known exactly.
    - `simulations`: the number of simulated data sets.
    - `season`: the number of steps in a season, if there is one.
    """
    chosen = _first_ones(with_ids([data] if isinstance(data, Series) else list(data)))
    if not uses_exact_laws(model, None, particles):
        particles = particles or PARTICLES
    rolled = evaluate_rolling(model, proposal, chosen, particles=particles, draws=draws, key=key)
    residuals = [normal_scores(one.pit[:, 0]) for one in rolled.series]
    batch = stack(chosen)
    known = np.asarray(jax.vmap(Series.mask)(batch))
    simulated = np.asarray(_simulated(model, batch, simulations, jax.random.fold_in(key, _TAG))).astype(float)
    simulated = np.swapaxes(simulated, 0, 1)
    observed = statistics(np.where(known, np.asarray(batch.observations, float), np.nan))
    length = len(rolled.observations[0])
    paths = simulated[:_PATHS, 0, :length]
    predicted = [np.asarray(one.mean[:, 0]) for one in rolled.series]
    repeated = statistics(np.where(known, simulated, np.nan))
    naive = {
        name: [naive_rolling(x, np.ones(len(x), bool), 1, steps).mean[:, 0] for x in rolled.observations]
        for name, steps in {"naive": 1, **({} if season is None else {"seasonal naive": season})}.items()
    }
    return Checks(residuals, rolled.observations, predicted, observed, repeated, paths, naive)


def write_checks(path: Path, checks: Checks, columns: Sequence[str], *, digest: str = "") -> None:
    """Write the checks into an NPZ file, which the report reads; `digest` is the hash of the data."""
    write_npz(
        path,
        {
            "columns": np.array(list(columns)),
            "lengths": np.array([len(one) for one in checks.residuals], np.int32),
            "residuals": np.concatenate(checks.residuals).astype(np.float32),
            "values": np.concatenate(checks.values),
            "predicted": np.concatenate(checks.predicted).astype(np.float32),
            "observed": checks.observed,
            "simulated": checks.simulated,
            "paths": checks.paths,
            "digest": np.array(digest),
            **{name: np.concatenate(means).astype(np.float32) for name, means in checks.naive.items()},
        },
    )


def _first_ones(series_list: list[Series]) -> list[Series]:
    """Return the first series, up to the limit; the first one is shortened if it is too long."""
    chosen, room = [], _MOST_VALUES
    for one in series_list:
        size = one.steps * one.observations.shape[1]
        if chosen and size > room:
            break
        chosen.append(one if size <= room else one.window(0, max(1, room // one.observations.shape[1])))
        room -= size
    return chosen


@eqx.filter_jit
def _simulated(model: Model, batch: Series, count: int, key: Key) -> Any:
    def of_series(one: Series) -> Any:
        keys = jax.random.split(jax.random.fold_in(key, one.series_id), (count, one.steps))
        inputs = one.sanitized().inputs
        return jax.vmap(lambda keys: simulate_from_start(model, inputs, keys).observations)(keys)

    return jax.lax.map(of_series, batch)
