"""The models of the catalogue against truths that they did not produce: SciPy's densities, statsmodels, quadrature."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg, stats

from mcfo import SMC, Series, kalman_filter, kalman_smoother, simulate
from mcfo.catalogue.registry import build
from mcfo.models import (
    IrregularLinearGaussian,
    LeveragedVolatility,
    NegativeBinomialCounts,
    PoissonCounts,
    StochasticVolatility,
)
from mcfo.proposals import Bootstrap, LocallyOptimal
from support.means import assert_mean, standard_errors

RUNS, PARTICLES = 400, 50


@eqx.filter_jit
def _log_evidences(model, proposal, series, keys):
    run = SMC(PARTICLES)
    return jax.vmap(lambda key: run(model, proposal, series, key=key).log_evidence)(keys)


def ratios(model, series, truth, proposal=None):
    """p̂(x) / p(x) of independent filters, whose mean is one if the filter's model is the one that the truth is of."""
    keys = jax.random.split(jax.random.key(0), RUNS)
    found = _log_evidences(model, Bootstrap() if proposal is None else proposal, series, keys)
    return np.exp(np.asarray(found) - np.log(truth))


NOISY = np.random.default_rng(3).normal(size=40).cumsum() + np.random.default_rng(4).normal(size=40)
NOISY[[7, 20, 21]] = np.nan


@pytest.mark.parametrize(
    ("name", "of_statsmodels", "order"),
    [("local-level", "local level", [0]), ("local-trend", "local linear trend", [0, 1])],
)
def test_structural_models_are_those_of_statsmodels(name, of_statsmodels, order):
    from statsmodels.tsa.statespace.structural import UnobservedComponents

    model = build(name, [Series.from_values(NOISY)], {}).model
    other = UnobservedComponents(NOISY, of_statsmodels)
    other.ssm.initialize_known(np.asarray(model.initial_mean), np.asarray(model.initial_noise.matrix))
    other.ssm.loglikelihood_burn = 0
    states = np.diag(model.transition_noise.matrix)
    result = other.smooth([float(model.emission_noise.matrix[0, 0]), *states[order]])
    found = kalman_filter(model, Series.from_values(NOISY))
    np.testing.assert_allclose(found.log_evidence, result.llf, rtol=1e-9)
    np.testing.assert_allclose(found.filtered.mean.T, result.filtered_state, rtol=1e-7, atol=1e-9)
    smoothed = kalman_smoother(model, Series.from_values(NOISY))
    np.testing.assert_allclose(smoothed.mean.T, result.smoothed_state, rtol=1e-6, atol=1e-9)


def _timed(values, gaps):
    return Series.from_values(values, inputs=np.asarray(gaps, float))


@pytest.mark.parametrize("name", ["local-level", "local-trend"])
def test_a_gap_of_two_is_a_step_that_is_missing(name):
    """Of a process in continuous time it makes no difference whether nothing was measured, or that nothing was."""
    whole = _timed(NOISY, np.ones(40))
    model = build(name, [whole], {}, gaps=True).model
    there = ~np.isnan(NOISY)
    times = np.flatnonzero(there)
    left_out = _timed(NOISY[there], np.diff(times, prepend=-1))
    truth = kalman_filter(model, whole).log_evidence
    np.testing.assert_allclose(kalman_filter(model, left_out).log_evidence, truth, rtol=1e-10)
    smoothed, fewer = (kalman_smoother(model, one).mean for one in (whole, left_out))
    np.testing.assert_allclose(smoothed[there], fewer, rtol=1e-7, atol=1e-9)
    wrong = _timed(NOISY[there], np.ones(there.sum()))
    assert abs(float(kalman_filter(model, wrong).log_evidence - truth)) > 1e-3


LEGENDRE = np.polynomial.legendre.leggauss(3)


def test_the_noise_of_a_gap_is_the_integral_over_it():
    noise = np.array([[0.5, 0.1], [0.1, 0.3]])
    model = IrregularLinearGaussian(
        initial_mean=[0.0, 0.0],
        initial_noise=np.eye(2),
        transition_matrix=[[1.0, 1.0], [0.0, 1.0]],
        transition_noise=noise,
        emission_matrix=[[1.0, 0.0]],
        emission_noise=1.0,
    )
    drift = np.array([[0.0, 1.0], [0.0, 0.0]])
    for gap in (0.3, 1.0, 2.7):
        # Three nodes are exact for the polynomial that it is.
        moved = [linalg.expm(drift * gap * (1 + node) / 2) for node in LEGENDRE[0]]
        wanted = gap / 2 * sum(mass * one @ noise @ one.T for mass, one in zip(LEGENDRE[1], moved, strict=True))
        found = model.dynamics(jnp.array([gap]))
        np.testing.assert_allclose(found.covariance, wanted, rtol=1e-8)
        np.testing.assert_allclose(found.matrix, linalg.expm(drift * gap), atol=1e-12)
        law = model.transition(jnp.array([0.4, -1.0]), jnp.array([gap]))
        density = stats.multivariate_normal(linalg.expm(drift * gap) @ [0.4, -1.0], wanted).logpdf([0.1, 0.2])
        np.testing.assert_allclose(law.log_prob(jnp.array([0.1, 0.2])), density, rtol=1e-7)
    with pytest.raises(ValueError, match="F² = 0"):
        IrregularLinearGaussian(
            initial_mean=0.0,
            initial_noise=1.0,
            transition_matrix=0.9,
            transition_noise=1.0,
            emission_matrix=1.0,
            emission_noise=1.0,
        )


@pytest.mark.ci
@pytest.mark.parametrize("name", ["local-level", "local-trend"])
def test_filters_at_uneven_times_are_unbiased(name):
    gaps = np.array([1.0, 2.5, 0.3, 1.0, 4.0])
    inputs = np.column_stack([gaps, [0.5, -1.0, 0.2, 0.0, 1.0]])
    values = np.array([0.3, np.nan, 1.0, -0.4, 2.0])
    start = build(name, [Series.from_values(values, inputs=inputs)], {}, gaps=True)
    model = eqx.tree_at(lambda m: m.emission_inputs, start.model, jnp.array([[0.7]]))
    series = Series.from_values(values, inputs=inputs)
    truth = float(np.exp(kalman_filter(model, series).log_evidence))
    assert_mean(ratios(model, series, truth, LocallyOptimal(model)), 1.0)
    other = Series.from_values(values, inputs=inputs * [0.2, 1.0])
    assert standard_errors(ratios(model, other, truth, LocallyOptimal(model)), 1.0) > 5


NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(24)
NORMALS = np.array([*itertools.product(NODES, repeat=3)])
MASSES = np.prod([*itertools.product(WEIGHTS / WEIGHTS.sum(), repeat=3)], axis=1)
TIMES = np.array([0.0, 1.0, 3.5])
LEVEL, PERSISTENCE, SCALE = 0.5, 0.8, 0.4


def hidden(times):
    """All the paths of the hidden autoregression at the nodes, from the covariances of its values at any times."""
    spread = SCALE**2 / (1 - PERSISTENCE**2) * PERSISTENCE ** np.abs(times[:, None] - times[None, :])
    return LEVEL + NORMALS @ np.linalg.cholesky(spread).T


COUNTS = np.array([3, 0, 5])
LAWS = {
    "poisson": (PoissonCounts, {}, lambda mean: stats.poisson(mean)),
    "negative binomial": (
        NegativeBinomialCounts,
        {"concentration": 2.5},
        lambda mean: stats.nbinom(2.5, 2.5 / (2.5 + mean)),
    ),
}


@pytest.mark.parametrize(
    ("law", "uneven"),
    [
        ("poisson", False),
        ("negative binomial", True),
        pytest.param("poisson", True, marks=pytest.mark.slow),
        pytest.param("negative binomial", False, marks=pytest.mark.slow),
    ],
)
def test_counts_against_quadrature(law, uneven):
    kind, options, truth_of = LAWS[law]
    times = TIMES if uneven else np.arange(3.0)
    truth = MASSES @ truth_of(np.exp(hidden(times))).pmf(COUNTS).prod(axis=1)
    model = kind(level=LEVEL, persistence=PERSISTENCE, scale=SCALE, timed=uneven, **options)
    gaps = np.diff(times, prepend=-1.0) if uneven else None
    series = Series.from_values(COUNTS, inputs=gaps)
    assert_mean(ratios(model, series, truth), 1.0)
    other = kind(level=LEVEL + 0.3, persistence=PERSISTENCE, scale=SCALE, timed=uneven, **options)
    assert standard_errors(ratios(other, series, truth), 1.0) > 5


def test_densities_with_inputs():
    weights, inputs, latent = [[0.5, -1.0]], jnp.array([2.0, 3.0, 0.5]), jnp.array([0.7])
    options = {"input_weights": weights, "timed": True}
    mean = np.exp(0.7 + 1.5 - 0.5)
    found = NegativeBinomialCounts(concentration=4.0, **options).emission(None, latent, inputs)
    np.testing.assert_allclose(found.log_prob(jnp.array([3])), stats.nbinom(4, 4 / (4 + mean)).logpmf(3))
    found = PoissonCounts(**options).emission(None, latent, inputs)
    np.testing.assert_allclose(found.log_prob(jnp.array([3])), stats.poisson(mean).logpmf(3))
    found = StochasticVolatility(degrees=5.0, **options).emission(None, latent, inputs)
    # A variance of exp(z) whatever the tails are.
    wanted = stats.t(5, 1.0, np.exp(0.35) * np.sqrt(3 / 5))
    np.testing.assert_allclose(found.log_prob(jnp.array([2.2])), wanted.logpdf(2.2))
    np.testing.assert_allclose(wanted.var(), np.exp(0.7))


RETURNS = np.array([0.8, -2.5, 1.1])
LEVERAGE = -0.6


@pytest.mark.parametrize(("tails", "gap"), [("normal", False), ("student", False), ("normal", True)])
def test_leverage_against_quadrature(tails, gap):
    """What a missing return would have done to the next variance is integrated out: of Gaussian ones, exactly."""
    degrees = None if tails == "normal" else 6.0
    law = stats.norm() if degrees is None else stats.t(degrees, scale=np.sqrt((degrees - 2) / degrees))
    known = np.array([True, not gap, True])
    density, state = np.ones(len(NORMALS)), LEVEL + SCALE / np.sqrt(1 - PERSISTENCE**2) * NORMALS[:, 0]
    for step in range(3):
        shock = RETURNS[step] * np.exp(-state / 2)
        if known[step]:
            density *= law.pdf(shock) * np.exp(-state / 2)
        if step < 2:
            noise = NORMALS[:, step + 1]
            if known[step]:
                noise = LEVERAGE * shock + np.sqrt(1 - LEVERAGE**2) * noise
            state = LEVEL + PERSISTENCE * (state - LEVEL) + SCALE * noise
    laws = {"level": LEVEL, "persistence": PERSISTENCE, "scale": SCALE, "degrees": degrees}
    series = Series.from_values(RETURNS, observed=known)
    truth = MASSES @ density
    assert_mean(ratios(LeveragedVolatility(leverage=LEVERAGE, **laws), series, truth), 1.0)
    if not gap:
        assert standard_errors(ratios(LeveragedVolatility(leverage=0.6, **laws), series, truth), 1.0) > 5


def test_without_leverage_it_is_the_plain_model():
    laws = {"level": LEVEL, "persistence": PERSISTENCE, "scale": SCALE, "degrees": 5.0}
    plain, leveraged = StochasticVolatility(**laws), LeveragedVolatility(leverage=0.0, **laws)
    memory = leveraged.advance(None, jnp.array([0.3]), jnp.array([1.7]))
    one, other = plain.transition(jnp.array([0.3]), None), leveraged.transition(memory, None)
    np.testing.assert_allclose(one.log_prob(jnp.array([0.1])), other.log_prob(jnp.array([0.1])))


def test_shocks_have_the_correlation_that_leverage_says():
    model = LeveragedVolatility(level=LEVEL, persistence=PERSISTENCE, scale=SCALE, leverage=LEVERAGE)
    latents, values = jax.vmap(lambda key: simulate(model, 2, key=key))(jax.random.split(jax.random.key(1), 4000))
    latents, values = np.asarray(latents)[..., 0], np.asarray(values)[..., 0]
    shocks = values[:, 0] * np.exp(-latents[:, 0] / 2)
    moves = (latents[:, 1] - LEVEL - PERSISTENCE * (latents[:, 0] - LEVEL)) / SCALE
    assert_mean(shocks * moves, LEVERAGE)
    assert_mean(moves**2, 1.0)
    assert standard_errors(shocks * moves, -LEVERAGE) > 5


def test_a_time_of_two_is_two_steps():
    model = PoissonCounts(level=[LEVEL, 1.0], persistence=[PERSISTENCE, -0.5], scale=SCALE, timed=True)
    latent = jnp.array([2.0, 0.0])
    one = model.transition(latent, jnp.array([1.0]))
    two = model.transition(latent, jnp.array([2.0]))
    ratio = np.abs([PERSISTENCE, 0.5])
    np.testing.assert_allclose(two.mean, [LEVEL, 1.0] + ratio**2 * (np.asarray(latent) - [LEVEL, 1.0]))
    np.testing.assert_allclose(two.variance, one.variance * (1 + ratio**2))
    np.testing.assert_allclose(one.variance, SCALE**2)


@pytest.mark.parametrize(
    ("make_one", "message"),
    [
        (lambda: StochasticVolatility(degrees=2.0), "degrees must be greater than 2"),
        (lambda: LeveragedVolatility(leverage=-1.0), "leverage must lie between -1 and 1"),
        (lambda: NegativeBinomialCounts(concentration=0.0), "concentration must be positive"),
        (lambda: PoissonCounts(timed=True).transition(jnp.zeros(1), None), "takes the time since the previous step"),
        (lambda: PoissonCounts(input_weights=1.0).emission(None, jnp.zeros(1), None), "has weights for inputs"),
    ],
)
def test_what_makes_no_sense_is_refused(make_one, message):
    with pytest.raises(ValueError, match=message):
        make_one()
