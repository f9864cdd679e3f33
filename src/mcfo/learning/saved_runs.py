"""Models from files and runs from their folders: named arrays, no pickles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from mcfo.catalogue.from_data import Start
from mcfo.catalogue.registry import build, check, entry
from mcfo.catalogue.user_code import build_own, build_own_proposal
from mcfo.data.npz import read_arrays, write_npz
from mcfo.data.run_columns import NO_INPUTS, Inputs, coming_inputs
from mcfo.errors import InputError
from mcfo.files import nested, read_json
from mcfo.inference.filtering import filter
from mcfo.inference.forecasting import forecast
from mcfo.inference.smoothing import smooth
from mcfo.learning.parameters import Modules, describe, fill, named_arrays
from mcfo.learning.run_folder import differences
from mcfo.models.base import Model
from mcfo.proposals.base import Bootstrap, Proposal
from mcfo.series import Series

if TYPE_CHECKING:
    import xarray

_Tree = TypeVar("_Tree")
_MOST_COLUMNS = 100_000


class SavedSeed(NamedTuple):
    """The model and the proposal of one seed of a run; `nll_per_step` is that of the run's last evaluation."""

    seed: int
    model: Model
    proposal: Proposal
    nll_per_step: float = math.inf
    inputs: Inputs = NO_INPUTS

    def filter(self, data: Any, **options: Any) -> xarray.Dataset:
        """Compute p(z_t | x_1:t) and p(x_t | x_1:t-1) for every step: [`filter`][mcfo.filter].

        `data` is a file, a table of `read_series`, series or an array; the options are `particles`, `levels`, `draws`
        and `seed`.
        """
        return filter(self.model, self.proposal, self._read(data), **options)

    def smooth(self, data: Any, **options: Any) -> xarray.Dataset:
        """Compute p(z_t | x_1:T) for every step, and fill in missing values: [`smooth`][mcfo.smooth].

        The options are those of `filter`, and `paths`.
        """
        return smooth(self.model, self.proposal, self._read(data), **options)

    def forecast(self, data: Any, steps: int, **options: Any) -> xarray.Dataset:
        """Forecast the steps after the last one: [`forecast`][mcfo.forecast].

        The options are those of `filter`, and `inputs`, the inputs of the coming steps. Where the time between steps is
        the only input, it is one unit by default.
        """
        if options.get("inputs") is None:
            options["inputs"] = coming_inputs(self.inputs, steps)
        return forecast(self.model, self.proposal, self._read(data), steps, **options)

    def _read(self, data: Any) -> Any:
        """Read a file with the model's inputs; other data are read later."""
        return self.inputs.read(data) if isinstance(data, str | Path) else data


class SavedRun(NamedTuple):
    """A run that was loaded from its folder."""

    config: dict[str, Any]
    seeds: list[SavedSeed]

    def choose(self, seed: int | None = None) -> SavedSeed:
        """Return this seed, or the one with the lowest NLL."""
        if seed is None:
            return min(self.seeds, key=lambda one: one.nll_per_step)
        for one in self.seeds:
            if one.seed == seed:
                return one
        raise InputError(f"The run has no seed {seed}, but {', '.join(str(one.seed) for one in self.seeds)}.")

    def filter(self, data: Any, **options: Any) -> xarray.Dataset:
        """Apply [`SavedSeed.filter`][] of the seed with the lowest NLL."""
        return self.choose().filter(data, **options)

    def smooth(self, data: Any, **options: Any) -> xarray.Dataset:
        """Apply [`SavedSeed.smooth`][] of the seed with the lowest NLL."""
        return self.choose().smooth(data, **options)

    def forecast(self, data: Any, steps: int, **options: Any) -> xarray.Dataset:
        """Apply [`SavedSeed.forecast`][] of the seed with the lowest NLL."""
        return self.choose().forecast(data, steps, **options)

    @property
    def image(self) -> tuple[int, int] | None:
        """Height and width, if the run learned from images."""
        image, size = nested(self.config, "data", "image"), nested(self.config, "data", "dimensions")
        if not (isinstance(image, list) and len(image) == 2 and all(isinstance(one, int) and one > 0 for one in image)):
            return None
        return (image[0], image[1]) if image[0] * image[1] == size else None

    @property
    def inputs(self) -> Inputs:
        """The inputs that the model reads beside the observations."""
        return Inputs.from_config(self.config)

    def check(self, values: Sequence[float]) -> None:
        """Refuse an observation, with NaN where it is missing, that a model of the catalogue cannot explain."""
        name, options = (nested(self.config, "model", part) for part in ("name", "options"))
        if nested(self.config, "model", "own") is not False:
            return
        impossible = entry(str(name)).check(np.asarray([values]), options if isinstance(options, dict) else {})
        if impossible is not None:
            raise InputError(
                f"{self.columns[impossible.column]} is {values[impossible.column]:g}, which {impossible.text}"
            )

    @property
    def columns(self) -> list[str]:
        """The names of the columns that it learned from."""
        columns, size = nested(self.config, "data", "columns"), nested(self.config, "data", "dimensions")
        if isinstance(columns, list) and len(columns) == size and all(isinstance(one, str) for one in columns):
            return columns
        return [f"x{index + 1}" for index in range(size)]


def save(path: str | Path, module: Any) -> None:
    """Write every array of a model, a proposal or any other module into an NPZ file, by name."""
    write_npz(Path(path), {name: np.asarray(array) for name, array in named_arrays(module).items()})


def load(path: str | Path, like: _Tree) -> _Tree:
    """Load a module from a file of [`save`][].

    **Arguments:**

    - `like`: a module of the same structure; its arrays are replaced by those of the file.
    """
    return fill(like, read_arrays(Path(path)), source=str(path))


def load_run(
    folder: str | Path,
    *,
    model: str | None = None,
    proposal: str | None = None,
    like: tuple[Model, Proposal] | None = None,
    series_list: Sequence[Series] | None = None,
) -> SavedRun:
    """What a finished run learned.

    **Arguments:**

    - `model`, `proposal`: where one's own are, `path/to/file.py:Name`. Code is never taken from the folder.
    - `like`: for a run that was made in Python, the model and the proposal that it began with.
    - `series`: what the run will be used on; handed to one's own function that makes the model.
    """
    folder = Path(folder)
    if not (folder / "config.json").exists():
        raise InputError(
            f"{folder} holds no run: there is no config.json in it. Give the folder that mcfo fit wrote (--out)."
        )
    config = read_json(folder / "config.json")
    if not (folder / "results.json").exists():
        raise InputError(f"The run in {folder} has not ended. Go on with it: the same command and --resume.")
    parts = _Parts.read(folder, config)
    if series_list and series_list[0].observations.shape[1] != parts.dimensions:
        raise InputError(
            f"The model in {folder} was learned from {parts.dimensions} columns of values, but these data have "
            f"{series_list[0].observations.shape[1]}. Choose the columns (on the command line, --columns)."
        )
    given = 0 if not series_list or series_list[0].inputs is None else series_list[0].inputs.shape[-1]
    if series_list and given != parts.inputs.size:
        raise InputError(
            f"The model in {folder} reads {parts.inputs.size} inputs ({parts.inputs.text()}), but these data have "
            f"{given}. Read them with mcfo.read_for_run(folder, file)."
        )
    start = _start(folder, parts, model, proposal, like, list(series_list or []))
    for side, module in (("model", start.model), ("proposal", start.proposal)):
        different = differences(describe(module, values=False), nested(config, side, "fields"))
        if different:
            path, new, old = different[0]
            raise InputError(
                f"{folder} holds another {side}: {path or 'the class'} was {old!r} and is {new!r}. Give the {side} "
                "of the run."
            )
    arrays = read_arrays(folder / "model.npz")
    likelihoods = _likelihoods(folder)
    saved = []
    for index, seed in enumerate(parts.seeds):
        try:
            of_seed = {name: array[index] for name, array in arrays.items()}
        except IndexError as error:
            raise InputError(
                f"{folder / 'model.npz'} holds fewer seeds than config.json says ({len(parts.seeds)})."
            ) from error
        modules = fill(Modules(start.model, start.proposal), of_seed, source=str(folder / "model.npz"))
        saved.append(SavedSeed(seed, modules.model, modules.proposal, likelihoods.get(seed, math.inf), parts.inputs))
    return SavedRun(config, saved)


def _likelihoods(folder: Path) -> dict[int, float]:
    """Return the NLL of each seed from results.json, without those that are not finite."""
    seeds = nested(read_json(folder / "results.json"), "seeds")
    likelihoods = {}
    for one in seeds if isinstance(seeds, list) else []:
        value, seed = nested(one, "evaluation", "nll_per_step"), nested(one, "seed")
        if isinstance(value, int | float) and math.isfinite(value) and isinstance(seed, int):
            likelihoods[seed] = float(value)
    return likelihoods


class _Parts(NamedTuple):
    """The entries of config.json that loading needs; the file is not trusted."""

    name: str
    own_model: bool | None
    own_proposal: bool
    bootstrap: bool
    options: dict[str, Any]
    seeds: list[int]
    dimensions: int
    inputs: Inputs

    @classmethod
    def read(cls, folder: Path, config: dict[str, Any]) -> _Parts:
        own = nested(config, "model", "own")
        options = nested(config, "model", "options")
        seeds = nested(config, "settings", "seeds")
        dimensions = nested(config, "data", "dimensions")
        whole = isinstance(seeds, list) and seeds and all(isinstance(seed, int) for seed in seeds)
        if not whole or not isinstance(dimensions, int) or not 0 < dimensions <= _MOST_COLUMNS:
            raise InputError(f"{folder / 'config.json'} is damaged: seeds or dimensions are missing. Restore it.")
        return cls(
            name=str(nested(config, "model", "name")),
            own_model=own if isinstance(own, bool) else None,
            own_proposal=nested(config, "proposal", "own") is True,
            bootstrap=nested(config, "proposal", "class") == Bootstrap.__name__,
            options=options if isinstance(options, dict) else {},
            seeds=seeds,
            dimensions=dimensions,
            inputs=Inputs.from_config(config),
        )


def _start(
    folder: Path,
    parts: _Parts,
    model: str | None,
    proposal: str | None,
    like: tuple[Model, Proposal] | None,
    series_list: list[Series],
) -> Start:
    """Build modules of the right structure; their arrays will be replaced."""
    if like is not None:
        return Start(*like, ())
    if parts.own_model is None:
        raise InputError(
            f"The model in {folder} was built in Python ({parts.name}). Load it there: mcfo.load_run(folder, "
            "like=(model, proposal))."
        )
    if parts.own_model and model is None:
        raise InputError(f"{folder} holds a model of your own. Say where it is: --model path/to/{parts.name}.")
    if parts.own_proposal and proposal is None:
        raise InputError(f"{folder} holds a proposal of your own. Say where it is: --proposal path/to/file.py:Name.")
    if model is not None:
        start = build_own(model, series_list, proposal)
    else:
        check(parts.name, series_list, parts.options)
        values = np.tile(entry(parts.name).example(parts.options), (1, parts.dimensions))
        inputs = np.ones((len(values), parts.inputs.size)) if parts.inputs.size else None
        series = Series.from_values(values, inputs=inputs)
        start = build(parts.name, [series], parts.options, gaps=parts.inputs.unit is not None)
        if proposal is not None:
            start = start._replace(proposal=build_own_proposal(proposal, series_list))
    return start._replace(proposal=Bootstrap()) if parts.bootstrap and proposal is None else start
