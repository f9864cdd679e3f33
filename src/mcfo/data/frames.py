"""Series from pandas objects and other data frames."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mcfo.data.cell_texts import Cells, array_texts, read_cells
from mcfo.data.column_layout import Layout, RequestedColumns, choose_columns
from mcfo.data.column_roles import sample_rows
from mcfo.data.frame_forms import FrameForm
from mcfo.data.frequencies import find_grid
from mcfo.data.times import RawSeries, moments_of
from mcfo.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

SOURCE = "The data frame"
_LIBRARIES = ("polars", "pyarrow")


def is_frame(data: Any) -> bool:
    """Whether this is a data frame or a column of one, of any library."""
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(data, pandas.DataFrame | pandas.Series):
        return True
    return type(data).__module__.split(".")[0] in _LIBRARIES or hasattr(type(data), "__dataframe__")


def read_frame(data: Any, wanted: RequestedColumns) -> tuple[RawSeries, FrameForm]:
    """Read the series of a data frame, and its form."""
    import pandas as pd

    frame, form = _as_pandas(data)
    labels = [*frame.columns]
    names = ["x1" if label is None else str(label).strip() for label in labels]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise InputError(f"{SOURCE} has two columns called {name!r}. Rename one.")
    levels = [frame.index.get_level_values(level) for level in range(frame.index.nlevels)]
    if len(levels) > 2:
        raise InputError(
            f"{SOURCE} has an index of {len(levels)} levels, but two are wanted: the series and the time. Join the "
            "others into one."
        )
    columns: dict[str, Any] = dict(zip(names, (frame[label] for label in labels), strict=True))
    sides, shape = {}, form.shape
    if len(levels) == 2:
        sides, shape = dict(zip(("series", "time"), levels, strict=True)), "panel"
    elif wanted.time is None and _tells_time(levels[0]):
        sides = {"time": levels[0]}
    for side, values in sides.items():
        name = side if values.name is None else str(values.name)
        if name in columns:
            raise InputError(f"{SOURCE} has an index and a column that are both called {name!r}. Rename one.")
        columns[name] = values
        wanted = wanted._replace(**{side: name})
    texts = {name: _texts(values) for name, values in columns.items()}
    header = [*columns]
    rows = sample_rows(len(header))
    sample = [cells[:rows] for cells in texts.values()]
    layout = choose_columns(SOURCE, header, wanted, None if sides else sample)
    if not sides and not layout.time and layout.series is None and _counts(levels[0]):
        columns["time"], texts["time"] = levels[0], array_texts(levels[0].to_numpy())
        sides, header = {"time": levels[0]}, [*header, "time"]
        layout = layout._replace(header=header, time=(len(header) - 1,))
    cells = {index: _between(texts[header[index]]) for index in layout.indices}
    raw = read_cells(SOURCE, layout, cells, len(frame), options=("values=", "series=", "time="))
    times = [columns[header[index]] for index in layout.time]
    if shape == "wide" and layout.series is not None:
        shape = "long"
    owners = None if layout.series is None else columns[header[layout.series]]
    form = form._replace(
        shape=shape,
        columns=_described(frame, names, layout),
        levels=[None if name is None else str(name) for name in frame.index.names],
        series_dtype="" if owners is None else str(owners.dtype),
        **(_about_times(pd.Index(times[0]), raw, bool(sides)) if len(times) == 1 and raw.times is not None else {}),
    )
    return raw, form


def _between(cells: list[str]) -> Cells:
    return lambda start, end: cells[start:end]


def _as_pandas(data: Any) -> tuple[pd.DataFrame, FrameForm]:
    import pandas as pd

    if not isinstance(data, pd.DataFrame | pd.Series):
        try:
            data = data.to_pandas() if hasattr(data, "to_pandas") else pd.api.interchange.from_dataframe(data)
        except ImportError as error:
            raise InputError(f"Cannot read this {type(data).__name__}: {error}. Give a pandas object.") from error
    if isinstance(data, pd.Series):
        return data.to_frame(data.name), FrameForm("series")
    if data.columns.nlevels > 1:
        raise InputError(
            f"{SOURCE} has columns of {data.columns.nlevels} levels, but one is wanted. Join their names: "
            "frame.columns = frame.columns.map('_'.join)."
        )
    return data, FrameForm(columns_name=data.columns.name)


def _tells_time(index: Any) -> bool:
    """Whether an index is made of times, or is a range that someone chose."""
    import pandas as pd

    if isinstance(index, pd.DatetimeIndex | pd.PeriodIndex | pd.TimedeltaIndex):
        return True
    if isinstance(index, pd.RangeIndex):
        return index.name is not None or (index.start, index.step) != (0, 1)
    return index.dtype.kind not in "iuf" and len(index) > 0


def _counts(index: Any) -> bool:
    """Whether an index of numbers may be the time: rows that were selected from a longer table keep theirs."""
    import pandas as pd

    return index.dtype.kind in "iuf" and not isinstance(index, pd.RangeIndex) and bool(index.is_monotonic_increasing)


def _texts(values: Any) -> list[str]:
    """The cells of a column or a level as text, the missing ones empty."""
    import pandas as pd

    dtype = values.dtype
    if isinstance(dtype, pd.PeriodDtype | pd.DatetimeTZDtype) or dtype.kind == "M":
        return array_texts(_naive(pd.Index(values)).to_numpy())
    if isinstance(dtype, pd.CategoricalDtype):
        values = values.astype(dtype.categories.dtype)
    if dtype.kind in "biufm" and isinstance(dtype, np.dtype):
        return array_texts(values.to_numpy())
    if dtype.kind == "c":
        raise InputError(f"{SOURCE} has complex numbers in {values.name!r}. Give their parts as two columns.")
    missing = pd.isna(values)
    cells = [int(cell) if isinstance(cell, bool | np.bool_) else cell for cell in values]
    return ["" if none else str(cell) for cell, none in zip(cells, missing, strict=True)]


def _naive(index: Any) -> Any:
    """Dates without a zone: a period's first moment; the time on the wall where all have the same, otherwise UTC."""
    import pandas as pd

    if isinstance(index, pd.PeriodIndex):
        return index.to_timestamp(how="start")
    if index.tz is None:
        return index
    return index.tz_localize(None) if _on_wall(index) else index.tz_convert("UTC").tz_localize(None)


def _on_wall(index: Any) -> bool:
    wall = index.tz_localize(None)
    return (wall - wall.normalize()).nunique() == 1


def _alias(raw: RawSeries) -> str | None:
    """The frequency of dates as pandas calls it; None if it has no name for it."""
    if raw.times is None or raw.spans is None:
        return None
    moments = [moments_of(*both) for both in zip(raw.times, raw.spans, strict=True)]
    frequency, first = find_grid(moments).frequency, moments[0][0].astype(object)
    end = frequency.month_end
    if frequency.unit == "month" and (end or first.day == 1) and frequency.size in (1, 3, 12):
        letter = {1: "M", 3: "Q", 12: "Y"}[int(frequency.size)]
        return f"{letter}{'E' if end else 'S'}" + ("" if letter == "M" else f"-{first.strftime('%b').upper()}")
    if frequency.name == "week":
        return f"W-{first.strftime('%a').upper()}"
    return {"working day": "B", "day": "D", "hour": "h", "half hour": "30min", "minute": "min"}.get(frequency.name)


def _described(frame: Any, names: Sequence[str], layout: Layout) -> list[list[Any]]:
    roles = dict.fromkeys(layout.values, "value") | dict.fromkeys(layout.inputs, "input")
    # A time that stands in several columns comes back as one.
    roles |= {index: "time" for index in layout.time if len(layout.time) == 1} | (
        {} if layout.series is None else {layout.series: "series"}
    )
    labels = [label if label is None or isinstance(label, int | float | str) else str(label) for label in frame.columns]
    return [[labels[i], roles[i], str(frame.dtypes.iloc[i])] for i in range(len(names)) if i in roles]


def _about_times(index: Any, raw: RawSeries, in_index: bool) -> dict[str, Any]:
    import pandas as pd

    if isinstance(index, pd.PeriodIndex):
        return {"kind": "period", "time_dtype": str(index.dtype), "frequency": index.freqstr, "fixed": True}
    if isinstance(index, pd.DatetimeIndex):
        fixed = in_index and len(raw.names) == 1 and index.freq is not None
        frequency = index.freqstr if fixed else _alias(raw)
        zone = None if index.tz is None else str(index.tz)
        about = {"zone": zone, "wall": zone is None or _on_wall(index), "frequency": frequency, "fixed": fixed}
        return {"kind": "datetime", "time_dtype": str(index.dtype), **about}
    if isinstance(index, pd.TimedeltaIndex):
        return {"kind": "timedelta", "time_dtype": str(index.dtype)}
    if index.dtype.kind in "iuf":
        return {"kind": "number", "time_dtype": str(index.dtype)}
    # Text that is a date: as long as it was.
    return {"kind": "text", "time_dtype": str(index.dtype), "frequency": {7: "M", 10: "D"}.get(len(str(index[0])))}
