"""Models from files and runs from their folders: named arrays, no pickles."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import numpy as np

from mcfo.catalogue.from_data import Start
from mcfo.catalogue.registry import build, check, entry
from mcfo.catalogue.trust import trusted
from mcfo.catalogue.user_code import build_own, build_own_proposal
from mcfo.data.npz import read_arrays, write_npz
from mcfo.data.run_columns import NO_INPUTS, Inputs
from mcfo.data.run_record import RunRecord, entries, read_run, text, whole
from mcfo.errors import InputError
from mcfo.files import nested
from mcfo.inference.datasets import NamedSeries, named_series
from mcfo.inference.evaluation_results import Evaluation
from mcfo.learning.fitted_model import FittedModel, model_title
from mcfo.learning.parameters import Modules, describe, fill, named_arrays, require_finite
from mcfo.learning.run_folder import data_digest, differences
from mcfo.limits import limits
from mcfo.models.base import Model
from mcfo.proposals.base import Bootstrap, Proposal
from mcfo.series import Series

_Tree = TypeVar("_Tree")
_NUMBER = re.compile(r"(?<![\d.])\d{1,18}(?![\d.])")
_LARGE = 3000
"""A width of a network for which it is worth the time to ask first how large its arrays are."""


@dataclass(frozen=True, repr=False)
class SavedSeed(FittedModel):
    """The model and the proposal of one seed of a run; `nll_per_step` is that of the run's last evaluation."""

    seed: int
    model: Model  # pyright: ignore[reportIncompatibleMethodOverride]
    proposal: Proposal  # pyright: ignore[reportIncompatibleMethodOverride]
    record: RunRecord
    nll_per_step: float = math.inf
    inputs: Inputs = NO_INPUTS

    @property
    def title(self) -> str:
        """The name of the model and its options."""
        name, options = (nested(self.record.config, "model", part) for part in ("name", "options"))
        return model_title(str(name), entries(options))

    @property
    def fixed(self) -> Sequence[str]:
        """The parameters that were not learned."""
        fixed = nested(self.record.config, "settings", "fixed")
        return [str(one) for one in fixed] if isinstance(fixed, list) else []

    @property
    def warnings(self) -> list[str]:
        """What to worry about, in sentences."""
        stored = nested(self.record.ended, "warnings")
        return [str(one) for one in stored] if isinstance(stored, list) else []

    @property
    def evaluation(self) -> Evaluation | None:
        """The evaluation at the end of the run."""
        found = next((one.evaluation for one in self.record.results if one.seed == self.seed), {})
        known = {name: value for name, value in found.items() if name in Evaluation._fields}
        try:
            return Evaluation(**known)
        except TypeError:
            return None  # an incomplete record

    @property
    def on_learning_data(self) -> bool:
        """Whether the evaluation is of the data that it learned from."""
        return nested(self.record.ended, "evaluated_on") != "validation"

    @property
    def history(self) -> NamedSeries:
        """The series that it learned from, read again from their file."""
        return self._stored

    @cached_property
    def _stored(self) -> NamedSeries:
        data = entries(self.record.config.get("data"))
        file = text(data.get("file"))
        if file is None or not Path(file).exists():
            came = "were given in Python" if file is None else f"were in {file}, which is not there any more"
            raise InputError(f"A run does not hold its data, and those of {self.record.folder} {came}. Give them.")
        named = named_series(self.inputs.read(file))
        count, held_out = whole(data.get("series")), whole(data.get("holdout_steps")) or 0
        named = named.choose(range(len(named.names))[:count])
        if held_out:
            cut = [one.window(0, one.steps - held_out) for one in named.series_list]
            moments = None if named.moments is None else [one[:-held_out] for one in named.moments]
            named = named._replace(series_list=cut, moments=moments)
        if data_digest(named.series_list) != data.get("sha256"):
            raise InputError(
                f"{file} has changed since the run in {self.record.folder} learned from it. Give its data."
            )
        return named

    def _inputs(self) -> Inputs:
        return self.inputs


@dataclass(frozen=True, repr=False)
class SavedRun(FittedModel):
    """A run that was loaded from its folder; it answers as its seed with the lowest NLL does."""

    record: RunRecord
    seeds: list[SavedSeed]

    @property
    def config(self) -> dict[str, Any]:
        """The content of config.json."""
        return self.record.config

    def choose(self, seed: int | None = None) -> SavedSeed:
        """Return this seed, or the one with the lowest NLL."""
        if seed is None:
            return min(self.seeds, key=lambda one: one.nll_per_step)
        for one in self.seeds:
            if one.seed == seed:
                return one
        raise InputError(f"The run has no seed {seed}, but {', '.join(str(one.seed) for one in self.seeds)}.")

    @property
    def model(self) -> Model:
        """The model of the best seed."""
        return self.choose().model

    @property
    def proposal(self) -> Proposal:
        """The proposal of the best seed."""
        return self.choose().proposal

    @property
    def evaluation(self) -> Evaluation | None:
        """The evaluation of the best seed."""
        return self.choose().evaluation

    @property
    def title(self) -> str:
        """The name of the model and its options."""
        return self.choose().title

    @property
    def fixed(self) -> Sequence[str]:
        """The parameters that were not learned."""
        return self.choose().fixed

    @property
    def warnings(self) -> list[str]:
        """What to worry about, in sentences."""
        return self.choose().warnings

    @property
    def on_learning_data(self) -> bool:
        """Whether the evaluation is of the data that it learned from."""
        return self.choose().on_learning_data

    @property
    def history(self) -> NamedSeries:
        """The series that it learned from, read again from their file."""
        return self.choose().history

    def _inputs(self) -> Inputs:
        return self.inputs

    @property
    def image(self) -> tuple[int, int] | None:
        """Height and width, if the run learned from images."""
        return self.record.image

    @property
    def inputs(self) -> Inputs:
        """The inputs that the model reads beside the observations."""
        return Inputs.of(self.record)

    @property
    def columns(self) -> list[str]:
        """The names of the columns that it learned from."""
        return self.record.columns or [f"x{index + 1}" for index in range(self.record.dimensions or 0)]

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


def save(path: str | Path, module: Any) -> None:
    """Write every array of a model, a proposal or any other module into an NPZ file, by name."""
    write_npz(Path(path), {name: np.asarray(array) for name, array in named_arrays(module).items()})


def load(path: str | Path, like: _Tree) -> _Tree:
    """Load a module from a file of [`save`][].

    **Arguments:**

    - `like`: a module of the same structure; its arrays are replaced by those of the file.
    """
    arrays = read_arrays(Path(path))
    module = fill(like, arrays, source=str(path))
    require_finite(like, arrays, source=str(path))
    return module


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

    - `model`, `proposal`: where one's own are, `path/to/file.py:Name`. Code that the folder names runs only if a
      `mcfo fit` of the same user ran it before.
    - `like`: for a run that was made in Python, the model and the proposal that it began with.
    - `series`: what the run will be used on; handed to one's own function that makes the model.
    """
    folder = Path(folder)
    record = read_run(folder, metrics=False)
    if record.ended is None:
        raise InputError(f"The run in {folder} has not ended. Go on with it: the same command and --resume.")
    if not record.seeds or record.dimensions is None:
        raise InputError(f"{folder / 'config.json'} is damaged: seeds or dimensions are missing. Restore it.")
    inputs = Inputs.of(record)
    if series_list and series_list[0].observations.shape[1] != record.dimensions:
        raise InputError(
            f"The model in {folder} was learned from {record.dimensions} columns of values, but these data have "
            f"{series_list[0].observations.shape[1]}. Choose the columns (on the command line, --columns)."
        )
    given = 0 if not series_list or series_list[0].inputs is None else series_list[0].inputs.shape[-1]
    if series_list and given != inputs.size:
        raise InputError(
            f"The model in {folder} reads {inputs.size} inputs ({inputs.described()}), but these data have {given}. "
            "Read them with mcfo.read_for_run(folder, file)."
        )
    start = start_of_run(record, inputs, model, proposal, like, list(series_list or []))
    for side, module in (("model", start.model), ("proposal", start.proposal)):
        different = differences(describe(module, values=False), nested(record.config, side, "fields"))
        if different:
            path, new, old = different[0]
            raise InputError(
                f"{folder} holds another {side}: {path or 'the class'} was {old!r} and is {new!r}. Give the {side} "
                "of the run."
            )
    arrays = read_arrays(folder / "model.npz")
    likelihoods = {result.seed: result.value("nll_per_step") for result in record.results}
    saved = []
    for index, seed in enumerate(record.seeds):
        try:
            of_seed = {name: np.asarray(array[index]) for name, array in arrays.items()}
        except IndexError as error:
            raise InputError(
                f"{folder / 'model.npz'} holds fewer seeds than config.json says ({len(record.seeds)})."
            ) from error
        both, source = Modules(start.model, start.proposal), str(folder / "model.npz")
        modules = fill(both, of_seed, source=source)
        require_finite(both, of_seed, source=source)
        likelihood = likelihoods.get(seed)
        nll = math.inf if likelihood is None else likelihood
        saved.append(SavedSeed(seed, modules.model, modules.proposal, record, nll, inputs))
    return SavedRun(record, saved)


def start_of_run(
    record: RunRecord,
    inputs: Inputs,
    model: str | None,
    proposal: str | None,
    like: tuple[Model, Proposal] | None,
    series_list: list[Series],
) -> Start:
    """Build modules of the right structure; their arrays will be replaced."""
    if like is not None:
        return Start(*like, ())
    folder, config = record.folder, record.config
    name, own = str(nested(config, "model", "name")), nested(config, "model", "own")
    if not isinstance(own, bool):
        raise InputError(
            f"The model in {folder} was built in Python ({name}). Load it there: mcfo.load_run(folder, "
            "like=(model, proposal))."
        )
    if own and model is None:
        model = trusted("model", folder, text(nested(config, "model", "path")), name, "--model")
    if nested(config, "proposal", "own") is True and proposal is None:
        path, named = (text(nested(config, "proposal", entry)) for entry in ("path", "name"))
        proposal = trusted("proposal", folder, path, named or "file.py:Name", "--proposal")
    if model is not None:
        start = build_own(model, series_list, proposal)
    else:
        options = entries(nested(config, "model", "options"))
        check(name, series_list, options)
        values = np.tile(entry(name).example(options), (1, record.dimensions or 1))
        driving = np.ones((len(values), inputs.size)) if inputs.size else None
        build_start = partial(
            build, name, [Series.from_values(values, inputs=driving)], options, gaps=inputs.unit is not None
        )
        _require_memory(folder / "config.json", options, build_start)
        start = build_start()
        if proposal is not None:
            start = start._replace(proposal=build_own_proposal(proposal, series_list))
    prior = nested(config, "proposal", "class") == Bootstrap.__name__ and proposal is None
    return start._replace(proposal=Bootstrap()) if prior else start


def _require_memory(config: Path, options: Mapping[str, Any], build_start: Callable[[], Start]) -> None:
    """Refuse options that ask for more numbers than the limit, before the model is built."""
    sizes = [int(size) for name, value in options.items() if "seed" not in name for size in _NUMBER.findall(str(value))]
    limits().check("columns", len(sizes), config)
    if max(sizes, default=0) < _LARGE:
        return
    try:
        start = eqx.filter_eval_shape(lambda: build_start()[:2])
    except jax.errors.TracerArrayConversionError:
        return  # models that compute their first numbers from the data have no large arrays
    leaves = [leaf for leaf in jax.tree.leaves(start) if isinstance(leaf, jax.ShapeDtypeStruct)]
    limits().check("bytes", sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves), config)
