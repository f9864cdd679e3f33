"""The sizes that a MATLAB file (version 5 to 7.2) asks for, compared with what it holds: scipy allocates first."""

import math
import struct
import zlib
from pathlib import Path

from mcfo.errors import InputError
from mcfo.limits import limits

_HEADER = 128
_MATRIX, _COMPRESSED = 14, 15
_NESTED, _SPARSE = (1, 2, 3), 5
"""Classes of arrays: cells, structures and objects; and those that hold few of their elements."""


def check_sizes(path: Path) -> None:
    """Refuse a file whose variables unpack into more than the limit, or that names more elements than it has bytes."""
    most = limits()
    most.check("bytes", path.stat().st_size, path)
    content = path.read_bytes()
    # The version and the order of bytes end the header: "IM" in the file is "MI" in little endian.
    order = ">" if content[_HEADER - 2 : _HEADER] == b"MI" else "<"
    if 0 in content[:4]:
        raise InputError(f"{path} is damaged, or no MATLAB file of version 5 to 7.2. Save it with -v7.")
    if content[_HEADER - 4 : _HEADER - 2] != struct.pack(f"{order}H", 0x0100):
        return  # scipy says what it is
    at, unpacked = _HEADER, 0
    while at + 8 <= len(content):
        kind, size = struct.unpack_from(f"{order}II", content, at)
        element = content[at + 8 : at + 8 + size]
        if kind == _COMPRESSED:
            try:
                element = zlib.decompressobj().decompress(element, most.bytes - unpacked + 1)
            except zlib.error as error:
                raise InputError(f"{path} is damaged, or no MATLAB file of version 7.2 or before ({error}).") from error
            most.check("bytes", unpacked + len(element), path)
            unpacked += len(element)
            _check(path, element, order, 0)
        elif kind == _MATRIX:
            _check(path, content[at : at + 8 + size], order, 0)
        at += 8 + size


def _check(path: Path, element: bytes, order: str, depth: int) -> None:
    """Compare the number of elements of a matrix, and of those in its cells, with its bytes."""
    limits().check("nesting", depth, path)
    parts = []
    at = 8
    while at + 8 <= len(element):
        kind, size = struct.unpack_from(f"{order}II", element, at)
        if kind >> 16:  # a small element: its size stands in the upper half of its kind
            parts.append((kind & 0xFFFF, element[at + 4 : at + 8]))
            at += 8
            continue
        parts.append((kind, element[at : at + 8 + size] if kind == _MATRIX else element[at + 8 : at + 8 + size]))
        at += 8 + size + -size % 8
        if len(parts) == 2 and _class(parts[0][1], order) not in _NESTED:
            break
    if len(parts) < 2 or _class(parts[0][1], order) == _SPARSE:
        return
    sizes = struct.unpack(f"{order}{len(parts[1][1]) // 4}i", parts[1][1][: len(parts[1][1]) // 4 * 4])
    if any(size < 0 for size in sizes) or math.prod(sizes) > len(element):
        raise InputError(
            f"{path} is damaged: it names an array of shape {sizes[:8]}, of which it holds {len(element)} bytes. Get "
            "it from its source again."
        )
    for kind, part in parts[2:]:
        if kind == _MATRIX:
            _check(path, part, order, depth + 1)


def _class(flags: bytes, order: str) -> int:
    return flags[0 if order == "<" else 3] if len(flags) >= 4 else 0
