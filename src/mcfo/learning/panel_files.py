"""The folder of a panel's run: its configuration, a part for each chunk, and at the end one NetCDF file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mcfo.data.npz import load_arrays, write_npz
from mcfo.errors import InputError, OtherRunError, RunError
from mcfo.files import read_json, write_atomically
from mcfo.inference.datasets import write_netcdf
from mcfo.learning.panel_problems import PanelRow
from mcfo.learning.run_folder import differences

if TYPE_CHECKING:
    import xarray

RESULT = "each.nc"
"""The file with what every series learned."""
_NUMBERS = ("log_likelihood", "converged", "rounds", "gradient_norm", "at_bounds", "problem")


class PanelFolder:
    """A folder with `config.json` and `parts/`; at the end also `each.nc` and `results.json`.

    A part is complete or absent, so that a run that was interrupted, at whatever moment, resumes with the next chunk.
    """

    def __init__(self, path: Path, config: Mapping[str, Any], *, resume: bool):
        self.path, self._parts = path, path / "parts"
        config = json.loads(json.dumps(config, allow_nan=False))
        if path.exists() and not path.is_dir():
            raise InputError(f"{path} is not a folder. Choose another one.")
        known = path / "config.json"
        if path.exists() and any(path.iterdir()) and not resume:
            raise InputError(
                f"{path} exists already. Choose another folder, or resume the run in it: --resume (in Python, "
                "resume=True)."
            )
        if known.exists():
            different = [one for one in differences(config, read_json(known)) if one[0] not in ("command", "data.file")]
            if different:
                name, new, old = different[0]
                raise OtherRunError(
                    f"{path} holds a run with another configuration: {name} was {old!r} and is {new!r}. Resume with "
                    f"the configuration in {known}, or choose another folder."
                )
        try:
            self._parts.mkdir(parents=True, exist_ok=True)
            if not known.exists():
                write_atomically(known, (json.dumps(config, indent=2, allow_nan=False) + "\n").encode())
        except OSError as error:
            raise InputError(f"Cannot write into {path}: {error.strerror}. Choose another folder.") from error

    def load(self, chunk: int) -> list[PanelRow] | None:
        """Return the rows of a chunk that is done already."""
        path = self._path(chunk)
        return unpacked(load_arrays(path)) if path.exists() else None

    def save(self, chunk: int, rows: Sequence[PanelRow]) -> None:
        """Write the rows of a chunk."""
        try:
            write_npz(self._path(chunk), packed(rows))
        except OSError as error:
            raise RunError(
                f"Cannot write {self._path(chunk)}: {error.strerror}. The chunks before it are complete. Free some "
                "space and resume: --resume (in Python, resume=True)."
            ) from error

    def finish(self, dataset: xarray.Dataset, results: Mapping[str, Any]) -> None:
        """Write the results; results.json comes last, because it marks the run as finished."""
        write_netcdf(self.path / RESULT, dataset)
        write_atomically(self.path / "results.json", (json.dumps(results, indent=2, allow_nan=False) + "\n").encode())

    def _path(self, chunk: int) -> Path:
        return self._parts / f"{chunk:06d}.npz"


def packed(rows: Sequence[PanelRow]) -> dict[str, np.ndarray]:
    """Return rows as arrays by name, with a leading axis over the rows; NaN where a series learned nothing."""
    arrays = {"index": np.array([row.index for row in rows], np.int64)}
    arrays |= {name: np.array([getattr(row, name) for row in rows]) for name in _NUMBERS}
    example = next((row.arrays for row in rows if row.arrays), {})
    for name, array in example.items():
        nothing = np.full(np.shape(array), np.nan)
        arrays[f"array.{name}"] = np.stack([np.asarray(row.arrays.get(name, nothing)) for row in rows])
    return arrays


def unpacked(arrays: Mapping[str, np.ndarray]) -> list[PanelRow]:
    """Return the rows that `packed` was given."""
    own = {name.removeprefix("array."): array for name, array in arrays.items() if name.startswith("array.")}
    rows = []
    for place, index in enumerate(arrays["index"]):
        numbers = {name: arrays[name][place].item() for name in _NUMBERS}
        learned = {} if numbers["problem"] else {name: array[place] for name, array in own.items()}
        rows.append(PanelRow(int(index), learned, **numbers))
    return rows


def panel_dataset(rows: Sequence[PanelRow], names: Sequence[str], lengths: np.ndarray) -> xarray.Dataset:
    """Return what every series learned, one row for each in the order of the panel."""
    import xarray

    rows = sorted(rows, key=lambda row: row.index)
    variables: dict[str, Any] = {"length": ("series", np.asarray(lengths, np.int64))}
    for name, array in packed(rows).items():
        if name == "index":
            continue
        plain = name.removeprefix("array.")
        axes = tuple(f"{plain}_{axis}" for axis in range(array.ndim - 1))
        variables[plain] = (("series", *axes), array.astype(object) if array.dtype.kind == "U" else array)
    return xarray.Dataset(variables, {"series": np.array([str(name) for name in names], object)})
