"""Maximum likelihood: the maximum that others find, whatever the units; how it ends, and what its folder says."""

import json

import equinox as eqx
import jax
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize

import mcfo
from mcfo import exact
from mcfo.data.npz import read_arrays
from mcfo.errors import InputError
from mcfo.learning.parameters import Modules, split
from mcfo.learning.run_folder import read_metrics
from mcfo.models.units import in_units, standard_units
from mcfo.reports.run_page import write_run_report
from mcfo.series import Series
from support.learning import FIXED, make_series, start

NEAR = 0.01
"""Nats from the best that an independent optimizer finds."""


def nile():
    return sm.datasets.nile.load_pandas().data["volume"].to_numpy()


def trended():
    rng = np.random.default_rng(5)
    slope = np.cumsum(rng.normal(size=120) * 0.2)
    values = 50 + np.cumsum(slope + rng.normal(size=120)) + rng.normal(size=120) * 2
    values[40:44] = np.nan
    return values


def columns():
    rng = np.random.default_rng(6)
    hidden = np.zeros((120, 1))
    for step in range(1, 120):
        hidden[step] = 0.8 * hidden[step - 1] + rng.normal()
    return 10 + hidden * [1.0, 30.0] + rng.normal(size=(120, 2)) * [0.5, 10.0]


CASES = {
    "level": ("local-level", nile, {}),
    "trend": ("local-trend", trended, {}),
    "autoregression": ("linear-gaussian", lambda: columns()[:, 0], {}),
    "two columns": ("linear-gaussian", columns, {}),
    "factor": ("linear-gaussian", columns, {"latent": 1}),
    "structural level": ("structural", nile, {}),
    "structural trend": ("structural", trended, {"trend": "local"}),
    "structural autoregression": ("structural", lambda: columns()[:, 0], {"ar": 1, "trend": "none"}),
}
"""Every exact model of the catalogue, with data."""


def best_elsewhere(name, values, options, found, *, starts=6):
    """The best log-likelihood that scipy finds from the initial parameters, random ones and those that were found."""
    series = Series.from_values(values)
    begun = mcfo.initialize(name, series, **options)
    model = begun.model
    learned, rest = split(Modules(model, begun.proposal), begun.fixed)
    own, rest = learned.model, rest.model
    first, unravel = ravel_pytree(own)
    # Log scales, and everything else in the unit that it has at the start.
    unit = np.maximum(np.abs(np.asarray(first)), 1.0)

    @jax.jit
    def negative(point):
        return jax.value_and_grad(lambda p: -exact.log_evidence(eqx.combine(unravel(p * unit), rest), series))(point)

    def objective(point):
        value, gradient = negative(point)
        usable = np.isfinite(value) and np.isfinite(gradient).all()
        return (float(value), np.asarray(gradient)) if usable else (1e10, np.zeros(len(point)))

    rng = np.random.default_rng(0)
    origin = np.asarray(first) / unit
    at_found = np.asarray(ravel_pytree(split(Modules(found, begun.proposal), begun.fixed)[0].model)[0]) / unit
    tries = [origin, at_found, *(origin + rng.normal(size=len(unit)) * 0.3 for _ in range(starts))]
    options = {"maxiter": 3000, "maxfun": 5000, "ftol": 1e-13, "gtol": 1e-8}
    return max(-minimize(objective, one, jac=True, method="L-BFGS-B", options=options).fun for one in tries)


@pytest.mark.ci
@pytest.mark.parametrize("case", CASES)
def test_an_exact_fit_reaches_what_an_independent_optimizer_finds(case):
    name, data, options = CASES[case]
    fitted = mcfo.fit(name, data(), **options)
    assert fitted.exact
    assert fitted.stopped == "converged"
    found = fitted.evaluation.log_evidence
    assert found > best_elsewhere(name, data(), options, fitted.model) - NEAR
    # What the search climbed is the likelihood of the data in their own unit.
    np.testing.assert_allclose(max(fitted.best.convergence.log_likelihoods), found, rtol=1e-9)
    # A fit that ends after a few steps is told apart.
    early = mcfo.fit(name, data(), steps=2, **options)
    assert early.stopped == "finished"
    assert early.evaluation.log_evidence < found - NEAR


def test_the_maximum_of_a_diffuse_level_is_that_of_statsmodels():
    peer = sm.tsa.UnobservedComponents(nile(), "llevel", use_exact_diffuse=True).fit(disp=0, method="bfgs")
    fitted = mcfo.fit("structural", nile())
    assert fitted.evaluation.log_evidence > peer.llf - NEAR


UNITS = {"times 1e-4": (1e-4, 0.0), "times 1e4": (1e4, 0.0), "plus 1e6": (1.0, 1e6)}


@pytest.mark.ci
@pytest.mark.parametrize("x64", [True, False], ids=["float64", "float32"])
@pytest.mark.parametrize("case", ["level", "autoregression", "two columns", "factor", "structural trend"])
def test_the_unit_of_the_data_does_not_change_the_maximum(case, x64):
    name, data, options = CASES[case]
    with jax.enable_x64(x64):
        values = data()
        plain = mcfo.fit(name, values, **options)
        # The values from which a diffuse start is found have no density, and no Jacobian.
        counted = np.sum(~np.isnan(values)) - (2 if name == "structural" else 0)
        for scale, offset in UNITS.values():
            other = mcfo.fit(name, values * scale + offset, **options)
            gap = other.evaluation.log_evidence + counted * np.log(scale) - plain.evaluation.log_evidence
            assert abs(gap) < 0.05, f"{scale} {offset}: {gap}"
            assert other.steps < 200
    # The Jacobian is counted: without it the same comparison fails.
    assert abs(counted * np.log(1e-4)) > 1


def test_units_of_a_model_change_nothing_but_the_jacobian():
    series = Series.from_values(columns())
    for name, options in (("linear-gaussian", {}), ("linear-gaussian", {"latent": 1}), ("local-trend", {})):
        begun = mcfo.initialize(name, series, **options)
        model, learned = begun.model, split(Modules(begun.model, begun.proposal), begun.fixed)[0].model
        location, scale = series.values().mean(axis=0), series.values().std(axis=0)
        units = standard_units(model, learned, location, scale)
        standard = Series.from_values((series.values() - units.location) / scale)
        own = float(exact.log_evidence(model, series))
        moved = float(exact.log_evidence(in_units(model, units), standard)) - series.steps * np.log(scale).sum()
        np.testing.assert_allclose(moved, own, rtol=1e-10)
        back = in_units(in_units(model, units), units.inverse())
        np.testing.assert_allclose(float(exact.log_evidence(back, series)), own, rtol=1e-10)
        np.testing.assert_array_equal(units.location, location)


def test_a_variance_at_zero_is_said():
    rng = np.random.default_rng(1)
    fitted = mcfo.fit("structural", 5 + rng.normal(size=80))
    assert fitted.best.convergence.at_bounds == ("model.trend.log_level_scale",)
    moving = mcfo.fit("structural", nile())
    assert moving.best.convergence.at_bounds == ()


@pytest.mark.ci
def test_several_series_with_gaps_and_inputs_share_one_model():
    rng = np.random.default_rng(1)
    series_list = []
    for length in (30, 50, 41):
        inputs = rng.normal(size=length) * 1000
        values = np.cumsum(rng.normal(size=length)) + 0.005 * inputs + rng.normal(size=length) * 0.5
        values[5] = np.nan
        series_list.append(Series.from_values(values, inputs=inputs))
    fitted = mcfo.fit("local-level", series_list)
    weights = fitted.model.emission_inputs
    assert abs(float(weights[0, 0]) - 0.005) < 0.0005
    total = sum(float(exact.log_evidence(fitted.model, one)) for one in series_list)
    np.testing.assert_allclose(fitted.evaluation.log_evidence, total, rtol=1e-9)
    steps = sum(int(np.sum(~np.isnan(one.values()))) for one in series_list)
    assert fitted.evaluation.steps == steps
    np.testing.assert_allclose(fitted.evaluation.nll_per_step, -total / steps, rtol=1e-9)


@pytest.mark.ci
def test_the_same_step_and_the_same_error_everywhere():
    values = trended()
    fitted = mcfo.fit("local-trend", values)
    rolled = mcfo.evaluate_rolling(fitted.model, fitted.proposal, Series.from_values(values))
    np.testing.assert_allclose(-rolled.scores[0].log_score, fitted.evaluation.nll_per_step, rtol=1e-9)
    np.testing.assert_allclose(rolled.scores[0].rmse, fitted.evaluation.prediction_rmse, rtol=1e-9)
    np.testing.assert_allclose(-fitted.metrics[-1]["log_evidence_per_step"], fitted.evaluation.nll_per_step, rtol=1e-6)
    by_particles = mcfo.evaluate(fitted.model, fitted.proposal, Series.from_values(values), particles=20)
    assert by_particles.steps == fitted.evaluation.steps
    np.testing.assert_allclose(by_particles.exact_nll_per_step, fitted.evaluation.nll_per_step, rtol=1e-9)


def test_the_proposal_follows_the_model():
    fitted = mcfo.fit("local-level", nile())
    own, learned = (one.emission_noise.log_diagonal for one in (fitted.proposal.model, fitted.model))
    np.testing.assert_allclose(own, learned, rtol=1e-12)
    first = mcfo.initialize("local-level", Series.from_values(nile())).model.emission_noise.log_diagonal
    assert not np.allclose(first, learned, rtol=1e-3)


def test_the_folder_of_an_exact_fit(tmp_path):
    folder = tmp_path / "run"
    fitted = mcfo.fit("local-level", nile(), out=folder, seeds=(0, 4))
    lines = read_metrics(folder)
    assert lines == list(fitted.metrics)
    assert all(line["ess"] is None and line["grad_norm_phi"] is None and line["skipped"] == 0 for line in lines)
    assert {line["seed"] for line in lines} == {0, 4}
    values = [line["log_evidence_per_step"] for line in lines if line["seed"] == 0]
    assert values == sorted(values)
    config = json.loads((folder / "config.json").read_text())
    assert config["objective"]["name"] == "exact"
    assert config["precision"] == "float64"
    results = json.loads((folder / "results.json").read_text())
    assert results["exact"] is True
    assert results["stopped"] == "converged"
    assert results["seeds"][0]["convergence"]["converged"] is True
    assert results["seeds"][0]["evaluation"]["ess"] is None
    assert [path.suffix for path in (folder / "checkpoints").iterdir()] == [".npz"]
    assert read_arrays(folder / "model.npz")["model.transition_noise.log_diagonal"].dtype == np.float64
    assert "exact" in write_run_report(folder).read_text()
    with pytest.raises(InputError, match="exists already"):
        mcfo.fit("local-level", nile(), out=folder, seeds=(0, 4))
    again = mcfo.fit("local-level", nile(), out=folder, seeds=(0, 4), resume=True)
    assert [one["step"] for one in read_metrics(folder)] == [one["step"] for one in again.metrics]
    loaded = mcfo.load_run(folder).choose(0)
    with jax.enable_x64(False):
        single = mcfo.load_run(folder).choose(0)
        assert mcfo.evaluate(single.model, single.proposal, Series.from_values(nile())).exact
    for model in (loaded.model, single.model):
        np.testing.assert_array_equal(
            model.transition_noise.log_diagonal, fitted.seeds[0].model.transition_noise.log_diagonal
        )


@pytest.mark.ci
def test_objectives_by_name_and_by_default():
    model, proposal = start()
    data = make_series(3)
    assert mcfo.fit(model, proposal, data, fixed=FIXED[:2], steps=200).exact
    assert mcfo.fit(model, proposal, data, objective="exact", fixed=FIXED[:2], steps=200).exact
    by_particles = mcfo.fit(model, proposal, data, objective=mcfo.objectives.mcfo(5), steps=2, fixed=FIXED)
    assert not by_particles.exact
    counts = mcfo.fit("poisson-counts", np.array([1, 2, 3, 2, 4, 1]), steps=2, objective="bootstrap")
    assert not counts.exact


def test_columns_and_frames_of_pandas():
    index = pd.period_range("2000-01", periods=100, freq="M").to_timestamp()
    column = pd.Series(nile(), index=index, name="flow")
    one = mcfo.fit("local-level", column).evaluation.log_evidence
    assert one == mcfo.fit("local-level", column.to_frame()).evaluation.log_evidence
    assert one == mcfo.fit("local-level", nile()).evaluation.log_evidence


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mcfo.fit("local-levl", nile()), "There is no model 'local-levl'. Did you mean 'local-level'"),
        (lambda: mcfo.fit("local-level", nile(), signl=0.5), "no option 'signl'.*Did you mean 'signal'"),
        (lambda: mcfo.fit("local-level"), "come the data alone"),
        (lambda: mcfo.fit(*start()), "no data to learn from"),
        (lambda: mcfo.fit("poisson-counts", np.array([1, 2, 1]), objective="exact"), "no exact form to maximize"),
        (lambda: mcfo.fit("local-level", nile(), objective="exat"), "There is no objective 'exat'"),
        (lambda: mcfo.fit("local-level", nile(), fixed=("model",)), "Nothing is left to learn"),
        (lambda: mcfo.fit("local-level", nile(), watch=lambda m, q: {}), "no updates to watch"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()
