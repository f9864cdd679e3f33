"""Coupled chains: the right marginal distributions, equal as often as possible, and no bias after they have met."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mcfo
from mcfo import SMC, ConditionalSMC, CoupledChains, Series, unbiased_smoothing
from mcfo.proposals import AffineGaussian, Bootstrap
from mcfo.resampling import Multinomial
from mcfo.smc.coupled import _PAIR, Coupled
from support.means import assert_mean
from support.problems import data, scalar_model
from support.smoothing_laws import joint_law


@pytest.mark.parametrize("equal", [False, True], ids=["different", "equal"])
def test_coupled_ancestors(equal):
    weights = jnp.array([[0.1, 0.5, 0.15, 0.25], [0.3, 0.2, 0.1, 0.4]])
    weights = weights[:1].repeat(2, axis=0) if equal else weights
    scheme, draws = Coupled(Multinomial()), 20_000

    @jax.jit
    def both(key):
        numbers = scheme.numbers(4, weights.dtype, key=key)

        def one(log_weights):
            chosen = scheme.choose(log_weights, numbers)
            ancestors, index = scheme.given(log_weights, numbers, chosen)
            return chosen, ancestors, index

        return jax.vmap(one, axis_name=_PAIR)(jnp.log(weights))

    chosen, ancestors, index = jax.lax.map(both, jax.random.split(jax.random.key(0), draws), batch_size=draws)
    assert (index == 0).all()
    assert (ancestors[:, :, 0] == chosen).all()
    for found in (chosen, ancestors[:, :, 2]):
        assert_mean(jax.nn.one_hot(found, 4), weights)
        same = found[:, 0] == found[:, 1]
        assert same.all() if equal else abs(same.mean() - weights.min(axis=0).sum()) < 5 * 0.5 / draws**0.5


@pytest.mark.ci
@pytest.mark.parametrize("sampler", [ConditionalSMC(3), SMC(4)], ids=["conditional", "pimh"])
def test_unbiased_means_with_few_particles(sampler):
    model = scalar_model()
    series = data(model, 5, missing=True, seed=3)
    mean, _ = joint_law(model, series)
    chains = CoupledChains(sampler, burn_in=0, sweeps=3, limit=500)
    result = unbiased_smoothing(model, AffineGaussian.optimal(model), series, chains=chains, replicates=4000)
    assert result.unmet == 0
    assert result.estimate is not None
    assert_mean(result.replicates[:, :, 0], mean, sigmas=4.5)
    np.testing.assert_allclose(result.estimate, result.replicates.mean(axis=0))
    assert result.meeting_times.max() > 3
    assert (result.sweeps >= np.maximum(result.meeting_times, 3)).all()
    assert "All 4000 pairs of chains met" in result.describe()
    if isinstance(sampler, SMC):
        # Negative control: the genealogy of the same filter.
        keys = jax.random.split(jax.random.key(1), 4000)
        plain = jax.jit(
            jax.vmap(
                lambda key: mcfo.smc.genealogy(
                    sampler(model, AffineGaussian.optimal(model), series, key=key, history=True)
                ).mean()
            )
        )(keys)
        with pytest.raises(AssertionError, match="standard errors"):
            assert_mean(plain[:, :, 0], mean, sigmas=10.0)


@pytest.mark.ci
def test_chains_that_have_not_met_are_counted():
    chains = CoupledChains(SMC(2), burn_in=0, sweeps=1, limit=1)
    result = unbiased_smoothing(
        scalar_model(), Bootstrap(), data(scalar_model(), 5), chains=chains, replicates=50, statistic=jnp.sum
    )
    assert 0 < result.unmet < 50
    assert result.estimate is None
    assert result.standard_error is None
    assert result.unmet == np.isnan(result.replicates).sum() == (result.meeting_times == 0).sum()
    assert f"{result.unmet} of 50 pairs of chains had not met by the limit" in result.describe()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: CoupledChains(ConditionalSMC(4, sampling="backward")), "Use sampling='ancestors'"),
        (lambda: CoupledChains(ConditionalSMC(4, lag=2)), "Leave out the lag"),
        (lambda: CoupledChains(SMC(1)), "at least 2 particles"),
        (lambda: CoupledChains(SMC(4), burn_in=9, sweeps=3), "0 <= burn_in <= sweeps"),
        (lambda: CoupledChains(SMC(4), sweeps=30, limit=20), "at least sweeps, 30"),
    ],
)
def test_bad_chains_are_refused(build, message):
    with pytest.raises(ValueError, match=message):
        build()


@pytest.mark.parametrize(
    ("options", "message"),
    [({"statistic": "means"}, "There is no statistic 'means'"), ({"replicates": 1}, "at least 2 replicates")],
)
def test_bad_requests_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        unbiased_smoothing(scalar_model(), Bootstrap(), Series.from_values([[0.1], [0.2]]), **options)
