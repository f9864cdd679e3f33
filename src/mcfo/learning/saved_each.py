"""What each series of a panel learned, loaded from its folder and applied to series of the same names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mcfo.data.run_columns import Inputs, coming_inputs
from mcfo.data.run_record import EACH, RunRecord, read_run
from mcfo.errors import InputError, nearest
from mcfo.files import nested, read_json
from mcfo.inference.datasets import NamedSeries, named_series
from mcfo.inference.filtering import filter
from mcfo.inference.forecasting import forecast
from mcfo.inference.rolling_evaluation import RollingEvaluation, evaluate_rolling_each
from mcfo.inference.smoothing import smooth
from mcfo.learning.panel_files import RESULT
from mcfo.learning.parameters import Modules, fill, named_arrays
from mcfo.learning.saved_runs import start_of_run
from mcfo.series import with_ids

if TYPE_CHECKING:
    import xarray


class SavedEach(NamedTuple):
    """The models of all series of a panel.

    - `like`: a model and a proposal of the right structure.
    - `places`: the row of each series, by name.
    """

    record: RunRecord
    dataset: xarray.Dataset
    like: Modules
    places: dict[str, int]

    @property
    def config(self) -> dict[str, Any]:
        """The content of config.json."""
        return self.record.config

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.record.seeds[0] if self.record.seeds else 0

    @property
    def inputs(self) -> Inputs:
        """The inputs that the models read beside the observations."""
        return Inputs.of(self.record)

    def choose(self, seed: int | None = None) -> SavedEach:
        """Return the only seed of the run."""
        if seed not in (None, self.seed):
            raise InputError(f"The run has no seed {seed}, but {self.seed}.")
        return self

    def is_learned(self, name: str) -> bool:
        """Whether the run has a model of this series; a name that it does not know is refused."""
        if name not in self.places:
            raise InputError(f"The run has no series {name!r}. {nearest(name, self.places)}")
        return not str(self.dataset["problem"].values[self.places[name]])

    def modules(self, name: str) -> Modules:
        """Return model and proposal of a series."""
        if not self.is_learned(name):
            problem = self.dataset["problem"].values[self.places[name]]
            raise InputError(f"Series {name!r} was not learned: {problem}")
        known = {one: self.dataset[one].values[self.places[name]] for one in map(str, self.dataset.data_vars)}
        names = [one for one in named_arrays(self.like) if one in known]
        whole = {one: np.asarray(array) for one, array in named_arrays(self.like).items()}
        modules = fill(self.like, whole | {one: known[one] for one in names}, source=str(self.record.folder / RESULT))
        if any(one.startswith("proposal.") for one in names):
            return modules
        return Modules(modules.model, self.like.proposal.following(modules.model))

    def filter(self, data: Any, **options: Any) -> xarray.Dataset:
        """Filter every series with its own model: [`filter`][mcfo.filter]."""
        return self._each(data, lambda both, one, options: filter(*both, one, **options), options)

    def smooth(self, data: Any, **options: Any) -> xarray.Dataset:
        """Smooth every series with its own model: [`smooth`][mcfo.smooth]."""
        return self._each(data, lambda both, one, options: smooth(*both, one, **options), options)

    def forecast(self, data: Any, steps: int, **options: Any) -> xarray.Dataset:
        """Forecast every series with its own model: [`forecast`][mcfo.forecast]."""
        if options.get("inputs") is None and not named_series(data).inputs.size:
            options["inputs"] = coming_inputs(self.inputs, steps)
        return self._each(data, lambda both, one, options: forecast(*both, one, steps, **options), options)

    def evaluate_rolling(self, data: Any, **options: Any) -> RollingEvaluation:
        """Score the forecasts of every series by its own model: [`evaluate_rolling`][mcfo.evaluate_rolling]."""
        named = named_series(data)
        series_list = with_ids(named.series_list)
        both = {int(series.series_id): self._both(name) for series, name in zip(series_list, named.names, strict=True)}
        return evaluate_rolling_each(both.__getitem__, series_list, **options)

    def _both(self, name: str) -> tuple[Any, Any]:
        modules = self.modules(name)
        return modules.model, modules.proposal

    def _each(self, data: Any, apply: Callable[..., Any], options: dict[str, Any]) -> xarray.Dataset:
        import xarray

        named = named_series(data)
        progress = options.pop("progress", iter)
        # Padded to one length, so that one program serves all series.
        longest = max(series.steps for series in named.series_list)
        results = []
        for index in progress(list(range(len(named.names)))):
            one: NamedSeries = named.choose([index])
            one = one._replace(series_list=[one.series_list[0].pad(longest)])
            results.append(apply(self._both(one.names[0]), one, dict(options)))
        return xarray.concat(results, "series", data_vars="all", join="outer") if len(results) > 1 else results[0]


def is_each(folder: Path) -> bool:
    """Whether a folder has a run with a model for each series."""
    path = folder / "config.json"
    return path.is_file() and nested(read_json(path), "kind") == EACH


def load_each(
    folder: str | Path, *, model: str | None = None, proposal: str | None = None, like: Any = None
) -> SavedEach:
    """Load what [`fit_each`][] learned.

    **Arguments:**

    - `model`, `proposal`, `like`: as in [`load_run`][].
    """
    folder = Path(folder)
    record = read_run(folder, metrics=False, kinds=(EACH,))
    if record.ended is None or not (folder / RESULT).exists():
        raise InputError(f"The run in {folder} has not ended. Resume it: the same command and --resume.")
    import xarray

    start = start_of_run(record, Inputs.of(record), model, proposal, like, [])
    with xarray.open_dataset(folder / RESULT, engine="h5netcdf") as opened:
        dataset = opened.load()
    places = {str(name): index for index, name in enumerate(dataset["series"].values)}
    return SavedEach(record, dataset, Modules(start.model, start.proposal), places)
