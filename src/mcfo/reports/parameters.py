"""The learned parameters: small arrays entry by entry, long ones by size and spread."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mcfo.files import nested
from mcfo.reports.folder import Run, SeedResult, number
from mcfo.reports.page import Report
from mcfo.reports.words import MISSING, listed, shape_in_words, shortened, significant

_SMALL = 16
"""Entries of an array that are shown one by one: a matrix of four by four is."""
_ROWS = 64
"""Rows that a table of entries may have; further arrays are summarized."""
_SEED_COLUMNS = 5
"""With more seeds than these, mean and spread stand for them."""


class Parameter(NamedTuple):
    """A parameter's values, one row a seed; None where the seeds' shapes differ or it is no array of numbers."""

    name: str
    values: np.ndarray | None


def count_learned(config: dict[str, Any], module: str) -> int | None:
    """How many numbers of the model or the proposal are learned; None where config.json does not say."""
    shapes = nested(config, module, "parameters")
    if not isinstance(shapes, dict):
        return None
    total = 0
    for name, shape in shapes.items():
        sizes = [number(size) for size in shape] if isinstance(shape, list) else [None]
        if any(size is None or size < 0 for size in sizes):
            return None
        if not is_fixed(config, name):
            total += int(np.prod([size for size in sizes if size is not None], dtype=float))
    return total


def is_fixed(config: dict[str, Any], name: str) -> bool:
    """Whether a parameter, or what it is a part of, was held fixed."""
    sections = (nested(config, module, "fixed") for module in ("model", "proposal", "settings"))
    paths = [path for found in sections if isinstance(found, list) for path in found if isinstance(path, str)]
    return any(name == path or name.startswith(f"{path}.") for path in paths)


def add_parameters(report: Report, run: Run) -> None:
    """The section about what was learned."""
    learned = [parameter for parameter in _parameters(run.results) if not is_fixed(run.config, parameter.name)]
    held = [parameter for parameter in _parameters(run.results) if is_fixed(run.config, parameter.name)]
    if not learned and not held:
        return
    report.heading("Learned parameters")
    entries, summarized = _split(learned)
    seeds = [result.seed for result in run.results]
    if entries:
        _entry_table(report, entries, seeds)
    if summarized:
        _summary_table(report, summarized, len(seeds) > 1)
    if held:
        report.text(f"Held fixed: {listed(_fixed_in_words(parameter) for parameter in held)}.")
    report.text("Every array, in full precision, is in model.npz.")


def _parameters(results: list[SeedResult]) -> list[Parameter]:
    names = dict.fromkeys(name for result in results for name in result.parameters)
    found = []
    for name in names:
        arrays = [_array(result.parameters.get(name)) for result in results]
        shapes = {None if array is None else array.shape for array in arrays}
        same = len(shapes) == 1 and None not in shapes
        found.append(Parameter(name, np.stack([array for array in arrays if array is not None]) if same else None))
    return found


def _array(value: Any) -> np.ndarray | None:
    """Nested lists of one shape as an array, NaN where there is no number."""
    if not isinstance(value, list):
        found = number(value)
        return np.array(np.nan if found is None else found) if value is None or found is not None else None
    parts = [_array(part) for part in value]
    shapes = {None if part is None else part.shape for part in parts}
    if None in shapes or len(shapes) > 1:
        return None
    return np.stack([part for part in parts if part is not None]) if parts else np.zeros(0)


def _split(parameters: list[Parameter]) -> tuple[list[Parameter], list[Parameter]]:
    """Those shown entry by entry, and the others."""
    entries, summarized, rows = [], [], 0
    for parameter in parameters:
        size = 0 if parameter.values is None else parameter.values[0].size
        if 0 < size <= _SMALL and rows + size <= _ROWS:
            entries.append(parameter)
            rows += size
        else:
            summarized.append(parameter)
    return entries, summarized


def _entry_table(report: Report, parameters: list[Parameter], seeds: list[int]) -> None:
    several = len(seeds) > 1
    shown = seeds if 1 < len(seeds) <= _SEED_COLUMNS else []
    header = ["parameter", *(["mean", "spread"] if several else ["value"]), *(f"seed {seed}" for seed in shown)]
    rows = []
    for name, values in parameters:
        assert values is not None
        for index in np.ndindex(values.shape[1:]):
            entry = values[(slice(None), *index)]
            label = shortened(name, 60) + (f"[{', '.join(map(str, index))}]" if index else "")
            spread = [_shown(np.std(entry, ddof=1), 2)] if several else []
            rows.append(
                [label, _shown(np.mean(entry)), *spread, *(_shown(entry[place]) for place in range(len(shown)))]
            )
    several_words = "mean and standard deviation over the seeds" if several else "as the run ended"
    report.table(header, rows, caption=f"Learned parameters, {several_words}. Indices count from zero.")


def _summary_table(report: Report, parameters: list[Parameter], several: bool) -> None:
    about_seeds = (
        " and seeds. Spread: the root mean square over the entries of their standard deviation over the seeds."
    )
    rows = []
    for name, values in parameters:
        if values is None or not values.size:
            what = "not numbers of one shape" if values is None else shape_in_words(values.shape[1:])
            rows.append([shortened(name, 60), what, *[MISSING] * (4 if several else 3)])
            continue
        one = values.reshape(len(values), -1)
        spread = [_shown(np.sqrt(np.mean(np.var(one, axis=0, ddof=1))), 2)] if several else []
        rows.append(
            [
                shortened(name, 60),
                shape_in_words(values.shape[1:]),
                _shown(one.mean()),
                _shown(np.sqrt(np.mean(one**2))),
                _shown(np.abs(one).max()),
                *spread,
            ]
        )
    report.table(
        ["parameter", "shape", "mean entry", "root mean square", "largest size", *(["spread"] if several else [])],
        rows,
        caption="Arrays that are too long to show entry by entry: over all entries" + (about_seeds if several else "."),
        words={1},
    )


def _fixed_in_words(parameter: Parameter) -> str:
    name, values = shortened(parameter.name, 60), parameter.values
    if values is None or not 0 < values[0].size <= 4:
        return name
    return f"{name} = {', '.join(_shown(value) for value in values[0].ravel())}"


def _shown(value: Any, digits: int = 4) -> str:
    return significant(float(value) if np.isfinite(value) else None, digits)
