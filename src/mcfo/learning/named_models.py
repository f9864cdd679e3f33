"""What `fit` chooses where a user names a model, or no objective."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any

import jax

from mcfo import exact
from mcfo.catalogue.from_data import Start
from mcfo.catalogue.registry import LIKELIHOOD, build, entry
from mcfo.data.batching import unstacked
from mcfo.data.series_shape import fill_auto
from mcfo.data.tables import Table, table_of
from mcfo.errors import InputError, nearest
from mcfo.inference.datasets import NamedSeries, named_series
from mcfo.learning.settings import Settings
from mcfo.models.base import Model
from mcfo.objectives.named import OBJECTIVES, needs_particles
from mcfo.objectives.named import by_name as named_objective
from mcfo.objectives.objective import Objective
from mcfo.precision import widened
from mcfo.series import Series

PARTICLES = 100
"""The number of particles of an objective that is not chosen."""


def build_precisely(name: str, series_list: list[Series], options: Mapping[str, Any], *, gaps: bool = False) -> Start:
    """Build a model of the catalogue for an exact fit: in float64, because what is fixed is not rounded either."""
    with jax.enable_x64(True):
        return widened(build(name, series_list, options, gaps=gaps))


def by_name(name: str, first: Any, second: Any, about: dict[str, Any], keywords: Mapping[str, Any]) -> Any:
    """Return model, proposal, named series, facts for config.json and settings, for `fit(name, data, ...)`.

    **Arguments:**

    - `first`, `second`: the arguments after the name; the data are the first of them that is given.
    - `keywords`: settings of the fit, and options of the model.
    """
    data = second if first is None else first
    if data is None or (first is not None and second is not None):
        raise InputError(f"After the name of a model come the data alone: mcfo.fit({name!r}, data).")
    known = {field.name for field in dataclasses.fields(Settings)}
    chosen = entry(name)
    options = {key: value for key, value in keywords.items() if key not in known}
    for option in options:
        if option not in chosen.parameters():
            raise InputError(
                f"The model {name} has no option {option!r}, and fit has no such setting. "
                f"{nearest(option, [*chosen.parameters(), *known])}"
            )
    table = table_of(data)
    named = named_series(data if table is None else table)
    series_list, unit = named.series_list, named.inputs.unit
    whole = Table(series_list, named.names, named.columns) if table is None else table
    options, _ = fill_auto(name, options, whole)
    start = build_precisely(name, series_list, options, gaps=unit is not None)
    if not exact.is_exact(start.model):
        start = build(name, series_list, options, gaps=unit is not None)
    settings = {key: value for key, value in keywords.items() if key in known}
    settings["fixed"] = (*start.fixed, *settings.get("fixed", ()))
    about.setdefault("model", {"name": name, "own": False, "options": {**options, **start.chosen}})
    about.setdefault("unit", unit)
    if named.inputs.size:
        about.setdefault("inputs", named.inputs.names)
        about.setdefault("calendar", None if named.inputs.calendar is None else named.inputs.calendar.as_data())
    return start.model, start.proposal, named, about, settings


def remembered(data: Any) -> NamedSeries:
    """Return the series to learn from with their names, also those of batches."""
    each = data if isinstance(data, list | tuple) else []
    batches = bool(each) and all(isinstance(one, Series) and one.observations.ndim == 3 for one in each)
    return named_series([series for batch in each for series in unstacked(batch)] if batches else data)


def choose_objective(objective: Objective | str | None, model: Model) -> Objective | None:
    """Return the objective that is maximized by particles; None if that is the exact likelihood."""
    if objective == "exact" or (objective is None and exact.is_exact(model)):
        return None
    if isinstance(objective, Objective):
        return objective
    if objective is not None and not isinstance(objective, str):
        raise InputError(f"The objective is {objective!r}. Use mcfo.objectives.mcfo(100), say.")
    name = objective or "mcfo"
    if name not in OBJECTIVES:
        raise InputError(f"There is no objective {name!r}. {nearest(name, [*OBJECTIVES, 'exact'])}")
    takes = inspect.signature(OBJECTIVES[name]).parameters
    options: dict[str, Any] = {side: rule for side, rule in LIKELIHOOD.items() if side in takes}
    if needs_particles(name):
        options["particles"] = PARTICLES
    return named_objective(name, **options)
