"""What a model says of one series, as arrays for figures: its level, its components, its forecast. In NumPy alone."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from mcfo.data.npz import read_arrays, write_npz
from mcfo.errors import InputError

FILE = "outlook.npz"
CENTRAL = (0.05, 0.95)
"""The levels between which the intervals of levels and components lie."""


class Outlook(NamedTuple):
    """One series with what a model says of it.

    - `x`, `coming`: the times of its steps and of those that follow, dates or numbers.
    - `values`: (steps, columns), NaN where nothing was observed.
    - `level_name`, `level`: what the model takes for the level, (steps, mean and two ends of an interval, columns).
    - `levels`, `mean`, `quantiles`: the forecast, (ahead, columns) and (ahead, levels, columns); empty without one.
    - `names`, `components`: the components of a structural model (`structural`), otherwise the states; (components,
      steps, mean and two ends).
    - `dated`: whether times are known; otherwise they are numbers of steps.
    """

    name: str
    columns: list[str]
    x: np.ndarray
    coming: np.ndarray
    values: np.ndarray
    level_name: str
    level: np.ndarray
    levels: np.ndarray
    mean: np.ndarray
    quantiles: np.ndarray
    names: list[str]
    components: np.ndarray
    structural: bool
    dated: bool


def write_outlook(path: Path, outlook: Outlook) -> None:
    """Write an NPZ file that `read_outlook` reads."""
    write_npz(path, {name: np.asarray(value) for name, value in outlook._asdict().items()})


def read_outlook(path: Path) -> Outlook | None:
    """Read what `write_outlook` wrote; None if there is no such file."""
    if not path.exists():
        return None
    arrays = read_arrays(path)
    try:
        outlook = Outlook(
            name=str(arrays["name"]),
            columns=[str(one) for one in arrays["columns"]],
            level_name=str(arrays["level_name"]),
            names=[str(one) for one in arrays["names"]],
            structural=bool(arrays["structural"]),
            dated=bool(arrays["dated"]),
            **{name: arrays[name] for name in ("x", "coming", "values", "level", "levels", "mean", "quantiles")},
            components=arrays["components"],
        )
        (steps, columns), ahead = outlook.values.shape, len(outlook.coming)
        sound = (
            len(outlook.x) == steps > 0
            and len(outlook.columns) == columns > 0
            and outlook.level.shape == (steps, 3, columns)
            and outlook.mean.shape == (ahead, columns)
            and outlook.quantiles.shape == (ahead, len(outlook.levels), columns)
            and outlook.components.shape == (len(outlook.names), steps, 3)
        )
    except (KeyError, ValueError, TypeError):
        sound, outlook = False, None
    if not sound:
        raise InputError(
            f"{path} is damaged. Delete it, or write it again: mcfo report {path.parent} --data FILE, with the data of "
            "the run."
        )
    return outlook
