"""Where learning begins, and what the models of the catalogue look at in the data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from mcfo.files import InputError
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.reading import float_dtype
from mcfo.sequences import Sequence


class Start(NamedTuple):
    """Where learning begins.

    - `fixed`: the dotted paths of what is not learned, such as "model.initial_mean".
    - `chosen`: options that were not given and that the data decided.
    """

    model: Model
    proposal: Proposal
    fixed: tuple[str, ...]
    chosen: Mapping[str, str] = MappingProxyType({})


class Widths(tuple[int, ...]):
    """Units of the layers of a network, on the command line 64,32."""

    def __new__(cls, given: str | Iterable[int]) -> Widths:
        widths = super().__new__(cls, (int(one) for one in (given.split(",") if isinstance(given, str) else given)))
        if not widths or min(widths) < 1:
            raise ValueError
        return widths


def known(sequence: Sequence) -> np.ndarray:
    """The values with NaN in place of what is missing, without padding.

    In numpy: JAX would compile a program for every length.
    """
    steps = sequence.steps if sequence.length is None else int(sequence.length)
    values = np.asarray(sequence.observations, np.float64)
    observed = True if sequence.observed is None else np.asarray(sequence.observed)
    return np.where(observed, values, np.nan)[:steps]


def observed(sequences: list[Sequence]) -> np.ndarray:
    """All series below each other; each column has a known value."""
    if not sequences:
        raise InputError("There are no series to build a model for. Give at least one.")
    sizes = sorted({sequence.observations.shape[1] for sequence in sequences})
    if len(sizes) > 1:
        raise InputError(
            f"The series have different numbers of observed dimensions: {', '.join(map(str, sizes))}. Give every "
            "series the same columns, with NaN in those that it lacks."
        )
    values = np.concatenate([known(sequence) for sequence in sequences])
    unknown = np.isnan(values).all(axis=0)
    if unknown.any():
        raise InputError(
            f"Column {int(np.argmax(unknown)) + 1} of the values is missing at every step. Leave the column out."
        )
    return values


def check_between(name: str, value: float, low: float, high: float) -> None:
    # As the model will hold it: 1 - 1e-9 is 1 in float32.
    with np.errstate(over="ignore", under="ignore"):
        rounded = float(np.asarray(value).astype(float_dtype()))
    if not low < rounded < high:
        wanted = "be positive and finite" if high == math.inf else f"lie between {low:g} and {high:g}"
        raise InputError(f"The option {name} must {wanted}, but got {value!r}.")
