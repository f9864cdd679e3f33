"""Learning by particles does not depend on the unit or the offset of the data."""

import jax
import numpy as np
import pytest

import mcfo
from mcfo import Series, objectives
from mcfo.data.batching import as_buckets
from mcfo.learning.parameters import Modules, named_arrays
from mcfo.learning.standardization import standardize_for_particles

pytestmark = pytest.mark.ci


def returns():
    return np.random.default_rng(1).normal(size=40) * 0.01


def values():
    generator = np.random.default_rng(2)
    found = 500 + np.cumsum(generator.normal(size=40) * 20) + generator.normal(size=40) * 10
    found[7] = np.nan
    return found


def table():
    return np.stack([values(), 3 + 0.01 * np.random.default_rng(3).normal(size=40)], axis=1)


MODELS = {
    "level": ("local-level", values, {}),
    "trend": ("local-trend", values, {}),
    "autoregressions": ("linear-gaussian", table, {}),
    "factor": ("linear-gaussian", table, {"latent": 1}),
    "volatility": ("stochastic-volatility", returns, {"tails": "student"}),
    "leverage": ("stochastic-volatility", returns, {"leverage": -0.3}),
    "regimes": ("hmm", table, {}),
    "switching autoregression": ("switching", values, {}),
    "switching level": ("switching", values, {"dynamics": "level"}),
    "tails": ("structural", values, {"emission": "student", "trend": "local"}),
    "moving volatility": ("structural", values, {"emission": "volatility", "ar": 1}),
}


@pytest.mark.parametrize("case", MODELS)
def test_a_model_in_standard_units_is_the_same_model(case):
    name, data, options = MODELS[case]
    series = Series.from_values(data())
    begun = mcfo.initialize(name, series, **options)
    modules = Modules.learned_by(begun.model, begun.proposal, begun.fixed)
    buckets = as_buckets(series)
    moved, standard = standardize_for_particles(modules, buckets, begun.fixed)
    known = np.where(np.isnan(series.values()), np.nan, np.asarray(standard.data[0].observations)[0])
    np.testing.assert_allclose(np.nanstd(known, axis=0), 1.0, rtol=1e-6)
    options = {"particles": 20, "key": jax.random.key(1)}
    plain = mcfo.evaluate(modules.model, modules.current().proposal, buckets, **options)
    other = mcfo.evaluate(moved.model, moved.current().proposal, standard.data, **options)
    np.testing.assert_allclose(other.log_evidence + standard.log_jacobian, plain.log_evidence, rtol=1e-7)
    assert abs(standard.log_jacobian) > 1
    np.testing.assert_allclose(other.ess, plain.ess, rtol=1e-7)
    # There and back, and what is fixed without rounding.
    back, given = named_arrays(Modules(standard.restored(moved.model), modules.proposal)), named_arrays(modules)
    for path, array in given.items():
        np.testing.assert_allclose(back[path], array, rtol=1e-9, atol=1e-9, err_msg=path)
        if path in begun.fixed:
            np.testing.assert_array_equal(back[path], array)


def learn(name, values, **settings):
    series = Series.from_values(values)
    begun = mcfo.initialize(name, series)
    objective = objectives.mcfo(20, theta="fisher", phi="dreg")
    options = {"objective": objective, "fixed": begun.fixed, "steps": 30, "learning_rate": 0.05} | settings
    return mcfo.fit(begun.model, begun.proposal, [series], **options)


@pytest.mark.parametrize("x64", [True, False], ids=["float64", "float32"])
def test_an_autoregression_learns_the_same_in_any_unit(x64):
    """The same random numbers: the runs differ by rounding alone, and their log-likelihoods by the Jacobian."""
    data = np.tanh(values() / 500 - 1) + np.random.default_rng(5).normal(size=40)
    with jax.enable_x64(x64):
        plain = learn("linear-gaussian", data)
        # Numbers near 10⁶ are 0.06 apart in float32, and so are the offsets that the model could store.
        for scale, offset in ((1e-4, 0.0), (1e4, 0.0), (1.0, 1e6)) if x64 else ((1e-4, 0.0), (1.0, 1e3)):
            other = learn("linear-gaussian", data * scale + offset)
            gap = (other.evaluation.exact_nll_per_step - plain.evaluation.exact_nll_per_step) * 39
            assert abs(gap - 39 * np.log(scale)) < (1e-5 if x64 else 0.05), f"{scale} {offset}: {gap}"
            # In float32 rounding changes a few ancestors, and with them the noise of the estimates.
            gap = other.evaluation.log_evidence - plain.evaluation.log_evidence
            assert abs(gap + 39 * np.log(scale)) < (1e-5 if x64 else 0.2), f"{scale} {offset}: {gap}"
            rmse = other.evaluation.prediction_rmse / scale
            np.testing.assert_allclose(rmse, plain.evaluation.prediction_rmse, rtol=1e-6 if x64 else 0.01)
            bounds = [[line["log_evidence_per_step"] for line in one.metrics] for one in (other, plain)]
            np.testing.assert_allclose(bounds[0] + np.log(scale), bounds[1], atol=1e-6 if x64 else 0.02)


def test_without_standard_units_an_offset_is_in_the_way():
    """The negative control: the same autoregression, learned in the unit of data with an offset."""
    data = np.tanh(values() / 500 - 1) + np.random.default_rng(5).normal(size=40)
    ends = [
        learn("linear-gaussian", data + offset, standardize=False).evaluation.exact_nll_per_step
        for offset in (0.0, 1000.0)
    ]
    assert abs(ends[0] - ends[1]) * 39 > 0.5


def test_a_volatility_learns_the_same_in_any_unit():
    plain = learn("stochastic-volatility", returns())
    other = learn("stochastic-volatility", returns() * 1e4)
    np.testing.assert_allclose(
        other.evaluation.log_evidence + 40 * np.log(1e4), plain.evaluation.log_evidence, atol=1e-5
    )
    level = float(other.model.log_variance.level[0] - plain.model.log_variance.level[0])
    assert abs(level - 2 * np.log(1e4)) < 1e-5


def test_what_is_fixed_stays_where_it_is_in_the_unit_of_the_data():
    """A fixed offset of the transition is none that standard units could move while the matrix is learned."""
    for objective in (None, objectives.mcfo(5, theta="fisher")):
        series = Series.from_values(values())
        begun = mcfo.initialize("linear-gaussian", series)
        fixed = (*begun.fixed, "model.transition_offset")
        fitted = mcfo.fit(begun.model, begun.proposal, [series], objective=objective, fixed=fixed, steps=5)
        np.testing.assert_array_equal(fitted.model.transition_offset, begun.model.transition_offset)
        moved = float(fitted.model.transition_matrix[0, 0] - begun.model.transition_matrix[0, 0])
        assert abs(moved) > 1e-6
        if objective is None:
            again = -float(mcfo.evaluate(fitted.model, fitted.proposal, series).log_evidence)
            np.testing.assert_allclose(-fitted.evaluation.log_evidence, again, rtol=1e-9)
            best = max(fitted.best.convergence.log_likelihoods)
            np.testing.assert_allclose(best, fitted.evaluation.log_evidence, rtol=1e-9)


def test_what_is_watched_has_the_unit_of_the_data():
    data = 1000 + values()
    series = Series.from_values(data)
    begun = mcfo.initialize("local-level", series)
    seen = mcfo.fit(
        begun.model,
        begun.proposal,
        [series],
        objective=objectives.mcfo(5, theta="fisher"),
        fixed=begun.fixed,
        steps=2,
        select="last",
        watch=lambda model, proposal: {
            "first": model.initial_mean[0],
            "noise": model.emission_noise.log_diagonal[0],
            "own": proposal.model.emission_noise.log_diagonal[0],
        },
    )
    watched = seen.metrics[-1]["watched"]
    np.testing.assert_allclose(watched["first"], data[0])
    np.testing.assert_allclose(watched["noise"], float(seen.model.emission_noise.log_diagonal[0]), rtol=1e-9)
    np.testing.assert_allclose(watched["own"], watched["noise"], rtol=1e-12)
