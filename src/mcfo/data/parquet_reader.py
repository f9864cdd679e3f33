"""Series from Parquet files, of which only the columns that are needed are read."""

from pathlib import Path
from typing import Any

from mcfo.data.cell_texts import Cells, not_installed, read_cells, without_zeros
from mcfo.data.column_layout import RequestedColumns, check_names, choose_columns
from mcfo.data.column_roles import sample_rows
from mcfo.data.times import RawSeries
from mcfo.errors import InputError, printable
from mcfo.limits import limits

_INDEX = "__index_level_0__"
"""What pandas calls an index without a name."""


def read_parquet(path: Path, wanted: RequestedColumns) -> RawSeries:
    """Read a Parquet file, and only the columns that are needed."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise not_installed("Parquet", "pyarrow", "'mcfo[parquet]'", path) from None
    try:
        # Arrow opens the file itself: a thread of Arrow that closes a file of Python while the interpreter ends aborts
        # the process. For the same reason nothing is left to its threads.
        with pa.OSFile(str(path)) as source, pq.ParquetFile(source) as file:
            return _read(path, source, file, wanted)
    except pa.ArrowMemoryError:
        raise
    except (pa.ArrowException, UnicodeDecodeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(f"{path} is damaged, or no Parquet file ({reason}). Write it again.") from error


def _read(path: Path, source: Any, file: Any, wanted: RequestedColumns) -> RawSeries:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema, metadata, most = file.schema_arrow, file.metadata, limits()
    kept = [index for index, field in enumerate(schema) if field.name != _INDEX or pa.types.is_temporal(field.type)]
    names = ["time" if schema.field(index).name == _INDEX else schema.field(index).name.strip() for index in kept]
    names = check_names(str(path), names)
    # Arrow selects columns by name. What is nested stands under its path, and is refused if it is chosen.
    stored, types = [schema.field(index).name for index in kept], [schema.field(index).type for index in kept]
    # A text that is repeated stays one text.
    texts = [name for name, kind in zip(stored, types, strict=True) if _is_text(kind)]
    plain = [name for name, kind in zip(stored, types, strict=True) if _is_readable(kind)]
    file = pq.ParquetFile(source, metadata=metadata, read_dictionary=texts)
    rows = sample_rows(len(names))
    first = next(file.iter_batches(rows, columns=plain, use_threads=False), None)
    arrays = {} if first is None else dict(zip(plain, first.columns, strict=True))
    sample = [_cells(pa.chunked_array([arrays[name]]))(0, rows) if name in arrays else [] for name in stored]
    layout = choose_columns(path, names, wanted, sample)
    for index in layout.indices:
        if not _is_readable(types[index]):
            raise InputError(
                f"{path}: the column {names[index]!r} has cells of type {printable(str(types[index]))[:80]}, but "
                "numbers, texts or times are wanted. Name the columns of values without it."
            )
    most.check("elements", metadata.num_rows * len(layout.indices), path)
    most.check("bytes", _unpacked(metadata, {stored[index] for index in layout.indices}), path)
    table = file.read(columns=[stored[index] for index in layout.indices], use_threads=False)
    columns = {index: _cells(table.column(stored[index])) for index in layout.indices}
    return read_cells(path, layout, columns, table.num_rows)


def _unpacked(metadata: Any, names: set[str]) -> int:
    """The bytes of some columns after unpacking, as the file says."""
    groups = (metadata.row_group(group) for group in range(metadata.num_row_groups))
    chunks = (group.column(column) for group in groups for column in range(group.num_columns))
    return sum(max(0, chunk.total_uncompressed_size) for chunk in chunks if chunk.path_in_schema in names)


def _is_text(kind: Any) -> bool:
    import pyarrow.types as types

    return types.is_string(kind) or types.is_large_string(kind)


def _is_readable(kind: Any) -> bool:
    import pyarrow.types as types

    if types.is_dictionary(kind):
        return _is_readable(kind.value_type)
    tests = (types.is_boolean, types.is_integer, types.is_floating, types.is_decimal, types.is_null, _is_text)
    return any(test(kind) for test in tests) or (types.is_temporal(kind) and not types.is_interval(kind))


def _cells(column: Any) -> Cells:
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return lambda start, end: _texts(column.slice(start, end - start))
    # All chunks get one list of texts, which is converted once.
    chunks = column.unify_dictionaries().chunks
    known = _texts(chunks[0].dictionary) if chunks else []
    indices = pa.chunked_array([chunk.indices for chunk in chunks], pa.int32() if not chunks else None)

    def texts(start: int, end: int) -> list[str]:
        return ["" if index is None else known[index] for index in indices.slice(start, end - start).to_pylist()]

    return texts


def _texts(column: Any) -> list[str]:
    import pyarrow as pa

    kind = column.type
    if pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif pa.types.is_duration(kind):
        column = column.cast(pa.int64())
    elif pa.types.is_temporal(kind):
        return [without_zeros(text or "") for text in column.cast(pa.string()).to_pylist()]
    return ["" if value is None else str(value) for value in column.to_pylist()]
