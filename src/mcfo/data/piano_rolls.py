"""Piano-rolls, which of the 88 keys sound at each step, from notes and from MIDI files."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from mcfo.errors import InputError, shown
from mcfo.files import write_atomically
from mcfo.limits import limits

LOWEST, KEYS = 21, 88
"""The MIDI number of the piano's lowest key, A0, and the number of keys."""
SPLITS = ("train", "valid", "test")
_MOST_NOTES = 10 * KEYS
"""Notes of a step; some files name a key more than once."""

Splits = dict[str, list[np.ndarray]]
"""For each of `SPLITS`, its pieces: arrays (steps, 88) of zeros and ones, uint8."""


class Statistics(NamedTuple):
    """Statistics of a split.

    - `active`, `most_active`: the mean and the largest number of notes that sound at a step.
    - `empty`: the share of steps without a note.
    - `lowest`, `highest`: the MIDI numbers of the lowest and highest note.
    """

    series_list: int
    steps: int
    shortest: int
    mean: float
    longest: int
    active: float
    most_active: int
    empty: float
    lowest: int
    highest: int


def statistics(rolls: Sequence[np.ndarray]) -> Statistics:
    """Compute the statistics of the pieces of one split."""
    lengths = np.array([len(roll) for roll in rolls])
    notes = np.concatenate([roll.sum(axis=1) for roll in rolls])
    used = np.flatnonzero(np.any([roll.any(axis=0) for roll in rolls], axis=0))
    return Statistics(
        series_list=len(rolls),
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
    """Whether the values can be piano-rolls, (..., steps, 88) of zeros and ones; NaN is missing."""
    return values.ndim >= 2 and values.shape[-1] == KEYS and bool(np.all(np.isin(values, (0, 1)) | np.isnan(values)))


def transpose(roll: np.ndarray, shift: int) -> np.ndarray | None:
    """The piece, `shift` keys to the right; None if it leaves the piano."""
    lost = roll[:, len(roll[0]) - shift :] if shift > 0 else roll[:, :-shift]
    return None if shift and lost.any() else np.roll(roll, shift, axis=1)


class TimeGrid(NamedTuple):
    """Points in time at which pieces are sampled: public copies of these data sets hold seconds instead of notes.

    Step k of a piece begins at t_k = k m / 10⁶ seconds, where m is the whole number of microseconds that the tempo
    gives a step, and fills the frames from ⌈t_k / period⌉ to ⌈t_k+1 / period⌉ - 1. Floating point rounds the quotients:
    7 quarter notes of 0.6 s are 14.000000000000002 periods of 0.3 s, so that the note before lasts one frame more.
    Files that were sampled so repeat a quarter note two or three times.

    - `period`: the seconds between two frames.
    - `beats_per_minute`, `steps_per_quarter`: the tempo, and how many steps of a piece are a quarter note.
    """

    period: float
    beats_per_minute: float = 100.0
    steps_per_quarter: int = 2

    def sample(self, roll: np.ndarray) -> np.ndarray:
        """Return the frames of a piece, without the silence after its last note."""
        microseconds = round(60e6 / self.beats_per_minute / self.steps_per_quarter)
        starts = np.ceil(np.arange(len(roll) + 1) * microseconds / 1e6 / self.period)
        most = limits().elements // KEYS
        if starts[-1] > most:
            raise InputError(
                f"A piece of {len(roll)} steps has {starts[-1]:.3g} frames of {self.period:g} s, more than "
                f"{most}. Take a longer sampling period."
            )
        frames = np.repeat(roll, np.diff(starts).astype(int), axis=0)
        return frames[: np.max(np.flatnonzero(frames.any(axis=1)), initial=-1) + 1]

    def sample_all(self, splits: Splits) -> Splits:
        """Return the frames of all pieces."""
        for name, value in (("sampling period", self.period), ("tempo", self.beats_per_minute)):
            if not (np.isfinite(value) and value > 0):
                raise InputError(f"The {name} is a number above zero, but got {value:g}.")
        return {split: [self.sample(roll) for roll in rolls] for split, rolls in splits.items()}


def rolls_from_notes(pieces: Any, where: str) -> list[np.ndarray]:
    """Convert nested lists of pieces, steps and MIDI numbers to piano-rolls; `where` names them in errors."""
    if not isinstance(pieces, list | tuple):
        raise InputError(f"{where}: a list of pieces is wanted, but this is a {type(pieces).__name__}.")
    for number, piece in enumerate(pieces, 1):
        if not isinstance(piece, list | tuple):
            raise InputError(f"{where}, piece {number}: a list of steps is wanted, not a {type(piece).__name__}.")
    # A list that stands in a pickle once may be meant many times: what counts is what it unfolds into.
    limits().check("elements", KEYS * sum(map(len, pieces)), where)
    return [_roll_from_notes(piece, f"{where}, piece {number}") for number, piece in enumerate(pieces, 1)]


def _roll_from_notes(steps: Sequence[Any], where: str) -> np.ndarray:
    roll = np.zeros((len(steps), KEYS), np.uint8)
    for step, notes in enumerate(steps):
        here = f"{where}, step {step + 1}"
        if not isinstance(notes, list | tuple):
            raise InputError(f"{here}: a list of notes is wanted, not a {type(notes).__name__}.")
        if len(notes) > _MOST_NOTES:
            raise InputError(f"{here}: there are {len(notes)} notes, but the piano has {KEYS} keys. Name each once.")
        for note in notes:
            if isinstance(note, bool) or not isinstance(note, int | np.integer):
                raise InputError(f"{here}: {shown(note)} is no MIDI number. Write whole numbers.")
            _check_note(int(note), here)
            roll[step, int(note) - LOWEST] = 1
    return roll


def _check_note(note: int, where: str) -> None:
    if not LOWEST <= note < LOWEST + KEYS:
        raise InputError(
            f"{where}: the note {shown(note)} lies outside of the piano's range, {LOWEST} (A0) to "
            f"{LOWEST + KEYS - 1} (C8). Transpose the piece, or leave that part out."
        )


def checked(splits: Splits, where: str) -> Splits:
    """Check that no split is empty, every piece has a step and every split a note; return the splits in order."""
    for split in SPLITS:
        if not splits.get(split):
            raise InputError(
                f"{where}: the split {split!r} is empty. Give each of {', '.join(SPLITS)} a piece or more."
            )
        for number, roll in enumerate(splits[split], 1):
            if not len(roll):
                raise InputError(f"{where}, {split}, piece {number} has no steps. Leave it out.")
        if not any(roll.any() for roll in splits[split]):
            raise InputError(f"{where}: the split {split!r} has no notes at all.")
    return {split: splits[split] for split in SPLITS}


_TICKS = 480
_DRUMS = 9
_MESSAGE = 16
_LONGEST_NUMBER = 1000
"""Bytes that a number may have. Its time grows with their square; texts in other alphabets have some too."""


def require_mido() -> ModuleType:
    """The package that reads and writes MIDI files; where it is missing, says how to install it."""
    try:
        import mido
    except ImportError:
        raise InputError("MIDI files need the package mido: pip install 'mcfo[music]'.") from None
    return mido


def read_midi(path: Path, *, steps_per_quarter: int = 2) -> np.ndarray:
    """Read the piano-roll of a MIDI file, (steps, 88): all channels but the drums.

    Notes start and end at the nearest step, and sound for at least one step. The roll starts with the first note.
    """
    mido = require_mido()
    # A message of two bytes becomes an object of some hundred.
    limits().check("document", _MESSAGE * path.stat().st_size, path)
    content = path.read_bytes()
    if re.search(rb"[\x80-\xff]{%d}" % _LONGEST_NUMBER, content):
        raise InputError(f"{path} is damaged, or no MIDI file: it has a number of {_LONGEST_NUMBER} bytes.")
    try:
        file = mido.MidiFile(file=io.BytesIO(content), clip=True)
    except OSError as error:
        if error.errno:
            raise
        raise InputError(f"{path} is damaged, or no MIDI file ({error}).") from error
    except MemoryError:
        raise
    # The errors of mido over bytes that are no MIDI have no narrower base.
    except Exception as error:
        raise InputError(f"{path} is damaged, or no MIDI file ({type(error).__name__}: {error}).") from error
    if file.type == 2 or file.ticks_per_beat <= 0:
        raise InputError(f"{path} counts time in a way that has no quarter notes. Save it as MIDI of type 0 or 1.")
    notes = sorted(
        (round(start), max(round(start) + 1, round(end)), note)
        for start, end, note in _notes(file, path, Fraction(steps_per_quarter, file.ticks_per_beat))
    )
    if not notes:
        raise InputError(f"{path} has no notes, besides drums. Leave it out.")
    first, last = notes[0][0], max(end for _, end, _ in notes)
    limits().check("elements", (last - first) * KEYS, path)
    roll = np.zeros((last - first, KEYS), np.uint8)
    ends = dict.fromkeys(range(LOWEST, LOWEST + KEYS), first)
    for start, end, note in notes:
        # What sounds already is not drawn again: voices and tracks may hold the same key for long.
        roll[max(start, ends[note]) - first : end - first, note - LOWEST] = 1
        ends[note] = max(end, ends[note])
    return roll


def _notes(file: Any, path: Path, steps_per_tick: Fraction) -> list[tuple[Fraction, Fraction, int]]:
    """Return the start, the end and the number of each note, in steps."""
    notes = []
    for track in file.tracks:
        time, sounding = 0, {}
        for message in track:
            time += message.time
            if message.type not in ("note_on", "note_off") or message.channel == _DRUMS:
                continue
            voice = (message.channel, message.note)
            if voice in sounding:
                notes.append((sounding.pop(voice) * steps_per_tick, time * steps_per_tick, message.note))
            if message.type == "note_on" and message.velocity > 0:
                _check_note(message.note, str(path))
                sounding[voice] = time
        # A note that is never let go sounds until its track ends.
        notes += [(start * steps_per_tick, time * steps_per_tick, note) for (_, note), start in sounding.items()]
    return notes


def write_midi(path: Path, roll: np.ndarray, *, steps_per_quarter: int = 2, beats_per_minute: float = 100.0) -> None:
    """Write a piano-roll, (steps, 88) of zeros and ones, as a MIDI file; equal rolls give equal bytes.

    A key that sounds at consecutive steps is one note, held. Silence before the first note and after the last one is
    in the file, as the time of that note and of the track's end.
    """
    roll = np.asarray(roll)
    if roll.ndim != 2 or not is_roll(roll) or np.isnan(roll).any():
        raise InputError(f"A piano-roll has shape (steps, {KEYS}) and zeros and ones, but got shape {roll.shape}.")
    if not 1 <= steps_per_quarter <= _TICKS:
        raise InputError(f"A quarter note has from 1 to {_TICKS} steps, but got {steps_per_quarter}.")
    mido = require_mido()
    # Whole ticks for each step, so that nothing drifts, for example with seven steps in a quarter note.
    ticks = _TICKS // steps_per_quarter
    changes = np.diff(roll.astype(np.int8), axis=0, prepend=0, append=0)
    steps, keys = np.nonzero(changes)
    track = mido.MidiTrack()
    track.append(mido.MetaMessage("set_tempo", tempo=mido.bpm2tempo(beats_per_minute)))
    track.append(mido.Message("program_change", program=0))
    before = 0
    # Within a step, what ends comes first.
    for step, change, key in sorted(zip(steps.tolist(), changes[steps, keys].tolist(), keys.tolist(), strict=True)):
        kind = "note_on" if change > 0 else "note_off"
        track.append(mido.Message(kind, note=key + LOWEST, velocity=70, time=(step - before) * ticks))
        before = step
    track.append(mido.MetaMessage("end_of_track", time=(len(roll) - before) * ticks))
    content = io.BytesIO()
    mido.MidiFile(type=0, ticks_per_beat=ticks * steps_per_quarter, tracks=[track]).save(file=content)
    write_atomically(path, content.getvalue())
