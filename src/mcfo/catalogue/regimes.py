"""Models with regimes, initialized near the data: hidden Markov models and switching linear Gaussian models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mcfo.catalogue.clusters import Clusters, cluster
from mcfo.catalogue.counts_volatility import check_counts
from mcfo.catalogue.from_data import Impossible, Start, check_between, exogenous, observed, regressed
from mcfo.catalogue.linear import check_moving
from mcfo.errors import InputError, nearest
from mcfo.models.hidden_markov import CategoricalEmission, GaussianEmission, HiddenMarkov, PoissonEmission
from mcfo.models.linear_gaussian import LinearGaussian
from mcfo.models.switching import SwitchingLinearGaussian
from mcfo.proposals.regimes import OptimalRegimes
from mcfo.series import Series

EMISSIONS = ("gaussian", "poisson", "categorical")
INITIAL = ("stationary", "free")
DYNAMICS = ("autoregression", "level")
MOST_REGIMES = 50
MOST_CATEGORIES = 1000
_LEAST_SCALE = 0.01
"""The least standard deviation of a regime, relative to that of the data: without one the likelihood has no bound."""
_NUGGET = 1e-3
"""The variance of the measurement noise of a switching autoregression, relative to that of the data, for the same
reason."""


def hmm(
    series_list: list[Series],
    gaps: bool = False,
    *,
    states: int = 2,
    emission: str = "gaussian",
    stay: float = 0.9,
    initial: str = "stationary",
    categories: int | None = None,
) -> Start:
    """Build a hidden Markov model whose regimes are initially clusters of the data."""
    _check_choice("emission", emission, EMISSIONS)
    _check_choice("initial", initial, INITIAL)
    _check_regimes("states", states, stay)
    if categories is not None and emission != "categorical":
        raise InputError(f"The option categories is for emission=categorical, but the emission is {emission}.")
    inputs = exogenous(series_list, gaps)
    chosen: dict[str, str] = {}
    if emission == "categorical":
        if inputs:
            raise InputError("Categories take no inputs. Leave out --inputs, or use another emission.")
        values = observed(series_list)
        categories = _categories(values) if categories is None else categories
        chosen["categories"] = str(categories)
        clusters = cluster(_by_series(series_list, np.eye(categories)), states, stay, flat=True)
        # A half of each category, so that none is impossible.
        counts = np.stack([_counted(values[clusters.labels == k], categories) for k in range(states)]) + 0.5
        emissions = CategoricalEmission(counts / counts.sum(axis=-1, keepdims=True))
    elif emission == "poisson":
        values = observed(series_list)
        clusters = cluster([np.sqrt(one.values()) for one in series_list], states, stay)
        least = 0.5 / np.sum(~np.isnan(values), axis=0)
        rates = np.maximum(clusters.means(values), least)
        weights = np.zeros((*rates.shape, inputs)) if inputs else None
        emissions = PoissonEmission(_apart(rates, 0.05 * rates.max(axis=0)), input_weights=weights)
    else:
        check_moving(observed(series_list))
        rest, weights = regressed(series_list, inputs)
        clusters = cluster(_split(rest, series_list), states, stay)
        scale = np.nanstd(rest, axis=0)
        means = _apart(clusters.means(rest), 0.05 * scale)
        deviations = np.maximum(clusters.deviations(rest), 0.1 * scale)
        weights = None if weights is None else np.broadcast_to(weights, (states, *weights.shape))
        emissions = GaussianEmission(means, deviations, least=_LEAST_SCALE * scale, input_weights=weights)
    model = HiddenMarkov(
        emissions,
        transition_probabilities=clusters.transition,
        initial_probabilities=None if initial == "stationary" else np.full(states, 1 / states),
    )
    fixed = ("model.emissions.least",) if emission == "gaussian" else ()
    return Start(model, OptimalRegimes(), fixed, chosen)


def check_hmm(values: np.ndarray, options: Mapping[str, Any]) -> Impossible | None:
    """Return the first value that is no count or no category, where the emission wants one."""
    emission = options.get("emission", "gaussian")
    if emission == "poisson":
        return check_counts("hmm with emission=poisson", values, options)
    if emission != "categorical":
        return None
    wrong = ~np.isnan(values) & ((values < 0) | (values != np.floor(values)))
    found = Impossible.first(wrong, "is no category. Number the categories 0, 1, 2, ...")
    if found is None and "categories" in options:
        count = int(options["categories"])
        found = Impossible.first(
            values >= count, f"is no category: the model has {count}, numbered from 0 to {count - 1}."
        )
    return found


def switching(
    series_list: list[Series],
    gaps: bool = False,
    *,
    regimes: int = 2,
    dynamics: str = "autoregression",
    stay: float = 0.9,
    persistence: float | None = None,
) -> Start:
    """Build a switching autoregression or level whose regimes are initially clusters of the data."""
    _check_choice("dynamics", dynamics, DYNAMICS)
    _check_regimes("regimes", regimes, stay)
    if persistence is not None:
        check_between("persistence", persistence, -1.0, 1.0)
        if dynamics == "level":
            raise InputError("A level has no persistence to choose. Leave it out, or use dynamics=autoregression.")
    check_moving(observed(series_list))
    rest, weights = regressed(series_list, exogenous(series_list, gaps))
    parts = _split(rest, series_list)
    build = _autoregressions if dynamics == "autoregression" else _levels
    models, clusters, fixed = build(parts, regimes, stay, weights, persistence)
    model = SwitchingLinearGaussian(models, transition_probabilities=clusters.transition)
    return Start(model, OptimalRegimes(), tuple(f"model.regimes.{name}" for name in fixed))


def _autoregressions(
    parts: list[np.ndarray], count: int, stay: float, weights: np.ndarray | None, persistence: float | None
) -> tuple[list[LinearGaussian], Clusters, tuple[str, ...]]:
    """x_t = μ_z + s_t, s_t = A_z s_t-1 + N(0, Q_z), with a little noise for the likelihood's sake."""
    clusters = cluster(parts, count, stay)
    values = np.concatenate(parts)
    size, variance = values.shape[1], np.nanvar(values, axis=0)
    means = clusters.means(values)
    if persistence is None:
        persistence = _autocorrelation(_cut(values - means[clusters.labels], parts))
    within = np.maximum(clusters.deviations(values - means[clusters.labels]) ** 2, 0.01 * variance)
    models = [
        LinearGaussian(
            initial_mean=np.zeros(size),
            initial_noise=variance,
            transition_matrix=persistence * np.eye(size),
            transition_noise=(1 - persistence**2) * own,
            emission_matrix=np.eye(size),
            emission_noise=_NUGGET * variance,
            emission_offset=mean,
            emission_inputs=weights,
        )
        for mean, own in zip(_apart(means, 0.05 * np.sqrt(variance)), within, strict=True)
    ]
    return models, clusters, ("initial_mean", "initial_noise", "emission_matrix", "emission_noise")


def _levels(
    parts: list[np.ndarray], count: int, stay: float, weights: np.ndarray | None, persistence: float | None
) -> tuple[list[LinearGaussian], Clusters, tuple[str, ...]]:
    """x_t = s_t + N(0, R_z), s_t = s_t-1 + a_z + N(0, Q_z): regimes differ in drift and in both noises."""
    # The first step has no change.
    steps = [np.concatenate([np.full((1, part.shape[1]), np.nan), np.diff(part, axis=0)]) for part in parts]
    clusters = cluster(steps, count, stay)
    values, changes = np.concatenate(parts), np.concatenate(steps)
    size, variance = values.shape[1], np.nanvar(values, axis=0)
    spread = np.maximum(np.nan_to_num(np.nanvar(changes, axis=0)), 1e-4 * variance)
    drifts = _apart(clusters.means(changes), 0.05 * np.sqrt(spread))
    within = np.maximum(clusters.deviations(changes) ** 2, 0.01 * spread)
    known = [row for part in parts for row in part if not np.isnan(row).all()]
    models = [
        LinearGaussian(
            initial_mean=np.where(np.isnan(known[0]), np.nanmean(values, axis=0), known[0]),
            initial_noise=variance,
            transition_matrix=np.eye(size),
            transition_noise=own / 2,
            transition_offset=drift,
            emission_matrix=np.eye(size),
            emission_noise=own / 4,
            emission_inputs=weights,
        )
        for drift, own in zip(drifts, within, strict=True)
    ]
    return models, clusters, ("initial_mean", "initial_noise", "emission_matrix", "transition_matrix")


def _check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"There is no {name} {value!r}. {nearest(value, known)}")


def _check_regimes(name: str, count: int, stay: float) -> None:
    if not 1 <= count <= MOST_REGIMES:
        raise InputError(f"The option {name} must lie from 1 to {MOST_REGIMES}, but got {count}.")
    check_between("stay", stay, 0.0, 1.0)


def _categories(values: np.ndarray) -> int:
    count = int(np.nanmax(values)) + 1
    if count > MOST_CATEGORIES:
        raise InputError(
            f"The largest value is {count - 1}, so there would be {count} categories, but {MOST_CATEGORIES} is the "
            "most. Number the categories 0, 1, 2, ..., or use another emission."
        )
    return max(2, count)


def _by_series(series_list: list[Series], table: np.ndarray) -> list[np.ndarray]:
    """Return the row of a table for each value, side by side; NaN where it is missing."""

    def indicators(values: np.ndarray) -> np.ndarray:
        codes = np.minimum(np.nan_to_num(values).astype(int), len(table) - 1)
        rows = np.where(np.isnan(values)[..., None], np.nan, table[codes])
        return rows.reshape(len(values), -1)

    return [indicators(one.values()) for one in series_list]


def _counted(values: np.ndarray, categories: int) -> np.ndarray:
    """Count each category of each column."""
    return np.stack([np.sum(values == code, axis=0) for code in range(categories)], axis=-1).astype(float)


def _split(values: np.ndarray, series_list: list[Series]) -> list[np.ndarray]:
    """Cut pooled values into those of each series."""
    return np.split(values, np.cumsum([len(one.values()) for one in series_list])[:-1])


def _cut(values: np.ndarray, parts: list[np.ndarray]) -> list[np.ndarray]:
    return np.split(values, np.cumsum([len(part) for part in parts])[:-1])


def _apart(centers: np.ndarray, distance: np.ndarray) -> np.ndarray:
    """Return the centers, moved a little where several are equal: no gradient could tell them apart."""
    equal = np.all(np.ptp(centers, axis=0) < distance) if len(centers) > 1 else False
    if not equal:
        return centers
    return centers + distance * np.linspace(0.0, 1.0, len(centers))[:, None]


def _autocorrelation(parts: list[np.ndarray]) -> float:
    """The correlation of neighbors, pooled over series and columns, away from one."""
    before = np.concatenate([part[:-1].ravel() for part in parts])
    after = np.concatenate([part[1:].ravel() for part in parts])
    known = ~(np.isnan(before) | np.isnan(after))
    largest = np.max(np.abs(np.concatenate([before[known], after[known]])), initial=0.0) or 1.0
    before, after = before[known] / largest, after[known] / largest
    scale = float(np.sqrt(np.sum(before**2) * np.sum(after**2)))
    return float(np.clip(np.sum(before * after) / scale, -0.8, 0.95)) if scale > 0 else 0.0
