"""New rows after those that are known: series that continue."""

from __future__ import annotations

from typing import Any

import numpy as np

from mcfo.errors import InputError
from mcfo.inference.datasets import NamedSeries
from mcfo.series import Series

_FAR = 10_000
"""The most steps that may be absent between the last known row and the first new one."""


def appended(known: NamedSeries, new: NamedSeries) -> tuple[NamedSeries, list[int]]:
    """Return the series of `new`, each with the rows of `known` before it, and how many of its rows were known.

    Series are found by their names, or are the only ones. Rows whose times are known already are left out; steps that
    are absent in between become steps without a value. Series that `known` lacks are new from their first row.
    """
    if new.series_list[0].observations.shape[1] != known.series_list[0].observations.shape[1]:
        raise InputError(
            f"The model learned from {known.series_list[0].observations.shape[1]} columns of values "
            f"({', '.join(known.columns)}), but the new data have {new.series_list[0].observations.shape[1]}. Give the "
            "same columns."
        )
    alone = len(known.names) == len(new.names) == 1
    joined, lengths, moments = [], [], []
    for index, name in enumerate(new.names):
        at = 0 if alone else known.names.index(name) if name in known.names else None
        series, times = new.series_list[index], None if new.moments is None else new.moments[index]
        if at is None:
            joined.append(series)
            lengths.append(0)
            moments.append(times)
            continue
        one, many, both = _joined(known, at, series, times)
        joined.append(one)
        lengths.append(many)
        moments.append(both)
    dated = all(one is not None for one in moments)
    chosen = [known.names[0]] if alone else list(new.names)
    whole = known._replace(series_list=joined, names=chosen, moments=moments if dated else None)
    return whole, lengths


def _joined(
    known: NamedSeries, at: int, series: Series, times: np.ndarray | None
) -> tuple[Series, int, np.ndarray | None]:
    before = known.series_list[at]
    old, values = before.values(), series.values()
    inputs = None if series.inputs is None else np.asarray(series.inputs)[: len(values)]
    if (inputs is None) != (before.inputs is None):
        raise InputError("Of the known and the new rows only some have inputs. Give the new rows the same columns.")
    both, absent = None, 0
    if times is not None and known.moments is not None and known.moments[at].dtype.kind == times.dtype.kind:
        past = known.moments[at]
        later = times > past[-1]
        if not later.any() and len(times):
            # The very series again, or an earlier part of it: nothing of it is new.
            return series, len(values), times
        values, times = values[later], times[later]
        inputs = None if inputs is None else inputs[later]
        between = np.asarray(past[:0])
        if known.frequency is not None and inputs is None:
            ahead = np.asarray(known.frequency.after(past[-1], _FAR)).astype(times.dtype)
            found = np.flatnonzero(ahead == times[0])
            absent = int(found[0]) if len(found) else 0
            between = ahead[:absent]
        both = np.concatenate([past, between.astype(past.dtype), times.astype(past.dtype)])
    rows = [old, np.full((absent, old.shape[1]), np.nan), values]
    driven: Any = None
    if inputs is not None:
        driven = np.concatenate([np.asarray(before.inputs)[: len(old)], inputs])
    whole = Series.from_values(np.concatenate(rows), inputs=driven, series_id=int(before.series_id))
    return whole, len(old), both
