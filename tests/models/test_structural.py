"""Structural models against statsmodels, which shares nothing with them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import statsmodels.api as sm

from mcfo import Series, kalman_filter, kalman_forecast, kalman_smoother
from mcfo.exact import is_exact, log_evidence
from mcfo.models import AR, Cycle, GaussianStructural, Regression, Season, Trend, structural
from mcfo.transforms import Log
from support.structural_grid import (
    AR2,
    LOCAL,
    PERIOD,
    SCALES,
    VARIANCES,
    WALK,
    cycle,
    data,
    model_of,
    of_statsmodels,
    series_of,
    waves,
)

# What statsmodels calls a model, and what we do.
CASES = {
    "deterministic constant": ({"level": "deterministic constant"}, {"trend": Trend()}),
    "local level": ({"level": "local level"}, {"trend": WALK}),
    "random walk": ({"level": "random walk"}, {"trend": WALK, "irregular_scale": None}),
    "deterministic trend": ({"level": "deterministic trend"}, {"trend": Trend(slope=True)}),
    "local linear deterministic trend": (
        {"level": "local linear deterministic trend"},
        {"trend": Trend(level_scale=SCALES["sigma2.level"], slope=True)},
    ),
    "random walk with drift": (
        {"level": "random walk with drift"},
        {"trend": Trend(level_scale=SCALES["sigma2.level"], slope=True), "irregular_scale": None},
    ),
    "local linear trend": (
        {"level": "local linear trend"},
        {"trend": Trend(level_scale=SCALES["sigma2.level"], **LOCAL)},
    ),
    "smooth trend": ({"level": "smooth trend"}, {"trend": Trend(**LOCAL)}),
    "random trend": ({"level": "random trend"}, {"trend": Trend(**LOCAL), "irregular_scale": None}),
    "dummy season": (
        {"level": "local level", "seasonal": 6},
        {"trend": WALK, "seasons": (Season(6, scale=SCALES["sigma2.seasonal"]),)},
    ),
    "fixed dummy season": (
        {"level": "local linear trend", "seasonal": 6, "stochastic_seasonal": False},
        {"trend": Trend(level_scale=SCALES["sigma2.level"], **LOCAL), "seasons": (Season(6),)},
    ),
    "season without trend": (
        {"seasonal": 4, "irregular": True},
        {"seasons": (Season(4, scale=SCALES["sigma2.seasonal"]),)},
    ),
    "two seasons": (
        {
            "level": "smooth trend",
            "freq_seasonal": [{"period": 6, "harmonics": 2}, {"period": 7.3, "harmonics": 2}],
        },
        {
            "trend": Trend(**LOCAL),
            "seasons": (waves(6, "sigma2.freq_seasonal_6(2)"), waves(7.3, "sigma2.freq_seasonal_7.3(2)")),
        },
    ),
    "all harmonics": (
        {"level": "local level", "freq_seasonal": [{"period": 4, "harmonics": 2}]},
        {"trend": WALK, "seasons": (waves(4, "sigma2.freq_seasonal_4(2)"),)},
    ),
    "both kinds of season": (
        {
            "level": "local level",
            "seasonal": 4,
            "freq_seasonal": [{"period": 7.3, "harmonics": 2}],
            "stochastic_freq_seasonal": [False],
        },
        {"trend": WALK, "seasons": (Season(4, scale=SCALES["sigma2.seasonal"]), waves(7.3, "none"))},
    ),
    "damped cycle": (
        {"level": "local level", "cycle": True, "stochastic_cycle": True, "damped_cycle": True, **PERIOD},
        {"trend": WALK, "cycle": cycle()},
    ),
    "undamped cycle": (
        {"level": "smooth trend", "cycle": True, "stochastic_cycle": True, **PERIOD},
        {"trend": Trend(**LOCAL), "cycle": cycle(damping=None)},
    ),
    "fixed cycle": (
        {"level": "random walk", "cycle": True, **PERIOD},
        {"trend": WALK, "irregular_scale": None, "cycle": cycle(scale=None, damping=None)},
    ),
    "autoregression": ({"level": "smooth trend", "autoregressive": 2}, {"trend": Trend(**LOCAL), "ar": AR2}),
    "autoregression alone": ({"autoregressive": 2}, {"ar": AR2, "irregular_scale": None}),
    "inputs as states": (
        {"level": "local level", "exog": True, "mle_regression": False},
        {"trend": WALK, "regression": Regression(2)},
    ),
    "inputs as parameters": (
        {"level": "local linear trend", "exog": True},
        {"trend": Trend(level_scale=SCALES["sigma2.level"], **LOCAL), "input_weights": [1.3, -0.4]},
    ),
    "everything": (
        {
            "level": "local linear trend",
            "seasonal": 4,
            "freq_seasonal": [{"period": 6, "harmonics": 2}],
            "cycle": True,
            "stochastic_cycle": True,
            "damped_cycle": True,
            **PERIOD,
            "autoregressive": 2,
            "exog": True,
            "mle_regression": False,
        },
        {
            "trend": Trend(level_scale=SCALES["sigma2.level"], **LOCAL),
            "seasons": (Season(4, scale=SCALES["sigma2.seasonal"]), waves(6, "sigma2.freq_seasonal_6(2)")),
            "cycle": cycle(),
            "ar": AR2,
            "regression": Regression(2),
        },
    ),
}


def their_components(result):
    """Mean and variance of each component, by our names."""
    named = {"level": result.level, "slope": result.trend, "cycle": result.cycle, "ar": result.autoregressive}
    if result.seasonal is not None:
        named[f"season {result.model.seasonal_periods}"] = result.seasonal
    found = {name: (one["smoothed"], one["smoothed_cov"]) for name, one in named.items() if one is not None}
    for period, one in zip(result.model.freq_seasonal_periods, result.freq_seasonal or [], strict=True):
        # Their variance of a sum of waves leaves out the covariances between them.
        waves = slice(one["offset"], one["offset"] + 4, 2)
        found[f"season {period}"] = (one["smoothed"], result.smoothed_state_cov[waves, waves].sum(axis=(0, 1)))
    return found


@pytest.mark.parametrize("name", CASES)
def test_likelihood_and_components_equal_statsmodels(name):
    options, parts = CASES[name]
    model = model_of(parts)
    assert is_exact(model)
    values, inputs = data(gaps=True)
    result = of_statsmodels(options, values, inputs)
    series = series_of(parts, values, inputs)
    np.testing.assert_allclose(log_evidence(model, series), result.llf, rtol=1e-9)
    smoothed = kalman_smoother(model, series)
    ours, theirs = model.component_laws(smoothed.mean, smoothed.covariance, series.inputs), their_components(result)
    assert theirs.keys() == ours.keys() - {"regression"}
    for component, (mean, variance) in theirs.items():
        np.testing.assert_allclose(ours[component].mean, mean, rtol=1e-6, atol=1e-7, err_msg=component)
        np.testing.assert_allclose(ours[component].variance, variance, rtol=1e-6, atol=1e-7, err_msg=component)
    if model.regression is not None:
        np.testing.assert_allclose(smoothed.mean[:, -2:].T, result.smoothed_state[-2:], rtol=1e-6)


def test_a_stationary_cycle_equals_statsmodels_with_that_start():
    options, parts = CASES["damped cycle"]
    values, _ = data(gaps=True)
    theirs = sm.tsa.UnobservedComponents(values, use_exact_diffuse=True, **options)
    theirs.ssm.initialization.unset(None)
    theirs.ssm.initialization.set((0, 1), "diffuse")
    theirs.ssm.initialization.set((1, 3), "stationary")
    result = theirs.smooth([VARIANCES[name] for name in theirs.param_names])
    stationary = Cycle(period=9, damping=0.83, scale=SCALES["sigma2.cycle"], bounds=(2, 30))
    model = GaussianStructural(irregular_scale=SCALES["sigma2.irregular"], **(parts | {"cycle": stationary}))
    np.testing.assert_allclose(log_evidence(model, Series.from_values(values)), result.llf, rtol=1e-9)
    diffuse = GaussianStructural(irregular_scale=SCALES["sigma2.irregular"], **parts)
    assert abs(log_evidence(diffuse, Series.from_values(values)) - result.llf) > 0.1


def test_a_transform_counts_its_jacobian_and_forecasts_equal_statsmodels():
    values = np.exp(data(gaps=False)[0] / 10)
    values[7] = np.nan
    options, parts = CASES["dummy season"]
    result = of_statsmodels(options, np.log(values), None)
    model = GaussianStructural(irregular_scale=SCALES["sigma2.irregular"], transform=Log(), **parts)
    series = Series.from_values(values)
    np.testing.assert_allclose(log_evidence(model, series), result.llf - np.nansum(np.log(values)), rtol=1e-9)
    last = jax.tree.map(lambda array: array[-1], kalman_filter(model, series).filtered)
    law = kalman_forecast(model, last, 12).observation
    ahead = result.get_forecast(12)
    np.testing.assert_allclose(law.mean[:, 0], ahead.predicted_mean, rtol=1e-9)
    np.testing.assert_allclose(law.variance()[:, 0], ahead.var_pred_mean, rtol=1e-8)


def test_score_of_every_parameter_equals_finite_differences():
    parts = CASES["everything"][1]
    model = GaussianStructural(irregular_scale=SCALES["sigma2.irregular"], **parts)
    values, inputs = data(gaps=True)
    series = Series.from_values(values, inputs=inputs)
    learned, rest = eqx.partition(model, eqx.is_inexact_array)
    flat, unravel = jax.flatten_util.ravel_pytree(learned)
    value = jax.jit(lambda flat: log_evidence(eqx.combine(unravel(flat), rest), series))
    score = jax.jit(jax.grad(value))(flat)
    for index in range(len(flat)):
        step = 1e-5 * jax.nn.one_hot(index, len(flat))
        np.testing.assert_allclose(
            score[index], (value(flat + step) - value(flat - step)) / 2e-5, rtol=1e-5, atol=1e-6, err_msg=str(index)
        )


def test_single_precision_is_near():
    values, inputs = data(gaps=True)
    words = {"trend": "local", "season": (4, 6), "cycle": True, "ar": 2, "inputs": 2, "cycle_bounds": (8, 30)}
    exact = log_evidence(structural(**words), Series.from_values(values, inputs=inputs))
    with jax.enable_x64(False):
        model, series = structural(**words), Series.from_values(values, inputs=inputs)
        value, score = eqx.filter_value_and_grad(lambda model: log_evidence(model, series))(model)
        assert value.dtype == jnp.float32
        assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(score))
    np.testing.assert_allclose(value, exact, rtol=1e-4)


def test_a_smooth_cycle_is_an_autoregression_of_order_two():
    values, _ = data(gaps=True)
    series, damping, angle = Series.from_values(values), 0.83, 2 * np.pi / 9
    smooth = Cycle(period=9, damping=damping, scale=0.5, bounds=(2, 30), smooth=True)
    same = AR(coefficients=[2 * damping * np.cos(angle), -(damping**2)], scale=0.5 * damping * np.sin(angle))
    both = [GaussianStructural(trend=WALK, irregular_scale=0.4, **part) for part in ({"cycle": smooth}, {"ar": same})]
    found, expected = (float(log_evidence(model, series)) for model in both)
    np.testing.assert_allclose(found, expected, rtol=1e-10)
    noisy = GaussianStructural(trend=WALK, irregular_scale=0.4, cycle=cycle(scale=0.5))
    assert abs(float(log_evidence(noisy, series)) - expected) > 0.1
