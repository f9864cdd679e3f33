"""Results as xarray data sets with named dimensions, and as NetCDF files that xarray and ArviZ open."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mcfo.data.batching import unstacked
from mcfo.data.frame_forms import FrameForm
from mcfo.data.frequencies import Frequency
from mcfo.data.run_columns import NO_INPUTS, Coming, Inputs
from mcfo.data.tables import Table, table_of
from mcfo.inference.quantiles import Summary, check_levels
from mcfo.series import Series, stack
from mcfo.smc.trace import Record

if TYPE_CHECKING:
    import xarray

Progress = Callable[[list[int]], Any]
"""An iterator over the series that shows how far it is."""

ENGINE = "h5netcdf"
"""NetCDF 4, whose groups ArviZ reads."""

MEANINGS = {
    "latent_mean": "mean of the state",
    "latent_quantiles": "quantiles of the state",
    "observation_mean": "mean of the observation",
    "observation_quantiles": "quantiles of the observation",
    "observation": "what was observed",
    "latent_state": "the state",
    "filled": "what was observed, and the mean of what was missing",
    "component_mean": "mean of the component, in the unit of the signal",
    "component_quantiles": "quantiles of the component, in the unit of the signal",
    "ess": "effective sample size of the filter's particles",
    "log_predictive": "log p(x_t | x_1:t-1)",
    "log_evidence": "log p(x_1:T)",
    "finite": "whether the filter reached the end of the series",
    "latent_draws": "draws of the state",
    "observation_draws": "draws of the observation",
}
_DIMENSIONS = {
    "latent_mean": ("series", "time", "latent"),
    "latent_quantiles": ("series", "time", "quantile", "latent"),
    "observation_mean": ("series", "time", "dimension"),
    "observation_quantiles": ("series", "time", "quantile", "dimension"),
    "observation": ("series", "time", "dimension"),
    "latent_state": ("series", "time", "latent"),
    "filled": ("series", "time", "dimension"),
    "component_mean": ("series", "time", "component"),
    "component_quantiles": ("series", "time", "quantile", "component"),
    "ess": ("series", "time"),
    "log_predictive": ("series", "time"),
    "log_evidence": ("series",),
    "finite": ("series",),
    "latent_draws": ("series", "time", "particle", "latent"),
    "observation_draws": ("series", "time", "particle", "dimension"),
}


class Draws(eqx.Module):
    """Equally weighted draws of states and observations, flat; the time is in front."""

    latents: Float[Array, "*steps draws latent"]
    observations: Float[Array, "*steps draws dimensions"]


class NamedSeries(NamedTuple):
    """Series with their names and the names of their columns.

    - `moments`, `frequency`: the date or time of each step and how they continue, if that is known.
    - `form`: the form of the data frame that they come from.
    - `inputs`: what their inputs are.
    """

    series_list: list[Series]
    names: list[str]
    columns: list[str]
    moments: list[np.ndarray] | None = None
    frequency: Frequency | None = None
    form: FrameForm | None = None
    inputs: Inputs = NO_INPUTS

    def choose(self, indices: Sequence[int]) -> NamedSeries:
        """Return some of the series."""
        return self._replace(
            series_list=[self.series_list[index] for index in indices],
            names=[self.names[index] for index in indices],
            moments=None if self.moments is None else [self.moments[index] for index in indices],
        )

    def coming(self, steps: int) -> list[Coming] | None:
        """Return the times of the next steps of each series; None if times are unknown."""
        if self.moments is None or self.frequency is None:
            return None
        return [Coming(self.frequency.after(one[-1], steps), self.frequency, self.form) for one in self.moments]


def named_series(data: Any) -> NamedSeries:
    """Return named series from a file, a table, a data frame, one series, several series or an array."""
    if isinstance(data, NamedSeries):
        return data
    table = table_of(data)
    if isinstance(table, Table):
        named = NamedSeries(list(table.series_list), list(table.names), list(table.columns), table.moments)
        return named._replace(frequency=table.frequency, form=table.form, inputs=Inputs.from_table(table))
    if isinstance(data, Series):
        data = [data] if data.observations.ndim == 2 else unstacked(data)
    elif not (isinstance(data, list | tuple) and data and all(isinstance(one, Series) for one in data)):
        data = [Series.from_values(data)]
    series_list = list(data)
    columns = [f"x{index + 1}" for index in range(series_list[0].observations.shape[1])]
    return NamedSeries(series_list, [str(index + 1) for index in range(len(series_list))], columns)


def dataset_of(
    kind: str,
    data: NamedSeries,
    compute: Callable[[Series], dict[str, Any]],
    levels: Sequence[float],
    about: Mapping[str, Any],
    progress: Progress,
    *,
    future: bool = False,
    latent_names: Sequence[str] | None = None,
    component_names: Sequence[str] = (),
) -> xarray.Dataset:
    """Apply `compute` to each series and collect the arrays that it returns.

    **Arguments:**

    - `kind`: what was done, for the attributes.
    - `about`: further attributes.
    - `future`: whether the arrays are about steps after the end of a series.
    - `latent_names`: the names of the states; by default z1, z2, ...
    - `component_names`: those of the components of a structural model.
    """
    # Padded to one length, so that one program serves all series.
    batch = stack(data.series_list)
    results, lengths = [], []
    for index in progress(list(range(len(data.series_list)))):
        series = jax.tree.map(lambda array, index=index: array[index], batch)
        length = series.steps if series.length is None else int(series.length)
        arrays = {name: np.asarray(array) for name, array in compute(series).items()}
        if not future:
            arrays = {**_without_padding(arrays, length), "observation": series.values()}
        results.append(arrays)
        lengths.append(length)
    moments = data.moments
    if future:
        coming = data.coming(len(results[0]["observation_mean"]))
        moments = None if coming is None else [one.moments for one in coming]
    form = {} if data.form is None else {"frame": data.form.to_json()}
    return build_dataset(
        results,
        series=data.names,
        columns=data.columns,
        levels=check_levels(levels),
        lengths=lengths,
        attributes={"kind": kind, **about, **form},
        moments=moments,
        latent_names=latent_names,
        component_names=component_names,
    )


def _without_padding(arrays: Mapping[str, np.ndarray], steps: int) -> dict[str, np.ndarray]:
    return {name: array if array.ndim == 0 else array[:steps] for name, array in arrays.items()}


def state_arrays(
    latent: Summary, observed: Summary, record: Record, draws: Draws | None, components: Summary | None = None
) -> dict[str, Any]:
    """Return what is known of the steps of one series, by the names of a data set."""
    arrays: dict[str, Any] = {
        "latent_mean": latent.mean,
        "latent_quantiles": latent.quantiles,
        "observation_mean": observed.mean,
        "observation_quantiles": observed.quantiles,
        "ess": record.ess,
        "log_predictive": record.log_evidence,
        "log_evidence": jnp.sum(record.log_evidence),
    }
    if components is not None:
        arrays |= {"component_mean": components.mean, "component_quantiles": components.quantiles}
    if draws is not None:
        arrays |= {"latent_draws": draws.latents, "observation_draws": draws.observations}
    return arrays


def build_dataset(
    results: Sequence[Mapping[str, np.ndarray]],
    *,
    series: Sequence[str],
    columns: Sequence[str],
    lengths: Sequence[int],
    attributes: Mapping[str, Any],
    levels: Sequence[float] = (),
    moments: Sequence[np.ndarray] | None = None,
    latent_names: Sequence[str] | None = None,
    component_names: Sequence[str] = (),
) -> xarray.Dataset:
    """Build one data set from the arrays of several series, by name; shorter series are padded with NaN.

    `length` is the number of steps of each series. Times count the steps from 1, because each series has its own dates:
    the coordinate `moment` has those, if they are known.
    """
    import xarray

    longest = max(len(array) for one in results for name, array in one.items() if "time" in _DIMENSIONS[name])
    variables = {}
    for name in results[0]:
        dimensions = _DIMENSIONS[name]
        arrays = [
            array if array.dtype == bool else array.astype(float)
            for array in (np.asarray(one[name]) for one in results)
        ]
        if "time" in dimensions:
            arrays = [_lengthened(array, longest) for array in arrays]
        variables[name] = (dimensions, np.stack(arrays), {"long_name": MEANINGS[name]})
    sizes = {
        name: size for names, array, _ in variables.values() for name, size in zip(names, array.shape, strict=True)
    }
    if latent_names is not None and len(latent_names) != sizes["latent"]:
        latent_names = None  # those of a particle, whose latent is a part of the state that exact answers are about
    coordinates: dict[str, Any] = {
        "series": [str(name) for name in series],
        "time": np.arange(1, longest + 1, dtype=np.int32),
        "quantile": np.asarray(levels, float),
        "dimension": [str(name) for name in columns],
        "latent": list(latent_names or ()) or [f"z{index + 1}" for index in range(sizes["latent"])],
        "component": list(component_names),
        "particle": np.arange(sizes.get("particle", 0), dtype=np.int32),
    }
    used = {name: values for name, values in coordinates.items() if name in sizes}
    length = ("series", np.asarray(lengths, np.int32), {"long_name": "steps of the series"})
    beside: dict[str, Any] = {"length": length}
    if moments is not None:
        stacked = np.stack([_lengthened(array, longest) for array in moments])
        beside["moment"] = (("series", "time"), stacked, {"long_name": "date or time of the step"})
    return xarray.Dataset(variables, {**used, **beside}, dict(attributes))


def _lengthened(array: np.ndarray, steps: int) -> np.ndarray:
    extra = [(0, steps - len(array)), *[(0, 0)] * (array.ndim - 1)]
    return np.pad(array, extra, constant_values=np.array("NaT", array.dtype) if array.dtype.kind == "M" else np.nan)


def arviz_groups(dataset: xarray.Dataset) -> dict[str, xarray.Dataset]:
    """Return the draws in a data set as the groups of ArviZ: `arviz.InferenceData(**groups)`.

    `posterior` has the `state`, `posterior_predictive` (of a forecast, `predictions`) the `observation`, both with
    dimensions `chain` (of one) and `draw`; `observed_data` has the observations. Without draws there are no groups.
    """
    if "latent_draws" not in dataset:
        return {}

    def group(name: str, new_name: str) -> xarray.Dataset:
        renamed = dataset[[name]].rename({name: new_name, "particle": "draw"}).expand_dims(chain=[0])
        return renamed.transpose("chain", "draw", ...)

    future = "observation" not in dataset
    return {
        "posterior": group("latent_draws", "state"),
        "predictions" if future else "posterior_predictive": group("observation_draws", "observation"),
        **({"observed_data": dataset[["observation"]]} if "observation" in dataset else {}),
    }


def write_netcdf(path: Path, dataset: xarray.Dataset) -> None:
    """Write a data set as NetCDF 4; the file is complete or absent.

    The summaries are in the root, where `xarray.open_dataset` finds them, and the draws in the groups of
    [`arviz_groups`][], where `arviz.from_netcdf` finds them.
    """
    summaries = dataset.drop_vars(["latent_draws", "observation_draws", "particle"], errors="ignore")
    with written_beside(path) as part:
        summaries.to_netcdf(part, engine=ENGINE, encoding=_compressed(summaries))
        for name, group in arviz_groups(dataset).items():
            group.to_netcdf(part, group=name, mode="a", engine=ENGINE, encoding=_compressed(group))


def _compressed(dataset: xarray.Dataset) -> dict[Any, dict[str, Any]]:
    return {name: {"zlib": True} for name, array in dataset.data_vars.items() if array.ndim}


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """Yield a temporary file that replaces `path` once it is complete."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
