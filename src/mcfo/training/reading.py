"""Series for a model: what drives it is read as it was when it learned."""

from __future__ import annotations

from collections.abc import Sequence as Listing
from pathlib import Path

import numpy as np

from mcfo.data.tables import Table, read_series
from mcfo.files import InputError
from mcfo.suggestions import nearest
from mcfo.training.folder import read_json
from mcfo.training.saved import Inputs

IRREGULAR = ("auto", "inputs", "rows")
"""What times that are not evenly spaced mean."""


def read_for_run(
    folder: str | Path,
    path: str | Path,
    *,
    values: Listing[str] | None = None,
    series: str | None = None,
    time: str | None = None,
) -> Table:
    """The series of a file as the model in a run's folder wants them: with the inputs that it learned with, and with
    the time between rows in its unit if it reads that. The rest is as in [`read_series`][]."""
    folder, path = Path(folder), Path(path)
    found = folder / "config.json"
    inputs = Inputs.of(read_json(found)) if found.exists() else Inputs([], None)
    named = inputs.names if inputs.names and path.suffix.lower() != ".npz" else None
    table = read_series(path, values=values, series=series, time=time, inputs=named)
    return table if inputs.unit is None else table.with_gaps(inputs.unit)


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


def coming_inputs(
    inputs: Inputs, steps: int, future: Table | None = None, name: str | None = None
) -> np.ndarray | None:
    """What drives a model after the end of a series: (steps, inputs), or None if nothing does.

    Each coming step is one unit of time, unless the table says otherwise.

    **Arguments:**

    - `future`: rows whose values are the inputs to come, and the times if there are any.
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
    place = future.names.index(name) if name in future.names else 0
    if len(future.names) > 1 and name not in future.names:
        raise InputError(f"The coming inputs have no series {name!r}. {nearest(str(name), future.names)}")
    rows = np.asarray(future.sequences[place].observations, float)
    known = np.all(np.asarray(future.sequences[place].mask()), axis=1)
    if len(rows) < steps or not known[:steps].all():
        have = len(rows) if known.all() else int(np.argmin(known))
        raise InputError(f"Inputs of {steps} coming steps are wanted, but there are those of {have}. Give more rows.")
    return np.concatenate([gaps, rows[:steps]], axis=1)
