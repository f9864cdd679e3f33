"""The catalogue: models by name, initialized near the data."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from mcfo.catalogue.counts_volatility import (
    check_counts,
    negative_binomial_counts,
    poisson_counts,
    stochastic_volatility,
)
from mcfo.catalogue.from_data import Impossible, Start, Widths
from mcfo.catalogue.linear import linear_gaussian, local_level, local_trend
from mcfo.catalogue.networks import check_deep, check_recurrent, deep, srnn, vrnn
from mcfo.catalogue.regimes import check_hmm, hmm, switching
from mcfo.catalogue.structural import Flag, Numbers, Trials, check_structural, example, structural_model
from mcfo.data.tables import table_of
from mcfo.errors import InputError, nearest
from mcfo.series import Series

LIKELIHOOD: Mapping[str, str] = MappingProxyType({"theta": "fisher-lag-50", "phi": "dreg"})
"""Rules that ascend the likelihood. The filter score is not enough for few series and a handful of parameters: of a
local level it identifies only the sum of both variances, and drifts along the rest. The lag bounds the variance over
long series; most models have forgotten after 50 steps."""
_WANTED = {
    int: "a whole number",
    Widths: "positive whole numbers with commas between them, such as 64,32",
    Numbers: "numbers with commas between them, such as 7,365.25",
    Flag: "yes or no",
    Trials: "a whole number, or inputs",
}


@dataclass(frozen=True)
class Entry:
    """A model of the catalogue.

    - `build`: builds it near the data; the keyword arguments of `build(series, gaps, ...)` are the model's options.
    - `options`: the meaning of each option.
    - `proposal`: the default proposal.
    - `gaps`: whether it can read the time since the previous step as its first input.
    - `inputs`: whether it can read other inputs.
    - `rules`: the default gradient rules of `mcfo fit`; networks, which have many series, use the objective's own.
    - `rates`: the default `rates` of [`Settings`][mcfo.Settings] in `mcfo fit`.
    - `check`: returns the first value of a series, (steps, columns) with NaN where it is missing, that the model with
      these options cannot explain; None if it can explain all.
    - `example`: returns a column of values that the model with these options can explain.
    """

    summary: str
    build: Callable[..., Start]
    options: Mapping[str, str]
    proposal: str
    gaps: bool = False
    inputs: bool = False
    rules: Mapping[str, str] = field(default_factory=lambda: LIKELIHOOD)
    rates: str = "equal"
    check: Callable[[np.ndarray, Mapping[str, Any]], Impossible | None] = lambda values, options: None
    example: Callable[[Mapping[str, Any]], np.ndarray] = lambda options: np.array([[1], [0], [1], [1]])

    def parameters(self) -> dict[str, inspect.Parameter]:
        """Return the options with their types and defaults."""
        parameters = inspect.signature(self.build, eval_str=True).parameters
        return {name: one for name, one in parameters.items() if one.kind is one.KEYWORD_ONLY}


_HIDDEN = {
    "persistence": "initial persistence of the hidden autoregression, between -1 and 1",
    "scale": "initial standard deviation of its noise",
}
_LEVEL = {
    "signal": "initial share of the state in the variance of differences; by default estimated",
    "initial_mean": "mean of the first level; by default the first value",
    "initial_variance": "variance of the first level; by default that of the data",
}
_RECURRENT = {
    "latent": "dimensions of the latent",
    "hidden": "units of the recurrent state",
    "units": "hidden units of the other networks",
    "proposal": "residual (corrects the prior) or plain",
    "network_seed": "seed of the networks' initial weights",
}
_OPTIMAL_REGIMES = "optimal: each regime by how well it explains the observation"
_OPTIMAL = "the locally optimal one, which follows the model"

CATALOGUE: dict[str, Entry] = {
    "local-level": Entry(
        "real numbers: a random walk seen through noise", local_level, _LEVEL, _OPTIMAL, gaps=True, inputs=True
    ),
    "local-trend": Entry(
        "real numbers: a random walk whose slope is one too", local_trend, _LEVEL, _OPTIMAL, gaps=True, inputs=True
    ),
    "structural": Entry(
        "one column of numbers or counts: a sum of trend, seasons, cycle, autoregression and inputs",
        structural_model,
        {
            "level": "walk, fixed or none",
            "trend": "slope of the level: none, local, smooth, deterministic or damped; by default the data decide",
            "season": "period of the season in steps, or several with commas: 12 or 7,365.25; auto looks for it",
            "season_kind": "trigonometric (waves) or dummy (effects); auto is dummy for particles up to 24 steps",
            "season_noise": "moving (the pattern changes) or fixed",
            "harmonics": "number of waves of each trigonometric season; by default all, or 5 if it is long",
            "cycle": "none, damped (stochastic), smooth (an AR of order two), undamped (stochastic) or fixed",
            "cycle_bounds": "shortest and longest period of the cycle; by default from the season to the data's length",
            "ar": "order of a stationary autoregression",
            "weights": "of --inputs: fixed (unknown numbers), parameter (learned like the others) or moving",
            "emission": "gaussian, student, poisson, negative-binomial, binomial or volatility (stochastic)",
            "trials": "of a binomial emission: a number, or inputs if the last input has it",
            "irregular": "whether a Gaussian emission has noise: yes or no",
            "transform": "none, log, box-cox or logit, of the data; auto chooses log or none",
            "power": "of the Box-Cox transform; by default learned",
            "center": "of the Box-Cox transform; by default the geometric mean of the data",
            "bounds": "range of the logit; by default 0,1",
        },
        "Gaussian, at the mode of the next step; bootstrap for stochastic volatility",
        inputs=True,
        check=check_structural,
        example=example,
    ),
    "linear-gaussian": Entry(
        "real numbers: a hidden linear autoregression seen through noise",
        linear_gaussian,
        {
            "persistence": _HIDDEN["persistence"],
            "signal": "its initial share of the variance of the data",
            "latent": "number of hidden autoregressions that all columns share; by default one for each column",
        },
        _OPTIMAL,
        inputs=True,
    ),
    "stochastic-volatility": Entry(
        "returns around zero: their log-variance is a hidden autoregression",
        stochastic_volatility,
        _HIDDEN
        | {
            "tails": "normal or student",
            "degrees": "initial degrees of freedom of Student's t, more than 2",
            "leverage": "initial correlation of a return and the next change of variance; by default none",
        },
        "bootstrap",
        gaps=True,
        inputs=True,
    ),
    "poisson-counts": Entry(
        "counts: their log-intensity is a hidden autoregression",
        poisson_counts,
        _HIDDEN,
        "bootstrap",
        gaps=True,
        inputs=True,
        check=partial(check_counts, "poisson-counts"),
    ),
    "negative-binomial-counts": Entry(
        "counts with more variance than Poisson's",
        negative_binomial_counts,
        _HIDDEN | {"concentration": "initial r in variance = mean + mean² / r; by default estimated"},
        "bootstrap",
        gaps=True,
        inputs=True,
        check=partial(check_counts, "negative-binomial-counts"),
    ),
    "hmm": Entry(
        "regimes: each has its own mean and spread, rate of counts, or probabilities of categories",
        hmm,
        {
            "states": "number of regimes",
            "emission": "gaussian, poisson or categorical",
            "stay": "initial probability of staying in a regime, before the data are counted",
            "initial": "stationary (the chain's own) or free (learned) probabilities of the first regime",
            "categories": "number of categories; by default the largest value and one",
        },
        _OPTIMAL_REGIMES,
        inputs=True,
        check=check_hmm,
    ),
    "switching": Entry(
        "regimes of real numbers that depend on the ones before: an autoregression or a level in each",
        switching,
        {
            "regimes": "number of regimes",
            "dynamics": "autoregression (around a mean of the regime) or level (a random walk with drift)",
            "stay": "initial probability of staying in a regime, before the data are counted",
            "persistence": "initial persistence of the autoregression; by default estimated",
        },
        _OPTIMAL_REGIMES,
        inputs=True,
    ),
    "deep": Entry(
        "vectors or images, real or binary: all by networks",
        deep,
        {
            "emission": "bernoulli or gaussian; by default chosen by the data",
            "latent": "dimensions of the latent",
            "traces": "number of latents with a running mean beside them, which reveals speeds",
            "transition_units": "hidden units of the transition's network, layer by layer",
            "emission_units": "hidden units of the emission's network",
            "encoder_units": "hidden units of the proposal's encoder",
            "proposal_units": "hidden units of the proposal's other networks",
            "network_seed": _RECURRENT["network_seed"],
        },
        "amortized: networks that read the observation, learned",
        rules={},
        rates="by-width",
        check=check_deep,
    ),
    "vrnn": Entry(
        "binary vectors, music: a recurrent network that remembers everything",
        vrnn,
        _RECURRENT,
        "recurrent: a network that corrects the prior, learned",
        rules={},
        check=check_recurrent,
    ),
    "srnn": Entry(
        "the same, with a recurrence that reads the observations alone",
        srnn,
        _RECURRENT,
        "recurrent: a network that corrects the prior, learned",
        rules={},
        check=check_recurrent,
    ),
}
"""The models that `mcfo fit NAME` knows."""


def entry(name: str) -> Entry:
    """Return the entry of this name; an unknown name is refused with the nearest one."""
    if name not in CATALOGUE:
        raise InputError(f"There is no model {name!r}. {nearest(name, CATALOGUE)}")
    return CATALOGUE[name]


def check(name: str, series_list: list[Series], options: Mapping[str, Any]) -> None:
    """Refuse series that a model of the catalogue cannot explain, whatever its parameters are."""
    refuses = entry(name).check
    for number, series in enumerate(series_list, 1):
        values = series.values()
        impossible = refuses(values, options)
        if impossible is not None:
            raise InputError(
                f"Series {number}, step {impossible.step + 1}, column {impossible.column + 1} of the values: "
                f"{values[impossible.step, impossible.column]:g} {impossible.text}"
            )


def build(
    name: str, series_list: list[Series], options: Mapping[str, str | float | int], *, gaps: bool = False
) -> Start:
    """Build a model of the catalogue for these series; options may be text, as on a command line.

    **Arguments:**

    - `gaps`: whether the first input of the series is the time since the previous step.
    """
    check(name, series_list, options)
    chosen = CATALOGUE[name]
    _check_inputs(name, chosen, series_list, gaps)
    known = chosen.parameters()
    read = {}
    for option, value in options.items():
        if option not in known:
            raise InputError(f"The model {name} has no option {option!r}. {nearest(option, known)}")
        kind = kind_of(known[option])
        try:
            read[option] = kind(value)
        except (ValueError, TypeError, KeyError, OverflowError):
            wanted = _WANTED.get(kind, "a number")
            raise InputError(f"The option {option} must be {wanted}, but got {value!r}.") from None
    return chosen.build(series_list, gaps, **read)


def initialize(name: str, data: Any, **options: Any) -> Start:
    """Build a model of the catalogue with its proposal, initialized near the data, as `mcfo fit NAME` does.

        table = mcfo.read_series("series.csv")
        model, proposal, fixed, _ = mcfo.initialize("local-level", table)
        objective = mcfo.objectives.mcfo(50, theta="fisher")
        mcfo.fit(model, proposal, table.series_list, objective=objective, fixed=fixed)

    **Arguments:**

    - `name`: a name that `mcfo models` lists; `mcfo models NAME` lists its `options`.
    - `data`: a table of [`read_series`][], with gaps as inputs (`table.with_gaps()`) if times are uneven; a file or a
      data frame; or series.
    """
    table = table_of(data)
    if table is not None:
        return build(name, table.series_list, options, gaps=table.unit is not None)
    return build(name, [data] if isinstance(data, Series) else data, options)


def kind_of(parameter: inspect.Parameter) -> Callable[[Any], Any]:
    """Return the type of an option, besides None."""
    kinds = [kind for kind in typing.get_args(parameter.annotation) if kind is not type(None)]
    return kinds[0] if kinds else parameter.annotation


def _check_inputs(name: str, chosen: Entry, series_list: list[Series], gaps: bool) -> None:
    inputs = 0 if not series_list or series_list[0].inputs is None else series_list[0].inputs.shape[-1]
    if gaps and not chosen.gaps:
        able = ", ".join(other for other, one in CATALOGUE.items() if one.gaps)
        raise InputError(
            f"The model {name} takes each row for one step: it cannot read the time between two. Use --irregular rows, "
            f"or one of: {able}."
        )
    if gaps and series_list and not inputs:
        raise InputError(
            "The first input should be the time since the previous step, but the series have no inputs. Give them."
        )
    if inputs > int(gaps) and not chosen.inputs:
        able = ", ".join(other for other, one in CATALOGUE.items() if one.inputs)
        raise InputError(f"The model {name} takes no inputs. Leave out --inputs, or use one of: {able}.")
