"""A structural model in a sentence: the words that name its components, and the model that they make."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mcfo.errors import InputError, nearest
from mcfo.models.autoregression import Autoregression
from mcfo.models.components import Regression, Season, Trend
from mcfo.models.emissions import (
    BinomialEmission,
    NegativeBinomialEmission,
    PoissonEmission,
    StudentEmission,
)
from mcfo.models.stationary_components import AR, Cycle
from mcfo.models.structural_model import EmittedStructural, GaussianStructural, VolatileStructural
from mcfo.transforms import TRANSFORMS, Transform, read_transform

WORDS = {
    "level": ("walk", "fixed", "none"),
    "trend": ("none", "local", "smooth", "deterministic", "damped"),
    "season_kind": ("auto", "dummy", "trigonometric"),
    "season_noise": ("moving", "fixed"),
    "cycle": ("none", "damped", "smooth", "undamped", "fixed"),
    "weights": ("fixed", "parameter", "moving"),
    "emission": ("gaussian", "student", "poisson", "negative-binomial", "binomial", "volatility"),
    "transform": TRANSFORMS,
}
"""The words that each option knows."""
COUNTS = ("poisson", "negative-binomial", "binomial")
_LONGEST_DUMMY = 24
"""The longest season with all harmonics, or an effect for each step, by default; the cost of a filter grows with the
cube of the state."""
_HARMONICS = 5
"""The number of harmonics of longer seasons, by default."""


@dataclass(frozen=True)
class Values:
    """The parameters with which a structural model starts, in the unit of the (transformed) data."""

    irregular: float = 1.0
    level: float = 0.3
    slope: float = 0.1
    season: float = 0.1
    cycle: float = 0.3
    cycle_period: float | None = None
    ar: float = 0.5
    weights: tuple[float, ...] | None = None
    weight_steps: tuple[float, ...] | None = None
    initial_state: tuple[float, ...] | None = None
    initial_scale: float = 1.0


@dataclass(frozen=True)
class Sentence:
    """The words of a structural model; [`structural`][mcfo.models.structural] explains them."""

    level: str = "walk"
    trend: str = "none"
    season: tuple[float, ...] = ()
    season_kind: str = "auto"
    season_noise: str = "moving"
    harmonics: tuple[int, ...] = ()
    cycle: str = "none"
    cycle_bounds: tuple[float, float] = (2.0, math.inf)
    ar: int = 0
    inputs: int = 0
    weights: str = "fixed"
    emission: str = "gaussian"
    trials: int | str | None = None
    irregular: bool = True
    transform: Transform | None = None
    values: Values = field(default_factory=Values)

    def __post_init__(self):
        for option, known in WORDS.items():
            word = getattr(self, option)
            if option != "transform" and word not in known:
                raise InputError(f"The option {option} has no value {word!r}. {nearest(str(word), known)}")
        if self.level == "none" and self.trend != "none":
            raise InputError(f"A {self.trend} trend needs a level. Leave out level=none, or trend={self.trend}.")
        if len(self.harmonics) not in (0, 1, len(self.season)):
            raise InputError(
                f"There are {len(self.season)} seasons but {len(self.harmonics)} numbers of harmonics. Give one for "
                "each, or one for all."
            )
        if not 0 <= self.ar <= 50:
            raise InputError(f"The order of the autoregression must lie from 0 to 50, but got {self.ar}.")
        if self.emission in COUNTS and self.transform is not None:
            raise InputError(f"Counts are not transformed: leave out the transform, or the {self.emission} emission.")
        if self.emission != "gaussian" and not self.irregular:
            raise InputError("Only a Gaussian emission can be without noise. Leave out the emission, or irregular.")
        if self.emission == "binomial" and self.trials is None:
            raise InputError(
                "A binomial emission needs the number of trials. Give trials=N, or trials=inputs if the last input is "
                "the number of trials at each step."
            )
        if self.emission != "binomial" and self.trials is not None:
            raise InputError(f"The {self.emission} emission has no trials. Use emission=binomial, or leave trials out.")
        if isinstance(self.trials, int) and self.trials < 1:
            raise InputError(f"The number of trials must be positive, but got {self.trials}.")
        if self.regressors < 0:
            raise InputError("trials=inputs reads the number of trials from the last input, but there are no inputs.")

    @property
    def regressors(self) -> int:
        """The number of inputs that have weights."""
        return self.inputs - (self.trials == "inputs")

    def build(self) -> GaussianStructural | EmittedStructural | VolatileStructural:
        """Return the model."""
        values = self.values
        parts: dict[str, Any] = {
            "trend": self._trend(),
            "seasons": self._seasons(),
            "cycle": self._cycle(),
            "initial_state": values.initial_state,
            "initial_scale": values.initial_scale,
        }
        if self.ar:
            parts["ar"] = AR(coefficients=[0.5] + [0.0] * (self.ar - 1), scale=values.ar)
        count = self.regressors
        if count and self.weights == "parameter":
            parts["input_weights"] = values.weights or [0.0] * count
        elif count:
            steps = (values.weight_steps or 0.1) if self.weights == "moving" else None
            parts["regression"] = Regression(count, scale=steps)
        if self.emission == "gaussian":
            scale = values.irregular if self.irregular else None
            return GaussianStructural(irregular_scale=scale, transform=self.transform, **parts)
        if self.emission == "volatility":
            level = 2 * math.log(values.irregular)
            noise = Autoregression(level=level, persistence=0.95, scale=0.3)
            return VolatileStructural(log_variance=noise, transform=self.transform, **parts)
        return EmittedStructural(observation=self._observation(), **parts)

    def _trend(self) -> Trend | None:
        values = self.values
        if self.level == "none":
            return None
        moves = self.level == "walk" and self.trend != "smooth"
        return Trend(
            level_scale=values.level if moves else None,
            slope=self.trend != "none",
            slope_scale=values.slope if self.trend in ("local", "smooth", "damped") else None,
            damping=0.98 if self.trend == "damped" else None,
        )

    def _seasons(self) -> tuple[Season, ...]:
        scale = self.values.season if self.season_noise == "moving" else None
        harmonics = self.harmonics * len(self.season) if len(self.harmonics) == 1 else self.harmonics
        seasons = []
        for index, period in enumerate(self.season):
            count = harmonics[index] if harmonics else None
            short = float(period).is_integer() and period <= _LONGEST_DUMMY and count is None
            # Waves forecast better; particles, which draw every entry with noise, want the one of dummies.
            dummy = short and self.emission != "gaussian"
            kind = self.season_kind if self.season_kind != "auto" else "dummy" if dummy else "trigonometric"
            if kind == "trigonometric" and count is None and period > _LONGEST_DUMMY:
                count = _HARMONICS
            seasons.append(Season(period, scale=scale, kind=kind, harmonics=count))
        return tuple(seasons)

    def _cycle(self) -> Cycle | None:
        if self.cycle == "none":
            return None
        low, high = self.cycle_bounds
        period = self.values.cycle_period or (2 * low if high == math.inf else math.sqrt(low * high))
        return Cycle(
            period=period,
            damping=0.9 if self.cycle in ("damped", "smooth") else None,
            scale=None if self.cycle == "fixed" else self.values.cycle,
            smooth=self.cycle == "smooth",
            bounds=self.cycle_bounds,
        )

    def _observation(self) -> Any:
        if self.emission == "poisson":
            return PoissonEmission()
        if self.emission == "negative-binomial":
            return NegativeBinomialEmission()
        if self.emission == "binomial":
            return BinomialEmission(self.trials if isinstance(self.trials, int) else None)
        return StudentEmission(scale=self.values.irregular, transform=self.transform)


def structural(
    *,
    level: str = "walk",
    trend: str = "none",
    season: float | int | Sequence[float | int] = (),
    season_kind: str = "auto",
    season_noise: str = "moving",
    harmonics: int | Sequence[int] = (),
    cycle: str | bool = "none",
    cycle_bounds: tuple[float | int, float | int] = (2.0, math.inf),
    ar: int = 0,
    inputs: int = 0,
    weights: str = "fixed",
    emission: str = "gaussian",
    trials: int | str | None = None,
    irregular: bool = True,
    transform: Transform | str | None = None,
    values: Values | None = None,
) -> GaussianStructural | EmittedStructural | VolatileStructural:
    """A structural model: a sum of components, seen through an emission. Harvey (1989).

    With a Gaussian emission it is linear and Gaussian, and its likelihood exact; otherwise it is for particles.
    `mcfo.initialize("structural", series, ...)` takes the same words and starts at values from the data.

    **Arguments:**

    - `level`: walk (a random walk), fixed (one number) or none.
    - `trend`: the slope of the level. local (a random walk), smooth (the same under a level without noise of its own),
      deterministic (one number), damped (an autoregression that returns to zero) or none.
    - `season`: one period or several, in steps; those that are not whole are trigonometric.
    - `season_kind`: dummy (an effect for each step of the period) or trigonometric (waves); by default trigonometric,
      but dummy up to a period of 24 for particles, which then draw one number a step for it.
    - `season_noise`: moving (the pattern changes) or fixed.
    - `harmonics`: the number of waves of a trigonometric season; by default all up to a period of 24, then 5.
    - `cycle`: damped (stochastic), smooth (damped, with noise in its quadrature alone: an autoregression of order two),
      undamped (stochastic too), fixed or none; True is damped.
    - `cycle_bounds`: between which the period of the cycle lies.
    - `ar`: the order of a stationary autoregression.
    - `inputs`: the number of inputs.
    - `weights`: those of the inputs: fixed (unknown numbers with a diffuse start), parameter (learned like the
      variances), or moving (random walks).
    - `emission`: gaussian, student, poisson, negative-binomial, binomial or volatility (stochastic).
    - `trials`: of a binomial emission: a number, or "inputs" if the last input is the number of trials.
    - `irregular`: whether a Gaussian emission has noise.
    - `transform`: of the data under a Gaussian, Student or volatile emission: log, box-cox, logit, or an object such as
      `Logit(0, 100)`.
    - `values`: initial values of the parameters.
    """
    periods = (season,) if isinstance(season, float | int) else season
    counts = (harmonics,) if isinstance(harmonics, int) else tuple(harmonics)
    word = {True: "damped", False: "none"}[cycle] if isinstance(cycle, bool) else cycle
    return Sentence(
        level=level,
        trend=trend,
        season=tuple(map(float, periods)),
        season_kind=season_kind,
        season_noise=season_noise,
        harmonics=counts,
        cycle=word,
        cycle_bounds=(float(cycle_bounds[0]), float(cycle_bounds[1])),
        ar=ar,
        inputs=inputs,
        weights=weights,
        emission=emission,
        trials=trials,
        irregular=irregular,
        transform=read_transform(transform),
        values=Values() if values is None else values,
    ).build()
