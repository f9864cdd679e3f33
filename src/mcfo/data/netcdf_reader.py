"""Series from NetCDF files, of version 3 or 4; a file of version 4 is HDF5."""

import contextlib
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mcfo.data.cell_texts import Cells, array_texts, not_installed, read_cells
from mcfo.data.column_layout import SERIES, TIMES, RequestedColumns, check_names, choose_columns
from mcfo.data.hdf5_storage import check_storage
from mcfo.data.times import RawSeries
from mcfo.errors import InputError
from mcfo.limits import limits

_LENGTHS = "lengths"


def read_netcdf(path: Path, wanted: RequestedColumns) -> RawSeries:
    """Read a NetCDF file: variables along one dimension, the rows, or along series and time, in either order.

    A further dimension is spread over columns. A variable `lengths` along the series has the length of each.
    """
    try:
        import xarray  # noqa: F401
    except ImportError:
        raise not_installed("NetCDF", "xarray", "xarray", path) from None
    try:
        data = _load(path)
    except (InputError, MemoryError):
        raise
    # What the engines raise over a damaged file has no narrower base.
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0]
        raise InputError(
            f"{path} is damaged, or no NetCDF file ({type(error).__name__}: {reason}). Write it again."
        ) from error
    wanted = wanted.with_defaults([*map(str, data.sizes), *map(str, data.variables)])
    columns = _columns(path, data, wanted)
    layout = choose_columns(path, check_names(str(path), [name for name, _ in columns]), wanted)
    cells = {index: _cells(columns[index][1]) for index in layout.indices}
    return read_cells(path, layout, cells, len(columns[0][1]))


def _load(path: Path) -> Any:
    """Load the whole file, once it is known to be no larger than the limits."""
    import xarray

    with contextlib.ExitStack() as stack:
        # Opened here: a library that cannot read a file may leave it open.
        file = stack.enter_context(path.open("rb"))
        is_hdf5 = file.read(4) == b"\x89HDF"
        file.seek(0)
        if is_hdf5:
            try:
                import h5netcdf  # noqa: F401
                import h5py  # noqa: F401
            except ImportError as error:
                raise not_installed("NetCDF 4", str(error.name), str(error.name), path) from None
            check_storage(path, file)
            file.seek(0)
        stack.enter_context(warnings.catch_warnings())
        # About texts and times that it decodes in its own way; what is wrong for us is refused below.
        warnings.simplefilter("ignore")
        opened = stack.enter_context(xarray.open_dataset(file, engine="h5netcdf" if is_hdf5 else "scipy"))
        limits().check("elements", sum(one.size for one in opened.variables.values()), path)
        limits().check("bytes", opened.nbytes, path)
        return opened.load()


def _columns(path: Path, data: Any, wanted: RequestedColumns) -> list[tuple[str, np.ndarray]]:
    """Return columns of equal length with their names."""
    dimensions = [str(name) for name in data.sizes]
    series = _dimension(dimensions, wanted.series, SERIES)
    time = _dimension([name for name in dimensions if name != series], wanted.time, TIMES)
    if time is None:
        others = [name for name in dimensions if name != series]
        if len(others) != 1:
            raise InputError(
                f"{path} has the dimensions {', '.join(dimensions) or 'none'}: which one are the steps? Name it with "
                "the option for the time, or call it time."
            )
        time = others[0]
    sizes = {name: data.sizes[name] for name in (*([series] if series else []), time)}
    limits().check("elements", math.prod(sizes.values()), path)
    keep = np.ones(tuple(sizes.values()), bool)
    if series and _LENGTHS in data and data[_LENGTHS].dims == (series,):
        keep = np.arange(sizes[time]) < _lengths(path, data[_LENGTHS].values, sizes[time])[:, None]

    def along_rows(one: Any) -> np.ndarray:
        """The values of the rows that are kept, (rows, values of the further dimensions)."""
        further = [name for name in one.dims if name not in sizes]
        present = [name for name in sizes if name in one.dims]
        rows = [size if name in present else 1 for name, size in sizes.items()]
        width = math.prod(one.sizes[name] for name in further)
        values = one.transpose(*present, *further).values.reshape(*rows, width)
        return np.broadcast_to(values, (*sizes.values(), width))[keep]

    asked = {wanted.series, wanted.time, *(wanted.values or ()), *(wanted.inputs or ())}
    columns: list[tuple[str, np.ndarray]] = []
    for name, coordinate in data.coords.items():
        named = str(name) in asked or str(name).lower() in (*SERIES, *TIMES)
        if named and set(coordinate.dims) <= set(sizes):
            columns.append((str(name), along_rows(coordinate)[:, 0]))
    if series and series not in dict(columns):
        columns.append((series, along_rows(data[series] + 1)[:, 0]))  # without names, they are numbered
    spread = [str(name) for name, one in data.data_vars.items() if time in one.dims]
    for name in spread:
        further = [dimension for dimension in data[name].dims if dimension not in sizes]
        values = along_rows(data[name])
        titles = [name] if not further else _titles(data, name, further, values.shape[1], alone=len(spread) == 1)
        columns += zip(titles, values.T, strict=True)
    return columns


def _titles(data: Any, name: str, further: list[Any], width: int, *, alone: bool) -> Iterator[str]:
    """The names of the columns over which a variable is spread."""
    labels = data.coords[further[0]].values if len(further) == 1 and further[0] in data.coords else None
    if labels is None or labels.dtype.kind not in "OUS":
        return (f"{name}{index + 1}" for index in range(width))
    return (label if alone else f"{name}_{label}" for label in array_texts(labels))


def _lengths(path: Path, lengths: np.ndarray, steps: int) -> np.ndarray:
    for number, length in enumerate(lengths.tolist(), 1):
        if not isinstance(length, int | float) or not 1 <= length <= steps or length != int(length):
            raise InputError(
                f"{path}: the length of series {number} is {str(length)[:40]}, but a whole number from 1 to {steps} is "
                "wanted. Correct it, or leave the series out."
            )
    return lengths


def _cells(column: np.ndarray) -> Cells:
    return lambda start, end: array_texts(column[start:end])


def _dimension(names: list[str], asked: str | None, defaults: tuple[str, ...]) -> str | None:
    if asked in names:
        return asked
    lowered = {name.lower(): name for name in names}
    return next((lowered[name] for name in defaults if name in lowered), None)
