"""Panels: many series in flat arrays, read from a Parquet file without making text of every cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mcfo.data.column_layout import RequestedColumns, choose_columns
from mcfo.data.tables import Table, read_series
from mcfo.errors import InputError
from mcfo.series import Series


class Panel(NamedTuple):
    """Many series, one after the other.

    - `starts`: where each begins in the rows, and at the end their number.
    - `unusable`: what is wrong with some of them, by index.
    - `notes`: sentences about how the data were read.
    """

    names: list[str]
    columns: list[str]
    values: np.ndarray
    inputs: np.ndarray | None
    starts: np.ndarray
    unusable: Mapping[int, str]
    unit: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def lengths(self) -> np.ndarray:
        """The number of rows of each series."""
        return np.diff(self.starts)

    def series(self, index: int) -> Series:
        """Return one series; its problems are an [`InputError`][]."""
        if index in self.unusable:
            raise InputError(self.unusable[index])
        rows = slice(self.starts[index], self.starts[index + 1])
        inputs = None if self.inputs is None else self.inputs[rows]
        try:
            return Series.from_values(self.values[rows], inputs=inputs, series_id=index)
        except ValueError as error:
            raise InputError(str(error)) from error

    @classmethod
    def of(cls, series_list: Sequence[Series], names: Sequence[str], columns: Sequence[str], **about: Any) -> Panel:
        """Return the panel of a list of series."""
        if not series_list:
            raise InputError("There are no series to learn from. Give at least one.")
        blocks = [one.values() for one in series_list]
        inputs = None
        if series_list[0].inputs is not None:
            driving = zip(series_list, blocks, strict=True)
            inputs = np.concatenate([np.asarray(one.inputs, np.float64)[: len(rows)] for one, rows in driving])
        starts = np.concatenate([[0], np.cumsum([len(rows) for rows in blocks])])
        return cls(list(names), list(columns), np.concatenate(blocks), inputs, starts, {}, **about)

    @classmethod
    def from_table(cls, table: Table) -> Panel:
        """Return the panel of a table."""
        about = {"unit": table.unit, "notes": table.notes}
        return cls.of(table.series_list, table.names, table.columns, **about)


def read_panel(path: Path, wanted: RequestedColumns) -> Panel:
    """Read a panel: a Parquet file by its columns, other files as `read_series` does.

    Rows of a series may stand anywhere in a Parquet file, in the order of their times. A series with times that do not
    increase is unusable, and so is one with infinite values; the others are read.
    """
    if path.suffix.lower() not in (".parquet", ".pq") or wanted.inputs:
        options = {name: getattr(wanted, name) for name in ("values", "series", "time", "inputs")}
        return Panel.from_table(read_series(path, **options))
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        return Panel.from_table(read_series(path, values=wanted.values, series=wanted.series, time=wanted.time))
    try:
        with path.open("rb") as source, pq.ParquetFile(source) as file:
            names = [name for name in file.schema_arrow.names if name != "__index_level_0__"]
            layout = choose_columns(path, names, wanted)
            if layout.series is None:
                raise InputError(
                    f"{path} has no column that identifies the series: there are {', '.join(names)}. Name it (on the "
                    "command line, --series)."
                )
            columns = [names[index] for index in layout.values]
            table = file.read(columns=[names[index] for index in layout.indices])
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror or error}.") from error
    except pa.ArrowException as error:
        raise InputError(f"{path} is damaged, or no Parquet file ({str(error).splitlines()[0]}).") from error
    for name in columns:
        kind = table.schema.field(name).type
        if not (pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
            raise InputError(f"{path}: the column {name!r} holds {kind}, but numbers are wanted. Choose --columns.")
    keys = table.column(names[layout.series]).combine_chunks().dictionary_encode()
    codes, owners = keys.indices.to_numpy(zero_copy_only=False), [str(one) for one in keys.dictionary.to_pylist()]
    if np.isnan(codes.astype(float)).any():
        raise InputError(f"{path}: a cell of the column {names[layout.series]!r} is empty. Every row has a series.")
    values = np.column_stack([_numbers(table.column(name)) for name in columns])
    moments = [_numbers(table.column(names[index])) for index in layout.time if _is_ordered(table, names[index])]
    if (np.diff(codes) < 0).any():
        order = np.argsort(codes, kind="stable")
        codes, values, moments = codes[order], values[order], [one[order] for one in moments]
    starts = np.searchsorted(codes, np.arange(len(owners) + 1))
    unusable = {}
    if len(moments) == 1:
        stuck = ~(np.diff(moments[0]) > 0) & (np.diff(codes) == 0)
        unusable = {int(code): "Its times do not increase. Sort its rows by time." for code in codes[1:][stuck]}
    return Panel(owners, columns, values, None, starts, unusable, notes=layout.notes)


def _numbers(column: Any) -> np.ndarray:
    import pyarrow as pa

    if pa.types.is_temporal(column.type):
        column = column.cast(pa.timestamp("us")).cast(pa.int64())
    return column.combine_chunks().cast(pa.float64()).to_numpy(zero_copy_only=False)


def _is_ordered(table: Any, name: str) -> bool:
    """Whether a column of times has an order that is known without reading text."""
    import pyarrow as pa

    kind = table.schema.field(name).type
    return pa.types.is_temporal(kind) or pa.types.is_floating(kind) or pa.types.is_integer(kind)
