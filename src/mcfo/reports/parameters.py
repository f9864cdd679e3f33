"""The learned parameters: short arrays entry by entry, long ones by their size and spread."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mcfo.data.run_record import RunRecord, SeedRecord, number
from mcfo.files import nested
from mcfo.reports.formatting import MISSING, listed, parameter_name, shape_text, shortened, significant
from mcfo.reports.html import Report

_SMALL = 16
"""Entries of an array that are shown one by one: a matrix of four by four is."""
_ROWS = 64
"""Rows that a table of entries may have; further arrays are summarized."""
_SEED_COLUMNS = 5
"""With more seeds than these, mean and spread stand for them."""


class Parameter(NamedTuple):
    """A parameter's values, one row for each seed; None where the seeds' shapes differ or it holds no numbers."""

    name: str
    values: np.ndarray | None


def count_learned(config: dict[str, Any], module: str) -> int | None:
    """The number of learned numbers of the model or the proposal; None where config.json does not say."""
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
    """Whether a stored parameter, or the module it belongs to, was held fixed."""
    sections = (nested(config, module, "fixed") for module in ("model", "proposal", "settings"))
    paths = [path for fixed in sections if isinstance(fixed, list) for path in fixed if isinstance(path, str)]
    return any(name == path or name.startswith(f"{path}.") for path in paths)


def readable_parameters(run: RunRecord) -> tuple[list[Parameter], list[Parameter]]:
    """The parameters as people mean them, learned ones and fixed ones; as they are stored where a run has no others."""
    if any(result.readable for result in run.results):
        fixed = nested(run.ended, "readable_fixed")
        held = {name for name in fixed if isinstance(name, str)} if isinstance(fixed, list) else set()
        everything = _stacked(run.results, "readable")
    else:
        everything = _stacked(run.results, "parameters")
        held = {parameter.name for parameter in everything if is_fixed(run.config, parameter.name)}
    learned = [parameter for parameter in everything if parameter.name not in held]
    return learned, [parameter for parameter in everything if parameter.name in held]


def add_parameters(report: Report, run: RunRecord) -> None:
    """The learned parameters of the model, entry by entry, and those that were held fixed."""
    learned, held = readable_parameters(run)
    entries, long = _split([parameter for parameter in learned if _of_model(parameter)])
    if entries:
        _add_entries(report, entries, run, _units(run))
        for note in uncertainty_notes(run):
            report.text(note)
    if long:
        names = listed(parameter_name(parameter.name) for parameter in long[:8])
        more = f" and {len(long) - 8} more" if len(long) > 8 else ""
        report.text(f"Arrays too long to show here: {names}{more}. Their sizes are further below.")
    held = [parameter for parameter in held if _of_model(parameter)]
    if held:
        report.text(f"Held fixed: {listed(_fixed_text(parameter) for parameter in held)}.")
    if not entries and not long:
        report.text("No parameter of the model was learned.")


def add_other_arrays(report: Report, run: RunRecord) -> None:
    """The parameters of the proposal, and the long arrays of both."""
    learned, _ = readable_parameters(run)
    _, long = _split([parameter for parameter in learned if _of_model(parameter)])
    entries, further = _split([parameter for parameter in learned if not _of_model(parameter)])
    if entries:
        _add_entries(report, entries, run, "")
    if long or further:
        _add_summaries(report, long + further, len(run.results) > 1)
    report.text("Every array, as it is stored and in full precision, is in model.npz.")


def _units(run: RunRecord) -> str:
    columns = f" ({listed(shortened(name, 40) for name in run.columns)})" if 0 < len(run.columns) <= 8 else ""
    noise = "unit of time" if number(nested(run.config, "data", "unit")) else "step"
    return (
        f" Levels, offsets and standard deviations have the units of the data{columns}, those of logarithms none; "
        f"noise is per {noise}."
    )


def _of_model(parameter: Parameter) -> bool:
    return not parameter.name.startswith("proposal.")


def _stacked(results: list[SeedRecord], field: str) -> list[Parameter]:
    by_seed = [getattr(result, field) for result in results]
    parameters = []
    for name in dict.fromkeys(name for values in by_seed for name in values):
        arrays = [array for values in by_seed if (array := _array(values.get(name))) is not None]
        same = len(arrays) == len(by_seed) and len({array.shape for array in arrays}) == 1
        parameters.append(Parameter(name, np.stack(arrays) if same else None))
    return parameters


def _array(value: Any) -> np.ndarray | None:
    """Nested lists of numbers of one shape as an array, NaN for null; None for anything else."""
    entries = np.array(value, dtype=object)
    numbers = [number(entry) for entry in entries.flat]
    if any(one is None and entry is not None for one, entry in zip(numbers, entries.flat, strict=True)):
        return None
    return np.array(numbers, dtype=float).reshape(entries.shape)


def _split(parameters: list[Parameter]) -> tuple[list[Parameter], list[Parameter]]:
    """Those shown entry by entry, and the others."""
    entries, long, rows = [], [], 0
    for parameter in parameters:
        size = 0 if parameter.values is None else parameter.values[0].size
        if 0 < size <= _SMALL and rows + size <= _ROWS:
            entries.append(parameter)
            rows += size
        else:
            long.append(parameter)
    return entries, long


def _add_entries(report: Report, parameters: list[Parameter], run: RunRecord, units: str) -> None:
    about = "mean and standard deviation over the seeds" if len(run.results) > 1 else "at the end of the run"
    if _intervals(run):
        about = f"with standard errors and 95 % intervals ({run.results[0].uncertainty.get('method')})"
    indexed = any(values is not None and values[0].size > 1 for _, values in parameters)
    caption = f"Learned parameters, {about}.{units}{' Indices count from zero.' if indexed else ''}"
    report.table(*_entry_rows(parameters, run), caption=caption, words={0})


def model_rows(run: RunRecord) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the learned parameters of the model that are short enough to be shown."""
    learned, _ = readable_parameters(run)
    entries, _ = _split([parameter for parameter in learned if _of_model(parameter)])
    return _entry_rows(entries, run)


def uncertainty_notes(run: RunRecord) -> list[str]:
    """What is to be said about the standard errors of a run with one seed."""
    notes = run.results[0].uncertainty.get("notes") if len(run.results) == 1 else None
    return [note for note in notes if isinstance(note, str)] if isinstance(notes, list) else []


def _intervals(run: RunRecord) -> dict[str, tuple[float | None, ...]]:
    """Standard error and interval of each parameter of a run with one seed, by its name without "model."."""
    rows = run.results[0].uncertainty.get("parameters") if len(run.results) == 1 else None
    return {
        row["name"]: tuple(number(row.get(part)) for part in ("stderr", "low", "high"))
        for row in (rows if isinstance(rows, list) else [])
        if isinstance(row, dict) and isinstance(row.get("name"), str)
    }


def _entry_rows(parameters: list[Parameter], run: RunRecord) -> tuple[list[str], list[list[str]]]:
    seeds, known = [result.seed for result in run.results], _intervals(run)
    several = len(seeds) > 1
    known = known if any(_of_model(parameter) for parameter in parameters) else {}
    shown = seeds if 1 < len(seeds) <= _SEED_COLUMNS else []
    header = ["parameter", *(["mean", "spread"] if several else ["value"]), *(f"seed {seed}" for seed in shown)]
    header += ["std. error", "95 % interval"] if known else []
    rows = []
    for name, values in parameters:
        assert values is not None
        for index in np.ndindex(values.shape[1:]):
            entry = values[(slice(None), *index)]
            label = parameter_name(name) + (f" [{', '.join(map(str, index))}]" if values[0].size > 1 else "")
            spread = [_shown(np.std(entry, ddof=1), 2)] if several else []
            cells = [_shown(np.mean(entry)), *spread, *(_shown(value) for value in entry[: len(shown)])]
            if known:
                own = name.removeprefix("model.") + (f"[{', '.join(map(str, index))}]" if values[0].size > 1 else "")
                stderr, low, high = known.get(own, (None, None, None))
                ends = MISSING if stderr is None else f"{significant(low)} to {significant(high)}"
                cells += [significant(stderr, 2), ends]
            rows.append([label, *cells])
    return header, rows


def _add_summaries(report: Report, parameters: list[Parameter], several: bool) -> None:
    rows = []
    for name, values in parameters:
        if values is None or not values.size:
            what = "not numbers of one shape" if values is None else shape_text(values.shape[1:])
            rows.append([parameter_name(name), what, *[MISSING] * (4 if several else 3)])
            continue
        one = values.reshape(len(values), -1)
        spread = [_shown(np.sqrt(np.mean(np.var(one, axis=0, ddof=1))), 2)] if several else []
        sizes = (_shown(one.mean()), _shown(np.sqrt(np.mean(one**2))), _shown(np.abs(one).max()))
        rows.append([parameter_name(name), shape_text(values.shape[1:]), *sizes, *spread])
    seeds = " and seeds. Spread: the root mean square over the entries of their standard deviation over the seeds"
    report.table(
        ["parameter", "shape", "mean entry", "root mean square", "largest size", *(["spread"] if several else [])],
        rows,
        caption=f"Arrays too long to show entry by entry: over all entries{seeds if several else ''}.",
        words={0, 1},
    )


def _fixed_text(parameter: Parameter) -> str:
    name, values = parameter_name(parameter.name), parameter.values
    if values is None or not 0 < values[0].size <= 4:
        return name
    return f"{name} = {', '.join(_shown(value) for value in values[0].ravel())}"


def _shown(value: Any, digits: int = 4) -> str:
    return significant(float(value) if np.isfinite(value) else None, digits)
