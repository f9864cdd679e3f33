"""Linear Gaussian models: a hidden autoregression, a local level, a local trend."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mcfo.catalogue.from_data import Start, check_between, exogenous, observed, regressed
from mcfo.errors import InputError
from mcfo.models.linear_gaussian import IrregularLinearGaussian, LinearGaussian
from mcfo.proposals.gaussian import LocallyOptimal
from mcfo.series import Series
from mcfo.validation import float_dtype


def linear_gaussian(
    series_list: list[Series],
    gaps: bool = False,
    *,
    persistence: float = 0.9,
    signal: float = 0.5,
    latent: int | None = None,
) -> Start:
    """Build a noisy hidden autoregression in each dimension; `signal` is its share of the data's variance.

    With `latent`, that number of hidden autoregressions is shared by all columns, and initialized at the principal
    components of the data.
    """
    check_between("persistence", persistence, -1.0, 1.0)
    check_between("signal", signal, 0.0, 1.0)
    check_moving(observed(series_list))
    rest, weights = regressed(series_list, exogenous(series_list, gaps))
    mean, variance = _moments(rest)
    transition_variance, emission_variance = (1 - persistence**2) * signal * variance, (1 - signal) * variance
    _check_variances(variance, transition_variance, emission_variance)
    if latent is not None:
        return _factors(rest, weights, mean, emission_variance, persistence, signal, latent)
    size = len(mean)
    model = LinearGaussian(
        initial_mean=mean,
        initial_noise=variance,
        transition_matrix=persistence * np.eye(size),
        transition_noise=transition_variance,
        transition_offset=(1 - persistence) * mean,
        emission_matrix=np.eye(size),
        emission_noise=emission_variance,
        emission_inputs=weights,
    )
    return _with_proposal(model, ("initial_mean", "initial_noise", "emission_matrix"))


def _factors(
    rest: np.ndarray,
    weights: np.ndarray | None,
    mean: np.ndarray,
    emission_variance: np.ndarray,
    persistence: float,
    signal: float,
    latent: int,
) -> Start:
    """Build hidden autoregressions of variance one, with loadings in each column."""
    if not 1 <= latent <= 1000:
        raise InputError(f"The option latent must lie from 1 to 1000, but got {latent}.")
    scale = np.sqrt(np.nanvar(rest, axis=0))
    # Missing values count as the mean, which shrinks correlations a little.
    standard = np.nan_to_num((rest - mean) / scale)
    values, vectors = np.linalg.eigh(standard.T @ standard / len(standard))
    components = (vectors * np.sqrt(np.maximum(values, 0.01)))[:, ::-1]
    # Beyond the number of columns, further ones are initially smaller and less persistent, so that they differ.
    rounds = 0.3 ** np.arange(-(-latent // len(mean)))
    loadings = np.concatenate([components * factor for factor in rounds], axis=1)[:, :latent]
    matrix = np.diag(np.repeat(persistence / (1 + np.arange(len(rounds))), len(mean))[:latent])
    model = LinearGaussian(
        initial_mean=np.zeros(latent),
        initial_noise=np.ones(latent),
        transition_matrix=matrix,
        transition_noise=1 - np.diag(matrix) ** 2,
        emission_matrix=np.sqrt(signal) * scale[:, None] * loadings,
        emission_noise=emission_variance,
        emission_offset=mean,
        emission_inputs=weights,
    )
    return _with_proposal(model, ("initial_mean", "initial_noise", "transition_noise"))


def local_level(
    series_list: list[Series],
    gaps: bool = False,
    *,
    signal: float | None = None,
    initial_mean: float | None = None,
    initial_variance: float | None = None,
) -> Start:
    """Build a noisy random walk in each dimension, with variances estimated from the differences of the data."""
    return _integrated(_level_variances, series_list, gaps, signal, initial_mean, initial_variance)


def local_trend(
    series_list: list[Series],
    gaps: bool = False,
    *,
    signal: float | None = None,
    initial_mean: float | None = None,
    initial_variance: float | None = None,
) -> Start:
    """Build a level whose slope is a random walk too, with variances estimated from second differences."""
    return _integrated(_trend_variances, series_list, gaps, signal, initial_mean, initial_variance)


def _integrated(
    variances_of: Callable[[list[np.ndarray], float | None], tuple[float, ...]],
    series_list: list[Series],
    gaps: bool,
    signal: float | None,
    mean: float | None,
    variance: float | None,
) -> Start:
    """Build a level, and a slope if `variances_of` a column returns three: of level, slope and noise."""
    check_between("signal", signal, 0.0, 1.0)
    check_between("initial_variance", variance, 0.0, np.inf)
    check_between("initial_mean", mean, -np.inf, np.inf)
    check_moving(observed(series_list))
    rest, weights = regressed(series_list, exogenous(series_list, gaps))
    size = rest.shape[1]
    spread = _moments(rest)[1] if variance is None else np.full(size, variance)
    ends = np.cumsum([len(series.values()) for series in series_list])[:-1]
    # A list of series for each column.
    columns = [np.split(column, ends) for column in rest.T]
    *of_states, of_noise = np.array([variances_of(column, signal) for column in columns]).T
    _check_variances(spread, *of_states, of_noise)
    known = [[one[~np.isnan(one)] for one in column] for column in columns]
    first = np.array([np.mean([one[0] for one in column if len(one)]) for column in known])
    initial, variances = [first if mean is None else np.full(size, mean)], [spread]
    if len(of_states) == 2:
        moves = [_differences(column, 1) for column in columns]
        initial.append(np.array([_mean(one) for one in moves]))
        variances.append(np.maximum([_mean(one**2) for one in moves], of_states[1]))
    kind = IrregularLinearGaussian if gaps else LinearGaussian
    model = kind(
        initial_mean=np.concatenate(initial),
        initial_noise=np.concatenate(variances),
        # The slope is added to the level.
        transition_matrix=np.kron(np.triu(np.ones((len(of_states), len(of_states)))), np.eye(size)),
        transition_noise=np.concatenate(of_states),
        emission_matrix=np.eye(size, size * len(of_states)),
        emission_noise=of_noise,
        emission_inputs=weights,
    )
    return _with_proposal(model, ("initial_mean", "initial_noise", "transition_matrix", "emission_matrix"))


def check_moving(values: np.ndarray) -> None:
    """Refuse a column that never changes."""
    for column, (low, high) in enumerate(zip(np.nanmin(values, axis=0), np.nanmax(values, axis=0), strict=True), 1):
        if low == high:
            raise InputError(
                f"Column {column} of the values is constant: every one that is known is {low:g}. A Gaussian cannot "
                "have variance zero. Leave the column out."
            )


def _with_proposal(model: LinearGaussian, fixed: tuple[str, ...]) -> Start:
    """Return the model with its optimal proposal, which follows it."""
    return Start(model, LocallyOptimal(model), (*(f"model.{name}" for name in fixed), "proposal"))


def _moments(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # Scaled, so that no sum of squares overflows before the variance does.
    scale = np.nanmax(np.abs(values), axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    mean = np.nanmean(values / scale, axis=0) * scale
    with np.errstate(over="ignore"):
        return mean, np.nanvar(values / scale, axis=0) * scale**2


def _check_variances(variance: np.ndarray, *parts: np.ndarray) -> None:
    limits = np.finfo(float_dtype())
    for column, variances in enumerate(zip(variance, *parts, strict=True), 1):
        # Sums and products of a few variances must be representable too.
        for wanted in variances:
            if not 1e6 * limits.tiny < wanted < 1e-6 * limits.max:
                raise InputError(
                    f"Column {column} of the values has variance {variances[0]:g}, for which the model needs one of "
                    f"{wanted:g}: too near the limits of {float_dtype()}. Rescale the column."
                )


def _differences(column: list[np.ndarray], order: int) -> np.ndarray:
    """Return the differences within each series, concatenated, with NaN between series and at missing values."""
    parts = [np.concatenate([np.diff(one, order), np.full(order + 1, np.nan)]) for one in column if len(one) > order]
    return np.concatenate(parts) if parts else np.full(1, np.nan)


def _mean(values: np.ndarray) -> float:
    values = values[~np.isnan(values)]
    return float(np.mean(values)) if len(values) else 0.0


def _autocovariances(column: list[np.ndarray], order: int) -> tuple[float, list[float]]:
    """Return the scale of a column, and the autocovariances of its scaled differences at lags 0, 1, ..., `order`."""
    scale = max(float(np.nanmax(np.abs(one), initial=0.0)) for one in column)
    moved = _differences([one / scale for one in column], order)
    products = [_mean(moved[lag:] * moved[: len(moved) - lag]) for lag in range(order + 1)]
    if products[0] == 0.0:
        # There are no neighboring values, or all differences vanish: only the variance is known.
        products = [max(float(np.nanvar(np.concatenate(column) / scale)), 1e-12)] + [0.0] * order
    return scale, products


def _level_variances(column: list[np.ndarray], signal: float | None) -> tuple[float, float]:
    """Return the variances of walk and noise: Var Δx = q + 2 r, and the autocovariance of Δx at lag one is -r."""
    scale, (total, first) = _autocovariances(column, 1)
    share = float(np.clip(1 + 2 * first / total, 0.05, 0.95)) if signal is None else signal
    with np.errstate(over="ignore"):
        return float(share * total * np.square(scale)), float((1 - share) * total / 2 * np.square(scale))


def _trend_variances(column: list[np.ndarray], signal: float | None) -> tuple[float, float, float]:
    """Return the variances of level, slope and noise: the autocovariances of Δ²x are s + 2 q + 6 r, -q - 4 r and r."""
    scale, (total, first, second) = _autocovariances(column, 2)
    if signal is None:
        noise = float(np.clip(second / total, 0.01, 0.16))
        level = float(np.clip(-first / total - 4 * noise, 0.01, 0.45))
    else:
        # The share of the noise; level and slope contribute equal parts of the rest.
        noise, level = (1 - signal) / 6, signal / 4
    slope = max(1 - 2 * level - 6 * noise, 0.01)
    with np.errstate(over="ignore"):
        unit = total * np.square(scale)
        return float(level * unit), float(slope * unit), float(noise * unit)
