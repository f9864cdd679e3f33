"""Structural models by particles, against the Kalman filter and quadrature."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from mcfo import SMC, Series, kalman_filter, simulate
from mcfo.catalogue.registry import CATALOGUE, build
from mcfo.exact import log_evidence
from mcfo.learning.parameters import describe
from mcfo.models import GaussianStructural, Season, Trend, structural
from mcfo.proposals import Bootstrap, Linearized
from mcfo.smc.compatibility import check_fit
from mcfo.smc.step_scan import frame_at, frames
from mcfo.transforms import Log
from support.means import assert_mean, standard_errors

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


@pytest.mark.ci
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


@pytest.mark.ci
def test_the_linearized_proposal_finds_the_posterior():
    """Of one Poisson count: its mean by quadrature, and a Gaussian emission's exactly."""
    model = structural(emission="poisson")
    prior = dist.Normal(jnp.array([1.0]), jnp.array([0.5])).to_event(1)
    series = Series.from_values([9])
    context = jax.tree.map(lambda array: jnp.asarray(array)[0], Linearized(model).encode(series))
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
    context = jax.tree.map(lambda array: jnp.asarray(array)[0], Linearized(exact).encode(series))
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


@pytest.mark.ci
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


def test_particles_need_something_that_moves():
    model = structural(level="fixed", emission="poisson")
    with pytest.raises(ValueError, match="No part of the model has noise"):
        SMC(10)(model, Bootstrap(), Series.from_values([1, 2, 3]), key=jax.random.key(0))
