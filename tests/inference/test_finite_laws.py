"""Exact distributions of models with finitely many states, against numerical integrals and against particles."""

import jax
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

import mcfo
from mcfo.forward_algorithm import forward_backward, forward_filter
from mcfo.inference.exact_laws import rolling_laws, uses_exact_laws
from mcfo.inference.finite_laws import MixtureLaws
from mcfo.models import GaussianEmission, HiddenMarkov
from mcfo.proposals import OptimalRegimes
from support.means import assert_mean, standard_errors
from support.regimes import TRANSITION, gappy, hidden_markov, switching


@pytest.fixture(scope="module")
def problem():
    model = HiddenMarkov(GaussianEmission([-0.5, 0.0, 0.8], [1.0, 1.5, 0.8]), transition_probabilities=TRANSITION)
    return model, gappy(model, 12, seed=1)


def test_what_is_exact():
    assert uses_exact_laws(hidden_markov(), None, None)
    assert not uses_exact_laws(hidden_markov(), None, 100)
    assert not uses_exact_laws(switching(), None, None)


def test_scores_are_those_of_numerical_integrals():
    model = HiddenMarkov(GaussianEmission([-1.0, 2.0], [0.5, 1.0]), transition_probabilities=[[0.9, 0.1], [0.2, 0.8]])
    weights, value = np.array([0.3, 0.7]), 0.4
    laws = MixtureLaws(model, np.log(weights)[None], None)

    def below(x):
        return weights @ norm.cdf(x, [-1.0, 2.0], [0.5, 1.0])

    crps = quad(lambda x: below(x) ** 2, -9, value)[0] + quad(lambda x: (1 - below(x)) ** 2, value, 9)[0]
    at = np.array([[value]])
    np.testing.assert_allclose(laws.below(at)[0, 0], below(value), atol=1e-12)
    np.testing.assert_allclose(laws.crps(at)[0, 0], crps, rtol=1e-4)
    np.testing.assert_allclose(laws.log_density(at)[0], np.log(weights @ norm.pdf(value, [-1.0, 2.0], [0.5, 1.0])))
    np.testing.assert_allclose(below(laws.quantiles([0.1, 0.8])[0, :, 0][0]), 0.1, atol=1e-12)
    # One Gaussian with the same moments has another score.
    mean = weights @ [-1.0, 2.0]
    scale = np.sqrt(weights @ np.array([1.25, 5.0]) - mean**2)
    u = (value - mean) / scale
    other = scale * (u * (2 * norm.cdf(u) - 1) + 2 * norm.pdf(u) - 1 / np.sqrt(np.pi))
    assert abs(other - crps) > 0.01 * crps


def test_data_sets_have_the_probabilities_of_the_regimes(problem):
    model, series = problem
    filtered = mcfo.filter(model, OptimalRegimes(), series, draws=3)
    smoothed = mcfo.smooth(model, OptimalRegimes(), series, draws=400)
    assert filtered["latent"].values.tolist() == ["regime 1", "regime 2", "regime 3"]
    np.testing.assert_allclose(filtered["latent_mean"][0], np.exp(forward_filter(model, series).log_filtered))
    exact = np.exp(forward_backward(model, series).log_states)
    np.testing.assert_allclose(smoothed["latent_mean"][0], exact)
    assert np.isnan(smoothed["ess"]).all()
    error = np.sqrt(exact * (1 - exact) / 400) + 1e-9
    drawn = smoothed["latent_draws"][0].mean("particle").values
    assert (np.abs(drawn - exact) < 5 * error).all()
    assert (np.abs(drawn - filtered["latent_mean"][0].values) > 5 * error).any()
    forecast = mcfo.forecast(model, OptimalRegimes(), series, 2, draws=2000)
    values = forecast["observation_draws"][0].values[..., 0]
    gap = np.abs(values.mean(axis=1) - forecast["observation_mean"][0, :, 0].values)
    assert (gap < 5 * values.std(axis=1) / 2000**0.5).all()


@pytest.mark.ci
def test_particles_agree(problem):
    """Backward simulation and forecasts by particles come to the same regimes."""
    model, series = problem
    exact = mcfo.smooth(model, OptimalRegimes(), series)
    found = mcfo.smooth(model, OptimalRegimes(), series, particles=500, paths=2000)
    share = exact["latent_mean"].values
    error = np.sqrt(share * (1 - share) / 2000 + share * (1 - share) / 500)
    assert (np.abs(found["latent_mean"].values - share) < 5 * error).all()
    assert found["latent"].values.tolist() == exact["latent"].values.tolist()
    filtered = mcfo.filter(model, OptimalRegimes(), series)["latent_mean"].values
    assert (np.abs(filtered - share) > 5 * error).any()


def test_rolling_scores_are_conditional_likelihoods(problem):
    model, series = problem
    laws, _ = rolling_laws(model, series, 2)
    values = series.values()
    at = laws.log_density(np.stack([values, np.roll(values, -1, axis=0)], axis=1))
    whole = [float(forward_filter(model, mcfo.Series.from_values(values[:steps])).log_evidence) for steps in (5, 6)]
    assert at[5, 0] == pytest.approx(whole[1] - whole[0], abs=1e-10)
    skipped = values[:7].copy()
    skipped[5] = np.nan
    ahead = float(forward_filter(model, mcfo.Series.from_values(skipped)).log_evidence) - whole[0]
    assert at[5, 1] == pytest.approx(ahead, abs=1e-10)
    assert abs(at[5, 1] - at[6, 0]) > 1e-6


def test_the_evidence_of_particles_is_unbiased(problem):
    model, series = problem
    sticky = HiddenMarkov(model.emissions, transition_probabilities=0.9 * np.eye(3) + 0.1 / 3)
    exact, wrong = (float(forward_filter(one, series).log_evidence) for one in (model, sticky))
    for proposal in (mcfo.proposals.Bootstrap(), OptimalRegimes()):
        run = jax.jit(jax.vmap(lambda key, q=proposal: mcfo.SMC(30)(model, q, series, key=key).log_evidence))
        found = np.asarray(run(jax.random.split(jax.random.key(0), 2000)))
        assert_mean(np.exp(found - exact), 1.0)
        assert standard_errors(np.exp(found - wrong), 1.0) > 5
