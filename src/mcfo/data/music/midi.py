"""MIDI files from piano-rolls, and back."""

from __future__ import annotations

import io
from pathlib import Path

import mido
import numpy as np

from mcfo.data.music.rolls import KEYS, LOWEST, check_note, is_roll
from mcfo.files import InputError, write_atomically

_TICKS = 480
_DRUMS = 9
_MOST_STEPS = 1_000_000


def read_midi(path: Path, *, steps_per_quarter: int = 2) -> np.ndarray:
    """The piano-roll of a MIDI file, (steps, 88): all channels but the drums.

    Notes begin and end at the nearest step, and sound for one step at least. The roll begins with the first note.
    """
    try:
        file = mido.MidiFile(file=io.BytesIO(path.read_bytes()), clip=True)
    except OSError as error:
        if error.errno:
            raise
        raise InputError(f"{path} is damaged, or no MIDI file ({error}).") from error
    # What mido raises over bytes that are no MIDI has no narrower base.
    except Exception as error:
        raise InputError(f"{path} is damaged, or no MIDI file ({type(error).__name__}: {error}).") from error
    if file.type == 2 or file.ticks_per_beat <= 0:
        raise InputError(f"{path} counts time in a way that has no quarter notes. Save it as MIDI of type 0 or 1.")
    notes = [
        (round(begin), max(round(begin) + 1, round(end)), note)
        for begin, end, note in _notes(file, path, steps_per_quarter / file.ticks_per_beat)
    ]
    if not notes:
        raise InputError(f"{path} has no notes, besides drums. Leave it out.")
    first, last = min(begin for begin, _, _ in notes), max(end for _, end, _ in notes)
    if last - first > _MOST_STEPS:
        raise InputError(f"{path} lasts {last - first} steps, which no piece does. Is its time division right?")
    roll = np.zeros((last - first, KEYS), np.uint8)
    for begin, end, note in notes:
        roll[begin - first : end - first, note - LOWEST] = 1
    return roll


def _notes(file: mido.MidiFile, path: Path, steps_per_tick: float) -> list[tuple[float, float, int]]:
    """When each note begins and ends, in steps."""
    found = []
    for track in file.tracks:
        time, sounding = 0, {}
        for message in track:
            time += message.time
            if message.type not in ("note_on", "note_off") or message.channel == _DRUMS:
                continue
            place = (message.channel, message.note)
            if place in sounding:
                found.append((sounding.pop(place) * steps_per_tick, time * steps_per_tick, message.note))
            if message.type == "note_on" and message.velocity > 0:
                check_note(message.note, str(path))
                sounding[place] = time
        # A note that is never let go sounds until its track ends.
        found += [(begin * steps_per_tick, time * steps_per_tick, note) for (_, note), begin in sounding.items()]
    return found


def write_midi(path: Path, roll: np.ndarray, *, steps_per_quarter: int = 2, beats_per_minute: float = 100.0) -> None:
    """Writes a piano-roll, (steps, 88) of zeros and ones, as music; the same bytes for the same roll.

    A key that sounds at consecutive steps is one note, held. Silence before the first note and after the last one is
    in the file, as the time of that note and of the track's end.
    """
    roll = np.asarray(roll)
    if roll.ndim != 2 or not is_roll(roll) or np.isnan(roll).any():
        raise InputError(f"A piano-roll has shape (steps, {KEYS}) and zeros and ones, but got shape {roll.shape}.")
    if not 1 <= steps_per_quarter <= _TICKS:
        raise InputError(f"A quarter note has from 1 to {_TICKS} steps, but got {steps_per_quarter}.")
    # Whole ticks for each step, so that nothing drifts where a quarter note has seven steps, say.
    ticks = _TICKS // steps_per_quarter
    padded = np.pad(roll.astype(np.int8), ((1, 1), (0, 0)))
    changes = np.diff(padded, axis=0)
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
