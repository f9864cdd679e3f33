"""Forecasts against the exact law of the linear Gaussian model."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from mcfo import SMC, MarkovModel, Series, kalman_filter, stack
from mcfo.inference import forecast_series as forecast
from mcfo.proposals import Bootstrap, LocallyOptimal
from support.means import standard_errors
from support.memory import Remembering
from support.problems import data, scalar_model, vector_model

MODEL, AHEAD = vector_model(), 3


def exact(model, series):
    """Mean and variance of each coming observation: the Kalman filter goes on over steps without observations."""
    values = np.asarray(jnp.where(series.mask(), series.observations, jnp.nan))
    longer = np.concatenate([values, np.full((AHEAD, values.shape[1]), np.nan)])
    found = kalman_filter(model, Series.from_values(longer))
    matrix, offset = np.asarray(model.emission_matrix), np.asarray(model.emission_offset)
    means = np.asarray(found.filtered.mean)[-AHEAD:] @ matrix.T + offset
    latent = np.asarray(found.filtered.covariance)[-AHEAD:]
    noise = np.asarray(model.emission_noise.matrix)
    return means, np.einsum("ij,tjk,ik->ti", matrix, latent, matrix) + np.diag(noise)


@pytest.mark.ci
def test_moments_and_quantiles_are_the_kalman_filters():
    series = data(MODEL, 5, missing=True)
    means, variances = exact(MODEL, series)

    @eqx.filter_jit
    def many(model):
        def one(key):
            found = forecast(model, LocallyOptimal(MODEL), series, steps=AHEAD, sampler=SMC(400), draws=50, key=key)
            values = found.paths.observations
            return found.mean, values.mean(0), (values**2).mean(0), found.quantiles((0.1, 0.9))

        return jax.vmap(one)(jax.random.split(jax.random.key(0), 200))

    smooth, drawn, squares, quantiles = map(np.asarray, many(MODEL))
    for samples, truth in ((smooth, means), (drawn, means), (squares, means**2 + variances)):
        # The filter's own bias is of order 1/400: below a standard error of 200 runs, not of many more.
        assert standard_errors(samples, truth).max() < 5
    assert (smooth.std(0) < drawn.std(0)).all(), "the mean of E[x | z] is the better estimate"
    low, high = (means + sign * 1.2816 * np.sqrt(variances) for sign in (-1, 1))
    spread = np.sqrt(variances)
    np.testing.assert_allclose(quantiles.mean(0)[0], low, atol=0.12 * spread.max())
    np.testing.assert_allclose(quantiles.mean(0)[1], high, atol=0.12 * spread.max())
    other = eqx.tree_at(lambda m: m.transition_matrix, MODEL, 0.5 * MODEL.transition_matrix)
    assert standard_errors(np.asarray(many(other)[0]), means).max() > 20, "negative control"


@pytest.mark.ci
def test_padding_and_batches_change_nothing():
    pair = [data(MODEL, 5, missing=True, seed=1, series_id=1), data(MODEL, 4, missing=True, seed=2, series_id=2)]

    def one(series):
        return forecast(
            MODEL, LocallyOptimal(MODEL), series, steps=AHEAD, sampler=SMC(20), draws=7, key=jax.random.key(1)
        )

    together = jax.vmap(one)(stack(pair))
    for place, series in enumerate(pair):
        alone = one(series)
        np.testing.assert_allclose(together.paths.observations[place], alone.paths.observations, rtol=1e-9)
        np.testing.assert_allclose(together.mean[place], alone.mean, rtol=1e-9)
    assert together.mean.shape == (2, AHEAD, MODEL.emission_matrix.shape[0])
    assert together.quantiles((0.5,)).shape == (1, *together.mean.shape)


def test_a_memory_of_observations_goes_on_from_the_drawn_ones():
    model = Remembering()
    series = Series.from_values(np.array([[1, 0], [0, 0], [1, 1]]))
    found = forecast(model, Bootstrap(), series, steps=4, sampler=SMC(30), draws=40, key=jax.random.key(0))
    assert found.paths.observations.shape == (40, 4, 2)
    assert set(np.unique(found.paths.observations)) == {0, 1}


class Cauchy(MarkovModel):
    """An emission of which numpyro says that it has no mean."""

    def initial(self, memory, inputs):
        return dist.Normal(jnp.zeros(1), 1.0).to_event(1)

    def transition(self, memory, inputs):
        return dist.Normal(memory, 1.0).to_event(1)

    def emission(self, memory, latent, inputs):
        return Meanless(latent)


class Meanless:
    def __init__(self, latent):
        self.law = dist.Cauchy(latent, 1.0).to_event(1)

    def sample(self, key, sample_shape=()):
        return self.law.sample(key, sample_shape)

    def log_prob(self, value):
        return self.law.log_prob(value)


def test_without_a_mean_the_draws_are_averaged():
    found = forecast(
        Cauchy(),
        Bootstrap(),
        Series.from_values([0.1, 0.4]),
        steps=2,
        sampler=SMC(20),
        draws=9,
        key=jax.random.key(0),
    )
    assert found.paths.means is None
    np.testing.assert_allclose(found.mean, found.paths.observations.mean(0), rtol=1e-12)


def test_a_filter_that_lost_the_series_says_so():
    lost = Series.from_values([0.0, 1e160])
    found = forecast(scalar_model(), Bootstrap(), lost, steps=1, sampler=SMC(5), draws=2, key=jax.random.key(0))
    assert not bool(found.finite)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 0}, "at least one step and one draw"),
        ({"steps": 2, "draws": 0}, "at least one step and one draw"),
        ({"steps": 2, "inputs": np.zeros((2, 1))}, "none if not"),
    ],
)
def test_what_cannot_be_forecast_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        forecast(MODEL, Bootstrap(), data(MODEL, 3), key=jax.random.key(0), **options)
