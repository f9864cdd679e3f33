"""Structural models against statsmodels, which shares nothing with them."""

import math
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import statsmodels.api as sm
from scipy import stats

from mcfo import SMC, Series, initialize, kalman_filter, kalman_forecast, kalman_smoother, simulate
from mcfo.catalogue.registry import CATALOGUE, build
from mcfo.errors import InputError
from mcfo.exact import is_exact, log_evidence
from mcfo.learning.parameters import describe
from mcfo.learning.readable import readable_arrays
from mcfo.models import AR, Cycle, GaussianStructural, Regression, Season, Trend, structural
from mcfo.proposals import Bootstrap, Linearized
from mcfo.smc.compatibility import check_fit
from mcfo.smc.step_scan import frame_at, frames
from mcfo.transforms import Log
from support.means import assert_mean, standard_errors

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
SCALES = {name: math.sqrt(value) for name, value in VARIANCES.items() if "sigma2" in name}
WALK = Trend(level_scale=SCALES["sigma2.level"])
LOCAL = {"slope": True, "slope_scale": SCALES["sigma2.trend"]}
PERIOD = {"cycle_period_bounds": (2, 30)}
AR2 = AR(coefficients=[0.5, -0.3], scale=SCALES["sigma2.ar"])


def waves(period, name, **options):
    return Season(period, kind="trigonometric", harmonics=2, scale=SCALES.get(name), **options)


def cycle(scale=SCALES["sigma2.cycle"], damping=0.83):
    return Cycle(period=9, damping=damping, scale=scale, bounds=(2, 30), diffuse=True)


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


def data(gaps):
    generator = np.random.default_rng(3)
    steps = np.arange(STEPS)
    values = 20 + np.cumsum(generator.normal(size=STEPS)) + 2 * np.sin(2 * np.pi * steps / 6)
    if gaps:
        values[[0, 2, 3, 17, 18, 40, STEPS - 1]] = np.nan
    return values, generator.normal(size=(STEPS, 2))


def of_statsmodels(options, values, inputs):
    options = dict(options)
    exog = inputs if options.pop("exog", False) else None
    theirs = sm.tsa.UnobservedComponents(values, exog=exog, use_exact_diffuse=True, **options)
    return theirs.smooth([VARIANCES[name] for name in theirs.param_names])


def series_of(ours, values, inputs):
    uses = "regression" in ours or "input_weights" in ours
    return Series.from_values(values, inputs=inputs if uses else None)


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
    model = GaussianStructural(**({"irregular_scale": SCALES["sigma2.irregular"]} | parts))
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


RUNS = 400


def evidence_ratios(model, series, exact, proposal=None):
    run, proposal = SMC(200), proposal or Bootstrap()
    keys = jax.random.split(jax.random.key(0), RUNS)
    found = eqx.filter_jit(jax.vmap(lambda key: run(model, proposal, series, key=key).log_evidence))(keys)
    return np.exp(np.asarray(found) - float(exact))


def with_proper_start():
    return GaussianStructural(
        trend=Trend(level_scale=0.4, slope=True, slope_scale=0.2),
        seasons=(Season(3, scale=0.3),),
        irregular_scale=0.3,
        transform=Log(),
        initial_state=[1.0, 0.3, 0.5, -0.2],
        initial_scale=0.8,
        diffuse=False,
    )


def test_particles_have_the_same_evidence():
    """With a proper start, the latent of driven entries and the memory are the model of the Kalman filter."""
    model = with_proper_start()
    series = Series.from_values(np.exp([1.5, np.nan, 1.1, 1.9, 2.5, 0.7]))
    exact = log_evidence(model, series)
    ratios, better = evidence_ratios(model, series, exact), evidence_ratios(model, series, exact, Linearized(model))
    assert_mean(ratios, 1.0)
    assert_mean(better, 1.0)
    assert better.std() < 0.6 * ratios.std()
    # A control that must fail: the same particles for a season that starts elsewhere.
    other = eqx.tree_at(lambda model: model.initial_state, model, model.initial_state.at[3].add(1.0))
    assert standard_errors(evidence_ratios(other, series, exact), 1.0) > 5


def test_the_linearized_proposal_finds_the_posterior():
    """Of one Poisson count: its mean by quadrature, and a Gaussian emission's exactly."""
    model = structural(emission="poisson")
    prior = dist.Normal(jnp.array([1.0]), jnp.array([0.5])).to_event(1)
    series = Series.from_values([9])
    context = jax.tree.map(lambda array: array[0], Linearized(model).encode(series))
    found = Linearized(model).step(prior, jnp.array([1.0]), context)
    grid = np.linspace(-2, 4, 20_001)
    log_posterior = stats.norm(1.0, 0.5).logpdf(grid) + stats.poisson(np.exp(grid)).logpmf(9)
    weights = np.exp(log_posterior - log_posterior.max())
    weights /= weights.sum()
    np.testing.assert_allclose(found.mean[0], grid[np.argmax(weights)], atol=1e-3)
    np.testing.assert_allclose(found.variance[0], weights @ grid**2 - (weights @ grid) ** 2, rtol=0.1)
    unseen = Linearized(model).step(prior, jnp.array([1.0]), (context[0], jnp.array(False), None))
    np.testing.assert_allclose((unseen.mean[0], unseen.variance[0]), (1.0, 0.25))

    exact = with_proper_start()
    series = Series.from_values(np.exp([1.5]))
    first = kalman_filter(exact, series).filtered
    context = jax.tree.map(lambda array: array[0], Linearized(exact).encode(series))
    found = Linearized(exact).initial(exact.initial(exact.start(None), None), context)
    driven = np.array(exact.driven)
    np.testing.assert_allclose(found.mean, first.mean[0][driven], rtol=1e-9)
    np.testing.assert_allclose(
        found.covariance_matrix, first.covariance[0][np.ix_(driven, driven)], rtol=1e-8, atol=1e-12
    )


def test_simulated_series_have_the_law_of_the_linear_form():
    model = with_proper_start()
    keys = jax.random.split(jax.random.key(1), 4000)
    draws = np.log(jax.jit(jax.vmap(lambda key: simulate(model, 5, key=key)[1][:, 0]))(keys))
    initial, form = model.initial_form(None), model.linear_form(None)
    mean, covariance = initial.mean, initial.covariance
    for _ in range(4):
        mean = form.transition_matrix @ mean
        covariance = form.transition_matrix @ covariance @ form.transition_matrix.T + form.transition_covariance
    row = form.emission_matrix[0]
    assert_mean(draws[:, 4], row @ mean)
    assert_mean((draws[:, 4] - row @ mean) ** 2, row @ covariance @ row + form.emission_covariance[0, 0])


COUNTS = np.array([3, 5, 4, 8, 2, 4, 6, 9, 3, 6, 7, 11], float)
EMISSIONS = {
    "gaussian": {},
    "student": {"emission": "student", "transform": "log"},
    "poisson": {"emission": "poisson", "season": "4"},
    "negative-binomial": {"emission": "negative-binomial", "trend": "smooth"},
    "binomial": {"emission": "binomial", "trials": "20", "ar": "2"},
    "volatility": {"emission": "volatility", "trend": "local", "transform": "box-cox", "power": "0.5"},
    "fixed volatility": {"emission": "volatility", "level": "fixed"},
}


@pytest.mark.parametrize("name", EMISSIONS)
def test_every_emission_runs_by_particles(name):
    series = Series.from_values(np.where(np.arange(12) == 5, np.nan, COUNTS))
    start = build("structural", [series], EMISSIONS[name])
    check_fit(start.model, start.proposal, frame_at(frames(start.proposal, series), 0))

    @eqx.filter_jit
    @eqx.filter_value_and_grad
    def estimate(model):
        return SMC(50)(model, start.proposal, series, key=jax.random.key(0)).log_evidence

    value, gradient = estimate(start.model)
    assert np.isfinite(value)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(gradient))
    _, drawn = simulate(start.model, 5, key=jax.random.key(1))
    assert np.isfinite(drawn).all()
    # A saved run is rebuilt from its options alone.
    options = EMISSIONS[name] | start.chosen
    again = build("structural", [Series.from_values(CATALOGUE["structural"].example(options))], options)
    assert describe(again.model, values=False) == describe(start.model, values=False)


def test_trials_and_weights_may_come_from_inputs():
    trials = np.full(12, 20.0)
    inputs = np.column_stack([np.arange(12) % 3, trials])
    series = Series.from_values(COUNTS, inputs=inputs)
    start = build("structural", [series], {"emission": "binomial", "trials": "inputs", "weights": "moving"})
    assert start.model.latent_names == ("level", "weight 1")
    distribution = start.model.emission(start.model.start(None), jnp.array([0.2, 0.1]), jnp.array([2.0, 20.0]))
    np.testing.assert_allclose(distribution.mean, 20 * jax.nn.sigmoid(0.2 + 2 * 0.1))


def test_names_and_parameters_as_people_mean_them():
    model = structural(trend="damped", season=[4, 9.5], harmonics=2, cycle=True, ar=2, inputs=1, cycle_bounds=(10, 40))
    assert model.state_names[:6] == (
        "level",
        "slope",
        "season 4 harmonic 1",
        "season 4 harmonic 1 quadrature",
        "season 4 harmonic 2",
        "season 9.5 harmonic 1",
    )
    assert model.state_names[-5:] == ("cycle", "cycle quadrature", "ar", "ar lag 1", "weight 1")
    readable = readable_arrays(model)
    assert set(readable) == {
        *("trend.level_scale", "trend.slope_scale", "trend.damping", "seasons.0.scale", "seasons.1.scale"),
        *("cycle.period", "cycle.damping", "cycle.scale", "ar.coefficients", "ar.scale", "irregular_scale"),
    }
    np.testing.assert_allclose(readable["cycle.period"], 20.0)
    np.testing.assert_allclose(readable["ar.coefficients"], [0.5, 0.0], atol=1e-12)


@pytest.mark.parametrize("coefficients", [[0.5], [0.5, -0.3], [1.2, -0.5, 0.1, 0.05]])
def test_the_stationary_law_of_an_autoregression_stays(coefficients):
    part = AR(coefficients=coefficients, scale=0.7)
    np.testing.assert_allclose(part.coefficients, coefficients, rtol=1e-10)
    covariance, matrix = np.asarray(part.initial_form().covariance), np.asarray(part.matrix())
    noise = np.zeros_like(matrix)
    noise[0, 0] = 0.49
    np.testing.assert_allclose(matrix @ covariance @ matrix.T + noise, covariance, rtol=1e-9)


@pytest.mark.parametrize(
    "options", [{"trend": "local", "season": 6}, {"cycle": "damped"}, {"ar": 2, "trend": "smooth"}]
)
def test_the_start_depends_on_no_unit_and_no_offset(options):
    values, _ = data(gaps=True)
    exact = []
    for factor, offset in ((1.0, 0.0), (1e-4, 0.0), (1e4, 1e6)):
        series = Series.from_values(factor * values + offset)
        model = initialize("structural", series, **options).model
        unknowns = model.initial_form(None).diffuse.shape[1]
        seen = int(np.isfinite(values).sum()) - unknowns
        exact.append(float(log_evidence(model, series)) + seen * math.log(factor))
    np.testing.assert_allclose(exact[1:], exact[0], rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "values", "message"),
    [
        ({"season": "13"}, COUNTS, "A season of 13 steps does not fit in the longest series, which has 12."),
        (
            {"transform": "log"},
            COUNTS - 5,
            "step 1, column 1 of the values: -2 has no logarithm: values must lie above 0.",
        ),
        ({"transform": "log"}, COUNTS - 3, "step 1, column 1 of the values: 0 has no logarithm"),
        ({"transform": "logit", "bounds": "0,10"}, COUNTS, "step 12, column 1 of the values: 11 has no logit"),
        ({"emission": "binomial"}, COUNTS, "A binomial emission needs the number of trials. Give trials=N"),
        ({"emission": "binomial", "trials": "10"}, COUNTS, "11 is more than the 10 trials"),
        ({"emission": "binomial", "trials": "inputs"}, COUNTS, "there are no inputs"),
        ({"emission": "poisson"}, COUNTS + 0.5, "3.5 is no count, but the emission is poisson."),
        ({"emission": "poison"}, COUNTS, "The option emission has no value 'poison'. Did you mean 'poisson'?"),
        ({"trends": "local"}, COUNTS, "The model structural has no option 'trends'. Did you mean 'trend'?"),
        ({"trend": "lokal"}, COUNTS, "The option trend has no value 'lokal'. Did you mean 'local'?"),
        ({"transform": "logg"}, COUNTS, "There is no transform 'logg'. Did you mean 'log'?"),
        ({"season": "four"}, COUNTS, "must be numbers with commas between them, such as 7,365.25, but got 'four'"),
        ({"season": "4,4"}, COUNTS, "Two seasons have the same period"),
        ({"season": "4.5", "season_kind": "dummy"}, COUNTS, "Use a trigonometric season"),
        ({"season": "4", "harmonics": "3"}, COUNTS, "from 1 to 2 harmonics, but got 3"),
        ({"irregular": "maybe"}, COUNTS, "must be yes or no, but got 'maybe'"),
        ({"irregular": "no", "level": "fixed"}, COUNTS, "The model has no noise at all."),
        ({"level": "none"}, COUNTS, "A structural model needs a component"),
        ({"level": "none", "trend": "local"}, COUNTS, "A local trend needs a level."),
        ({"power": "0.3"}, COUNTS, "The transform none has no power."),
        ({"cycle": "damped", "cycle_bounds": "3"}, COUNTS, "must be two numbers with a comma between them"),
        ({"ar": "-1"}, COUNTS, "must lie from 0 to 50, but got -1"),
        ({}, np.ones(5), "is constant"),
        ({}, np.ones((5, 2)) * np.arange(5)[:, None], "explains one column, but there are 2."),
    ],
)
def test_what_is_refused(options, values, message):
    with pytest.raises(InputError, match=re.escape(message)):
        build("structural", [Series.from_values(values)], options)


def test_particles_need_something_that_moves():
    model = structural(level="fixed", emission="poisson")
    with pytest.raises(ValueError, match="No part of the model has noise"):
        SMC(10)(model, Bootstrap(), Series.from_values([1, 2, 3]), key=jax.random.key(0))
