"""The record of a run, read from its folder without JAX and without trust: a value of the wrong kind counts as
missing, a broken file is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mcfo.errors import InputError, printable
from mcfo.files import json_text, nested, refuse_links
from mcfo.limits import check_document, limits

_SECTIONS = ("model", "objective", "data", "settings")
"""Without these objects in config.json there is nothing to say about a run."""
_LINES = 8
"""How many times the limit of a document the metrics may be long, of which one line is read at a time."""
EACH = "fit-each"
"""The kind of a run with a model for each series."""
_LARGEST = 1e100
"""Larger numbers are no result, and no axis can show them."""

Curve = dict[int, tuple[np.ndarray, np.ndarray]]
"""For each seed the steps and the values there, NaN where there is none."""


def number(value: Any) -> float | None:
    """The value if it is a finite number of sensible size."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if -_LARGEST < value < _LARGEST else None


def whole(value: Any) -> int | None:
    """The value if it is a whole number."""
    result = number(value)
    return None if result is None or result != math.floor(result) else int(result)


def text(value: Any) -> str | None:
    """The value if it is text that is not blank."""
    return value if isinstance(value, str) and value.strip() else None


def entries(value: Any) -> dict[str, Any]:
    """The value if it is an object; an empty one otherwise."""
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class SeedRecord:
    """The result of one seed of a finished run: `parameters` as they are stored, `readable` as people mean them,
    `uncertainty` with their standard errors."""

    seed: int
    skipped: int
    best_step: int | None
    evaluation: dict[str, Any]
    parameters: dict[str, Any]
    readable: dict[str, Any]
    uncertainty: dict[str, Any]

    def value(self, name: str) -> float | None:
        """A number of the evaluation."""
        return number(self.evaluation.get(name))


@dataclass(frozen=True)
class RunRecord:
    """The content of a run folder.

    - `lines`: the metrics of each seed in the order of the steps.
    - `ended`: results.json; None before the run has ended.
    - `results`: the seeds in it.
    """

    folder: Path
    config: dict[str, Any]
    lines: dict[int, list[dict[str, Any]]]
    ended: dict[str, Any] | None
    results: list[SeedRecord]

    @property
    def particles(self) -> int | None:
        """K of the objective for theta."""
        sampler = nested(self.config, "objective", "theta", "sampler")
        return _positive(nested(sampler, "particles")) or _positive(nested(sampler, "sampler", "particles"))

    @property
    def evaluation_particles(self) -> int | None:
        """K of the evaluations during learning: that of the objective unless a setting says otherwise."""
        return _positive(nested(self.config, "settings", "evaluation_particles")) or self.particles

    @property
    def seeds(self) -> list[int]:
        """The seeds that were asked for."""
        seeds = nested(self.config, "settings", "seeds")
        return [seed for one in seeds if (seed := whole(one)) is not None] if isinstance(seeds, list) else []

    @property
    def dimensions(self) -> int | None:
        """The number of observed columns."""
        size = _positive(nested(self.config, "data", "dimensions"))
        return size if size is not None and size <= limits().columns else None

    @property
    def columns(self) -> list[str]:
        """The names of the observed columns; empty where they are not known."""
        columns = self.names("columns") or []
        return columns if len(columns) == self.dimensions else []

    @property
    def image(self) -> tuple[int, int] | None:
        """Height and width, if the run learned from images."""
        sides = nested(self.config, "data", "image")
        height, width = map(_positive, sides) if isinstance(sides, list) and len(sides) == 2 else (None, None)
        return (height, width) if height and width and height * width == self.dimensions else None

    def names(self, entry: str) -> list[str] | None:
        """A list of names among the entries about the data."""
        names = nested(self.config, "data", entry)
        return names if isinstance(names, list) and all(isinstance(name, str) for name in names) else None

    @property
    def step(self) -> int:
        """The step that every seed has reached."""
        done = whole(nested(self.ended, "steps"))
        return done if done is not None else min((lines[-1]["step"] for lines in self.lines.values()), default=0)

    @property
    def planned(self) -> int | None:
        """The number of steps that were asked for."""
        return whole(nested(self.config, "settings", "steps"))

    @property
    def skipped(self) -> dict[int, int]:
        """The number of updates that each seed skipped."""
        if self.ended is not None:
            return {result.seed: result.skipped for result in self.results}
        return {seed: whole(self.last(seed, "skipped")) or 0 for seed in self.lines}

    @property
    def best(self) -> SeedRecord | None:
        """The seed with the lowest NLL, as far as any is known."""
        known = [(value, result) for result in self.results if (value := result.value("nll_per_step")) is not None]
        return min(known, key=lambda pair: pair[0])[1] if known else None

    def last(self, seed: int, name: str) -> float | None:
        """The last value of a metric that is a number."""
        values = (number(line.get(name)) for line in reversed(self.lines.get(seed, [])))
        return next((value for value in values if value is not None), None)

    def curve(self, *names: str) -> Curve:
        """A metric over the steps, for the seeds that have any number there."""
        curve = {}
        for seed, lines in self.lines.items():
            values = np.array([_or_nan(nested(line, *names)) for line in lines])
            if np.isfinite(values).any():
                curve[seed] = (np.array([line["step"] for line in lines], float), values)
        return curve

    @property
    def watched(self) -> list[str]:
        """The names of the watched quantities, in the order of their first line."""
        lines = [line for lines in self.lines.values() for line in lines]
        names = dict.fromkeys(name for line in lines for name in entries(line.get("watched")))
        return [name for name in names if self.curve("watched", name)]


def read_run(folder: Path, *, metrics: bool = True, kinds: Sequence[str] = ("fit",)) -> RunRecord:
    """Reads a run folder, without its metrics where they are not wanted; an error says what is missing and what to
    do."""
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "does not exist"
        raise InputError(f"{folder} {what}. Give the folder that mcfo fit wrote (--out).")
    refuse_links(folder)
    config = _read_config(folder, kinds)
    ended = _read_object(folder / "results.json", "Restore it; or delete it and resume the run with --resume.")
    lines = _read_metrics(folder / "metrics.jsonl") if metrics else {}
    return RunRecord(folder, config, lines, ended, _seed_records(ended))


def _read_config(folder: Path, kinds: Sequence[str]) -> dict[str, Any]:
    path = folder / "config.json"
    remedy = "Restore it, or run mcfo fit again with another --out."
    config = _read_object(path, remedy)
    if config is None:
        raise InputError(
            f"{folder} holds no run: there is no config.json in it. Give the folder that mcfo fit wrote (--out)."
        )
    if config.get("kind") not in kinds:
        there = " Its report.html is there already." if (folder / "report.html").exists() else ""
        raise InputError(
            f"{path} has kind {json_text(config.get('kind'))}, but kind {kinds[0]!r} is wanted.{there} Give the "
            "folder that mcfo fit wrote (--out)."
        )
    missing = [name for name in _SECTIONS if not isinstance(config.get(name), dict)]
    if missing:
        raise InputError(f"{path} has no {' and no '.join(missing)} (an object is wanted). {remedy}")
    return config


def _read_object(path: Path, remedy: str) -> dict[str, Any] | None:
    """The object in a JSON file; None if there is no file."""
    try:
        check_document(path)
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}. Change that, or give another folder.") from error
    try:
        value = _parse(content)
    except ValueError as error:
        raise InputError(f"{path} is not valid JSON: {error}. {remedy}") from error
    if not isinstance(value, dict):
        raise InputError(f"{path} holds {json_text(value)}, but an object in braces is wanted. {remedy}")
    return value


def _parse(content: bytes) -> Any:
    """The value, whose texts can be shown; ValueError if there is none, or if it is nested too deeply."""
    deepest = limits().nesting
    too_deep = ValueError(f"it is nested more than {deepest} deep")
    try:
        value = json.loads(content)
    except RecursionError as error:
        raise too_deep from error

    def readable(value: Any, depth: int) -> Any:
        if depth > deepest:
            raise too_deep
        if isinstance(value, str):
            return printable(value)
        if isinstance(value, list):
            return [readable(part, depth + 1) for part in value]
        if isinstance(value, dict):
            return {printable(name): readable(part, depth + 1) for name, part in value.items()}
        return value

    return readable(value, 0)


def _read_metrics(path: Path) -> dict[int, list[dict[str, Any]]]:
    """The lines of each seed by step. Where a resumed run repeated a step, the later line counts."""
    try:
        if path.exists():
            limits().check("document", path.stat().st_size // _LINES, path)
        rows = path.read_bytes().splitlines() if path.exists() else []
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}. Change that, or give another folder.") from error
    by_seed: dict[int, dict[int, dict[str, Any]]] = {}
    for index, row in enumerate(rows, 1):
        if not row.strip():
            continue
        try:
            line = _parse(row)
        except ValueError as error:
            if index == len(rows):
                continue  # the process was ended in the middle of it
            raise InputError(f"Line {index} of {path} is not valid JSON: {error}. Delete that line.") from error
        seed, step = whole(nested(line, "seed")), whole(nested(line, "step"))
        if seed is None or step is None:
            raise InputError(
                f"Line {index} of {path} is {json_text(line)}, but an object with whole numbers 'seed' and 'step' is "
                "wanted. Delete that line."
            )
        by_seed.setdefault(seed, {})[step] = {**line, "seed": seed, "step": step}
    return {seed: [lines[step] for step in sorted(lines)] for seed, lines in sorted(by_seed.items())}


def _seed_records(ended: dict[str, Any] | None) -> list[SeedRecord]:
    seeds = nested(ended, "seeds")
    return [
        SeedRecord(
            seed,
            whole(one.get("skipped")) or 0,
            whole(one.get("best_step")),
            *(entries(one.get(name)) for name in ("evaluation", "parameters", "readable", "uncertainty")),
        )
        for one in (seeds if isinstance(seeds, list) else [])
        if (seed := whole(nested(one, "seed"))) is not None
    ]


def _positive(value: Any) -> int | None:
    result = whole(value)
    return result if result is not None and result > 0 else None


def _or_nan(value: Any) -> float:
    result = number(value)
    return math.nan if result is None else result
