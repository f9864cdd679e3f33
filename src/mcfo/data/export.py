"""Export of results to CSV files in long form, and to NPZ files."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mcfo.data.npz import write_npz
from mcfo.files import write_atomically

ENDINGS = (".csv", ".npz")


def write_predictions(
    path: Path,
    *,
    series: Sequence[str],
    columns: Sequence[str],
    mean: np.ndarray,
    quantiles: np.ndarray,
    levels: Sequence[float],
    image: tuple[int, int] | None = None,
) -> None:
    """Write forecasts of several series.

    A CSV file has a row for each series, step after its end and column: `series,step,column,mean,q05,...,q95`. An NPZ
    file has `mean` (series, steps, dimensions), `quantiles` with one more axis in front, `levels` and `series`;
    images have (height, width) instead of dimensions.

    **Arguments:**

    - `mean`: (series, steps, dimensions); `quantiles`: (levels, series, steps, dimensions), at `levels`.
    """
    if path.suffix.lower() == ".npz":
        shape = (-1,) if image is None else image
        arrays = {
            "mean": mean.reshape(*mean.shape[:-1], *shape),
            "quantiles": quantiles.reshape(*quantiles.shape[:-1], *shape),
            "levels": np.array(levels),
            "series": np.array([str(name) for name in series]),
        }
        write_npz(path, arrays, compress=image is not None)
        return
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["series", "step", "column", "mean", *map(_percent, levels)])
    for index, name in enumerate(series):
        for step in range(mean.shape[1]):
            for number, column in enumerate(columns):
                at = (index, step, number)
                cells = [mean[at], *(one[at] for one in quantiles)]
                writer.writerow([name, step + 1, column, *(f"{float(cell):.7g}" for cell in cells)])
    write_atomically(path, text.getvalue().encode())


def write_summaries(path: Path, dataset: Any) -> None:
    """Write a data set of `filter` or `smooth`: a row for each series, step and dimension.

    The columns are `series,time,kind,name,observed,mean,q05,...,q95,ess,log_predictive`: the kind is `observation` or
    `latent`, the name that of a column or `z1`, `z2`, ...; cells of missing values are empty. If the dates or times of
    the steps are known, they are in a last column `moment`.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    timed = ["moment"] if "moment" in dataset.coords else []
    quantiles = [_percent(float(level)) for level in dataset["quantile"].values]
    writer.writerow(["series", "time", "kind", "name", "observed", "mean", *quantiles, "ess", "log_predictive", *timed])
    arrays = {name: np.asarray(array.values) for name, array in dataset.data_vars.items()}
    kinds = [("observation", [str(name) for name in dataset["dimension"].values])]
    kinds.append(("latent", [str(name) for name in dataset["latent"].values]))
    lengths, times = dataset["length"].values, dataset["time"].values
    moments = _texts(dataset["moment"].values) if timed else None
    for index, series in enumerate(dataset["series"].values):
        for step in range(int(lengths[index])):
            about = [_cell(arrays[name][index, step]) for name in ("ess", "log_predictive")]
            about += [] if moments is None else [moments[index, step]]
            for kind, names in kinds:
                for number, name in enumerate(names):
                    at = (index, step, number)
                    observed = _cell(arrays["observation"][at]) if kind == "observation" else ""
                    numbers = arrays[f"{kind}_quantiles"][index, step, :, number]
                    cells = [_cell(arrays[f"{kind}_mean"][at]), *map(_cell, numbers)]
                    writer.writerow([series, times[step], kind, name, observed, *cells, *about])
    write_atomically(path, text.getvalue().encode())


def _texts(moments: np.ndarray) -> np.ndarray:
    """Format dates without superfluous digits, and numbers as they are."""
    if moments.dtype.kind != "M":
        return np.array([[f"{float(one):.10g}" for one in row] for row in moments])
    known = moments[~np.isnat(moments)]
    if (known == known.astype("M8[D]")).all():
        return np.datetime_as_string(moments, unit="D", casting="unsafe")
    whole = (known == known.astype("M8[s]")).all()
    return np.datetime_as_string(moments, unit="s" if whole else "us", casting="unsafe")


def _percent(level: float) -> str:
    percent = 100 * level
    whole = round(percent)
    return f"q{whole:02d}" if abs(percent - whole) < 1e-9 else f"q{percent:g}"


def _cell(value: Any) -> str:
    return "" if np.isnan(value) else f"{float(value):.7g}"
