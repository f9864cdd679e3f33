"""Inputs made from dates: months, weekdays, trading days, holidays."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mcfo.data.frequencies import Frequency
from mcfo.data.times import read_date
from mcfo.errors import InputError, nearest

PARTS = ("month", "weekday", "month-dummies", "weekday-dummies")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAY = 86400.0
_DATES, _NAMES = ("date", "ds", "day"), ("name", "holiday")


class Calendar(NamedTuple):
    """Which inputs are made from the dates of the steps.

    - `parts`: month and weekday as effects that sum to zero (the last one is minus the others), or as dummies (the last
      one is the base). For steps of months, quarters or years, weekday counts the days of each: trading days.
    - `holidays`: dates by the name of their input, which counts those in a step.
    """

    parts: tuple[str, ...] = ()
    holidays: Mapping[str, Sequence[str]] = {}

    @classmethod
    def read(cls, items: Calendar | str | Sequence[Any]) -> Calendar:
        """Read names of parts, files of holidays, and mappings from names to dates; text is split at commas."""
        if isinstance(items, Calendar):
            return items
        parts, holidays = [], {}
        for item in items.split(",") if isinstance(items, str) else items:
            if isinstance(item, Mapping):
                found = {str(name): [_iso(date) for date in dates] for name, dates in item.items()}
            elif str(item).strip() in PARTS:
                parts.append(str(item).strip())
                continue
            else:
                found = read_holidays(Path(str(item).strip()))
            if twice := set(found) & set(holidays):
                raise InputError(f"The holidays {', '.join(sorted(twice))} are given twice. Give them once.")
            holidays |= found
        if not parts and not holidays:
            raise InputError(f"The calendar is empty. Name some of {', '.join(PARTS)}, or a file of holidays.")
        return cls(tuple(dict.fromkeys(parts)), holidays)

    @classmethod
    def from_data(cls, data: Any) -> Calendar | None:
        """Read a calendar from config.json, which is not trusted; None if there is none."""
        if not isinstance(data, dict):
            return None
        parts, holidays = data.get("parts"), data.get("holidays")
        parts = tuple(one for one in parts if one in PARTS) if isinstance(parts, list) else ()
        days = {
            name: [one for one in dates if isinstance(one, str) and read_date(one)]
            for name, dates in (holidays if isinstance(holidays, dict) else {}).items()
            if isinstance(dates, list)
        }
        return cls(parts, days) if parts or days else None

    def as_data(self) -> dict[str, Any]:
        """Return the calendar for config.json."""
        return {"parts": list(self.parts), "holidays": {name: list(dates) for name, dates in self.holidays.items()}}

    @property
    def names(self) -> list[str]:
        """The names of the inputs."""
        of_parts = [_MONTHS[:-1] if part.startswith("month") else _WEEKDAYS[:-1] for part in self.parts]
        return [*(name for names in of_parts for name in names), *self.holidays]

    def inputs(self, moments: np.ndarray, frequency: Frequency) -> np.ndarray:
        """Return the inputs of steps at these dates, (steps, inputs)."""
        columns = [_part(part, moments, frequency) for part in self.parts]
        for dates in self.holidays.values():
            start, end = _days(moments, frequency)
            known = np.sort(np.array(dates, "datetime64[D]"))
            columns.append((np.searchsorted(known, end) - np.searchsorted(known, start))[:, None].astype(float))
        return np.concatenate(columns, axis=1)

    def check(self, moments: Sequence[np.ndarray], frequency: Frequency) -> None:
        """Refuse holidays of which none lies within the data: nothing could be learned about them."""
        ranges = [_days(one, frequency) for one in moments]
        for name, dates in self.holidays.items():
            known = np.array(dates, "datetime64[D]")
            if not any(((known >= start[0]) & (known < end[-1])).any() for start, end in ranges):
                first, last = ranges[0][0][0], ranges[0][1][-1] - np.timedelta64(1, "D")
                raise InputError(
                    f"None of the {len(known)} dates of {name} lies within the data, which go from {first} to {last}. "
                    "Give the holidays of these years too, or leave them out."
                )


def _part(part: str, moments: np.ndarray, frequency: Frequency) -> np.ndarray:
    """One column for each level of a part but the last."""
    if part.startswith("month"):
        if frequency.unit == "month" and frequency.size > 1:
            raise InputError(
                f"The calendar input {part!r} needs steps of a month or less, but these have {frequency.size:g} "
                "months. Leave it out; a season does the same."
            )
        counts = np.eye(12)[moments.astype("datetime64[M]").astype(int) % 12]
    else:
        start, end = _days(moments, frequency)
        if ((end - start).astype(int) % 7 == 0).all():
            raise InputError(
                f"The calendar input {part!r} is the same at every step, because a week has each weekday once. "
                "Leave it out."
            )
        counts = np.stack([_count_weekday(start, end, day) for day in range(7)], axis=1)
    base = 0 if part.endswith("dummies") else counts[:, -1:]
    return counts[:, :-1] - base


def _count_weekday(start: np.ndarray, end: np.ndarray, day: int) -> np.ndarray:
    mask = [index == day for index in range(7)]
    return np.busday_count(start, end, weekmask=mask).astype(float)


def _days(moments: np.ndarray, frequency: Frequency) -> tuple[np.ndarray, np.ndarray]:
    """The first day of each step, and the one after its last.

    A step of months is whole months, up to the date's own where dates are the last days of months, from there on
    otherwise; a step of several days begins at its date.
    """
    days = moments.astype("datetime64[D]")
    if frequency.unit == "month":
        months, count = days.astype("datetime64[M]"), np.timedelta64(int(frequency.size), "M")
        end = months + (np.timedelta64(1, "M") if frequency.month_end else count)
        return (end - count).astype("datetime64[D]"), end.astype("datetime64[D]")
    whole = max(1, round(frequency.size / _DAY)) if frequency.unit == "second" else 1
    return days, days + np.timedelta64(whole, "D")


def _iso(date: Any) -> str:
    found = read_date(str(date))
    if found is None:
        raise InputError(f"The holiday {str(date)!r} is not an ISO date. Write the year first: 2020-12-24.")
    return found[0].date().isoformat()


def read_holidays(path: Path) -> dict[str, list[str]]:
    """Read dates by name: one date a line, or a CSV file with a column of dates and, if it likes, one of names.

    Without names they are called like the file. What follows # is a comment.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        if not path.suffix and not isinstance(error, UnicodeDecodeError):
            message = f"There is no calendar input {str(path)!r}, nor a file of that name. {nearest(str(path), PARTS)}"
            raise InputError(message) from error
        reason = getattr(error, "strerror", None) or "it is not text in UTF-8"
        raise InputError(f"Cannot read the holidays in {path}: {reason}.") from error
    lines = [(number, line.split("#")[0].strip()) for number, line in enumerate(text.splitlines(), 1)]
    rows = [(number, [cell.strip(" \"'") for cell in re.split("[,;\t]", line)]) for number, line in lines if line]
    date, name = 0, 1
    if rows and any(cell.lower() in _DATES for cell in rows[0][1]):
        header = [cell.lower() for cell in rows.pop(0)[1]]
        date = next(index for index, cell in enumerate(header) if cell in _DATES)
        name = next((index for index, cell in enumerate(header) if cell in _NAMES), len(header))
    if not rows:
        raise InputError(f"{path} has no dates. Write one holiday a line: 2020-12-24.")
    found: dict[str, list[str]] = {}
    for number, cells in rows:
        cell = cells[date] if date < len(cells) else ""
        moment = read_date(cell)
        if moment is None:
            raise InputError(
                f"{path}, line {number}: {cell!r} is not an ISO date. Write one holiday a line, the year first: "
                "2020-12-24."
            )
        label = cells[name] if name < len(cells) and cells[name] else path.stem
        found.setdefault(label, []).append(moment[0].date().isoformat())
    return found
