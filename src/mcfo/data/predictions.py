"""Forecasts in files: CSV in long form, or arrays."""

import csv
import io
from collections.abc import Sequence as Listing
from pathlib import Path

import numpy as np

from mcfo.data.archives import write_npz
from mcfo.files import write_atomically

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
ENDINGS = (".csv", ".npz")


def write_predictions(
    path: Path,
    *,
    series: Listing[str],
    columns: Listing[str],
    mean: np.ndarray,
    quantiles: np.ndarray,
    image: tuple[int, int] | None = None,
) -> None:
    """Writes forecasts of several series.

    A CSV file has a row for each series, step after its end and column: `series,step,column,mean,q05,...,q95`. An NPZ
    file has `mean` (series, steps, dimensions), `quantiles` with one more axis in front, `levels` and `series`;
    pictures are (height, width) instead of dimensions.

    **Arguments:**

    - `mean`: (series, steps, dimensions); `quantiles`: (levels, series, steps, dimensions), at `LEVELS`.
    """
    if path.suffix.lower() == ".npz":
        shape = (-1,) if image is None else image
        arrays = {
            "mean": mean.reshape(*mean.shape[:-1], *shape),
            "quantiles": quantiles.reshape(*quantiles.shape[:-1], *shape),
            "levels": np.array(LEVELS),
            "series": np.array([str(name) for name in series]),
        }
        write_npz(path, arrays, compress=image is not None)
        return
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["series", "step", "column", "mean", *(f"q{round(100 * level):02d}" for level in LEVELS)])
    for place, name in enumerate(series):
        for step in range(mean.shape[1]):
            for number, column in enumerate(columns):
                at = (place, step, number)
                cells = [mean[at], *(one[at] for one in quantiles)]
                writer.writerow([name, step + 1, column, *(f"{float(cell):.7g}" for cell in cells)])
    write_atomically(path, text.getvalue().encode())
