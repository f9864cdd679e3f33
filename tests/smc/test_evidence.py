"""exp(log_evidence) is unbiased for p(x_1:T): every scheme, criterion and proposal, with and without gaps."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mcfo import SMC, kalman_filter
from mcfo.resampling import Always, ESSBelow, Multinomial, Never, Residual, Stratified, Systematic
from mcfo.smc import sis
from support.means import assert_mean
from support.problems import MODELS, PROPOSALS, SLOW_VECTOR, data

RUNS = 2500
PARTICLES = 100
SCHEMES = [Multinomial(), Stratified(), Systematic(), Residual()]
THRESHOLDS = [0.1, 0.5, 0.9]


def name(piece):
    return type(piece).__name__.lower()


@eqx.filter_jit
def ratios(criteria, scheme, model, proposal, series, exact, key):
    """p̂/p of independent runs, for each of a batch of criteria."""

    def run(criterion, key):
        return jnp.exp(SMC(PARTICLES, scheme, criterion)(model, proposal, series, key=key).log_evidence - exact)

    keys = jax.random.split(key, RUNS)
    return jax.vmap(lambda criterion: jax.vmap(lambda key: run(criterion, key))(keys))(criteria)


def assert_unbiased(samples):
    samples = np.asarray(samples)
    assert samples.std() < 0.5, "the problem is too hard for its standard error to mean anything"
    assert_mean(samples, 1.0)


def thresholds():
    return jax.vmap(lambda threshold: eqx.tree_at(lambda c: c.threshold, ESSBelow(), threshold))(jnp.array(THRESHOLDS))


def problem(model_name, proposal_name, missing):
    model = MODELS[model_name]()
    series = data(model, missing=missing)
    return model, PROPOSALS[proposal_name](model), series, kalman_filter(model, series).log_evidence


@pytest.mark.ci
@pytest.mark.parametrize(
    ("proposal", "scheme"),
    [
        # In CI every scheme has one proposal, and one scheme every proposal; `make verify` runs all pairs.
        pytest.param(
            proposal,
            scheme,
            id=f"{proposal}-{name(scheme)}",
            marks=() if proposal == "affine" or isinstance(scheme, Systematic) else pytest.mark.verify,
        )
        for proposal in PROPOSALS
        for scheme in SCHEMES
    ],
)
@pytest.mark.parametrize("model", SLOW_VECTOR)
def test_every_scheme_and_criterion_is_unbiased(model, proposal, scheme):
    for missing in (False, True):  # in one test, so that one process compiles for both
        case = problem(model, proposal, missing)
        for samples in ratios(thresholds(), scheme, *case, jax.random.key(1)):
            assert_unbiased(samples)
        assert_unbiased(one_criterion(Always(), scheme, *case, jax.random.key(2)))


@eqx.filter_jit
def one_criterion(criterion, scheme, model, proposal, series, exact, key):
    sampler = SMC(PARTICLES, scheme, criterion)
    keys = jax.random.split(key, RUNS)
    return jax.vmap(lambda key: jnp.exp(sampler(model, proposal, series, key=key).log_evidence - exact))(keys)


@pytest.mark.parametrize("proposal", PROPOSALS)
@pytest.mark.parametrize("model", SLOW_VECTOR)
def test_importance_sampling_is_unbiased(model, proposal):
    for missing in (False, True):
        case = problem(model, proposal, missing)
        assert_unbiased(one_criterion(Never(), Systematic(), *case, jax.random.key(3)))


def test_sis_is_smc_that_never_resamples():
    assert isinstance(sis(7).criterion, Never)
    assert sis(7).particles == 7


@eqx.filter_jit
def ratios_without_carried_weights(criterion, model, proposal, series, exact, key):
    """The wrong estimate that a filter makes if it averages w_t as though it had resampled."""
    sampler = SMC(PARTICLES, Systematic(), criterion)

    def run(key):
        trace = sampler(model, proposal, series, key=key, history=True)
        after = trace.history.log_weights
        before = jnp.concatenate([jnp.full_like(after[:1], -jnp.log(PARTICLES)), after[:-1]])
        carried = jnp.where(trace.record.resampled[:, None], -jnp.log(PARTICLES), before)
        increments = after + trace.record.log_evidence[:, None] - carried
        wrong = jax.nn.logsumexp(increments, axis=1) - jnp.log(PARTICLES)
        return jnp.exp(jnp.sum(wrong) - exact)

    return jax.vmap(run)(jax.random.split(key, RUNS))


@pytest.mark.parametrize(
    "criterion", [Never(), *map(ESSBelow, THRESHOLDS)], ids=["never", *(f"below-{t}" for t in THRESHOLDS)]
)
def test_leaving_out_the_carried_weights_is_biased(criterion):
    """Negative control, with a proposal so good that weights are carried at every threshold."""
    case = problem("scalar", "locally-optimal", missing=False)
    samples = ratios_without_carried_weights(criterion, *case, jax.random.key(4))
    with pytest.raises(AssertionError, match="standard errors"):
        assert_mean(samples, 1.0)
