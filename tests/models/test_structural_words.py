"""The words of structural models: names, starts from the data, and what is refused."""

import math
import re

import numpy as np
import pytest

from mcfo import Series, initialize
from mcfo.catalogue.registry import build
from mcfo.errors import InputError
from mcfo.exact import log_evidence
from mcfo.learning.readable import readable_arrays
from mcfo.models import AR, structural

COUNTS = np.array([3, 5, 4, 8, 2, 4, 6, 9, 3, 6, 7, 11], float)


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
    values = 20 + np.random.default_rng(3).normal(size=48).cumsum()
    values[[0, 2, 3, 17, 40]] = np.nan
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
        ({"transform": "logit", "bounds": "a,b"}, COUNTS, "The option bounds must be numbers with commas between them"),
        ({"transform": "logit", "bounds": "1,0"}, COUNTS, "must be two increasing numbers"),
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
