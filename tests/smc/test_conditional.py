"""Conditional SMC leaves the smoothing law as it is: every scheme, few particles, gaps, padding, models with memory."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mcfo import ConditionalSMC, Series, kalman_smoother
from mcfo.proposals import Bootstrap
from mcfo.resampling import ESSBelow, Multinomial, Never, Resampling, Residual, Stratified, Systematic
from mcfo.smc.resampling import pick
from mcfo.smc.trajectory import Trajectory
from mcfo.smc.weights import normalize
from support.means import assert_mean
from support.memory import Remembering, log_joint
from support.problems import data, scalar_model
from support.smoothing_laws import averages, exact_moments, joint_law

SCHEMES = [Multinomial(), Stratified(), Systematic(), Residual()]


def name(scheme):
    return type(scheme).__name__.lower()


@pytest.mark.parametrize(
    "scheme",
    [scheme if name(scheme) == "systematic" else pytest.param(scheme, marks=pytest.mark.ci) for scheme in SCHEMES],
    ids=name,
)
def test_conditional_ancestors_have_the_law_of_the_scheme_given_one_of_them(scheme):
    """Unconditional draws, weighted by how many descendants the parent has, say the same on average."""
    particles, draws = 5, 20_000
    log_weights = normalize(jnp.array([0.3, -1.5, 1.2, -0.2, 0.1]))[0]

    def described(ancestors, index):
        return jnp.concatenate([jnp.bincount(ancestors, length=particles), jnp.arange(particles) == index])

    def conditional(parent, key):
        keys = jax.random.split(key)
        ancestors, index = scheme.conditional(
            log_weights,
            scheme.numbers(particles, log_weights.dtype, key=keys[0]),
            parent,
            jax.random.uniform(keys[1], (2,)),
        )
        return ancestors, index, described(ancestors, index)

    def weighted(parent, key):
        ancestors = scheme(log_weights, key=key)
        each = jax.vmap(lambda index: described(ancestors, index))(jnp.arange(particles))
        return jnp.sum(jnp.where((ancestors == parent)[:, None], each, 0), axis=0)

    @jax.jit
    def both(key):
        def of_parent(parent):
            keys = jax.random.split(jax.random.fold_in(key, parent), (2, draws))
            found = jax.vmap(lambda key: conditional(parent, key))(keys[0])
            expected = jax.vmap(lambda key: weighted(parent, key))(keys[1])
            return found, expected / (particles * jnp.exp(log_weights[parent]))

        return jax.vmap(of_parent)(jnp.arange(particles, dtype=jnp.int32))

    (ancestors, index, found), expected = jax.tree.map(np.asarray, both(jax.random.key(0)))
    parents = np.arange(particles)[:, None]
    assert (np.take_along_axis(ancestors, index[..., None], 2)[..., 0] == parents).all()
    assert (np.diff(ancestors, axis=2) >= 0).all()
    error = np.sqrt((found.var(axis=1) + expected.var(axis=1)) / draws)
    gap = np.abs(found.mean(axis=1) - expected.mean(axis=1))
    assert (gap <= 4.5 * error + 1e-12).all(), (gap / np.maximum(error, 1e-12)).max()


def problem(steps=5, *, missing=False):
    model = scalar_model()
    series = data(model, steps, missing=missing, seed=3)
    return model, series, joint_law(model, series)


def deviations(sampler, model, series, law, *, chains=10_000, sweeps=12, seed=1):
    return averages(sampler, model, Bootstrap(), series, law, jax.random.key(seed), chains=chains, sweeps=sweeps)


def assert_invariant(sampler, model, series, law, **options):
    assert_mean(deviations(sampler, model, series, law, **options), exact_moments(law[1]), sigmas=4.5)


@pytest.mark.ci
def test_the_joint_law_is_that_of_the_kalman_smoother():
    model, series, (mean, covariance) = problem(missing=True)
    exact = kalman_smoother(model, series)
    np.testing.assert_allclose(exact.mean[:, 0], mean, rtol=1e-6)
    np.testing.assert_allclose(exact.variance()[:, 0], np.diag(covariance), rtol=1e-6)


@pytest.mark.ci
def test_ancestor_sampling_leaves_the_smoothing_law_invariant():
    assert_invariant(ConditionalSMC(2), *problem())


@pytest.mark.ci
@pytest.mark.parametrize("scheme", SCHEMES, ids=name)
def test_every_scheme_leaves_the_smoothing_law_invariant(scheme):
    assert_invariant(ConditionalSMC(2, scheme, sampling="none"), *problem())


@pytest.mark.slow
@pytest.mark.parametrize("scheme", SCHEMES, ids=name)
def test_every_scheme_with_ancestor_sampling(scheme):
    assert_invariant(ConditionalSMC(5, scheme), *problem())


@pytest.mark.parametrize(
    "criterion",
    [pytest.param(ESSBelow(0.7), marks=pytest.mark.ci), pytest.param(Never(), marks=pytest.mark.slow)],
    ids=["ess", "never"],
)
def test_carried_weights_leave_the_smoothing_law_invariant(criterion):
    assert_invariant(ConditionalSMC(3, criterion=criterion), *problem())


@pytest.mark.ci
def test_backward_sampling_with_gaps_and_padding():
    model, series, law = problem(missing=True)
    assert_invariant(ConditionalSMC(3, sampling="backward"), model, series.pad(8), law)


@pytest.mark.slow
def test_ancestor_sampling_with_gaps_and_padding():
    model, series, law = problem(missing=True)
    assert_invariant(ConditionalSMC(2, Residual()), model, series.pad(8), law)


class Unconditional(Resampling):
    """Negative control: the others are drawn as if no particle were kept, which has the same index at every step.

    With an index that is drawn evenly it would be right for K = 2: the other's ancestor is then drawn by the weights.
    """

    scheme: Resampling

    def __call__(self, log_weights, *, key):
        return self.scheme(log_weights, key=key)

    def numbers(self, particles, dtype, *, key):
        return self.scheme.numbers(particles, dtype, key=key)

    def conditional(self, log_weights, numbers, parent, uniforms):
        return self.scheme.ancestors(log_weights, numbers).at[0].set(parent), jnp.zeros((), jnp.int32)


class WithoutTheKept(Resampling):
    """Negative control: the others never descend from the kept particle."""

    def __call__(self, log_weights, *, key):
        return Multinomial()(log_weights, key=key)

    def conditional(self, log_weights, numbers, parent, uniforms):
        return Multinomial().conditional(normalize(log_weights.at[parent].set(-jnp.inf))[0], numbers, parent, uniforms)

    def numbers(self, particles, dtype, *, key):
        return Multinomial().numbers(particles, dtype, key=key)


@pytest.mark.parametrize(
    "scheme",
    [
        pytest.param(Unconditional(Stratified()), marks=pytest.mark.slow),
        pytest.param(Unconditional(Systematic()), marks=pytest.mark.ci),
        pytest.param(Unconditional(Residual()), marks=pytest.mark.slow),
        pytest.param(WithoutTheKept(), marks=pytest.mark.ci),
    ],
    ids=["stratified", "systematic", "residual", "kept"],
)
def test_wrong_conditional_schemes_are_noticed(scheme):
    with pytest.raises(AssertionError, match="standard errors"):
        assert_invariant(ConditionalSMC(2, scheme, sampling="none"), *problem())


VALUES = np.array([[1, 0], [np.nan, 0], [1, np.nan], [1, 0], [0, 1]])


def enumerated(model, values):
    """The probability of each path of latents given what was observed, over what is missing too."""
    gaps = np.argwhere(np.isnan(values))
    paths = np.array(list(itertools.product((0, 1), repeat=len(values))), float)
    fillings = np.array(list(itertools.product((0.0, 1.0), repeat=len(gaps))))
    complete = np.repeat(values[None], len(fillings), axis=0)
    complete[:, gaps[:, 0], gaps[:, 1]] = fillings
    each = jax.jit(jax.vmap(jax.vmap(lambda path, x: log_joint(model, path, x), (0, None)), (None, 0)))
    joint = np.exp(np.asarray(each(paths, complete)))
    return paths, joint.sum(axis=0) / joint.sum(), complete, joint.sum(axis=1) / joint.sum()


@eqx.filter_jit
def frequencies(sampler, model, series, key, *, chains=3000, sweeps=12):
    """How often chains that have forgotten their start are in each path, one row for each chain."""

    def chain(key):
        paths, _ = sampler.trajectories(model, Bootstrap(), series, sweeps, burn_in=20, key=key)
        codes = jnp.sum(paths.latents.astype(int) * 2 ** jnp.arange(series.steps)[::-1], axis=1)
        filled = jnp.mean(paths.observations, axis=0)
        return jnp.bincount(codes, length=2**series.steps) / sweeps, filled

    return jax.lax.map(chain, jax.random.split(key, chains), batch_size=chains)


def assert_enumerated(sampler):
    model = Remembering((0.3, 3.0, -0.8, 0.6, -2.4, 1.2))
    _, law, complete, weights = enumerated(model, VALUES)
    found, filled = frequencies(sampler, model, Series.from_values(VALUES), jax.random.key(2))
    common = law > 0.002
    assert_mean(np.asarray(found)[:, common], law[common], sigmas=4.5)
    gaps = np.isnan(VALUES)
    assert_mean(np.asarray(filled)[:, gaps], np.einsum("f,ftd->td", weights, complete)[gaps], sigmas=4.5)


@pytest.mark.ci
def test_a_model_with_memory_against_enumeration():
    assert_enumerated(ConditionalSMC(3))


@pytest.mark.ci
def test_weighing_one_step_of_the_remaining_trajectory_is_noticed():
    """Negative control: with a memory, the truncated weights of ancestor sampling lead to another law."""
    with pytest.raises(AssertionError, match="standard errors"):
        assert_enumerated(ConditionalSMC(3, lag=1))


def test_one_draw_by_a_uniform_number():
    weights = jnp.array([0.4, 1.6, 0.0, 0.8])
    shares = (jnp.arange(1000) + 0.5) / 1000
    counts = np.bincount(jax.jit(jax.vmap(lambda share: pick(weights, share)))(shares), minlength=4)
    np.testing.assert_allclose(counts / 1000, weights / 2.8, atol=1.1e-3)


@pytest.mark.ci
def test_a_sweep_that_breaks_down_leaves_the_trajectory():
    series = Series.from_values([[0.1], [1e200], [0.2]])
    path = Trajectory(jnp.full((3, 1), 0.5), None)
    sampler = ConditionalSMC(3)
    sweep = sampler(scalar_model(), Bootstrap(), series, path, key=jax.random.key(0))
    assert jnp.isfinite(sweep.trajectory.latents).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"particles": 1}, "at least 2 particles"),
        ({"particles": 4, "sampling": "ancestor"}, "ancestors"),
        ({"particles": 4, "lag": 3, "sampling": "none"}, "for sampling='ancestors'"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        ConditionalSMC(**options)


def test_a_scheme_without_a_conditional_law_is_refused():
    class Own(Resampling):
        def __call__(self, log_weights, *, key):
            return jnp.arange(len(log_weights))

    with pytest.raises(ValueError, match=r"Own has no conditional\(\)"):
        ConditionalSMC(4, Own())


def test_backward_sampling_of_a_model_with_memory_is_refused():
    with pytest.raises(ValueError, match="Remembering is not a MarkovModel"):
        ConditionalSMC(4, sampling="backward")(
            Remembering(), Bootstrap(), Series.from_values(np.ones((3, 2))), None, key=jax.random.key(0)
        )
