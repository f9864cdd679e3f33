"""Times in a file: whether they increase within each series."""

import math
import re
from collections.abc import Callable
from datetime import datetime
from typing import Any


class Clock:
    """Checks the times of a file, one row after the other.

    The first one decides what they are: numbers, ISO dates, or text, of which no order is known.
    """

    def __init__(self):
        self._kind = ""
        self._read: Callable[[str], Any] | None = None
        self._last: dict[str, tuple[Any, str, int]] = {}

    def check(self, cell: str, series: str, line: int) -> None:
        """Refuses a time that is not later than the last one of the same series."""
        if not cell:
            raise ValueError("the time is empty. Write one in each row, also where the values are missing.")
        if not self._kind:
            kinds = (("a number", read_number), ("an ISO date", read_date))
            self._kind, self._read = next((kind for kind in kinds if kind[1](cell)), ("text", None))
        if self._read is None:
            return
        time = self._read(cell)
        if time is None:
            raise ValueError(f"{cell!r} is not {self._kind}, as the first time is. Write all times in the same way.")
        last = self._last.get(series)
        self._last[series] = time, cell, line
        if last is not None:
            _check_order(time, cell, series, *last)


def _check_order(time: Any, cell: str, series: str, last: Any, last_cell: str, last_line: int) -> None:
    try:
        if last < time:
            return
    except TypeError:
        raise ValueError(
            f"of {cell} and {last_cell} (line {last_line}) one has a time zone and the other has none. Give all times "
            "one, or none."
        ) from None
    if last == time:
        raise ValueError(
            f"the time {cell} stands in line {last_line} too, in the same series {series!r}. Keep one row for each "
            "time; if the rows belong to several series, name the column that tells them apart."
        )
    raise ValueError(
        f"the time {cell} comes after {last_cell} (line {last_line}) in series {series!r}, but times must increase. "
        "Sort the rows of each series by time; if the column is a measurement, name it among the values."
    )


def read_number(cell: str) -> tuple[int | float] | None:
    """A finite number, or None. Integers stay exact: nanoseconds since 1970 are beyond the precision of a float."""
    for kind in (int, float):
        try:
            number = kind(cell)
        except ValueError:
            continue
        return (number,) if math.isfinite(number) else None
    return None


def read_date(cell: str) -> tuple[datetime, str] | None:
    """A moment and its digits beyond microseconds, which `datetime` drops; or None. A month is its first day."""
    try:
        moment = datetime.fromisoformat(cell)
    except ValueError:
        is_month = re.fullmatch(r"\d{4}-(0[1-9]|1[0-2])", cell)
        return (datetime.fromisoformat(f"{cell}-01"), "") if is_month else None
    beyond = re.search(r"[.,]\d{6}(\d+)", cell) if len(cell) > 26 else None
    return moment, "" if beyond is None else beyond[1].rstrip("0")
