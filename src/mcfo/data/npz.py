"""NPZ files: arrays by name, without pickles, and series in them."""

import io
import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mcfo.data.times import RawSeries, Span
from mcfo.errors import InputError, printable
from mcfo.files import write_atomically
from mcfo.limits import limits


def read_npz(path: Path) -> RawSeries:
    """Read `observations`, (series, steps, dimensions) or (series, steps, height, width), with optional `lengths`,
    `inputs` (series, steps, inputs) and `times` (series, steps); or an array for each series."""
    arrays = load_arrays(path)
    image, beside = None, {}
    if "observations" in arrays:
        if arrays["observations"].ndim == 4:
            *batch, height, width = arrays["observations"].shape
            image = height, width
            arrays["observations"] = arrays["observations"].reshape(*batch, height * width)
        arrays, beside = _cut(path, arrays)
    elif not arrays:
        raise InputError(f"{path} holds no arrays. Save the series with numpy.savez(file, observations=array).")
    for name, values in arrays.items():
        if values.ndim not in (1, 2):
            raise InputError(
                f"{path}: the array {name!r} has shape {values.shape}, but a series has shape (steps,) or (steps, "
                "dimensions). Save several series of one length as `observations`, (series, steps, dimensions)."
            )
        _check_size(path, name, values)
    names = list(arrays)
    widths = {name: 1 if values.ndim == 1 else values.shape[1] for name, values in arrays.items()}
    for name, width in widths.items():
        if width != widths[names[0]]:
            raise InputError(
                f"{path}: the series {names[0]!r} has {widths[names[0]]} dimensions, but {name!r} has {width}. Give "
                "every series the same, with NaN in those that it lacks."
            )
    columns = [f"x{index + 1}" for index in range(widths[names[0]])]
    return RawSeries(names, list(arrays.values()), columns, image, **beside)


def write_npz(path: Path, arrays: Mapping[str, np.ndarray], *, compress: bool = False) -> None:
    """Write arrays by name, without pickles; equal arrays give equal bytes, and the file is complete or absent."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, array in arrays.items():
            entry = zipfile.ZipInfo(f"{name}.npy")  # without the current time, unlike numpy's
            entry.compress_type = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
            with archive.open(entry, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)
    write_atomically(path, content.getvalue())


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read a file of [`write_npz`][]. Files are not trusted: pickled objects are refused."""
    try:
        return _unpack(path)
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror or error}.") from error
    except _DAMAGES as error:
        raise InputError(f"{path} is damaged, or no file of arrays: {error}.") from error


def load_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read all arrays of a user's file, in their order; messages say how to write it."""
    with path.open("rb") as file:
        if file.read(6) == np.lib.format.MAGIC_PREFIX:
            raise InputError(f"{path} holds one array without a name (.npy). Save it with numpy.savez(file, array).")
    try:
        return _unpack(path)
    except _DAMAGES as error:
        raise InputError(
            f"{path} is damaged, or no NPZ file of numbers ({type(error).__name__}: {error}). Write it again with "
            "numpy.savez, without objects."
        ) from error


_DAMAGES = (
    *(ValueError, EOFError, KeyError, IndexError, OverflowError, SyntaxError, TypeError, NotImplementedError),
    *(RuntimeError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, tokenize.TokenError),
)
"""What zipfile and numpy raise over damaged files."""


def _unpack(path: Path) -> dict[str, np.ndarray]:
    """Read the arrays, whose sizes are known from their headers before any of them is unpacked."""
    most, elements, unpacked = limits(), 0, 0
    arrays: dict[str, np.ndarray] = {}
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        most.check("columns", len(entries), path)
        shapes = {}
        for entry in entries:
            name = entry.filename.removesuffix(".npy")
            if name in shapes:
                raise InputError(f"{path} holds two arrays called {name!r}. Save it again with one of them.")
            with archive.open(entry) as file:
                shapes[name] = shape, kind = _header(file)
            elements, unpacked = elements + math.prod(shape), unpacked + math.prod(shape) * kind.itemsize
            most.check("elements", elements, path)
            most.check("bytes", unpacked, path)
        for entry, name in zip(entries, shapes, strict=True):
            with archive.open(entry) as file:
                arrays[name] = np.lib.format.read_array(file, allow_pickle=False)
    return {printable(name): array for name, array in arrays.items()}


def _header(file: Any) -> tuple[tuple[int, ...], np.dtype]:
    """The shape and the type of an array that are said before its numbers."""
    version = np.lib.format.read_magic(file)
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}.get(version)
    if read is None:
        raise ValueError(f"there is no version {version} of the format")
    shape, _, kind = read(file)
    return shape, kind


def _cut(path: Path, arrays: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the series in `observations`, cut to their lengths and named from 1; and their inputs and times."""
    extra = sorted(set(arrays) - {"observations", "lengths", "inputs", "times"})
    if extra:
        raise InputError(
            f"{path} holds {', '.join(map(repr, extra))} beside 'observations', where only 'lengths', 'inputs' and "
            "'times' may stand. Leave that out; in the observations, NaN is what is missing."
        )
    observations = arrays["observations"]
    if observations.ndim != 3 or not observations.size:
        raise InputError(
            f"{path}: observations have shape {observations.shape}, but (series, steps, dimensions) is wanted, or "
            "(series, steps, height, width) for images, none of them 0. For one series save observations[None], for "
            "one dimension observations[..., None]."
        )
    count, steps, _ = observations.shape
    lengths = arrays.get("lengths", np.full(count, steps))
    if lengths.shape != (count,) or lengths.dtype.kind not in "iu":
        raise InputError(
            f"{path}: lengths have shape {lengths.shape} and dtype {lengths.dtype}, but {count} whole numbers are "
            "wanted, one for each series."
        )
    for number, length in enumerate(lengths, 1):
        if not 1 <= length <= steps:
            raise InputError(f"{path}: the length of series {number} is {length}, but it must lie from 1 to {steps}.")
    beside: dict[str, Any] = {}
    if "inputs" in arrays:
        inputs = _beside(path, arrays, "inputs", 3)
        beside["inputs"] = [one[:length].astype(float) for one, length in zip(inputs, lengths, strict=True)]
        beside["input_names"] = [f"u{index + 1}" for index in range(inputs.shape[2])]
    if "times" in arrays:
        times = _beside(path, arrays, "times", 2)
        times = [one[:length] for one, length in zip(times, lengths, strict=True)]
        beside["times"] = [_increasing(path, number, one) for number, one in enumerate(times, 1)]
        beside["spans"] = [Span(str(one[0]), str(one[-1]), None) for one in times]
    return {str(index + 1): observations[index, : lengths[index]] for index in range(count)}, beside


def _beside(path: Path, arrays: dict[str, np.ndarray], name: str, rank: int) -> np.ndarray:
    """Return an array that has a row for each observation."""
    array, wanted = arrays[name], arrays["observations"].shape[:2]
    if array.ndim != rank or array.shape[:2] != wanted or array.dtype.kind not in "iufb" or not array.size:
        form = f"({wanted[0]}, {wanted[1]}{', inputs' if rank == 3 else ''})"
        raise InputError(
            f"{path}: {name} have shape {array.shape} and dtype {array.dtype}, but numbers of shape {form} are wanted."
        )
    return array


def _increasing(path: Path, number: int, times: np.ndarray) -> np.ndarray:
    """Return the time since the first step; times must increase."""
    if not np.isfinite(times.astype(float)).all():
        raise InputError(f"{path}: a time of series {number} is not finite. Give each step its time.")
    wrong = np.flatnonzero(times[1:] <= times[:-1])
    if len(wrong):
        step = int(wrong[0]) + 1
        raise InputError(
            f"{path}: in series {number} the time {times[step]} comes after {times[step - 1]}, but times must increase."
        )
    return (times - times[0]).astype(float)


def _check_size(path: Path, name: str, values: np.ndarray) -> None:
    if values.dtype.kind != "f":
        return  # no integer is too large
    # Imported here, so that reading results needs no JAX.
    from mcfo.validation import largest_value, too_large

    most = np.float64(largest_value())
    large = np.argwhere(((values > most) | (values < -most)) & np.isfinite(values))
    if len(large):
        index = tuple(int(one) for one in large[0])
        where = ", ".join(map(str, index))
        raise InputError(f"{path}, series {name!r}, [{where}]: {too_large(f'{values[index]:g}', 'write NaN')}")
