"""Data sets of music from files of every kind in which they are passed around."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from mcfo.data.archives import load_arrays
from mcfo.data.music.midi import read_midi
from mcfo.data.music.pickles import read_pickle
from mcfo.data.music.rolls import KEYS, SPLITS, Splits, checked, rolls_from_notes
from mcfo.data.tables import Table
from mcfo.files import InputError
from mcfo.sequences import Sequence

_SHARES = (0.6, 0.2, 0.2)
"""Of the files of a folder that has no folders for the splits."""
MIDI = (".mid", ".midi")
"""How the names of MIDI files end."""


def read_music(path: Path, *, steps_per_quarter: int = 2) -> Splits:
    """Reads and checks train, valid and test; every problem is an [`InputError`][] with its place.

    | | |
    |---|---|
    | `.npz` | for each split `train_roll`, 88 keys packed into 11 bytes, all pieces in a row, and `train_lengths` |
    | `.pickle`, `.pkl` | {split: [piece: [step: [MIDI numbers]]]}; only numbers are read, nothing is run |
    | `.mat` | MATLAB: cells `traindata`, `validdata`, `testdata` of (steps, 88) arrays |
    | `.json` | the same nesting as the pickles |
    | a folder | MIDI files in folders `train`, `valid` and `test`, or all together, then split 60 : 20 : 20 by name |

    **Arguments:**

    - `steps_per_quarter`: of MIDI files; two steps a quarter note are eighths.
    """
    try:
        return checked(_read(path, steps_per_quarter), str(path))
    except OSError as error:
        raise InputError(f"Cannot read {error.filename or path}: {error.strerror or error}.") from error


def read_piece(path: Path, *, steps_per_quarter: int = 2) -> Table:
    """One MIDI file as a table of one series, named as the file is."""
    try:
        roll = read_midi(path, steps_per_quarter=steps_per_quarter)
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror or error}.") from error
    return Table([Sequence.from_values(roll)], [path.stem], [f"x{place + 1}" for place in range(KEYS)])


def _read(path: Path, steps_per_quarter: int) -> Splits:
    if path.is_dir():
        return _read_folder(path, steps_per_quarter)
    if not path.exists():
        raise InputError(f"There is no file {path}. Check the name and the folder.")
    readers = {
        ".npz": _read_npz,
        ".pickle": lambda path: _nested(read_pickle(path), path),
        ".pkl": lambda path: _nested(read_pickle(path), path),
        ".json": _read_json,
        ".mat": _read_mat,
    }
    if path.suffix.lower() not in readers:
        raise InputError(f"Cannot read {path} as music: {', '.join(readers)} and folders of MIDI files are read.")
    return readers[path.suffix.lower()](path)


def _read_npz(path: Path) -> Splits:
    arrays = load_arrays(path)
    splits = {}
    for split in SPLITS:
        names = f"{split}_roll", f"{split}_lengths"
        for name in names:
            if name not in arrays:
                raise InputError(f"{path} has no array {name!r}. For each split a roll and lengths are wanted.")
        packed, lengths = (arrays[name] for name in names)
        if packed.dtype != np.uint8 or packed.ndim != 2 or packed.shape[1] != KEYS // 8:
            raise InputError(
                f"{path}: {names[0]} has shape {packed.shape} and dtype {packed.dtype}, but uint8 of shape (steps, "
                f"{KEYS // 8}) is wanted: the keys of a step, packed."
            )
        good = lengths.ndim == 1 and lengths.dtype.kind in "iu" and np.all(lengths >= 1)
        if not good or int(lengths.sum()) != len(packed):
            raise InputError(f"{path}: {names[1]} must be whole numbers from 1 on whose sum is {len(packed)}.")
        roll = np.unpackbits(packed, axis=1)
        splits[split] = np.split(roll, np.cumsum(lengths)[:-1]) if len(lengths) else []
    return splits


def _read_json(path: Path) -> Splits:
    try:
        return _nested(json.loads(path.read_bytes()), path)
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is not JSON: {error}.") from error


def _nested(content: Any, path: Path) -> Splits:
    if not isinstance(content, dict):
        raise InputError(
            f"{path} holds a {type(content).__name__}, but splits by name are wanted: {', '.join(SPLITS)}."
        )
    return {split: rolls_from_notes(content.get(split, []), f"{path}, {split}") for split in SPLITS}


def _read_mat(path: Path) -> Splits:
    from scipy.io import loadmat  # takes a while to import

    try:
        content = loadmat(path, variable_names=[f"{split}data" for split in SPLITS])
    except OSError:
        raise
    # What scipy raises over damaged files, and over version 7.3, has no narrower base.
    except Exception as error:
        raise InputError(
            f"{path} is damaged, or no MATLAB file of version 7.2 or before ({type(error).__name__}: {error})."
        ) from error
    splits = {}
    for split in SPLITS:
        cells = np.ravel(content.get(f"{split}data", np.empty(0, object)))
        pieces = []
        for place, cell in enumerate(cells, 1):
            piece = np.asarray(cell)
            if piece.ndim != 2 or piece.shape[1] != KEYS or piece.dtype.kind not in "iufb":
                raise InputError(
                    f"{path}, {split}data, piece {place} has shape {piece.shape} and dtype {piece.dtype}, but numbers "
                    f"of shape (steps, {KEYS}) are wanted."
                )
            if not np.isin(piece, (0, 1)).all():
                raise InputError(f"{path}, {split}data, piece {place} has values other than 0 and 1.")
            pieces.append(piece.astype(np.uint8))
        splits[split] = pieces
    return splits


def _read_folder(path: Path, steps_per_quarter: int) -> Splits:
    def pieces(files: list[Path]) -> list[np.ndarray]:
        return [read_midi(file, steps_per_quarter=steps_per_quarter) for file in files]

    folders = {split: path / split for split in SPLITS}
    if any(folder.is_dir() for folder in folders.values()):
        return {split: pieces(_midi_files(folder)) for split, folder in folders.items()}
    files = _midi_files(path)
    if len(files) < len(SPLITS):
        raise InputError(
            f"{path} has {len(files)} MIDI files, but {len(SPLITS)} or more are wanted, or folders {', '.join(SPLITS)}."
        )
    begin = max(1, round(_SHARES[0] * len(files)))
    end = min(len(files) - 1, max(begin + 1, round((_SHARES[0] + _SHARES[1]) * len(files))))
    begin = min(begin, end - 1)
    return {"train": pieces(files[:begin]), "valid": pieces(files[begin:end]), "test": pieces(files[end:])}


def _midi_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.suffix.lower() in MIDI) if folder.is_dir() else []
