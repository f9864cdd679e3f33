"""What the readers of all formats share: the series as plain arrays, and the size that a value may have."""

import math
from typing import NamedTuple

import numpy as np

from mcfo.reading import float_dtype


class RawSeries(NamedTuple):
    """Series as they stand in a file, each (steps,) or (steps, dimensions), with NaN for what is missing.

    `image` is (height, width) where the dimensions are the pixels of pictures, row by row.
    """

    names: list[str]
    arrays: list[np.ndarray]
    columns: list[str]
    image: tuple[int, int] | None = None


def largest_value() -> float:
    """The largest number whose square is finite: likelihoods square what they read."""
    return math.sqrt(np.finfo(float_dtype()).max)


def too_large(value: str, if_missing: str) -> str:
    return (
        f"{value} is too large: its square overflows {float_dtype()}. If it stands for a missing value, {if_missing}; "
        "otherwise rescale the column."
    )
