"""How times continue: by months, working days, seconds or numbers; and which rows of such a grid are absent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

CLOSE = 1e-6
_HOLIDAYS, _LONGEST_HOLIDAY = 0.2, 10
"""Working days: the share of gaps that may be longer, and the most days of a gap."""
_DAY = 86400.0
_NAMES = {
    ("month", 1): "month",
    ("month", 3): "quarter",
    ("month", 12): "year",
    ("working day", 1): "working day",
    ("second", 7 * _DAY): "week",
    ("second", _DAY): "day",
    ("second", 3600.0): "hour",
    ("second", 1800.0): "half hour",
    ("second", 60.0): "minute",
}
_YEARS = (1000, 3000)
"""Numbers between these may be years."""


class Frequency(NamedTuple):
    """The distance between two steps: `size` times the `unit`, which is month, working day, second or number.

    - `month_end`: the days are the last ones of their months.
    - `years`: the numbers are years, also with decimals (1949.083).
    """

    unit: str
    size: float
    month_end: bool = False
    years: bool = False

    @property
    def name(self) -> str:
        """One of the common frequencies by its name: year, quarter, month, week, day, ...; empty for others."""
        if not self.years:
            return _NAMES.get((self.unit, self.size), "")
        steps = {1: "year", 4: "quarter", 12: "month"}
        # Decimal years are often rounded: 1949.08.
        return next((name for n, name in steps.items() if abs(self.size * n - 1) < 0.1), "")

    def after(self, last: Any, steps: int) -> np.ndarray:
        """Return the times of the next steps after a date or a number."""
        ahead = np.arange(1, steps + 1)
        if self.unit == "number":
            return last + ahead * self.size
        moment = np.asarray(last, "datetime64[us]")
        if self.unit == "second":
            return moment + np.round(ahead * self.size * 1e6).astype("timedelta64[us]")
        day = moment.astype("datetime64[D]")
        clock = moment - day
        if self.unit == "working day":
            return np.busday_offset(day, ahead, roll="backward").astype("datetime64[us]") + clock
        month = day.astype("datetime64[M]")
        months = month + (ahead * int(self.size)).astype("timedelta64[M]")
        ends = _month_ends(months)
        first = months.astype("datetime64[D]")
        days = ends if self.month_end else np.minimum(first + (day - month.astype("datetime64[D]")), ends)
        return days.astype("datetime64[us]") + clock


class Grid(NamedTuple):
    """The frequency of some times, and for each series the number of steps between one row and the next; None where the
    rows do not lie on a grid."""

    frequency: Frequency
    steps: list[np.ndarray] | None

    @property
    def even(self) -> bool:
        """Whether each row is one step."""
        return self.steps is not None and all((one == 1).all() for one in self.steps)

    @property
    def absent(self) -> int:
        """The number of rows that the grid has and the data do not."""
        return 0 if self.steps is None else int(sum((one - 1).sum() for one in self.steps))


def find_grid(moments: Sequence[np.ndarray]) -> Grid:
    """Find the grid on which the times of all series lie; times are dates or numbers that increase.

    Months, quarters and years count as equally long, and so do working days: weekends and holidays are not time in
    which a market moves.
    """
    dated = moments[0].dtype.kind == "M"
    gaps = [_numbers(np.diff(one)) for one in moments]
    every = np.concatenate(gaps)
    unit = "second" if dated else "number"
    if not len(every):
        return Grid(Frequency(unit, _DAY if dated else 1.0), [np.ones(0, int) for _ in moments])
    typical = float(np.median(every))
    even = np.ptp(every) <= CLOSE * typical
    plain = Frequency(unit, typical, years=not dated and _are_years(moments))
    if dated:
        days = [_near_midnight(one) for one in moments]
        monthly = _months(days)
        if monthly is not None:
            return monthly
        if not even and _all_working_days(days):
            regular = _holidays_are_rare(days)
            steps = [np.ones(len(one), int) for one in gaps]
            return Grid(Frequency("working day", 1), steps) if regular else Grid(plain, None)
    if even:
        return Grid(plain, [np.ones(len(one), int) for one in gaps])
    steps = [np.round(one / typical) for one in gaps]
    on_grid = all((np.abs(one - count * typical) <= CLOSE * one).all() for one, count in zip(gaps, steps, strict=True))
    return Grid(plain, [one.astype(int) for one in steps] if on_grid else None)


def fill_grid(moments: np.ndarray, steps: np.ndarray, frequency: Frequency) -> tuple[np.ndarray, np.ndarray]:
    """Return the times of a series with those that are absent, and the index of each row among them."""
    indices = np.concatenate([[0], np.cumsum(steps)])
    filled = np.empty(indices[-1] + 1, moments.dtype)
    for row, count in enumerate(steps):
        if count > 1:
            filled[indices[row] + 1 : indices[row + 1]] = frequency.after(moments[row], int(count) - 1)
    filled[indices] = moments
    return filled, indices


def _numbers(gaps: np.ndarray) -> np.ndarray:
    return gaps / np.timedelta64(1, "s") if gaps.dtype.kind == "m" else gaps.astype(float)


def _are_years(moments: Sequence[np.ndarray]) -> bool:
    values = np.concatenate(moments)
    return bool((values >= _YEARS[0]).all() and (values < _YEARS[1]).all())


def _near_midnight(moments: np.ndarray) -> np.ndarray:
    """The same, at midnight where all lie within an hour of it: summer time moves those that have a time zone."""
    nights = (moments + np.timedelta64(1, "h")).astype("datetime64[D]").astype(moments.dtype)
    return nights if (np.abs(moments - nights) <= np.timedelta64(1, "h")).all() else moments


def _month_ends(months: np.ndarray) -> np.ndarray:
    # NumPy 2.5 deprecates sums with bare integers: durations carry their unit.
    return (months + np.timedelta64(1, "M")).astype("datetime64[D]") - np.timedelta64(1, "D")


def _months(moments: Sequence[np.ndarray]) -> Grid | None:
    """The grid of rows that lie on the same day of their months, or all on the last one; otherwise None."""
    months = [one.astype("datetime64[M]") for one in moments]
    ends = all((_month_ends(m) == one.astype("datetime64[D]")).all() for m, one in zip(months, moments, strict=True))
    offsets = {offset for m, one in zip(months, moments, strict=True) for offset in (one - m).tolist()}
    gaps = [np.diff(one.astype(int)) for one in months]
    every = np.concatenate(gaps)
    if (len(offsets) > 1 and not ends) or every.min() < 1:
        return None
    count = int(np.gcd.reduce(every))
    if np.median(every) != count:
        return None
    return Grid(Frequency("month", count, ends), [one // count for one in gaps])


def _all_working_days(moments: Sequence[np.ndarray]) -> bool:
    days = [one.astype("datetime64[D]") for one in moments]
    if any((one != day).any() for one, day in zip(moments, days, strict=True)):
        return False
    if not all(np.is_busday(day).all() for day in days):
        return False
    # Weekly data lie on one weekday; a market is open on several.
    return any((np.busday_count(day[:-1], day[1:]) == 1).any() for day in days)


def _holidays_are_rare(moments: Sequence[np.ndarray]) -> bool:
    days = [one.astype("datetime64[D]") for one in moments]
    calendar = np.concatenate([np.diff(day).astype(int) for day in days])
    working = np.concatenate([np.busday_count(day[:-1], day[1:]) for day in days])
    return bool(np.mean(working > 1) <= _HOLIDAYS and calendar.max() <= _LONGEST_HOLIDAY)
