"""Data frames in the form that the data had: index, names, dtypes, and the dates that follow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


class FrameForm(NamedTuple):
    """The form of a data frame, as plain data: all that is needed to return results in the same one.

    - `shape`: "series", "wide" (times in the index or in a column), "long" (series in a column) or "panel" (an index of
      two levels, series and time).
    - `columns`: those that were read, in their order: label, role (value, input, series, time) and dtype.
    - `levels`: the names of the index's levels.
    - `kind`: what times are: datetime, period, timedelta, number, text or none.
    - `frequency`: pandas' alias, if there is one; `fixed` says that the index had it as an attribute.
    - `zone`: the time zone; `wall` says that times are those on the wall there, otherwise UTC.
    """

    shape: str = "wide"
    columns: list[list[Any]] = []  # noqa: RUF012
    levels: list[Any] = [None]  # noqa: RUF012
    kind: str = "none"
    time_dtype: str = ""
    series_dtype: str = ""
    frequency: str | None = None
    fixed: bool = False
    zone: str | None = None
    wall: bool = True
    columns_name: Any = None

    def to_json(self) -> str:
        """Return the form as text, for the attributes of a data set."""
        return json.dumps(self._asdict())

    @classmethod
    def from_json(cls, text: str) -> FrameForm:
        """Read the text of `to_json`."""
        return cls(**json.loads(text))

    def reshaped(self, shape: str) -> FrameForm:
        """Return the form with another shape, and the same names of series and times."""
        if shape == self.shape or (shape, self.shape) == ("wide", "series"):
            return self
        series, time = self.label("series", "series"), self.label("time", "time")
        values = [one for one in self.columns if one[1] in ("value", "input")]
        if shape == "long":
            named = [[series or "series", "series", ""], [time or "time", "time", ""]]
            return self._replace(shape=shape, columns=[*named, *values])
        return self._replace(shape=shape, columns=values, levels=[time] if shape == "wide" else [series, time])

    def label(self, role: str, default: str) -> Any:
        """Return the label of the column or the level that has this role."""
        found = [label for label, one, _ in self.columns if one == role]
        if found:
            return found[0]
        if self.shape == "panel":
            return self.levels[0 if role == "series" else 1]
        return self.levels[0] if role == "time" and self.shape != "long" else default


def build_frame(
    form: FrameForm,
    names: Sequence[str],
    moments: Sequence[np.ndarray] | None,
    blocks: Sequence[Mapping[Any, np.ndarray]],
    *,
    starts: Sequence[int] | None = None,
) -> pd.DataFrame:
    """Build a data frame in this form.

    **Arguments:**

    - `names`, `moments`: the name of each series and the times of its rows, None if they are unknown.
    - `blocks`: the columns of each series.
    - `starts`: of rows after the end of each series, the number of the first, from 0.
    """
    import pandas as pd

    lengths = [len(next(iter(block.values()))) for block in blocks]
    if moments is None:
        first = [0] * len(blocks) if starts is None else starts
        times: Any = [pd.RangeIndex(start, start + length) for start, length in zip(first, lengths, strict=True)]
    else:
        times = [_time_index(form, one) for one in moments]
    body = pd.concat([pd.DataFrame(dict(block)) for block in blocks], ignore_index=True)
    body.columns.name = form.columns_name
    time = times[0].append(times[1:]) if len(times) > 1 else times[0]
    owners = pd.Index(np.repeat(np.asarray(names, object), lengths))
    if form.series_dtype and form.series_dtype != "object":
        owners = owners.astype("category" if form.series_dtype == "category" else form.series_dtype)
    series_label, time_label = form.label("series", "series"), form.label("time", "time")
    in_column = any(role == "time" for _, role, _ in form.columns)
    if form.shape == "panel" or (form.shape != "long" and len(names) > 1):
        body.index = pd.MultiIndex.from_arrays([owners, time], names=[series_label, time_label])
    elif form.shape == "long":
        body.insert(0, series_label, owners)
        if moments is not None or in_column:
            body.insert(1, "time" if time_label is None else time_label, time)
    elif in_column and form.shape == "wide":
        body.insert(0, time_label, time)
    else:
        body.index = _with_frequency(time, form, starts is not None).rename(form.levels[0])
    return body


def restore_frame(
    form: FrameForm,
    names: Sequence[str],
    moments: Sequence[np.ndarray] | None,
    blocks: Sequence[Mapping[str, np.ndarray]],
) -> pd.DataFrame | pd.Series:
    """Build the data frame or the column that was read: its labels in their order, with their dtypes."""
    named = {("x1" if label is None else str(label).strip()): (label, dtype) for label, _, dtype in form.columns}
    frame = build_frame(
        form, names, moments, [{named[name][0]: one for name, one in block.items()} for block in blocks]
    )
    for name in blocks[0]:
        label, dtype = named[name]
        # A step that was absent has no value, and no whole number says so.
        if not bool(frame[label].isna().to_numpy().any()) or dtype.startswith(("float", "Float", "Int", "UInt")):
            frame[label] = frame[label].astype(dtype)
    if form.shape == "series":
        return frame.iloc[:, 0]
    return frame[[label for label, _, _ in form.columns if label in frame.columns]]


def local_times(moments: np.ndarray, form: FrameForm | None) -> np.ndarray:
    """The dates on the wall, whose weekdays and holidays people mean."""
    if form is None or form.zone is None or form.wall:
        return moments
    import pandas as pd

    return pd.DatetimeIndex(moments).tz_localize("UTC").tz_convert(form.zone).tz_localize(None).to_numpy()


def _with_frequency(index: Any, form: FrameForm, future: bool) -> Any:
    """Dates with the frequency that they had; coming ones with the one that was found."""
    import pandas as pd

    if form.kind == "datetime" and form.frequency and (form.fixed or future):
        regular = pd.date_range(index[0], periods=len(index), freq=form.frequency)
        # Rows that were filled in, or steps of another length, may not follow it.
        return regular.as_unit(index.unit) if (regular == index).all() else index
    return index


def _time_index(form: FrameForm, moments: np.ndarray) -> Any:
    import pandas as pd

    if moments.dtype.kind != "M":
        if form.kind == "timedelta":
            return pd.to_timedelta(moments, unit="s").astype(form.time_dtype)
        whole = form.kind == "number" and form.time_dtype.startswith(("int", "uint")) and not (moments % 1).any()
        return pd.Index(moments.astype(form.time_dtype) if whole else moments)
    index = pd.DatetimeIndex(moments)
    if form.kind == "period":
        return index.to_period(form.frequency)
    if form.kind == "text" and form.frequency:
        days = np.datetime_as_string(moments.astype(f"datetime64[{form.frequency}]"))
        return pd.Index(days).astype(form.time_dtype)
    if form.kind == "datetime":
        if form.zone is not None:
            wall = {"ambiguous": False, "nonexistent": "shift_forward"}
            index = (
                index.tz_localize(form.zone, **wall) if form.wall else index.tz_localize("UTC").tz_convert(form.zone)
            )
        index = index.astype(form.time_dtype)
    return index
