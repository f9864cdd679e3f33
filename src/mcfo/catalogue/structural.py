"""Structural models by name: their options as text, what they refuse, and the fit's start."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mcfo.catalogue.from_data import Impossible, Start, observed
from mcfo.catalogue.linear import check_moving
from mcfo.catalogue.structural_start import initial_values
from mcfo.errors import InputError
from mcfo.models.structural_model import GaussianStructural, VolatileStructural
from mcfo.models.structural_words import COUNTS, WORDS, Sentence
from mcfo.proposals.base import Bootstrap
from mcfo.proposals.linearized import Linearized
from mcfo.series import Series
from mcfo.transforms import Transform, read_transform


class Numbers(tuple[float, ...]):
    """Numbers with commas between them, such as 7,365.25."""

    def __new__(cls, given: str | float | int | Iterable[float | int]) -> Numbers:
        parts = given.split(",") if isinstance(given, str) else [given] if isinstance(given, float | int) else given
        return super().__new__(cls, (float(one) for one in parts))


class Flag(int):
    """yes or no."""

    def __new__(cls, given: str | bool) -> Flag:
        words = {"yes": True, "true": True, "no": False, "false": False}
        return super().__new__(cls, given if isinstance(given, bool) else words[given.lower()])

    def __str__(self) -> str:
        return "yes" if self else "no"


class Trials(str):
    """A whole number, or the word inputs."""

    def __new__(cls, given: str | int) -> Trials:
        if given != "inputs":
            int(given)
        return super().__new__(cls, given)


def structural_model(
    series_list: list[Series],
    gaps: bool = False,
    *,
    level: str = "walk",
    trend: str = "none",
    season: Numbers = Numbers(()),  # noqa: B008
    season_kind: str = "auto",
    season_noise: str = "moving",
    harmonics: Numbers = Numbers(()),  # noqa: B008
    cycle: str = "none",
    cycle_bounds: Numbers | None = None,
    ar: int = 0,
    weights: str = "fixed",
    emission: str = "gaussian",
    trials: Trials | None = None,
    irregular: Flag = Flag("yes"),  # noqa: B008
    transform: str = "none",
    power: float | None = None,
    center: float | None = None,
    bounds: Numbers | None = None,
) -> Start:
    """Build a structural model whose variances explain the changes of the data."""
    values = observed(series_list)
    if values.shape[1] > 1:
        raise InputError(
            f"A structural model explains one column, but there are {values.shape[1]}. Choose one (on the command "
            "line, --columns), or make each column a series of its own."
        )
    steps = max(len(series.values()) for series in series_list)
    for period in season:
        if period >= steps:
            raise InputError(
                f"A season of {period:g} steps does not fit in the longest series, which has {steps}. Give more rows, "
                "or a shorter season."
            )
    counts = tuple(int(one) for one in harmonics)
    if counts != tuple(harmonics):
        raise InputError(f"The option harmonics must be whole numbers, but got {', '.join(map(str, harmonics))}.")
    decided: dict[str, str] = {}
    if transform == "box-cox" and center is None:
        center = float(np.exp(np.nanmean(np.log(values))))
        decided["center"] = repr(center)
    if cycle != "none" and cycle_bounds is None:
        # A cycle is longer than the season, and is seen at least once.
        low = max([2.0, *(1.5 * period for period in season)])
        cycle_bounds = Numbers((low, max(float(steps), 2 * low)))
        decided["cycle_bounds"] = ",".join(map(repr, cycle_bounds))
    sentence = Sentence(
        level=level,
        trend=trend,
        season=tuple(season),
        season_kind=season_kind,
        season_noise=season_noise,
        harmonics=counts,
        cycle=cycle,
        cycle_bounds=_pair("cycle_bounds", cycle_bounds) if cycle_bounds else (2.0, math.inf),
        ar=ar,
        inputs=0 if series_list[0].inputs is None else series_list[0].inputs.shape[-1],
        weights=weights,
        emission=emission,
        trials=int(trials) if trials and trials != "inputs" else trials,
        irregular=bool(irregular),
        transform=_transform(transform, power, center, bounds),
    )
    if emission not in COUNTS:
        check_moving(values)
    sentence = replace(sentence, values=initial_values(sentence, series_list))
    model = sentence.build()
    fixed = ["model.log_initial_scale"]
    if isinstance(model, GaussianStructural):
        # They serve particles and simulations; the exact likelihood starts diffuse and does not depend on them.
        fixed.append("model.initial_state")
    if power is not None:
        fixed.append("model.transform.power" if emission != "student" else "model.observation.transform.power")
    if isinstance(model, VolatileStructural) or not irregular:
        return Start(model, Bootstrap(), tuple(fixed), decided)
    return Start(model, Linearized(model), (*fixed, "proposal"), decided)


def check_structural(values: np.ndarray, options: Mapping[str, Any]) -> Impossible | None:
    """Return the first value that has no transform, or that is no count."""
    emission, name = str(options.get("emission", "gaussian")), str(options.get("transform", "none"))
    if emission in COUNTS:
        whole = np.isnan(values) | ((values >= 0) & (values == np.floor(values)))
        trials = str(options.get("trials", "inputs"))
        if emission == "binomial" and trials.isdigit() and (values > int(trials)).any():
            return Impossible.first(values > int(trials), f"is more than the {trials} trials of a binomial emission.")
        return Impossible.first(~whole, f"is no count, but the emission is {emission}. Choose another emission.")
    if name not in WORDS["transform"] or name == "none":
        return None
    try:
        bounds = Numbers(options["bounds"]) if "bounds" in options else None
    except ValueError:
        return None  # an option that cannot be read is refused when the model is built
    transform = _transform(name, None, None, bounds)
    assert transform is not None
    low, high = transform.range
    wrong = (values <= low) | (values >= high)
    return Impossible.first(wrong, f"has no {transform}: values must lie {transform.range_text()}. {transform.remedy}")


def example(options: Mapping[str, Any]) -> np.ndarray:
    """Values that a model with these options can explain: enough of them for its seasons, inside its transform."""
    steps = 4 + int(max((2 * period for period in Numbers(options.get("season", ()))), default=0))
    values = np.arange(steps)[:, None] % 2
    if str(options.get("emission", "gaussian")) in COUNTS:
        return values
    low, high = Numbers(options.get("bounds", (0.0, 1.0)))
    return low + (high - low) * (0.25 + 0.5 * values)


def _transform(name: str, power: float | None, center: float | None, bounds: Numbers | None) -> Transform | None:
    pair = None if bounds is None else _pair("bounds", bounds)
    return read_transform(name, power=power, center=1.0 if center is None else center, bounds=pair)


def _pair(name: str, numbers: Numbers) -> tuple[float, float]:
    if len(numbers) != 2:
        raise InputError(f"The option {name} must be two numbers with a comma between them, but got {list(numbers)}.")
    return numbers[0], numbers[1]
