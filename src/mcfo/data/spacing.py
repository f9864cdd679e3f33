"""Whether the times of series are evenly spaced: to the clock, to the calendar, or to the working week."""

from collections.abc import Sequence as Listing
from typing import NamedTuple

import numpy as np

from mcfo.data.raw import Span

_CLOSE = 1e-6
_HOLIDAYS, _LONGEST_HOLIDAY = 0.2, 10
"""Of working days: the share of gaps that may be longer, and how many days a gap may have."""
_SECONDS = {"day": 86400.0, "hour": 3600.0, "minute": 60.0, "second": 1.0}


class Spacing(NamedTuple):
    """How far times lie apart.

    - `even`: whether each row can be taken for one step.
    - `unit`: the typical gap, in which others are measured: seconds where times are dates.
    - `words`: the typical gap for people.
    - `longest`: the longest gap, in units, with the series and the row (from 0) before which it lies.
    """

    even: bool
    unit: float
    words: str
    longest: tuple[float, int, int]


def spacing(times: Listing[np.ndarray], spans: Listing[Span]) -> Spacing:
    """Looks at the gaps of all series together; rows that are left out of an even grid make it uneven.

    Months, quarters and years are even though their days differ, and so are working days: weekends and holidays are
    not time in which a market moves.
    """
    gaps = [np.diff(one) for one in times]
    every = np.concatenate(gaps)
    dates = spans[0].origin is not None
    if not len(every):
        return Spacing(True, 1.0, "", (1.0, 0, 0))
    unit = float(np.median(every))
    series = int(np.argmax([one.max(initial=0.0) for one in gaps]))
    row = int(np.argmax(gaps[series]))
    longest = (float(gaps[series][row]) / unit, series, row + 1)
    words = _words(unit) if dates else f"{unit:g}"
    if np.ptp(every) <= _CLOSE * unit:
        return Spacing(True, unit, words, longest)
    if dates:
        moments = [np.datetime64(span.origin.replace(tzinfo=None), "s") for span in spans if span.origin is not None]
        days = [moment + np.round(one).astype("timedelta64[s]") for moment, one in zip(moments, times, strict=True)]
        days = [_near_midnight(one) for one in days]
        calendar = _months(days)
        if calendar:
            return Spacing(True, unit, calendar, longest)
        if _working_days(days):
            return Spacing(True, unit, "a working day", longest)
    return Spacing(False, unit, words, longest)


def _words(seconds: float) -> str:
    """A time as people say it."""
    for name, size in _SECONDS.items():
        count = seconds / size
        if count >= 1 - _CLOSE:
            return f"{count:.4g} {name}{'' if abs(count - 1) < _CLOSE else 's'}"
    return f"{seconds:.3g} seconds"


def _near_midnight(moments: np.ndarray) -> np.ndarray:
    """The same, at midnight where all lie within an hour of it: summer time moves those that have a time zone."""
    nights = (moments + np.timedelta64(1, "h")).astype("datetime64[D]").astype("datetime64[s]")
    return nights if (np.abs(moments - nights) <= np.timedelta64(1, "h")).all() else moments


def _months(moments: Listing[np.ndarray]) -> str:
    """The gap in months where it is always the same, on the same day of the month or on its last one; else nothing."""
    steps, days, lasts = set(), set(), set()
    for one in moments:
        months = one.astype("datetime64[M]")
        steps |= set(np.diff(months.astype(int)).tolist())
        days |= set((one - months).tolist())
        last = (months + 1).astype("datetime64[D]") - 1
        lasts |= set((last == one.astype("datetime64[D]")).tolist())
        if len(steps) > 1 or (len(days) > 1 and lasts != {True}):
            return ""
    count = steps.pop() if steps else 0
    names = {1: "a month", 3: "a quarter", 12: "a year"}
    return names.get(count, f"{count} months") if count > 0 else ""


def _working_days(moments: Listing[np.ndarray]) -> bool:
    days = [one.astype("datetime64[D]") for one in moments]
    if any((one != day).any() for one, day in zip(moments, days, strict=True)):
        return False
    if not all(np.is_busday(day).all() for day in days):
        return False
    calendar = np.concatenate([np.diff(day).astype(int) for day in days])
    working = np.concatenate([np.busday_count(day[:-1], day[1:]) for day in days])
    return bool(np.mean(working > 1) <= _HOLIDAYS and calendar.max() <= _LONGEST_HOLIDAY)
