"""Models by name for the command line, begun near the data."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from mcfo.catalogue.classical import check_counts, linear_gaussian, poisson_counts, stochastic_volatility
from mcfo.catalogue.deep import check_deep, deep
from mcfo.catalogue.recurrent import check_recurrent, srnn, vrnn
from mcfo.catalogue.start import Start, Widths
from mcfo.files import InputError
from mcfo.sequences import Sequence
from mcfo.suggestions import nearest

_WANTED = {int: "a whole number", Widths: "positive whole numbers with commas between them, such as 64,32"}


@dataclass(frozen=True)
class Entry:
    """A model of the catalogue.

    - `build`: makes it, near the data; the keyword arguments of `build(sequences, ...)` are the model's options.
    - `check`: refuses series that the model with these options cannot explain, whatever its parameters are.
    """

    summary: str
    build: Callable[..., Start]
    check: Callable[[list[Sequence], Mapping[str, Any]], None] = lambda sequences, options: None


CATALOGUE: dict[str, Entry] = {
    "linear-gaussian": Entry("real numbers: a hidden linear autoregression seen through noise", linear_gaussian),
    "stochastic-volatility": Entry(
        "returns around zero: their log-variance is a hidden autoregression", stochastic_volatility
    ),
    "poisson-counts": Entry("counts: their log-intensity is a hidden autoregression", poisson_counts, check_counts),
    "deep": Entry("vectors or pictures, real or binary: networks for all of it", deep, check_deep),
    "vrnn": Entry("binary vectors, music: a recurrent network that remembers everything", vrnn, check_recurrent),
    "srnn": Entry("the same, with a recurrence that reads the observations alone", srnn, check_recurrent),
}
"""The models that `mcfo fit NAME` knows."""


def check(name: str, sequences: list[Sequence], options: Mapping[str, Any]) -> None:
    """Refuses series that a model of the catalogue cannot explain, whatever its parameters are."""
    if name not in CATALOGUE:
        raise InputError(f"There is no model {name!r}. {nearest(name, CATALOGUE)}")
    CATALOGUE[name].check(sequences, options)


def make(name: str, sequences: list[Sequence], options: Mapping[str, str | float | int]) -> Start:
    """Builds a model of the catalogue for these series; options may be text, as they come from a command line."""
    check(name, sequences, options)
    build = CATALOGUE[name].build
    known = {
        option: parameter.annotation
        for option, parameter in inspect.signature(build, eval_str=True).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    read = {}
    for option, value in options.items():
        if option not in known:
            raise InputError(f"The model {name} has no option {option!r}. {nearest(option, known)}")
        try:
            read[option] = known[option](value)
        except (ValueError, TypeError, OverflowError):
            wanted = _WANTED.get(known[option], "a number")
            raise InputError(f"The option {option} must be {wanted}, but got {value!r}.") from None
    return build(sequences, **read)
