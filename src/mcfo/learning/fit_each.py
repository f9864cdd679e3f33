"""`fit_each`: each series of a panel with parameters of its own, many side by side."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from mcfo import exact
from mcfo.catalogue.from_data import Start
from mcfo.catalogue.registry import build, entry
from mcfo.data.panels import Panel
from mcfo.data.run_record import EACH
from mcfo.data.tables import table_of
from mcfo.errors import InputError
from mcfo.inference.datasets import named_series
from mcfo.learning.devices import build_mesh
from mcfo.learning.many_searches import AXIS
from mcfo.learning.named_models import build_precisely, choose_objective
from mcfo.learning.panel_exact import ExactPanel
from mcfo.learning.panel_files import PanelFolder, panel_dataset
from mcfo.learning.panel_particles import ParticlePanel
from mcfo.learning.panel_problems import Build, PanelRow, PanelStart, start_series
from mcfo.learning.parameters import describe
from mcfo.learning.settings import Settings
from mcfo.models.base import Model
from mcfo.objectives.objective import Objective

if TYPE_CHECKING:
    import xarray

CHUNK = 2000
"""Series between two savings."""
LANES = 3
"""Starts of the search for a maximum, for each series."""
_SLOTS = {"exact": 256, "particles": 128}
"""Series that are learned side by side on each device: enough to hide what a step costs, few enough for the caches."""
_RATIO = 1.25
"""The largest ratio of the lengths of two series that are padded to one length."""

Listener = Callable[[int, int], Any]
"""Is told how many of how many series are done."""


class FittedEach(NamedTuple):
    """What every series of a panel learned.

    `dataset` has a row for each series: the arrays of its model by name, `log_likelihood`, `converged`, `rounds` (of
    the search, or updates), `gradient_norm`, `at_bounds` (parameters that the likelihood wants at zero) and `problem`,
    why a series was not learned.
    """

    dataset: xarray.Dataset
    seconds: float

    @property
    def unusable(self) -> dict[str, str]:
        """The series that were not learned, and why."""
        problems = zip(self.dataset["series"].values, self.dataset["problem"].values, strict=True)
        return {str(name): str(problem) for name, problem in problems if problem}

    @property
    def not_converged(self) -> list[str]:
        """The series whose search ended too early."""
        late = ~self.dataset["converged"].values.astype(bool) & (self.dataset["problem"].values == "")
        return [str(name) for name in self.dataset["series"].values[late]]

    def as_data(self) -> dict[str, Any]:
        """Return what results.json holds."""
        return {
            "series": int(self.dataset.sizes["series"]),
            "converged": int(self.dataset["converged"].values.sum()),
            "not_converged": self.not_converged,
            "unusable": self.unusable,
            "seconds": round(self.seconds, 3),
        }


def fit_each(
    model: Model | str,
    proposal: Any = None,
    data: Any = None,
    *,
    objective: Objective | str | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    chunk: int = CHUNK,
    listener: Listener | None = None,
    about: Mapping[str, Any] | None = None,
    **settings: Any,
) -> FittedEach:
    """Learn the parameters of each series of a panel, many series side by side.

        fitted = mcfo.fit_each("linear-gaussian", "panel.parquet", out="runs/panel")

    Series of similar lengths are padded to one length, so that a program serves each of a few groups. Where the
    likelihood is known exactly it is maximized for each series as [`fit`][] does, from three starts; a series that has
    ended gives its place to the next one. Elsewhere each series learns by particles with updates of its own. Memory is
    bounded by the series that are learned side by side. A series that cannot be learned is named, and the others are
    learned.

    **Arguments:**

    - `model`: a name of the catalogue, whose model starts near each series; its options are further keywords. Or a
      model, followed by its proposal, at which every series starts.
    - `data`: series, or a file, a table or a data frame of them.
    - `objective`: as in [`fit`][].
    - `out`: a folder for the results: one NetCDF file, and parts from which an interrupted run resumes.
    - `chunk`: the number of series between two savings.
    - `listener`: is told how many of how many series are done.
    - `settings`: the fields of [`Settings`][]; `steps` is the limit of each search, or the number of updates.
    """
    keywords = dict(settings)
    if isinstance(model, str):
        entry(model)
        data = proposal if data is None else data
        own = {name: keywords.pop(name) for name in list(keywords) if name not in Settings.__dataclass_fields__}
        panel = as_panel(data)
        gaps = panel.unit is not None
        builds: tuple[Build, Build] = (
            lambda one: build_precisely(model, [one], own, gaps=gaps),
            lambda one: build(model, [one], own, gaps=gaps),
        )
        named = {"name": model, "own": False, "options": {name: str(value) for name, value in own.items()}}
    else:
        panel = as_panel(data)
        start = Start(model, proposal, ())
        builds = (lambda one: start,) * 2
        named = {"name": type(model).__name__, "options": {}}
    return fit_panel(
        builds,
        panel,
        objective,
        Settings.from_options(keywords),
        out=out,
        resume=resume,
        chunk=chunk,
        listener=listener,
        about={"model": named, **(about or {})},
    )


def as_panel(data: Any) -> Panel:
    """Return the panel of whatever holds series."""
    if isinstance(data, Panel):
        return data
    if data is None:
        raise InputError("There are no data to learn from. Call fit_each(name, data), or fit_each(model, q, data).")
    table = table_of(data)
    if table is not None:
        return Panel.from_table(table)
    named = named_series(data)
    return Panel.of(named.series_list, named.names, named.columns)


def fit_panel(
    builds: tuple[Build, Build],
    panel: Panel,
    objective: Objective | str | None,
    settings: Settings,
    *,
    out: str | Path | None,
    resume: bool = False,
    chunk: int = CHUNK,
    listener: Listener | None = None,
    about: Mapping[str, Any] | None = None,
) -> FittedEach:
    """Learn a panel; `builds` start the model of a series, in float64 and in the precision of the session."""
    began, done = time.perf_counter(), 0
    first = _first_start(panel, builds[0])
    chosen = choose_objective(objective, first.model)
    if objective == "exact" and not exact.is_exact(first.model):
        raise InputError(
            f"The likelihood of a {type(first.model).__name__} has no exact form. Leave out the objective."
        )
    learn = _Learner(builds[chosen is not None], chosen, settings)
    folder = None
    if out is not None:
        folder = PanelFolder(Path(out), _config(first, panel, chosen, settings, chunk, about or {}), resume=resume)
    rows: list[PanelRow] = []
    for number, (indices, steps) in enumerate(chunks(panel.lengths, chunk)):
        found = None if folder is None else folder.load(number)
        if found is None:
            found = learn(panel, indices, steps)
            if folder is not None:
                folder.save(number, found)
        rows += found
        done += len(indices)
        if listener is not None:
            listener(done, len(panel.names))
    fitted = FittedEach(panel_dataset(rows, panel.names, panel.lengths), time.perf_counter() - began)
    if folder is not None:
        folder.finish(fitted.dataset, fitted.as_data())
    return fitted


def chunks(lengths: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, int]]:
    """Yield the indices of up to `size` series of similar lengths, and the length to which they are padded."""
    order = np.argsort(lengths, kind="stable")
    first = 0
    while first < len(order):
        shortest = max(int(lengths[order[first]]), 8)
        last = int(np.searchsorted(lengths[order], shortest * _RATIO, side="right"))
        longest = int(lengths[order[last - 1]])
        for begin in range(first, last, size):
            # In the order of the panel, which says nothing about how long a search takes.
            yield np.sort(order[begin : min(begin + size, last)]), longest
        first = last


class _Learner:
    """Learns one chunk after the other; programs are compiled once for each length."""

    def __init__(self, build: Build, objective: Objective | None, settings: Settings):
        self._build, self._objective, self._settings = build, objective, settings
        devices = settings.devices or jax.local_device_count()
        self._mesh = build_mesh(devices, AXIS)
        self._panels: dict[int, ExactPanel | ParticlePanel] = {}

    def __call__(self, panel: Panel, indices: np.ndarray, steps: int) -> list[PanelRow]:
        starts, unusable = start_series(panel, indices, steps, self._build)
        return [*unusable, *(self._learned(starts, steps) if starts else ())]

    def _learned(self, starts: list[PanelStart], steps: int) -> Iterator[PanelRow]:
        settings, devices = self._settings, self._mesh.size
        if steps not in self._panels:
            most = _SLOTS["exact" if self._objective is None else "particles"]
            slots = devices * min(most, -(-len(starts) // devices))
            if self._objective is None:
                sizes = {"lanes": LANES, "most": settings.steps, "slots": slots}
                self._panels[steps] = ExactPanel(settings.fixed, **sizes, mesh=self._mesh)
            else:
                self._panels[steps] = ParticlePanel(self._objective, starts[0], settings, slots, self._mesh)
        return self._panels[steps].rows(starts)


def _first_start(panel: Panel, build: Build) -> Start:
    """Return the start of the first series that has one."""
    problems = []
    for index in tried_first(panel):
        starts, unusable = start_series(panel, np.array([index]), int(panel.lengths[index]), build)
        if starts:
            return starts[0].start
        problems.append(unusable[0].problem)
    raise InputError(f"No series can be learned. The first, {panel.names[0]}: {problems[0]}")


def tried_first(panel: Panel) -> list[int]:
    """Return up to 200 series, evenly spread: if none of them can be learned, the model or its options are wrong."""
    return sorted({*map(int, np.linspace(0, len(panel.names) - 1, 200))})


def _config(
    first: Start,
    panel: Panel,
    objective: Objective | None,
    settings: Settings,
    chunk: int,
    about: Mapping[str, Any],
) -> dict[str, Any]:
    digest = hashlib.sha256(np.ascontiguousarray(panel.values).tobytes())
    for part in (panel.starts, *(() if panel.inputs is None else (panel.inputs,))):
        digest.update(np.ascontiguousarray(part).tobytes())
    return {
        "kind": EACH,
        "command": about.get("command"),
        "model": {**about.get("model", {}), "fields": describe(first.model, values=False)},
        "proposal": {
            "name": type(first.proposal).__name__,
            **about.get("proposal", {}),
            "class": type(first.proposal).__name__,
            "fields": describe(first.proposal, values=False),
        },
        "objective": {"name": "exact"} if objective is None else describe(objective),
        "data": {
            "file": about.get("data"),
            "series": len(panel.names),
            "steps": int(panel.lengths.sum()),
            "dimensions": int(panel.values.shape[1]),
            "sha256": digest.hexdigest(),
            "columns": panel.columns,
            **{name: about[name] for name in ("series_column", "time_column", "inputs", "unit") if about.get(name)},
        },
        "settings": {name: value for name, value in settings.as_data().items() if name != "devices"},
        "chunk": chunk,
        "precision": "float64" if objective is None else str(jax.numpy.result_type(float)),
    }
