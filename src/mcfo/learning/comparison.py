"""Several models side by side: all learn from the same first part of the series and forecast the same last steps."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mcfo.catalogue.registry import entry
from mcfo.data.series_shape import Suggestion, suggest
from mcfo.data.tables import Table, table_of
from mcfo.errors import InputError, nearest
from mcfo.inference.datasets import named_series
from mcfo.inference.naive import naive_rolling
from mcfo.inference.rolling_evaluation import LARGEST_ERROR, evaluate_rolling
from mcfo.inference.scoring import Rolling
from mcfo.learning.fit import fit
from mcfo.learning.statsmodels_forecasts import RIVALS, installed, rival_rolling
from mcfo.reports.formatting import significant

if TYPE_CHECKING:
    import pandas

SHARE = 0.2
"""The share of the steps that is held out by default."""
LEAST = 8
"""The fewest steps to learn from."""
_MOST_SERIES = 20
"""Series up to which statsmodels' models, one for each series, are fitted."""


class Entrant(NamedTuple):
    """A model of the catalogue with its options."""

    name: str
    model: str
    options: Mapping[str, Any]


class Score(NamedTuple):
    """The scores of one model's forecasts of the held-out steps, over all steps ahead and all series.

    - `log_score`: mean log p(x_t+s | x_1:t), higher is better; NaN where the Monte Carlo error of one is above half a
      nat. `crps`: in the unit of the data, lower is better. `rmse`, `coverage_90`: of the means, and of the intervals.
    - `by_step`: the mean CRPS at each number of steps ahead.
    - `seconds`: what fitting and forecasting took, compiling included.
    """

    name: str
    kind: str
    log_score: float
    crps: float
    rmse: float
    coverage_90: float
    by_step: tuple[float, ...]
    seconds: float


class Comparison(NamedTuple):
    """The result of [`compare`][]: the scores, best CRPS first, and what could not be compared, in sentences.

    - `holdout`, `horizon`: the steps at the end of each series that were forecast, and how far ahead.
    - `forecasts`: the number of values that all were scored on.
    """

    scores: list[Score]
    notes: list[str]
    holdout: int
    horizon: int
    season: float | int | None
    forecasts: int

    @property
    def best(self) -> Score:
        """The one with the lowest CRPS."""
        return self.scores[0]

    def to_frame(self) -> pandas.DataFrame:
        """Return a data frame with a row for each model."""
        import pandas as pd

        rows = [{key: value for key, value in one._asdict().items() if key != "by_step"} for one in self.scores]
        return pd.DataFrame(rows).set_index("name")

    def as_data(self) -> dict[str, Any]:
        """Return data for JSON, with None for what is not finite."""

        def plain(value: Any) -> Any:
            if isinstance(value, tuple):
                return [plain(one) for one in value]
            return None if isinstance(value, float) and not math.isfinite(value) else value

        about = {name: getattr(self, name) for name in ("holdout", "horizon", "season", "forecasts", "notes")}
        return about | {"models": [{k: plain(v) for k, v in one._asdict().items()} for one in self.scores]}


def compare(
    data: Any,
    *,
    models: Sequence[str] | None = None,
    holdout: int | None = None,
    horizon: int = 1,
    season: float | int | str | None = "auto",
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Comparison:
    """Fit a few models to all but the last steps of each series, and rank them by their forecasts of these.

        print(mcfo.compare("air.csv", horizon=12).to_frame())

    Parameters are learned from the first part alone; each forecast knows everything before its origin. Beside the
    models stand the naive forecast, the seasonal naive one and, if statsmodels is installed, its exponential smoothing
    and a seasonal ARIMA, one for each series. All are scored on the same values: those that every one has a score for.

    **Arguments:**

    - `models`: names of the catalogue, with options as in "structural:season=12,trend=local"; by default a local
      level, a local trend, and what the data suggest.
    - `holdout`: the number of steps at the end of each series; by default a fifth of the shortest.
    - `horizon`: the number of steps ahead.
    - `season`: the steps in a season; "auto" looks for it, None is none.
    - `progress`: receives the name of each model before it is fitted.
    """
    table = table_of(data)
    if table is None:
        named = named_series(data)
        table = Table(named.series_list, named.names, named.columns)
    if len(table.columns) > 1:
        raise InputError(
            f"Models are compared on one column, but there are {len(table.columns)} ({', '.join(table.columns)}). "
            "Choose one (on the command line, --columns)."
        )
    asked = None if models is None else [_read(text) for text in models]
    shortest = min(len(one.values()) for one in table.series_list)
    holdout = max(horizon, round(SHARE * shortest)) if holdout is None else holdout
    if horizon < 1 or holdout < horizon:
        raise InputError(f"The holdout, {holdout} steps, must have the horizon in it, {horizon} steps, at least.")
    if shortest - holdout < LEAST:
        raise InputError(
            f"With {holdout} steps held out, the shortest series of {shortest} leaves {shortest - holdout} to learn "
            f"from, but {LEAST} are wanted. Hold out fewer (--holdout-steps), or leave short series out."
        )
    first = [one.window(0, one.steps - holdout) for one in table.series_list]
    times = None if table.times is None else [one[:-holdout] for one in table.times]
    learned = table._replace(series_list=first, times=times)
    found = suggest(learned)
    period: Any = found.period if season == "auto" else season
    period = int(period) if period is not None and float(period).is_integer() else period
    entrants = _entrants(found, period) if asked is None else asked
    rolled: dict[str, tuple[str, list[Rolling], float]] = {}
    notes = [f"The data suggest: {' '.join(found.reasons)}"] if found.reasons and models is None else []
    if table.spacing is not None and not table.spacing.even:
        notes.append("The times are not evenly spaced, but each row counts as one step here.")
    tell = progress or (lambda name: None)
    for one in entrants:
        tell(one.name)
        began = time.perf_counter()
        try:
            fitted = fit(one.model, first, seeds=(seed,), **one.options)
            answered = evaluate_rolling(fitted.model, fitted.proposal, table.series_list, horizon=horizon, last=holdout)
        except InputError as error:
            if models is not None:
                raise
            notes.append(f"{one.name} was left out: {error}")
            continue
        rolled[one.name] = (
            "mcfo, exact" if answered.exact else "mcfo, particles",
            answered.series,
            time.perf_counter() - began,
        )
    values = [one.values() for one in table.series_list]
    origins = [_origins(len(one), holdout, horizon) for one in values]
    steps = {"naive": 1, **({"seasonal naive": round(period)} if period and round(period) > 1 else {})}
    for name, back in steps.items():
        began = time.perf_counter()
        each = [naive_rolling(*both, horizon, back) for both in zip(values, origins, strict=True)]
        rolled[name] = "naive", each, time.perf_counter() - began
    notes += _add_rivals(rolled, table, values, origins, horizon, period, found.transform == "log", tell)
    without = [name for name, (_, each, _) in rolled.items() if not any(np.isfinite(one.crps).any() for one in each)]
    for name in without:
        del rolled[name]
        notes.append(f"{name} was left out: none of its forecasts of the held-out values is finite.")
    if not rolled:
        raise InputError("No model has a finite forecast of a held-out value. Hold out more steps (--holdout-steps).")
    scores, forecasts = _scores(rolled, values, horizon)
    return Comparison(scores, notes, holdout, horizon, period, forecasts)


def _entrants(found: Suggestion, period: Any) -> list[Entrant]:
    """What is compared by default: two simple models and what the data suggest."""
    entrants = [Entrant("local-level", "local-level", {}), Entrant("local-trend", "local-trend", {})]
    options = dict(found.options)
    if found.model == "structural":
        options.pop("season", None)
        if period is not None:
            options["season"] = period
        entrants.append(_structural({"trend": "local", **options}))
        if found.transform == "log":
            entrants.append(_structural({key: value for key, value in options.items() if key != "transform"}))
    elif found.model not in ("local-level", "local-trend"):
        entrants.append(Entrant(_named(found.model, options), found.model, options))
    if found.model != "structural" and period is not None:
        entrants.append(_structural({"trend": "local", "season": period}))
    return list({one.name: one for one in entrants}.values())


def _structural(options: Mapping[str, Any]) -> Entrant:
    return Entrant(_named("structural", options), "structural", options)


def _named(model: str, options: Mapping[str, Any]) -> str:
    chosen = ", ".join(f"{key}={value}" for key, value in options.items())
    return f"{model} ({chosen})" if chosen else model


def _read(text: str) -> Entrant:
    """A model and its options, "structural:season=12,trend=local"."""
    model, _, rest = text.partition(":")
    known, options = entry(model).parameters(), {}
    for pair in rest.split(",") if rest else ():
        key, sign, value = pair.partition("=")
        if not sign:
            raise InputError(f"{text!r} is not of the form model:option=value,option=value.")
        if key not in known:
            raise InputError(f"The model {model} has no option {key!r}. {nearest(key, known)}")
        options[key] = value
    return Entrant(_named(model, options), model, options)


def _add_rivals(
    rolled: dict[str, tuple[str, list[Rolling], float]],
    table: Table,
    values: list[np.ndarray],
    origins: list[np.ndarray],
    horizon: int,
    period: Any,
    logarithm: bool,
    tell: Callable[[str], None],
) -> list[str]:
    """Adds statsmodels' models where they can be, and returns sentences where they cannot."""
    if not installed():
        return ["statsmodels is not installed, so that its ETS and SARIMAX are not compared: pip install statsmodels."]
    if len(values) > _MOST_SERIES:
        return [f"statsmodels' models are fitted to {_MOST_SERIES} series at most; they are left out."]
    if any(one.inputs is not None for one in table.series_list):
        return ["statsmodels' models get no inputs here; they are left out."]
    notes = []
    for name in RIVALS:
        tell(name)
        began = time.perf_counter()
        try:
            each = [
                rival_rolling(name, one[:, 0], origin, horizon, season=period, logarithm=logarithm)
                for one, origin in zip(values, origins, strict=True)
            ]
        # Whatever statsmodels raises about a series, the others are compared.
        except (ValueError, TypeError, IndexError, np.linalg.LinAlgError, NotImplementedError) as error:
            notes.append(f"{name} was left out: {error}")
            continue
        rolled[name] = "statsmodels", each, time.perf_counter() - began
    return notes


def _scores(
    rolled: Mapping[str, tuple[str, list[Rolling], float]], values: list[np.ndarray], horizon: int
) -> tuple[list[Score], int]:
    """The scores over the forecasts that all have, the lowest CRPS first."""
    stacked = {name: np.concatenate([one.crps[..., 0] for one in each]) for name, (_, each, _) in rolled.items()}
    shared = np.all([np.isfinite(one) for one in stacked.values()], axis=0)
    if not shared.any():
        raise InputError("No held-out value has a forecast of every model. Hold out more steps (--holdout-steps).")
    targets = np.concatenate([_targets(one[:, 0], horizon) for one in values])
    found = []
    for name, (kind, each, seconds) in rolled.items():
        crps = stacked[name]
        log_scores, errors, means, pit = (
            np.concatenate(parts)[shared]
            for parts in (
                [one.log_score for one in each],
                [one.log_score_error for one in each],
                [one.mean[..., 0] for one in each],
                [one.pit[..., 0] for one in each],
            )
        )
        found.append(
            Score(
                name=name,
                kind=kind,
                log_score=math.nan if (errors > LARGEST_ERROR).any() else float(np.mean(log_scores)),
                crps=float(crps[shared].mean()),
                rmse=float(np.sqrt(np.mean((means - targets[shared]) ** 2))),
                coverage_90=float(np.mean(np.abs(pit - 0.5) <= 0.45)),
                by_step=tuple(
                    float(crps[:, ahead][shared[:, ahead]].mean()) if shared[:, ahead].any() else math.nan
                    for ahead in range(horizon)
                ),
                seconds=seconds,
            )
        )
    return sorted(found, key=lambda one: one.crps), int(shared.sum())


def _targets(values: np.ndarray, horizon: int) -> np.ndarray:
    """x_t+s in row t, (steps, horizon); NaN beyond the end."""
    padded = np.concatenate([values, np.full(horizon, np.nan)])
    return np.stack([padded[ahead : ahead + len(values)] for ahead in range(horizon)], axis=1)


def _origins(steps: int, holdout: int, horizon: int) -> np.ndarray:
    """True at index t where a forecast given the first t values is wanted, as `evaluate_rolling(last=...)` has them."""
    rows = np.arange(steps)
    return (rows >= steps - holdout) & (rows <= steps - horizon)


def verdict(comparison: Comparison) -> str:
    """One sentence about who won, and by how much."""
    best = comparison.best
    naive = [one for one in comparison.scores if one.kind == "naive"]
    if not naive:
        return f"The lowest CRPS has {best.name}: {significant(best.crps, 3)}."
    reference = min(naive, key=lambda one: one.crps)
    if best.kind == "naive":
        return f"Nothing forecasts better than the {best.name} forecast (CRPS {significant(best.crps, 3)})."
    less = 1 - best.crps / reference.crps
    return (
        f"The lowest CRPS has {best.name}: {significant(best.crps, 3)}, {less:.0%} less than the {reference.name} "
        "forecast."
    )
