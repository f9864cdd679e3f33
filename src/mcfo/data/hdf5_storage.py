"""What an HDF5 file stores, before anything of it is read: no part lies in other files, and none is too large."""

import math
from pathlib import Path
from typing import Any

from mcfo.errors import InputError
from mcfo.limits import Limits, limits

_FEW = 100
"""Texts of an attribute that may each be as long as the file."""


def check_storage(path: Path, file: Any) -> None:
    """Refuse a file that reads other files, or whose data at the root are larger than the limits."""
    import h5py

    most, size = limits(), path.stat().st_size
    elements = unpacked = 0
    with h5py.File(file, "r") as opened:
        seen, groups = set(), [opened.id]
        while groups:
            group = groups.pop()
            at_root = group == opened.id
            for name in group:
                # A soft link stays within the file, and what it leads to has a link of its own.
                kind = group.links.get_info(name).type
                if kind == h5py.h5l.TYPE_EXTERNAL:
                    raise _elsewhere(path, name, "is a link to another file")
                if kind != h5py.h5l.TYPE_HARD:
                    continue
                found = h5py.h5o.open(group, name)
                address = h5py.h5o.get_info(found).addr
                if address in seen:
                    continue
                seen.add(address)
                if isinstance(found, h5py.h5g.GroupID):
                    groups.append(found)
                elif isinstance(found, h5py.h5d.DatasetID):
                    _check_layout(path, name, found)
                    if at_root:
                        one = _check_sizes(path, name, found, most, size)
                        elements, unpacked = elements + one[0], unpacked + one[1]
                        most.check("elements", elements, path)
                        most.check("bytes", unpacked, path)
                if at_root:
                    _check_attributes(path, found, most, size)
        _check_attributes(path, opened.id, most, size)


def _elsewhere(path: Path, name: bytes, what: str) -> InputError:
    return InputError(
        f"{path}: {name.decode(errors='replace')!r} {what}, which is not opened: a file of data could show any other "
        "file in this way. Copy the data into one file."
    )


def _check_layout(path: Path, name: bytes, dataset: Any) -> None:
    import h5py

    plan = dataset.get_create_plist()
    if plan.get_layout() == h5py.h5d.VIRTUAL:
        raise _elsewhere(path, name, "is a virtual data set, made of other files")
    if plan.get_external_count():
        raise _elsewhere(path, name, "is stored in another file")


def _check_sizes(path: Path, name: bytes, dataset: Any, most: Limits, size: int) -> tuple[int, int]:
    """The elements and the bytes of a data set, whose chunks and texts are within the limits."""
    import h5py

    kind, plan = dataset.get_type(), dataset.get_create_plist()
    shape, width = dataset.shape, kind.get_size()
    if not isinstance(
        kind, h5py.h5t.TypeIntegerID | h5py.h5t.TypeFloatID | h5py.h5t.TypeStringID | h5py.h5t.TypeEnumID
    ):
        raise InputError(
            f"{path}: {name.decode(errors='replace')!r} has cells that are neither numbers nor texts. Leave it out."
        )
    if plan.get_layout() == h5py.h5d.CHUNKED:
        most.check("bytes", math.prod(plan.get_chunk()) * width, path)
    if isinstance(kind, h5py.h5t.TypeStringID) and kind.is_variable_str():
        width = _text_width(path, dataset, most, size)
    return math.prod(shape), math.prod(shape) * width


def _text_width(path: Path, dataset: Any, most: Limits, size: int) -> int:
    """The mean bytes of texts of any length, which are counted in small parts: many may share one place of the file."""
    import h5py

    texts = h5py.Dataset(dataset)
    if not texts.size:
        return 0
    row = math.prod(texts.shape[1:])
    most.check("bytes", row * size, path)
    step, total = max(1, most.bytes // (row * size)), 0
    for start in range(0, texts.shape[0], step) if texts.shape else ():
        total += sum(map(len, texts[start : start + step].ravel()))
        most.check("bytes", total, path)
    return -(-total // texts.size)


def _check_attributes(path: Path, owner: Any, most: Limits, size: int) -> None:
    import h5py

    for index in range(h5py.h5a.get_num_attrs(owner)):
        attribute = h5py.h5a.open(owner, index=index)
        count, kind = math.prod(attribute.shape or ()), attribute.get_type()
        most.check("bytes", count * kind.get_size(), path)
        if count > _FEW and isinstance(kind, h5py.h5t.TypeStringID) and kind.is_variable_str():
            most.check("bytes", count * size, path)
