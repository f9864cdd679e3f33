"""Models by name for the command line, begun near the data."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mcfo.files import InputError
from mcfo.models.base import Model
from mcfo.models.counts import PoissonCounts
from mcfo.models.linear_gaussian import LinearGaussian
from mcfo.models.stochastic_volatility import StochasticVolatility
from mcfo.proposals.base import Bootstrap, Proposal
from mcfo.proposals.gaussian import AffineGaussian
from mcfo.reading import float_dtype
from mcfo.sequences import Sequence
from mcfo.suggestions import nearest


class Start(NamedTuple):
    """Where learning begins; `fixed` are the dotted paths of what is not learned, such as "model.initial_mean"."""

    model: Model
    proposal: Proposal
    fixed: tuple[str, ...]


@dataclass(frozen=True)
class Entry:
    """A model of the catalogue.

    - `build`: makes it, near the data; the keyword arguments of `build(sequences, ...)` are the model's options.
    - `check`: refuses series that the model cannot explain, whatever its parameters are.
    """

    summary: str
    build: Callable[..., Start]
    check: Callable[[list[Sequence]], None] = lambda sequences: None


def check(name: str, sequences: list[Sequence]) -> None:
    """Refuses series that a model of the catalogue cannot explain, whatever its parameters are."""
    if name not in CATALOGUE:
        raise InputError(f"There is no model {name!r}. {nearest(name, CATALOGUE)}")
    CATALOGUE[name].check(sequences)


def make(name: str, sequences: list[Sequence], options: Mapping[str, str | float | int]) -> Start:
    """Builds a model of the catalogue for these series; options may be text, as they come from a command line."""
    check(name, sequences)
    build = CATALOGUE[name].build
    known = {
        option: parameter.annotation
        for option, parameter in inspect.signature(build).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    read = {}
    for option, value in options.items():
        if option not in known:
            raise InputError(f"The model {name} has no option {option!r}. {nearest(option, known)}")
        try:
            read[option] = known[option](value)
        except (ValueError, TypeError, OverflowError):
            kind = "whole number" if known[option] is int else "number"
            raise InputError(f"The option {option} must be a {kind}, but got {value!r}.") from None
    return build(sequences, **read)


def _linear_gaussian(sequences: list[Sequence], *, persistence: float = 0.9, signal: float = 0.5) -> Start:
    """A hidden autoregression in each dimension, seen through noise; `signal` is its share of the data's variance."""
    _check_between("persistence", persistence, -1.0, 1.0)
    _check_between("signal", signal, 0.0, 1.0)
    values = _observed(sequences)
    for column, (low, high) in enumerate(zip(np.nanmin(values, axis=0), np.nanmax(values, axis=0), strict=True), 1):
        if low == high:
            raise InputError(
                f"Column {column} of the values is constant: every one that is known is {low:g}. A Gaussian cannot "
                "have variance zero. Leave the column out."
            )
    # Scaled, so that no sum of squares overflows unless the variance does.
    scale = np.nanmax(np.abs(values), axis=0)
    mean = np.nanmean(values / scale, axis=0) * scale
    with np.errstate(over="ignore"):
        variance = np.nanvar(values / scale, axis=0) * scale**2
    transition_variance, emission_variance = (1 - persistence**2) * signal * variance, (1 - signal) * variance
    limits = np.finfo(float_dtype())
    for column, variances in enumerate(zip(variance, transition_variance, emission_variance, strict=True), 1):
        # Sums and products of a few variances must be representable too.
        for wanted in variances:
            if not 1e6 * limits.tiny < wanted < 1e-6 * limits.max:
                raise InputError(
                    f"Column {column} of the values has variance {variances[0]:g}, for which the model needs one of "
                    f"{wanted:g}: too near the limits of {float_dtype()}. Rescale the column."
                )
    size = len(mean)
    model = LinearGaussian(
        initial_mean=mean,
        initial_covariance=variance,
        transition_matrix=persistence * np.eye(size),
        transition_covariance=transition_variance,
        transition_offset=(1 - persistence) * mean,
        emission_matrix=np.eye(size),
        emission_covariance=emission_variance,
    )
    fixed = ("model.initial_mean", "model.initial_noise", "model.emission_matrix")
    return Start(model, AffineGaussian.optimal(model), fixed)


def _stochastic_volatility(sequences: list[Sequence], *, persistence: float = 0.95, scale: float = 0.3) -> Start:
    """Begins at the logarithm of the mean square, since the returns of the model have mean zero."""
    _check_between("persistence", persistence, -1.0, 1.0)
    _check_between("scale", scale, 0.0, math.inf)
    values = _observed(sequences)
    largest = np.nanmax(np.abs(values), axis=0)
    if not largest.all():
        raise InputError(
            f"Column {int(np.argmin(largest)) + 1} of the values is zero wherever it is known, so it has no "
            "volatility. Leave the column out; if the zeros stand for missing values, leave their cells empty."
        )
    level = np.log(np.nanmean((values / largest) ** 2, axis=0)) + 2 * np.log(largest)
    return Start(StochasticVolatility(level=level, persistence=persistence, scale=scale), Bootstrap(), ())


def _poisson_counts(sequences: list[Sequence], *, persistence: float = 0.9, scale: float = 0.3) -> Start:
    """Begins at the logarithm of the mean count; in a column of zeros, of half a count in all."""
    _check_between("persistence", persistence, -1.0, 1.0)
    _check_between("scale", scale, 0.0, math.inf)
    values = _observed(sequences)
    total = np.maximum(np.nansum(values, axis=0), 0.5)
    level = np.log(total / np.sum(~np.isnan(values), axis=0))
    return Start(PoissonCounts(level=level, persistence=persistence, scale=scale), Bootstrap(), ())


def _check_counts(sequences: list[Sequence]) -> None:
    for place, sequence in enumerate(sequences, 1):
        values = _known(sequence)
        wrong = np.argwhere(~np.isnan(values) & ((values < 0) | (values != np.floor(values))))
        if len(wrong):
            step, column = wrong[0]
            raise InputError(
                f"Series {place}, step {step + 1}, column {column + 1} of the values: {values[step, column]:g} is not "
                "a count. The model poisson-counts wants the whole numbers 0, 1, 2, ...; use another model."
            )


CATALOGUE: dict[str, Entry] = {
    "linear-gaussian": Entry("real numbers: a hidden linear autoregression seen through noise", _linear_gaussian),
    "stochastic-volatility": Entry(
        "returns around zero: their log-variance is a hidden autoregression", _stochastic_volatility
    ),
    "poisson-counts": Entry("counts: their log-intensity is a hidden autoregression", _poisson_counts, _check_counts),
}
"""The models that `mcfo fit NAME` knows."""


def _known(sequence: Sequence) -> np.ndarray:
    """The values with NaN in place of what is missing, without padding.

    In numpy: JAX would compile a program for every length.
    """
    steps = sequence.steps if sequence.length is None else int(sequence.length)
    values = np.asarray(sequence.observations, np.float64)
    observed = True if sequence.observed is None else np.asarray(sequence.observed)
    return np.where(observed, values, np.nan)[:steps]


def _observed(sequences: list[Sequence]) -> np.ndarray:
    """All series below each other; each column has a known value."""
    if not sequences:
        raise InputError("There are no series to build a model for. Give at least one.")
    sizes = sorted({sequence.observations.shape[1] for sequence in sequences})
    if len(sizes) > 1:
        raise InputError(
            f"The series have different numbers of observed dimensions: {', '.join(map(str, sizes))}. Give every "
            "series the same columns, with NaN in those that it lacks."
        )
    values = np.concatenate([_known(sequence) for sequence in sequences])
    unknown = np.isnan(values).all(axis=0)
    if unknown.any():
        raise InputError(
            f"Column {int(np.argmax(unknown)) + 1} of the values is missing at every step. Leave the column out."
        )
    return values


def _check_between(name: str, value: float, low: float, high: float) -> None:
    # As the model will hold it: 1 - 1e-9 is 1 in float32.
    with np.errstate(over="ignore", under="ignore"):
        rounded = float(np.asarray(value).astype(float_dtype()))
    if not low < rounded < high:
        wanted = "be positive and finite" if high == math.inf else f"lie between {low:g} and {high:g}"
        raise InputError(f"The option {name} must {wanted}, but got {value!r}.")
