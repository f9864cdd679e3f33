"""Series for a model: what drives it is read as it was when it learned."""

from __future__ import annotations

from collections.abc import Sequence as Listing
from pathlib import Path

from mcfo.data.tables import Table
from mcfo.files import InputError
from mcfo.suggestions import nearest
from mcfo.training.folder import read_json
from mcfo.training.inputs import NO_INPUTS, Inputs

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
    """The series of a file as the model in a run's folder wants them: with the columns and inputs that it learned
    from, as far as none are named here, and with the time between rows in its unit if it reads that. The rest is as in
    [`read_series`][]."""
    found = Path(folder) / "config.json"
    inputs = Inputs.of(read_json(found)) if found.exists() else NO_INPUTS
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
