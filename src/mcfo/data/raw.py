"""What the readers of all formats share: the series as plain arrays, and the size that a value may have."""

import math
from datetime import datetime
from typing import NamedTuple

import numpy as np


class Span(NamedTuple):
    """The first and the last time of a series as they are written; `origin` is the first one, if they are dates."""

    first: str
    last: str
    origin: datetime | None


class RawSeries(NamedTuple):
    """Series as they stand in a file, each (steps,) or (steps, dimensions), with NaN for what is missing.

    - `image`: (height, width) where the dimensions are the pixels of pictures, row by row.
    - `inputs`: for each series (steps, inputs), with their names.
    - `times`: for each series the time since its first row, in seconds where times are dates; None where there are no
      times, or none whose distance is known.
    """

    names: list[str]
    arrays: list[np.ndarray]
    columns: list[str]
    image: tuple[int, int] | None = None
    inputs: list[np.ndarray] | None = None
    input_names: list[str] = []  # noqa: RUF012
    times: list[np.ndarray] | None = None
    spans: list[Span] | None = None


def largest_value() -> float:
    """The largest number whose square is finite: likelihoods square what they read."""
    from mcfo.reading import float_dtype  # JAX, which those who only look at results do not need

    return math.sqrt(np.finfo(float_dtype()).max)


def too_large(value: str, if_missing: str) -> str:
    from mcfo.reading import float_dtype

    return (
        f"{value} is too large: its square overflows {float_dtype()}. If it stands for a missing value, {if_missing}; "
        "otherwise rescale the column."
    )
