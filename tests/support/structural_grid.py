"""Every combination of components that statsmodels' UnobservedComponents and our structural models have."""

import itertools
import math

import numpy as np
import statsmodels.api as sm

from mcfo import Series
from mcfo.models import AR, Cycle, GaussianStructural, Regression, Season, Trend

STEPS = 48
VARIANCES = {
    "sigma2.irregular": 0.7,
    "sigma2.level": 0.3,
    "sigma2.trend": 0.02,
    "sigma2.seasonal": 0.11,
    "sigma2.freq_seasonal_6(2)": 0.05,
    "sigma2.freq_seasonal_4(2)": 0.03,
    "sigma2.freq_seasonal_7.3(2)": 0.04,
    "sigma2.cycle": 0.21,
    "frequency.cycle": 2 * math.pi / 9,
    "damping.cycle": 0.83,
    "ar.L1": 0.5,
    "ar.L2": -0.3,
    "sigma2.ar": 0.4,
    "beta.x1": 1.3,
    "beta.x2": -0.4,
}
"""The parameters, by statsmodels' names."""
SCALES = {name: math.sqrt(value) for name, value in VARIANCES.items() if "sigma2" in name}
MOVES, TURNS = SCALES["sigma2.level"], SCALES["sigma2.trend"]
WALK = Trend(level_scale=MOVES)
LOCAL = {"slope": True, "slope_scale": TURNS}
PERIOD = {"cycle_period_bounds": (2, 30)}
AR2 = AR(coefficients=[0.5, -0.3], scale=SCALES["sigma2.ar"])
SILENT = {"irregular_scale": None}


def waves(period, name):
    return Season(period, kind="trigonometric", harmonics=2, scale=SCALES.get(name))


def cycle(scale=SCALES["sigma2.cycle"], damping=0.83):
    return Cycle(period=9, damping=damping, scale=scale, bounds=(2, 30), diffuse=True)


def _freq(period, *, fixed=False):
    name = f"sigma2.freq_seasonal_{period}(2)"
    options = {"freq_seasonal": [{"period": period, "harmonics": 2}], "stochastic_freq_seasonal": [not fixed]}
    return options, {"seasons": (waves(period, "none" if fixed else name),)}


# What statsmodels calls a component, and what we do.
LEVELS = {
    "no level": ({"irregular": True}, {}),
    "deterministic constant": ({"level": "deterministic constant"}, {"trend": Trend()}),
    "local level": ({"level": "local level"}, {"trend": WALK}),
    "random walk": ({"level": "random walk"}, {"trend": WALK, **SILENT}),
    "deterministic trend": ({"level": "deterministic trend"}, {"trend": Trend(slope=True)}),
    "local linear deterministic trend": (
        {"level": "local linear deterministic trend"},
        {"trend": Trend(level_scale=MOVES, slope=True)},
    ),
    "random walk with drift": (
        {"level": "random walk with drift"},
        {"trend": Trend(level_scale=MOVES, slope=True), **SILENT},
    ),
    "local linear trend": ({"level": "local linear trend"}, {"trend": Trend(level_scale=MOVES, **LOCAL)}),
    "smooth trend": ({"level": "smooth trend"}, {"trend": Trend(**LOCAL)}),
    "random trend": ({"level": "random trend"}, {"trend": Trend(**LOCAL), **SILENT}),
}
SEASONS = {
    "": ({}, {}),
    "dummy season": ({"seasonal": 4}, {"seasons": (Season(4, scale=SCALES["sigma2.seasonal"]),)}),
    "fixed dummy season": ({"seasonal": 4, "stochastic_seasonal": False}, {"seasons": (Season(4),)}),
    "waves": _freq(7.3),
    "fixed waves": _freq(6, fixed=True),
    "two seasons": (
        {"seasonal": 4, **_freq(7.3)[0]},
        {"seasons": (Season(4, scale=SCALES["sigma2.seasonal"]), *_freq(7.3)[1]["seasons"])},
    ),
}
CYCLES = {
    "": ({}, {}),
    "damped cycle": ({"cycle": True, "stochastic_cycle": True, "damped_cycle": True, **PERIOD}, {"cycle": cycle()}),
    "undamped cycle": ({"cycle": True, "stochastic_cycle": True, **PERIOD}, {"cycle": cycle(damping=None)}),
    "fixed cycle": ({"cycle": True, **PERIOD}, {"cycle": cycle(scale=None, damping=None)}),
}
AUTOREGRESSIONS = {"": ({}, {}), "autoregression": ({"autoregressive": 2}, {"ar": AR2})}
INPUTS = {
    "": ({}, {}),
    "inputs as states": ({"exog": True, "mle_regression": False}, {"regression": Regression(2)}),
    "inputs as parameters": ({"exog": True}, {"input_weights": [1.3, -0.4]}),
}


def combinations():
    """Yield the name of each combination, statsmodels' options and our components; the model must have a state."""
    for parts in itertools.product(*(one.items() for one in (LEVELS, SEASONS, CYCLES, AUTOREGRESSIONS, INPUTS))):
        theirs = {name: value for _, (options, _) in parts for name, value in options.items()}
        ours = {name: value for _, (_, components) in parts for name, value in components.items()}
        if ours.keys() - {"input_weights", "irregular_scale"}:
            yield " + ".join(name for name, _ in parts if name), theirs, ours


def data(gaps):
    generator = np.random.default_rng(3)
    steps = np.arange(STEPS)
    values = 20 + np.cumsum(generator.normal(size=STEPS)) + 2 * np.sin(2 * np.pi * steps / 6)
    if gaps:
        values[[0, 2, 3, 17, 18, 40, STEPS - 1]] = np.nan
    return values, generator.normal(size=(STEPS, 2))


def of_statsmodels(options, values, inputs):
    """Return the smoothed results of statsmodels at the parameters above."""
    options = dict(options)
    exog = inputs if options.pop("exog", False) else None
    theirs = sm.tsa.UnobservedComponents(values, exog=exog, use_exact_diffuse=True, **options)
    return theirs.smooth([VARIANCES[name] for name in theirs.param_names])


def series_of(ours, values, inputs):
    uses = "regression" in ours or "input_weights" in ours
    return Series.from_values(values, inputs=inputs if uses else None)


def model_of(ours):
    """Return our model with the parameters above."""
    return GaussianStructural(**({"irregular_scale": SCALES["sigma2.irregular"]} | ours))
