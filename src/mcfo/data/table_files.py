"""Files of series by their endings. Nothing of JAX is imported to read one."""

from pathlib import Path

from mcfo.data.column_layout import RequestedColumns
from mcfo.data.csv_reader import read_csv
from mcfo.data.netcdf_reader import read_netcdf
from mcfo.data.npz import read_npz
from mcfo.data.parquet_reader import read_parquet
from mcfo.data.times import RawSeries
from mcfo.errors import InputError

LISTED = ".csv, .parquet, .nc or .npz"
_READERS = {
    ".csv": read_csv,
    ".parquet": read_parquet,
    ".pq": read_parquet,
    ".nc": read_netcdf,
    ".nc4": read_netcdf,
}


def read_file(path: Path, wanted: RequestedColumns) -> RawSeries:
    """Read the series in a file; every problem is an [`InputError`][] that says where it is."""
    try:
        return _read(path, wanted)
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror or error}.") from error


def _read(path: Path, wanted: RequestedColumns) -> RawSeries:
    if path.is_dir():
        raise InputError(f"{path} is a folder, but a file is wanted: {LISTED}.")
    if not path.exists():
        raise InputError(f"There is no file {path}. Check the name and the folder.")
    if not path.is_file():
        raise InputError(f"{path} is no file but a device or a pipe, whose end is not known. Save it as a file first.")
    ending = path.suffix.lower()
    if ending in _READERS:
        return _READERS[ending](path, wanted)
    if ending == ".npz":
        for name, given in wanted._asdict().items():
            if given is not None and name != "defaults":
                raise InputError(
                    f"The option {name} is about the columns of a CSV, Parquet or NetCDF file, but the arrays in "
                    f"{path} have no names of columns. Leave it out, or write the series as CSV."
                )
        return read_npz(path)
    came = f"ends in {path.suffix}. Convert it" if path.suffix else "has no ending. Rename or convert it"
    raise InputError(f"Cannot read {path}: files that end in {LISTED} are read, but this one {came}.")
