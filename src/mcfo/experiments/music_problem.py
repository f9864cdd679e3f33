"""The pieces to learn from, to choose by and to test on, and what needs no learning."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from mcfo.data.music_files import ORIGINALS, read_music
from mcfo.data.piano_rolls import Splits
from mcfo.errors import InputError
from mcfo.series import Series

FOLDERS = (Path("data/polyphonic"), Path("../shared/data/polyphonic"))
"""Where the data sets are looked for."""
_HALF = 0.5
"""Counts begin with half an observation of either kind."""


class Problem(NamedTuple):
    """Piano-rolls of one data set."""

    train: list[Series]
    valid: list[Series]
    test: list[Series]
    rolls: Splits

    @property
    def mean_length(self) -> float:
        return float(np.mean([one.steps for one in self.train]))

    def baselines(self) -> dict[str, float]:
        """The NLL per step on the test split without latents: each key as often as in the training split, and each
        key given whether it sounded a step before."""
        train, test = self.rolls["train"], self.rolls["test"]
        total = sum(map(len, test))
        frequency = _share(np.sum([roll.sum(0) for roll in train], axis=0), sum(map(len, train)))
        static = -sum(_log_mass(roll, frequency).sum() for roll in test) / total
        before = np.concatenate([roll[:-1] for roll in train])
        after = np.concatenate([roll[1:] for roll in train])
        held = [_share((after * (before == value)).sum(0), (before == value).sum(0)) for value in (0, 1)]
        chained = 0.0
        for roll in test:
            chained -= _log_mass(roll[:1], frequency).sum()
            chained -= _log_mass(roll[1:], np.where(roll[:-1], held[1], held[0])).sum()
        return {"note frequencies": float(static), "each key a Markov chain": float(chained / total)}


def build_problem(folder: Path, name: str, *, transposed: int) -> Problem:
    """A data set of the folder; transpositions that leave the piano are left out."""
    rolls = read_music(_file(folder, name))
    shifts = range(-transposed, transposed + 1)
    train = [shifted for roll in rolls["train"] for shift in shifts if (shifted := transpose(roll, shift)) is not None]
    return Problem(_series(train), _series(rolls["valid"]), _series(rolls["test"]), rolls)


def find_folder(given: Path | None, names: list[str]) -> Path:
    """The folder that was given, or the first that has the data sets."""
    for folder in FOLDERS if given is None else (given,):
        if all(_file(folder, name).exists() for name in names):
            return folder
    wanted = ", ".join(f"{_compact(name)} or {ORIGINALS[name].file}" for name in names)
    folders = " or ".join(map(str, FOLDERS if given is None else (given,)))
    raise InputError(
        f"There are no piano-rolls in {folders}: {wanted} wanted. Say where they are with --data FOLDER, or fetch "
        f"them: mcfo data music --download {names[0]} --out {FOLDERS[0]}."
    )


def _file(folder: Path, name: str) -> Path:
    """A data set in its compact form or, unless that is there, in the original one."""
    compact = folder / _compact(name)
    return compact if compact.exists() else folder / ORIGINALS[name].file


def _compact(name: str) -> str:
    return f"{name.replace('-', '_')}.npz"


def transpose(roll: np.ndarray, shift: int) -> np.ndarray | None:
    """The piece, `shift` keys to the right; None if it leaves the piano."""
    lost = roll[:, len(roll[0]) - shift :] if shift > 0 else roll[:, :-shift]
    if shift and lost.any():
        return None
    return np.roll(roll, shift, axis=1)


def _series(rolls: list[np.ndarray]) -> list[Series]:
    return [Series.from_values(roll, series_id=number) for number, roll in enumerate(rolls)]


def _share(count: np.ndarray, of: np.ndarray | int) -> np.ndarray:
    return (count + _HALF) / (of + 2 * _HALF)


def _log_mass(roll: np.ndarray, probability: np.ndarray) -> np.ndarray:
    return np.where(roll, np.log(probability), np.log1p(-probability))
