"""Which columns of a table are times or names of series although nobody said so: found by name and content."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from mcfo.data.times import read_date, read_number

_ROWS, _FEWEST_ROWS, _CELLS = 2000, 10, 1_000_000
"""The rows that are looked at; fewer where they have many columns."""
_CANDIDATES = 4
"""The columns of each kind that are tried, in pairs with those of other kinds."""
_YEARS = ("year", "yr", "years")
_MONTHS, _QUARTERS, _DAYS = ("month", "mon", "mo"), ("quarter", "qtr", "q"), ("day", "dd")
_CLOCKS = (*("ds", "datetime", "timestamp", "period", "week", "index", "obs", "row", "step", "unnamed: 0"),)
_ENTITIES = (
    *("unique_id", "id", "firm", "company", "country", "state", "region", "city", "store", "shop", "item", "product"),
    *("sku", "station", "site", "sensor", "ticker", "symbol", "stock", "subject", "patient", "person", "entity"),
)
_FEW = 8
"""Rows below which a column that counts the rows may be a measurement."""


class Roles(NamedTuple):
    """The columns of the series and of the time by name, and `notes`, sentences about them and about doubtful ones."""

    series: str | None
    time: str | None
    notes: tuple[str, ...]


def sample_rows(columns: int) -> int:
    """The number of rows from which the roles of so many columns are guessed."""
    return max(_FEWEST_ROWS, min(_ROWS, _CELLS // max(columns, 1)))


def guess_roles(columns: Mapping[str, Sequence[str]], series: str | None, time: str | None, *, all_read: bool) -> Roles:
    """Find the columns of times and of series among cells of text, by column.

    **Arguments:**

    - `series`, `time`: what is known of them.
    - `all_read`: every other column would be read as data. Otherwise only a time that fits is taken.
    """
    free = [name for name in columns if name not in (series, *_parts(time))]
    times = [time] if time is not None else _times(free, columns)
    possible = _owners(free, columns)[:_CANDIDATES] if all_read and series is None and times else []
    chosen, owner = time, series
    for candidate in times:
        moments = _moments(columns, candidate)
        if moments is None:
            continue
        owners = [None, *possible] if series is None else [series]
        fitting = [one for one in owners if one not in _parts(candidate) and _increases(moments, columns, one)]
        if fitting:
            chosen, owner = candidate, fitting[0]
            break
    if chosen is None and all_read and times and _named(times[-1], _YEARS):
        # Years are no data, even where they do not increase: the reader says why they cannot be the time.
        chosen = times[-1]
    if owner is None and all_read:
        owner = next(
            (one for one in free if _is_entity(one) and _repeats(columns[one]) and _in_blocks(columns[one])), None
        )
    if not all_read:
        return Roles(owner, chosen, ())
    notes = _taken(None if time else chosen, None if series else owner)
    rest = [name for name in free if name not in (owner, *_parts(chosen))]
    return Roles(owner, chosen, (*notes, *_doubts(columns, rest)))


def _parts(time: str | None) -> list[str]:
    return [] if time is None else time.split(",")


def _named(name: str, names: Sequence[str]) -> bool:
    return name.split(",")[0].strip().lower() in names


def _is_entity(name: str) -> bool:
    return _named(name, _ENTITIES) or name.lower().endswith(("_id", " id"))


def _times(free: Sequence[str], columns: Mapping[str, Sequence[str]]) -> list[str]:
    """The columns that may be times, the likeliest first; year and quarter, or year and month, go together."""

    def fitting(names: Iterable[str], test: Any) -> list[str]:
        return [*itertools.islice((name for name in names if _all(columns[name], test)), _CANDIDATES)]

    def named(names: Sequence[str]) -> Iterable[str]:
        # A comma joins the names of columns that are a time together.
        return (name for name in free if _named(name, names) and "," not in name)

    found = fitting(free, lambda cell: bool(read_date(cell) and not read_number(cell)))
    years = fitting(named(_YEARS), _is_year)
    for year in years:
        months, quarters, days = (
            fitting(named(names), _counts_to(most)) for names, most in ((_MONTHS, 12), (_QUARTERS, 4), (_DAYS, 31))
        )
        found += [f"{year},{month},{day}" for month in months for day in days]
        found += [f"{year},{part}" for part in (*months, *quarters)]
        found.append(year)
    clocks = (*_CLOCKS, *_MONTHS, *_QUARTERS, *_DAYS, "id")
    return found + fitting(named(clocks), read_number)


def _all(cells: Sequence[str], test: Any) -> bool:
    return bool(cells) and all(test(cell.strip()) for cell in cells)


def _is_year(cell: str) -> bool:
    number = read_number(cell)
    return number is not None and 1000 <= number[0] < 3000


def _counts_to(most: int) -> Any:
    def test(cell: str) -> bool:
        number = read_number(cell)
        return number is not None and number[0] in range(1, most + 1)

    return test


def _owners(free: Sequence[str], columns: Mapping[str, Sequence[str]]) -> list[str]:
    """The columns that may name series, the likeliest first."""

    def whole(cell: str) -> bool:
        return bool(re.fullmatch(r"\d+(\.0)?", cell))

    texts = [name for name in free if not all(read_number(cell.strip()) for cell in columns[name])]
    fitting = [name for name in free if name in texts or _all(columns[name], whole)]
    fitting = [name for name in fitting if _repeats(columns[name]) and "" not in columns[name]]
    # Whole numbers of no telling name are names only where the rows of each lie together.
    fitting = [name for name in fitting if name in texts or _is_entity(name) or _in_blocks(columns[name])]
    return sorted(fitting, key=lambda name: (not _is_entity(name), name not in texts))


def _repeats(cells: Sequence[str]) -> bool:
    return 2 * len(set(cells)) <= len(cells)


def _in_blocks(cells: Sequence[str]) -> bool:
    """Whether equal cells lie together, as the rows of one series after another do."""
    changes = sum(one != other for one, other in itertools.pairwise(cells))
    return changes == len(set(cells)) - 1


def join_time(header: Sequence[str], cells: Sequence[str]) -> str:
    """Write a time that stands in several columns, a year with a quarter, or with a month and a day, as one."""
    if len(cells) == 1:
        return cells[0].strip()
    numbers = [read_number(cell.strip()) for cell in cells]
    if any(number is None or number[0] != int(number[0]) for number in numbers):
        wrong = next(cell for cell, number in zip(cells, numbers, strict=True) if number is None or number[0] % 1)
        raise ValueError(f"{wrong!r} is not a whole number, but a part of the time. Correct it.")
    year, *parts = (int(number[0]) for number in numbers if number is not None)
    if len(parts) == 1 and header[1].lower().startswith("q"):
        return f"{year}Q{parts[0]}"
    return "-".join([f"{year:04d}", *(f"{part:02d}" for part in parts)])


def _moments(columns: Mapping[str, Sequence[str]], name: str) -> list[Any] | None:
    """The times of a column that are all numbers or all dates; otherwise None."""
    parts = [name] if name in columns else name.split(",")
    try:
        cells = [join_time(parts, row) for row in zip(*(columns[part] for part in parts), strict=True)]
    except ValueError:
        return None
    for read in (read_number, read_date):
        moments = [read(cell) for cell in cells]
        if all(moments):
            return [one[0] for one in moments if one is not None]
    return None


def _increases(moments: Sequence[Any], columns: Mapping[str, Sequence[str]], owner: str | None) -> bool:
    last: dict[str, Any] = {}
    for row, moment in enumerate(moments):
        series = "" if owner is None else columns[owner][row]
        try:
            if series in last and not last[series] < moment:
                return False
        except TypeError:  # one has a time zone and the other has none
            return False
        last[series] = moment
    return True


def _taken(time: str | None, series: str | None) -> list[str]:
    """The sentence about columns that were taken for something."""
    roles = [(series, "the name of the series"), (time, "the time")]
    said = [f"{' and '.join(_parts(name))} as {what}" for name, what in roles if name is not None]
    return [f"Reads {' and '.join(said)}. To have it otherwise, name the columns of values."] if said else []


def _doubts(columns: Mapping[str, Sequence[str]], rest: Sequence[str]) -> list[str]:
    """Sentences about columns of values that look like something else; a single column is what it is."""
    counting = [name for name in rest if _counts_rows(columns[name])]
    sentences = [
        f"Column {name} only counts the rows, but is read as data. Leave it out, or name it as the time."
        for name in counting
    ]
    sentences += [
        f"Column {name} looks like an identifier, but is read as data. Leave it out, or name it as the series."
        for name in rest
        if _is_entity(name) and name not in counting
    ]
    return sentences if len(rest) > 1 else []


def _counts_rows(cells: Sequence[str]) -> bool:
    if len(cells) < _FEW:
        return False
    numbers = [read_number(cell.strip()) for cell in cells]
    if not all(numbers):
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        steps = np.diff([float(number[0]) for number in numbers if number is not None])
        return bool(steps[0] != 0 and np.ptp(steps) <= 1e-9 * abs(steps[0]))
