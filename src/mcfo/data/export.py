"""Export of results to data frames, to CSV files in long form, and to NPZ files."""

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mcfo.data.csv_reader import name_cell
from mcfo.data.frame_forms import FrameForm, build_frame
from mcfo.data.npz import write_npz
from mcfo.errors import InputError, nearest
from mcfo.files import write_atomically

if TYPE_CHECKING:
    import pandas

_SHAPES = ("wide", "long", "panel")


def to_frame(dataset: Any, statistic: str | float | None = None, *, shape: str | None = None) -> "pandas.DataFrame":
    """Return a data set of `filter`, `smooth` or `forecast` as a data frame, in the form that the data had.

    Its index and its names are those of the data; the dates of a forecast continue them. A data set that was read from
    a NetCDF file keeps the form.

    **Arguments:**

    - `statistic`: "mean", "observed" or "filled", or the level of a quantile: one column for each of the data's, under
      its name. By default there is a column for each statistic: mean, q05, ..., q95; with the name of the data's column
      in front if there are several.
    - `shape`: "wide" (an index of times; of series and times if there are several series), "long" (columns of series
      and times) or "panel" (an index of series and times) instead of the data's own.
    """
    form = FrameForm.from_json(dataset.attrs["frame"]) if "frame" in dataset.attrs else FrameForm(levels=["time"])
    if shape is not None and shape not in _SHAPES:
        raise InputError(f"There is no shape {shape!r} of a data frame. {nearest(shape, _SHAPES)}")
    form = form if shape is None else form.reshaped(shape)
    chosen = _statistics(dataset, statistic)
    past = "observation" in dataset
    lengths = [int(one) for one in dataset["length"].values]
    rows = lengths if past else [dataset.sizes["time"]] * len(lengths)
    columns = [str(name) for name in dataset["dimension"].values]
    labels = {str(label): label for label, role, _ in form.columns if role == "value"}
    blocks = []
    for index, count in enumerate(rows):
        block = {}
        for column, name in enumerate(columns):
            for title, values in chosen.items():
                several = f"{name}_{title}" if len(columns) > 1 else title
                label = labels.get(name, name) if statistic is not None else several
                block[label] = values[index, :count, column]
        blocks.append(block)
    moments = dataset["moment"].values if "moment" in dataset.coords else None
    moments = None if moments is None else [one[:count] for one, count in zip(moments, rows, strict=True)]
    names = [str(name) for name in dataset["series"].values]
    return build_frame(form, names, moments, blocks, starts=None if past else lengths)


def _statistics(dataset: Any, asked: str | float | None) -> dict[str, np.ndarray]:
    """Arrays (series, steps, dimensions) by title."""
    found = {"mean": dataset["observation_mean"].values}
    found |= {"observed": dataset["observation"].values} if "observation" in dataset else {}
    found |= {"filled": dataset["filled"].values} if "filled" in dataset else {}
    for index, level in enumerate(dataset["quantile"].values):
        found[_percent(float(level))] = dataset["observation_quantiles"].values[:, :, index]
    if asked is None:
        return found
    title = asked if isinstance(asked, str) else _percent(float(asked))
    if title not in found:
        raise InputError(f"The data set has no statistic {asked!r}. {nearest(str(title), found)}")
    return {title: found[title]}


def write_forecast_arrays(path: Path, dataset: Any, image: tuple[int, int] | None = None) -> None:
    """Writes a data set of `forecast` as NPZ: `mean` (series, steps, dimensions), `quantiles` with one more axis in
    front, `levels` and `series`; images are (height, width) instead of dimensions."""
    shape = (-1,) if image is None else image
    mean = dataset["observation_mean"].values
    quantiles = np.moveaxis(dataset["observation_quantiles"].values, 2, 0)
    arrays = {
        "mean": mean.reshape(*mean.shape[:-1], *shape),
        "quantiles": quantiles.reshape(*quantiles.shape[:-1], *shape),
        "levels": dataset["quantile"].values,
        "series": dataset["series"].values.astype(str),
    }
    write_npz(path, arrays, compress=image is not None)


def write_summaries(path: Path, dataset: Any) -> None:
    """Writes a data set of `filter`, `smooth` or `forecast` as CSV: a row for each series, step and dimension.

    The columns are `series,time,kind,name,observed,mean,q05,...,q95,ess,log_predictive`: the kind is `observation`,
    `latent` or `component`, the name that of a column, of a component, or `z1`, `z2`, ...; what was not observed is
    empty. Where the times of the
    steps are known, a last column `moment` holds them. The steps of a forecast count from the end of the series; its
    rows are of observations alone, without `observed`, `ess` and `log_predictive`, which the future does not have.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    arrays = {name: np.asarray(array.values) for name, array in dataset.data_vars.items()}
    past = "observation" in arrays
    kinds = {"observation": "dimension", **({"latent": "latent"} if past else {})}
    kinds |= {"component": "component"} if "component_mean" in arrays else {}
    moments = _texts(dataset["moment"].values) if "moment" in dataset.coords else None
    quantiles = [_percent(float(level)) for level in dataset["quantile"].values]
    about = ["ess", "log_predictive"] if past else []
    last = [*about, *([] if moments is None else ["moment"])]
    writer.writerow(["series", "time", "kind", "name", *(["observed"] if past else []), "mean", *quantiles, *last])
    times = dataset["time"].values
    lengths = dataset["length"].values if past else [len(times)] * dataset.sizes["series"]
    for place, series in enumerate(dataset["series"].values):
        for step in range(int(lengths[place])):
            ends = [_cell(arrays[name][place, step]) for name in about]
            ends += [] if moments is None else [moments[place, step]]
            for kind, dimension in kinds.items():
                for index, name in enumerate(dataset[dimension].values):
                    at = (place, step, index)
                    observed = [_cell(arrays["observation"][at]) if kind == "observation" else ""] if past else []
                    cells = (arrays[f"{kind}_mean"][at], *arrays[f"{kind}_quantiles"][place, step, :, index])
                    names_here = (name_cell(str(series)), times[step], kind, name_cell(str(name)))
                    writer.writerow([*names_here, *observed, *map(_cell, cells), *ends])
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
