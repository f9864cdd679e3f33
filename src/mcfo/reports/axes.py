"""What runs from left to right in a picture of series."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter


def mark_dates(axis: Any, places: np.ndarray) -> None:
    """Where the places are dates, marks a few of them, with no more words than they need."""
    if places.dtype.kind == "M":
        locator = AutoDateLocator(minticks=3, maxticks=8)
        axis.xaxis.set_major_locator(locator)
        axis.xaxis.set_major_formatter(ConciseDateFormatter(locator))


def axis_title(places: np.ndarray | None) -> str:
    """What the places are."""
    if places is None:
        return "step"
    return "date" if places.dtype.kind == "M" else "time"
