"""Filtered and smoothed series in CSV files, in long form."""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np

from mcfo.files import write_atomically


def write_summaries(path: Path, dataset: Any) -> None:
    """Writes a data set of `filter` or `smooth`: a row for each series, step and dimension.

    The columns are `series,time,kind,name,observed,mean,q05,...,q95,ess,log_predictive`: the kind is `observation` or
    `latent`, the name that of a column or `z1`, `z2`, ...; what was not observed is empty. Where it is known when the
    steps were, a last column `moment` says so.
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
    for place, series in enumerate(dataset["series"].values):
        for step in range(int(lengths[place])):
            about = [_cell(arrays[name][place, step]) for name in ("ess", "log_predictive")]
            about += [] if moments is None else [moments[place, step]]
            for kind, names in kinds:
                for number, name in enumerate(names):
                    at = (place, step, number)
                    observed = _cell(arrays["observation"][at]) if kind == "observation" else ""
                    numbers = arrays[f"{kind}_quantiles"][place, step, :, number]
                    cells = [_cell(arrays[f"{kind}_mean"][at]), *map(_cell, numbers)]
                    writer.writerow([series, times[step], kind, name, observed, *cells, *about])
    write_atomically(path, text.getvalue().encode())


def _texts(moments: np.ndarray) -> np.ndarray:
    """Dates without digits that say nothing; numbers as they are."""
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
