"""Series for a run: read with the columns, inputs and times that the model learned from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mcfo.data.column_layout import DefaultColumns
from mcfo.data.tables import Table, read_series
from mcfo.errors import InputError, nearest
from mcfo.files import nested, read_json


class Inputs(NamedTuple):
    """What drives a model: named columns, and before them the time since the step before, in this unit, if it is not
    None; and the columns that it learned from, by which its data are found in other files too."""

    names: list[str]
    unit: float | None
    defaults: DefaultColumns = DefaultColumns()

    @classmethod
    def from_config(cls, config: Any) -> Inputs:
        """From config.json, which is not to be trusted."""
        names, unit = nested(config, "data", "inputs"), nested(config, "data", "unit")
        known = isinstance(names, list) and all(isinstance(name, str) for name in names)
        timed = isinstance(unit, int | float) and math.isfinite(unit) and unit > 0
        columns, series, time = (nested(config, "data", name) for name in ("columns", "series_column", "time_column"))
        listed = isinstance(columns, list) and all(isinstance(name, str) for name in columns)
        defaults = DefaultColumns(
            columns if listed else None,
            series if isinstance(series, str) else None,
            time if isinstance(time, str) else None,
        )
        return cls(names if known else [], float(unit) if timed else None, defaults)

    @property
    def size(self) -> int:
        """How many numbers come with each step."""
        return len(self.names) + (self.unit is not None)

    def text(self) -> str:
        """For people."""
        gap = [] if self.unit is None else ["the time since the row before"]
        return ", ".join([*gap, *self.names]) or "none"

    def read(
        self,
        path: str | Path,
        *,
        values: Sequence[str] | None = None,
        series: str | None = None,
        time: str | None = None,
    ) -> Table:
        """The series of a file with these inputs; where no columns are named, with those that the model learned from.
        The rest is as in [`read_series`][]."""
        path = Path(path)
        named = self.names if self.names and path.suffix.lower() != ".npz" else None
        table = read_series(path, values=values, series=series, time=time, inputs=named, defaults=self.defaults)
        return table if self.unit is None else table.with_gaps(self.unit)


NO_INPUTS = Inputs([], None)


def read_future(path: Path | None, run: Path, inputs: Inputs) -> Table | None:
    """The table of a model's inputs in the time to come; its series and times are found as those of the data were."""
    if path is None:
        return None
    if not inputs.names:
        raise InputError(f"--future is for models that read inputs, but the one in {run} reads none. Leave it out.")
    return read_series(path, values=inputs.names, defaults=inputs.defaults)


def coming_inputs(
    inputs: Inputs, steps: int, future: Table | None = None, name: str | None = None
) -> np.ndarray | None:
    """What drives a model after the end of a series: (steps, inputs), or None if nothing does.

    Each coming step is one unit of time.

    **Arguments:**

    - `future`: rows whose values are the inputs to come.
    - `name`: of the series.
    """
    if not inputs.size:
        return None
    gaps = np.ones((steps, int(inputs.unit is not None)))
    if not inputs.names:
        return gaps
    if future is None:
        raise InputError(
            f"The model reads the inputs {', '.join(inputs.names)}, of which the coming ones must be known. Give a "
            "table of them (on the command line, --future FILE), one row for each step."
        )
    index = future.names.index(name) if name in future.names else 0
    if len(future.names) > 1 and name not in future.names:
        raise InputError(f"The coming inputs have no series {name!r}. {nearest(str(name), future.names)}")
    rows = np.asarray(future.series_list[index].observations, float)
    known = np.all(np.asarray(future.series_list[index].mask()), axis=1)
    if len(rows) < steps or not known[:steps].all():
        have = len(rows) if known.all() else int(np.argmin(known))
        raise InputError(f"Inputs of {steps} coming steps are wanted, but there are those of {have}. Give more rows.")
    return np.concatenate([gaps, rows[:steps]], axis=1)


IRREGULAR = ("auto", "inputs", "rows")
"""What times that are not evenly spaced mean."""


def read_for_run(
    folder: str | Path,
    path: str | Path,
    *,
    values: Sequence[str] | None = None,
    series: str | None = None,
    time: str | None = None,
) -> Table:
    """The series of a file as the model in a run's folder wants them: with the columns and inputs that it learned
    from, as far as none are named here, and with the time between rows in its unit if it reads that. The rest is as in
    [`read_series`][]."""
    config = Path(folder) / "config.json"
    inputs = Inputs.from_config(read_json(config)) if config.exists() else NO_INPUTS
    return inputs.read(path, values=values, series=series, time=time)


def timed(table: Table, irregular: str, model: str, *, able: bool) -> tuple[Table, str]:
    """The table as a model should read it, and a sentence where times are not evenly spaced.

    **Arguments:**

    - `irregular`: "inputs": the time since the row before is the first input; "rows": each row is one step; "auto":
      inputs where the times are uneven and the model is `able` to read them, rows elsewhere.
    """
    if irregular not in IRREGULAR:
        raise InputError(f"There is no meaning {irregular!r} of irregular times. {nearest(irregular, IRREGULAR)}")
    if irregular == "inputs":
        table = table.with_gaps()
    spacing = table.spacing
    if irregular == "rows" or spacing is None or (spacing.even and irregular == "auto"):
        return table, ""
    if able or irregular == "inputs":
        return table.with_gaps(), (
            f"The model reads the time since the row before, in units of {spacing.words}; the longest gap has "
            f"{spacing.longest[0]:.3g} of them."
        )
    return table, (
        f"The times are not evenly spaced (typically {spacing.words}, at most {spacing.longest[0]:.3g} times that), "
        f"but {model} takes each row for one step."
    )
