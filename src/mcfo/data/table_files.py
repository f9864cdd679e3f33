"""Series from CSV, Parquet and NetCDF files: each is read as the rows of a table, one row for each step."""

import csv
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mcfo.data.column_layout import MISSING, SERIES, TIMES, Layout, RequestedColumns, choose_columns, read_rows
from mcfo.data.column_roles import ROWS
from mcfo.data.times import RawSeries, read_date, read_number
from mcfo.errors import InputError

_INDEX = "__index_level_0__"
"""What pandas calls an index without a name."""
_LENGTHS = "lengths"


DELIMITERS = (",", ";", "\t")


def read_csv(path: Path, wanted: RequestedColumns) -> RawSeries:
    """Read a CSV file in UTF-8; the delimiter is that of the header."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
            lines = itertools.chain([first], file)
            reader = csv.reader(lines, delimiter=_delimiter(first), skipinitialspace=True, strict=True)
            rows = _rows(path, reader)
            _, header = next(rows, (1, []))
            header = [name.strip() for name in header]
            _check_header(path, header)
            first_rows = list(itertools.islice(rows, ROWS))
            sample = [[row[index].strip() for _, row in first_rows] for index in range(len(header))]
            layout = choose_columns(path, header, wanted, sample)
            rows = itertools.chain(first_rows, rows)
            return read_rows(path, layout, rows, unit="line", missing="leave the cell empty")
    except UnicodeDecodeError:
        raise _not_text(path, _undecodable_line(path)) from None


def _delimiter(line: str) -> str:
    """Return the most frequent delimiter outside quotes."""
    bare = re.sub(r'"[^"]*"', "", line)
    return max(DELIMITERS, key=bare.count)


def _rows(path: Path, reader: Any) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows, all as long as the header, each with the number of its first line."""
    width, next_line = 0, 1
    empty: list[int] = []
    try:
        for row in reader:
            line, next_line = next_line, reader.line_num + 1
            if (width and not row) or (width > 1 and len(row) == 1 and not row[0].strip()):
                # Empty lines at the end of the file are ignored; the next row shows whether this is the end.
                empty.append(line)
                continue
            for gap in empty:
                if width > 1:
                    raise InputError(
                        f"{path}, line {gap}: the line is empty, but {width} cells are wanted. Remove it; if a step is "
                        "missing there, write the row with empty cells."
                    )
                yield gap, [""]
            empty.clear()
            width = width or len(row)
            if len(row) != width:
                raise InputError(
                    f"{path}, line {line}: the row has {len(row)} cells, but the header has {width}. Write as many "
                    "cells as there are columns, and quote a cell that holds the delimiter."
                )
            yield line, row
    except csv.Error as error:
        raise InputError(
            f"{path}, line {next_line}: the row cannot be read ({error}). Check its quotation marks."
        ) from error


def _check_header(path: Path, header: list[str]) -> None:
    if any("\0" in name for name in header):
        raise _not_text(path, 1)
    if not header:
        raise InputError(f"{path}, line 1: there is no header. Write the names of the columns into the first line.")
    if "" in header:
        raise InputError(
            f"{path}, line 1: column {header.index('') + 1} has no name. Name it, or remove it (pandas leaves its "
            "index out with index=False)."
        )
    for index, name in enumerate(header):
        if name in header[:index]:
            raise InputError(f"{path}, line 1: two columns are called {name!r}. Rename one.")
    if all(name in MISSING or read_number(name) or read_date(name) for name in header):
        raise InputError(
            f"{path}, line 1: {', '.join(header[:3])} look like data, but a header is wanted. Write the names of the "
            "columns into a line above."
        )


def _undecodable_line(path: Path) -> int:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return 1


def _not_text(path: Path, line: int) -> InputError:
    return InputError(
        f"{path}, line {line}: this is not text in UTF-8. Save the file with that encoding; if it is a spreadsheet or "
        "another binary file, export it as CSV."
    )


def read_parquet(path: Path, wanted: RequestedColumns) -> RawSeries:
    """Read a Parquet file, and only the columns that are needed."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise InputError(_install("Parquet", "pyarrow", "'mcfo[parquet]'", path)) from None
    try:
        with path.open("rb") as source, pq.ParquetFile(source) as file:
            schema = file.schema_arrow
            names = [name for name in schema.names if name != _INDEX or pa.types.is_temporal(schema.field(name).type)]
            first_rows = next(file.iter_batches(ROWS, columns=names), None)
            sample = [[] if first_rows is None else _arrow_texts(first_rows.column(name)) for name in names]
            layout = choose_columns(path, ["time" if name == _INDEX else name for name in names], wanted, sample)
            stored = {index: names[index] for index in layout.indices}
            table = file.read(columns=[*stored.values()])
    except pa.ArrowException as error:
        raise InputError(
            f"{path} is damaged, or no Parquet file ({str(error).splitlines()[0]}). Write it again."
        ) from error
    cells = {index: _arrow_texts(table.column(name)) for index, name in stored.items()}
    return read_cells(path, layout, cells)


def _arrow_texts(column: Any) -> list[str]:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_duration(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_temporal(kind):
        return [_shorter(text or "") for text in column.cast(pa.string()).to_pylist()]
    return ["" if value is None else str(value) for value in column.to_pylist()]


def read_netcdf(path: Path, wanted: RequestedColumns) -> RawSeries:
    """Read a NetCDF file: variables along one dimension, the rows, or along series and time, in either order.

    A further dimension is spread over columns. A variable `lengths` along the series has the length of each.
    """
    try:
        import xarray
    except ImportError:
        raise InputError(_install("NetCDF", "xarray", "xarray", path)) from None
    with path.open("rb") as file:
        if file.read(4) == b"\x89HDF":
            try:
                import h5netcdf  # noqa: F401
                import h5py  # noqa: F401
            except ImportError as error:
                raise InputError(_install("NetCDF 4", str(error.name), str(error.name), path)) from None
            engine = "h5netcdf"
        else:
            engine = "scipy"
    try:
        with xarray.open_dataset(path, engine=engine) as opened:
            data = opened.load()
    # What the engines raise over a damaged file has no narrower base.
    except Exception as error:
        reason = (str(error).splitlines() or [""])[0]
        raise InputError(
            f"{path} is damaged, or no NetCDF file ({type(error).__name__}: {reason}). Write it again."
        ) from error
    wanted = wanted.with_defaults([*map(str, data.sizes), *map(str, data.variables)])
    columns = _netcdf_columns(path, data, wanted)
    layout = choose_columns(path, [*columns], wanted)
    names = [*columns]
    return read_cells(path, layout, {index: array_texts(columns[names[index]]) for index in layout.indices})


def _netcdf_columns(path: Path, data: Any, wanted: RequestedColumns) -> dict[str, np.ndarray]:
    """Return columns of equal length, by name."""
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
    rows = [*([series] if series else []), time]
    asked = {wanted.series, wanted.time, *(wanted.values or ()), *(wanted.inputs or ())}
    columns: dict[str, Any] = {}
    for name, coordinate in data.coords.items():
        named = str(name) in asked or str(name).lower() in (*SERIES, *TIMES)
        if named and set(coordinate.dims) <= set(rows):
            columns[str(name)] = coordinate
    if series and series not in columns:
        columns[series] = data[series] + 1  # without names, they are numbered
    spread = [str(name) for name, one in data.data_vars.items() if time in one.dims]
    for name in spread:
        one = data[name]
        extra = [dimension for dimension in one.dims if dimension not in rows]
        if not extra:
            columns[name] = one
            continue
        flat = one.stack(spread_over_columns=extra) if len(extra) > 1 else one.rename({extra[0]: "spread_over_columns"})
        labels = data.coords[extra[0]].values if len(extra) == 1 and extra[0] in data.coords else None
        for index in range(flat.sizes["spread_over_columns"]):
            label = f"{name}{index + 1}"
            if labels is not None and labels.dtype.kind in "OUS":
                label = str(labels[index]) if len(spread) == 1 else f"{name}_{labels[index]}"
            columns[label] = flat.isel(spread_over_columns=index, drop=True)
    sizes = {name: data.sizes[name] for name in rows}
    keep = np.ones(tuple(sizes.values()), bool)
    if series and _LENGTHS in data and data[_LENGTHS].dims == (series,):
        keep = np.arange(sizes[time]) < np.asarray(data[_LENGTHS].values)[:, None]

    def along_rows(one: Any) -> np.ndarray:
        absent = {name: size for name, size in sizes.items() if name not in one.dims}
        return (one.expand_dims(absent) if absent else one).transpose(*rows).values[keep]

    return {name: along_rows(one) for name, one in columns.items()}


def _dimension(names: list[str], asked: str | None, defaults: tuple[str, ...]) -> str | None:
    if asked in names:
        return asked
    lowered = {name.lower(): name for name in names}
    return next((lowered[name] for name in defaults if name in lowered), None)


def array_texts(values: np.ndarray) -> list[str]:
    """Return the cells of an array as text."""
    if values.dtype.kind == "M":
        return ["" if text == "NaT" else _shorter(text) for text in np.datetime_as_string(values).tolist()]
    if values.dtype.kind == "m":
        values = values / np.timedelta64(1, "s")
    if values.dtype.kind == "b":
        values = values.astype(np.int8)
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8")
    return ["" if value is None else str(value) for value in values.tolist()]


def _shorter(moment: str) -> str:
    """Return a date without trailing zeros."""
    return re.sub(r"[ T]00:00:00$", "", re.sub(r"(:\d\d)\.0+$", r"\1", moment))


def read_cells(path: Path | str, layout: Layout, cells: dict[int, list[str]], **speech: Any) -> RawSeries:
    """Read the series in columns of text; `speech` is what [`read_rows`][] says otherwise."""
    count = len(next(iter(cells.values())))

    def rows() -> Iterator[tuple[int, dict[int, str]]]:
        for number in range(count):
            yield number + 1, {index: column[number] for index, column in cells.items()}

    return read_rows(path, layout, rows(), unit="row", missing="make it NaN", **speech)


def _install(format: str, package: str, requirement: str, path: Path) -> str:
    return (
        f"Cannot read {path}: {format} files need the package {package}, which is not installed. Install it: "
        f"pip install {requirement}. Or convert the file to CSV or NPZ."
    )
