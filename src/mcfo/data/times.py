"""Times in a file: whether they increase within each series, how far they lie apart, and whether evenly."""

import math
import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np

from mcfo.data.frequencies import CLOSE, Grid, find_grid


class Span(NamedTuple):
    """The first and the last time of a series as they are written; `origin` is the first one, if they are dates."""

    first: str
    last: str
    origin: datetime | None


class RawSeries(NamedTuple):
    """Series as they stand in a file, each (steps,) or (steps, dimensions), with NaN for what is missing.

    - `image`: (height, width) where the dimensions are the pixels of pictures, row by row.
    - `inputs`: for each series (steps, inputs), with their names.
    - `times`: for each series the time since its first row, in seconds where times are dates; None where there are no
      times, or none whose distance is known.
    - `notes`: sentences about how the file was read.
    """

    names: list[str]
    arrays: list[np.ndarray]
    columns: list[str]
    image: tuple[int, int] | None = None
    inputs: list[np.ndarray] | None = None
    input_names: list[str] = []  # noqa: RUF012
    times: list[np.ndarray] | None = None
    spans: list[Span] | None = None
    notes: tuple[str, ...] = ()


class Clock:
    """Checks the times of a file, one row after the other.

    The first one decides what they are: numbers, ISO dates, or text, of which no order is known. `unit` is what a row
    is called.
    """

    def __init__(self, unit: str = "line"):
        self.kind = ""
        self._unit = unit
        self._read: Callable[[str], Any] | None = None
        self._first: dict[str, tuple[Any, str]] = {}
        self._last: dict[str, tuple[Any, str, int]] = {}

    def check(self, cell: str, series: str, line: int) -> float:
        """The time since the first one of the same series, in seconds if they are dates, NaN if they are text.

        Refuses a time that is not later than the last one of the same series.
        """
        if not cell:
            raise ValueError("the time is empty. Write one in each row, also where the values are missing.")
        if not self.kind:
            kinds = (("a number", read_number), ("an ISO date", read_date))
            self.kind, self._read = next((kind for kind in kinds if kind[1](cell)), ("text", None))
        if self._read is None:
            _refuse_date(cell)
            return math.nan
        time = self._read(cell)
        if time is None:
            raise ValueError(f"{cell!r} is not {self.kind}, as the first time is. Write all times in the same way.")
        last = self._last.get(series)
        self._last[series] = time, cell, line
        if last is not None:
            self._check_order(time, cell, series, *last)
        first, _ = self._first.setdefault(series, (time, cell))
        elapsed = _elapsed(first, time)
        if not math.isfinite(elapsed):
            raise ValueError(f"the time {cell} lies too far from {first[0]}, the first one. Correct it.")
        return elapsed

    def spans(self) -> list[Span]:
        """From when to when each series goes, in the order in which they came."""
        found = []
        for series, (first, cell) in self._first.items():
            origin = first[0] if isinstance(first[0], datetime) else None
            found.append(Span(cell, self._last[series][1], origin))
        return found

    def _check_order(self, time: Any, cell: str, series: str, last: Any, last_cell: str, last_line: int) -> None:
        try:
            if last < time:
                return
        except TypeError:
            raise ValueError(
                f"of {cell} and {last_cell} ({self._unit} {last_line}) one has a time zone and the other has none. "
                "Give all times one, or none."
            ) from None
        if last == time:
            raise ValueError(
                f"the time {cell} stands in {self._unit} {last_line} too, in the same series {series!r}. Keep one row "
                "for each time; if the rows belong to several series, name the column that tells them apart."
            )
        raise ValueError(
            f"the time {cell} comes after {last_cell} ({self._unit} {last_line}) in series {series!r}, but times must "
            "increase. Sort the rows of each series by time; if the column is a measurement, name it among the values."
        )


def _refuse_date(text: str) -> None:
    """Refuse a date in an unknown format: one expects its order, while names of months have none."""
    if re.match(r"\d{1,4}([./-])\d{1,2}\1\d{1,4}(?!\d)", text):
        raise ValueError(
            f"{text!r} looks like a date, but is no ISO date, so that nobody can tell whether times increase. Write "
            "the year first, 2020-01-31; or name the columns of values and leave this one out."
        )


def _elapsed(first: tuple[Any, ...], time: tuple[Any, ...]) -> float:
    if isinstance(time[0], datetime):
        beyond = [float(f"0.000000{digits}") if digits else 0.0 for digits in (first[1], time[1])]
        return (time[0] - first[0]).total_seconds() + beyond[1] - beyond[0]
    try:
        return float(time[0] - first[0])
    except OverflowError:
        return math.inf


def read_number(cell: str) -> tuple[int | float] | None:
    """A finite number, or None. Integers stay exact: nanoseconds since 1970 are beyond the precision of a float."""
    for kind in (int, float):
        try:
            number = kind(cell)
            return (number,) if math.isfinite(number) else None
        except OverflowError:  # an integer beyond every float
            return None
        except ValueError:
            continue
    return None


def read_date(cell: str) -> tuple[datetime, str] | None:
    """A moment and its digits beyond microseconds, which `datetime` drops; or None.

    A month (2020-01, 2020M1) and a quarter (2020Q1) are their first day.
    """
    try:
        moment = datetime.fromisoformat(cell)
    except ValueError:
        part = re.fullmatch(r"(\d{4})(?:-(0[1-9]|1[0-2])|-?[Mm](0?[1-9]|1[0-2])|-?[Qq]([1-4]))", cell)
        if part is None or part[1] == "0000":
            return None
        month = 3 * int(part[4]) - 2 if part[4] else int(part[2] or part[3])
        return datetime(int(part[1]), month, 1), ""
    beyond = re.search(r"[.,]\d{6}(\d+)", cell) if len(cell) > 26 else None
    return moment, "" if beyond is None else beyond[1].rstrip("0")


_SECONDS = {"day": 86400.0, "hour": 3600.0, "minute": 60.0, "second": 1.0}


class Spacing(NamedTuple):
    """How far times lie apart.

    - `even`: whether each row can be taken for one step.
    - `unit`: the typical gap, in which others are measured: seconds where times are dates.
    - `words`: the typical gap for people.
    - `longest`: the longest gap, in units, with the series and the row (from 0) before which it lies.
    - `grid`: the frequency of the times, and the rows that are absent.
    """

    even: bool
    unit: float
    words: str
    longest: tuple[float, int, int]
    grid: Grid


def moments_of(elapsed: np.ndarray, span: Span) -> np.ndarray:
    """The times of a series: dates, or numbers as in the file."""
    if span.origin is None:
        return float(span.first) + elapsed
    origin = np.datetime64(span.origin.replace(tzinfo=None), "us")
    return origin + np.round(1e6 * elapsed).astype("timedelta64[us]")


_SEASONS = ((3600.0, 24), (86400.0, 7), (7 * 86400.0, 52), (30.4 * 86400.0, 12), (91.3 * 86400.0, 4))
"""Typical gaps in seconds, and the rows in the season that people look for first."""


def usual_season(spacing: Spacing, spans: Sequence[Span]) -> int | None:
    """Return the rows in a day of hours, a week of days, a year of weeks, months or quarters; None for other gaps."""
    if spans[0].origin is None:
        return None
    return next((season for gap, season in _SEASONS if abs(spacing.unit / gap - 1) < 0.03), None)


def spacing(times: Sequence[np.ndarray], spans: Sequence[Span]) -> Spacing:
    """Looks at the gaps of all series together; rows that are left out of an even grid make it uneven."""
    gaps = [np.diff(one) for one in times]
    every = np.concatenate(gaps)
    grid = find_grid([moments_of(one, span) for one, span in zip(times, spans, strict=True)])
    if not len(every):
        return Spacing(True, 1.0, "", (1.0, 0, 0), grid)
    unit = float(np.median(every))
    series = int(np.argmax([one.max(initial=0.0) for one in gaps]))
    row = int(np.argmax(gaps[series]))
    longest = (float(gaps[series][row]) / unit, series, row + 1)
    words = f"{unit:g}" if spans[0].origin is None else _words(unit)
    if grid.even and grid.frequency.unit in ("month", "working day"):
        count = int(grid.frequency.size)
        words = f"a {grid.frequency.name}" if grid.frequency.name else f"{count} months"
    return Spacing(grid.even, unit, words, longest, grid)


def _words(seconds: float) -> str:
    """A time as people say it."""
    for name, size in _SECONDS.items():
        count = seconds / size
        if count >= 1 - CLOSE:
            return f"{count:.4g} {name}{'' if abs(count - 1) < CLOSE else 's'}"
    return f"{seconds:.3g} seconds"
