"""JSON lines: observations of a stream, and the answers to them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from io import BufferedIOBase
from typing import Any, NamedTuple, NoReturn

from mcfo.errors import InputError, nearest
from mcfo.files import json_text
from mcfo.limits import limits
from mcfo.validation import largest_value, too_large

ELAPSED = "elapsed"
"""The name of the time since the previous line, in the unit of the model."""


class Line(NamedTuple):
    """An observation, with NaN where it is missing, and the inputs; None for a model without inputs."""

    values: list[float]
    inputs: list[float] | None


def read_lines(file: BufferedIOBase) -> Iterator[str | InputError]:
    """Yield the lines of a stream, and an error in place of one that is too long or no text in UTF-8."""
    most = limits()
    while line := file.readline(most.line + 1):
        try:
            if len(line) > most.line:
                # Its rest is left out in parts.
                while not line.endswith(b"\n") and (line := file.readline(2**16)):
                    pass
                raise InputError(
                    f"it has more than {most.line} bytes. Write one observation a line, or raise the limit: mcfo "
                    "--limit line=1e8."
                )
            yield line.decode()
        except UnicodeDecodeError as error:
            yield InputError(f"it is no text in UTF-8 (byte {error.start + 1}: {error.reason}).")
        except InputError as error:
            yield error


def read_line(text: str, columns: Sequence[str], inputs: Sequence[str] = (), *, timed: bool = False) -> Line:
    """Read one observation: a number for one column, an array of numbers, or an object by the names of the columns.

    null is a missing value, and so is a column that an object does not name.

    **Arguments:**

    - `inputs`: the names of inputs, which an object must have too.
    - `timed`: whether the first input is the time since the previous line: `elapsed` in an object, by default 1.
    """
    try:
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise InputError("it is nested too deeply.") from None
    except ValueError as error:
        raise InputError(f"it is no JSON ({error}).") from None
    driving = _driving(value, inputs, timed=timed)
    if isinstance(value, dict):
        known = [*columns, *inputs, *([ELAPSED] if timed else [])]
        for name in value:
            if name not in known:
                raise InputError(f"it has {name!r}, but the model knows {', '.join(known)}. {nearest(name, known)}")
        value = [value.get(name) for name in columns]
    if value is None:
        value = [None] * len(columns)
    if not isinstance(value, list):
        value = [value]
    if len(value) != len(columns):
        raise InputError(f"it has {len(value)} values, but {len(columns)} are wanted: {', '.join(columns)}.")
    return Line([_number(one, name) for one, name in zip(value, columns, strict=True)], driving)


def _driving(value: Any, names: Sequence[str], *, timed: bool) -> list[float] | None:
    if not names and not timed:
        return None
    fields = value if isinstance(value, dict) else {}
    numbers = [_number(fields.get(ELAPSED, 1.0), ELAPSED)] if timed else []
    if timed and not numbers[0] > 0:
        raise InputError(f"{ELAPSED} is {json_text(fields[ELAPSED])}, but a positive number is wanted.")
    for name in names:
        number = _number(fields.get(name), name)
        if math.isnan(number):
            raise InputError(f"the input {name} is missing: the model reads {', '.join(names)} at every step.")
        numbers.append(number)
    return numbers


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number; write null for what is missing")


def _number(value: Any, name: str) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{name} is {json_text(value)}, but a number or null is wanted.")
    if abs(value) > largest_value():
        raise InputError(f"{name}: {too_large(str(value)[:40], 'write null')}")
    return float(value)


def write_answer(
    step: int,
    mean: Any,
    quantiles: Any,
    levels: Sequence[float],
    ess: Any,
    log_predictive: Any,
    *,
    refused: bool = False,
) -> str:
    """Return the answer to an observation; numbers that are not finite are null."""
    return json.dumps(
        {
            "step": step,
            "mean": _finite(mean.tolist()),
            "quantiles": {f"{level:g}": _finite(row) for level, row in zip(levels, quantiles.tolist(), strict=True)},
            "ess": _finite(float(ess)),
            "log_predictive": _finite(float(log_predictive)),
            **({"refused": True} if refused else {}),
        },
        allow_nan=False,
    )


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return value if math.isfinite(value) else None
