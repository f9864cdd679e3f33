"""Piano-rolls: which of the 88 keys sound at each step."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from collections.abc import Sequence as Listing
from typing import Any, NamedTuple

import numpy as np

from mcfo.files import InputError

LOWEST, KEYS = 21, 88
"""The MIDI number of the piano's lowest key, A0, and how many keys it has."""
SPLITS = ("train", "valid", "test")
_MOST_STEPS = 10_000_000
"""No data set is longer; a small file that unfolds into more is no music."""

Splits = dict[str, list[np.ndarray]]
"""For each of `SPLITS`, its pieces: arrays (steps, 88) of zeros and ones, uint8."""


class Statistics(NamedTuple):
    """What a split holds.

    - `active`, `most_active`: notes that sound at a step, their mean and the most of them.
    - `empty`: the share of steps at which none does.
    - `lowest`, `highest`: MIDI numbers of the notes that are used.
    """

    sequences: int
    steps: int
    shortest: int
    mean: float
    longest: int
    active: float
    most_active: int
    empty: float
    lowest: int
    highest: int


def statistics(rolls: Listing[np.ndarray]) -> Statistics:
    """Of the pieces of one split."""
    lengths = np.array([len(roll) for roll in rolls])
    notes = np.concatenate([roll.sum(axis=1) for roll in rolls])
    used = np.flatnonzero(np.any([roll.any(axis=0) for roll in rolls], axis=0))
    return Statistics(
        sequences=len(rolls),
        steps=int(lengths.sum()),
        shortest=int(lengths.min()),
        mean=float(lengths.mean()),
        longest=int(lengths.max()),
        active=float(notes.mean()),
        most_active=int(notes.max()),
        empty=float(np.mean(notes == 0)),
        lowest=LOWEST + int(used[0]),
        highest=LOWEST + int(used[-1]),
    )


def is_roll(values: np.ndarray) -> bool:
    """Whether these can be piano-rolls, (..., steps, 88) of zeros and ones; NaN is missing."""
    return values.ndim >= 2 and values.shape[-1] == KEYS and bool(np.all(np.isin(values, (0, 1)) | np.isnan(values)))


def rolls_from_notes(pieces: Any, where: str) -> list[np.ndarray]:
    """Pieces, steps and MIDI numbers as nested lists, checked, as piano-rolls; `where` names them in errors."""
    if not _is_list(pieces):
        raise InputError(f"{where}: a list of pieces is wanted, but this is a {type(pieces).__name__}.")
    rolls = []
    budget = _MOST_STEPS
    for place, piece in enumerate(pieces, 1):
        if not _is_list(piece):
            raise InputError(f"{where}, piece {place}: a list of steps is wanted, not a {type(piece).__name__}.")
        budget -= len(piece)
        if budget < 0:
            raise InputError(f"{where} has more than {_MOST_STEPS} steps, which no data set of music has.")
        rolls.append(roll_from_notes(piece, f"{where}, piece {place}"))
    return rolls


def roll_from_notes(steps: Iterable[Any], where: str) -> np.ndarray:
    """One piece, from the MIDI numbers that sound at each step."""
    steps = list(steps)
    roll = np.zeros((len(steps), KEYS), np.uint8)
    for step, notes in enumerate(steps):
        if not _is_list(notes):
            raise InputError(f"{where}, step {step + 1}: a list of notes is wanted, not a {type(notes).__name__}.")
        # No chord has more notes than the piano keys, however often a file names one.
        for note in itertools.islice(notes, 10 * KEYS):
            if isinstance(note, bool) or not isinstance(note, int | np.integer):
                raise InputError(f"{where}, step {step + 1}: {note!r} is no MIDI number. Write whole numbers.")
            check_note(int(note), f"{where}, step {step + 1}")
            roll[step, int(note) - LOWEST] = 1
    return roll


def check_note(note: int, where: str) -> None:
    """Refuses what no piano plays."""
    if not LOWEST <= note < LOWEST + KEYS:
        raise InputError(
            f"{where}: the note {note} lies outside of the piano's range, {LOWEST} (A0) to {LOWEST + KEYS - 1} (C8). "
            "Transpose the piece, or leave that part out."
        )


def checked(splits: Splits, where: str) -> Splits:
    """The splits in their order, none of them empty, every piece with a step, and some note in each split."""
    for split in SPLITS:
        if not splits.get(split):
            raise InputError(
                f"{where}: the split {split!r} is empty. Give each of {', '.join(SPLITS)} a piece or more."
            )
        for place, roll in enumerate(splits[split], 1):
            if not len(roll):
                raise InputError(f"{where}, {split}, piece {place} has no steps. Leave it out.")
        if not any(roll.any() for roll in splits[split]):
            raise InputError(f"{where}: the split {split!r} has no notes at all.")
    return {split: splits[split] for split in SPLITS}


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)
