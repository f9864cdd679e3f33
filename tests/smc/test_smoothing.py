"""Filtered and smoothed means and variances against the exact ones."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from mcfo import PIMH, SMC, MarkovModel, Series, kalman_filter, kalman_smoother, simulate, stack
from mcfo.proposals import Bootstrap
from mcfo.smc import backward_simulation, draw_trajectories, fixed_lag, genealogy
from support.means import assert_mean
from support.memory import Remembering
from support.problems import MODELS, PROPOSALS, SLOW_VECTOR, data

STEPS = 6
RUNS = 100
SMOOTHERS = {
    "genealogy": lambda model, trace, series, key: genealogy(trace),
    "trajectories": lambda model, trace, series, key: draw_trajectories(trace, trace.state.latents.shape[0], key=key),
    "fixed-lag": lambda model, trace, series, key: fixed_lag(trace, STEPS),
    "backward": lambda model, trace, series, key: backward_simulation(
        model, trace, series, trace.state.latents.shape[0], key=key
    ),
}


def moments(particles):
    return jnp.stack([particles.mean(), particles.variance()])


def exact_moments(law):
    return np.stack([law.mean, law.variance()])


def errors(model, series, particles, estimate, expected):
    """Errors of independent runs: (runs, moment, step, dimension)."""
    sampler, proposal = SMC(particles), PROPOSALS["locally-optimal"](model)

    @eqx.filter_jit
    def run(key):
        trace = sampler(model, proposal, series, key=key, history=True)
        return moments(estimate(model, trace, series, jax.random.fold_in(key, 1))) - expected

    return np.asarray(jax.lax.map(run, jax.random.split(jax.random.key(5), RUNS), batch_size=4))


def assert_converges(model, series, estimate, expected):
    """No bias that 100 runs could see beyond its O(1/K), and the error falls as 1/sqrt(K)."""
    few = errors(model, series, 50, estimate, expected)
    many = errors(model, series, 450, estimate, expected)
    ratio = np.sqrt((few**2).mean() / (many**2).mean())
    assert 2.3 < ratio < 3.9, f"9 times as many particles make the error {ratio:.2f} times smaller, not 3"
    assert np.sqrt((many**2).mean()) < 0.15
    assert_mean(many, 0.0)


@pytest.mark.parametrize("missing", [pytest.param(False, marks=pytest.mark.slow), True], ids=["complete", "missing"])
@pytest.mark.parametrize("model", SLOW_VECTOR)
def test_filtered_moments_converge(model, missing):
    model = MODELS[model]()
    series = data(model, STEPS, missing=missing)
    expected = exact_moments(kalman_filter(model, series).filtered)
    assert_converges(model, series, lambda model, trace, *_: trace.history.particles, expected)


@pytest.mark.parametrize(
    "smoother",
    [pytest.param(name, marks=pytest.mark.slow if name in ("trajectories", "backward") else ()) for name in SMOOTHERS],
)
@pytest.mark.parametrize("model", SLOW_VECTOR)
def test_smoothed_moments_converge(model, smoother):
    model = MODELS[model]()
    series = data(model, STEPS, missing=True)
    expected = exact_moments(kalman_smoother(model, series))
    assert_converges(model, series, SMOOTHERS[smoother], expected)


def test_filtered_moments_are_not_smoothed_ones():
    """Negative control."""
    model = MODELS["scalar"]()
    series = data(model, STEPS)
    expected = exact_moments(kalman_smoother(model, series))
    with pytest.raises(AssertionError):
        assert_mean(errors(model, series, 450, lambda model, trace, *_: trace.history.particles, expected), 0.0)


def test_lag_zero_is_the_filter():
    model = MODELS["scalar"]()
    trace = SMC(20)(model, Bootstrap(), data(model), key=jax.random.key(0), history=True)
    lagged = fixed_lag(trace, 0)
    np.testing.assert_array_equal(lagged.latents, trace.history.latents)
    np.testing.assert_array_equal(lagged.log_weights, trace.history.log_weights)


def test_a_short_lag_is_the_smoother_of_a_shorter_series():
    model = MODELS["scalar"]()
    series = data(model, STEPS)
    early = jax.tree.map(lambda array: array[:4] if array.ndim else array, series)
    run = {"model": model, "proposal": Bootstrap(), "key": jax.random.key(0), "history": True}
    trace = SMC(50)(series=series, **run)
    shorter = SMC(50)(series=early, **run)
    np.testing.assert_allclose(fixed_lag(trace, 2).mean()[1], genealogy(shorter).mean()[1], rtol=1e-10)


@pytest.mark.ci
@pytest.mark.parametrize("smoother", ["genealogy", "backward"])
def test_padding_changes_no_smoothed_law(smoother):
    model = MODELS["scalar"]()
    series = data(model, STEPS)
    smooth = SMOOTHERS[smoother]
    expected = exact_moments(kalman_smoother(model, series))

    padded = series.pad(STEPS + 3)
    trace = SMC(4000)(model, PROPOSALS["affine"](model), padded, key=jax.random.key(0), history=True)
    found = np.asarray(moments(smooth(model, trace, padded, jax.random.key(1))))[:, :STEPS]
    np.testing.assert_allclose(found, expected, atol=0.12)


class Leverage(MarkovModel):
    """x_t = z_t - 2 z_t-1 + noise: the emission reads the last latent too."""

    def initial(self, memory, inputs):
        return dist.Normal(jnp.zeros(1), 1.0).to_event(1)

    def transition(self, memory, inputs):
        return dist.Normal(0.9 * memory, 1.0).to_event(1)

    def emission(self, memory, latent, inputs):
        return dist.Normal(latent - 2 * (jnp.zeros(1) if memory is None else memory), 0.5).to_event(1)


@pytest.mark.ci
def test_backward_simulation_weighs_emissions_that_read_the_last_latent():
    values = np.array([0.5, -2.0, 1.0])
    moves = np.linalg.inv(np.eye(3) - 0.9 * np.eye(3, k=-1))
    latent_covariance = moves @ moves.T
    looks = np.eye(3) - 2 * np.eye(3, k=-1)
    gain = latent_covariance @ looks.T @ np.linalg.inv(looks @ latent_covariance @ looks.T + 0.25 * np.eye(3))
    series = Series.from_values(values)

    @jax.jit
    def smoothed(key):
        trace = SMC(300)(Leverage(), Bootstrap(), series, key=key, history=True)
        return backward_simulation(Leverage(), trace, series, 300, key=key).mean()[:, 0]

    assert_mean(jax.lax.map(smoothed, jax.random.split(jax.random.key(0), 200), batch_size=20), gain @ values)


def test_smoothers_have_random_numbers_of_their_own_for_every_series():
    model = MODELS["scalar"]()
    values = data(model).observations
    batch = stack([Series.from_values(values), Series.from_values(values)])
    same = Series.from_values(values)
    trace = SMC(50)(model, Bootstrap(), same, key=jax.random.key(0), history=True)
    paths = jax.vmap(lambda one: backward_simulation(model, trace, one, 5, key=jax.random.key(0)).latents)(batch)
    assert (paths[0] != paths[1]).any()


def test_a_trace_of_another_series_is_refused():
    model = MODELS["scalar"]()
    trace = SMC(5)(model, Bootstrap(), data(model), key=jax.random.key(0), history=True)
    with pytest.raises(ValueError, match="The trace has 5 steps, but the series has 2"):
        backward_simulation(model, trace, Series.from_values([1.0, 2.0]), 5, key=jax.random.key(0))


def test_backward_simulation_refuses_models_with_memory():
    series = Series.from_values([[1, 0], [0, 1]])
    trace = SMC(5)(Remembering(), Bootstrap(), series, key=jax.random.key(0), history=True)
    with pytest.raises(ValueError, match=r"Remembering is not a MarkovModel.*genealogy"):
        backward_simulation(Remembering(), trace, series, 3, key=jax.random.key(0))


def test_smoothing_needs_the_history():
    model = MODELS["scalar"]()
    trace = SMC(5)(model, Bootstrap(), data(model), key=jax.random.key(0))
    with pytest.raises(ValueError, match="history=True"):
        genealogy(trace)


def test_a_negative_lag_is_refused():
    model = MODELS["scalar"]()
    trace = SMC(5)(model, Bootstrap(), data(model), key=jax.random.key(0), history=True)
    with pytest.raises(ValueError, match="The lag must be a whole number, at least 0, but got -1"):
        fixed_lag(trace, -1)


class TestPIMH:
    """With five particles the filter's own trajectories are biased for the smoothing law; the chain's are not."""

    CHAINS = 3000
    SWEEPS = 30

    def problem(self):
        model = MODELS["scalar"]()
        series = data(model, STEPS)
        return model, series, kalman_smoother(model, series)

    def test_accepted_trajectories_follow_the_smoothing_law(self):
        model, series, exact = self.problem()
        pimh = PIMH(SMC(5), self.SWEEPS)

        @jax.jit
        def last(key):
            paths, chain = pimh.trajectories(model, Bootstrap(), series, key=key)
            return paths[0], paths[-1], chain.acceptance_rate

        first, accepted, rate = jax.vmap(last)(jax.random.split(jax.random.key(8), self.CHAINS))
        assert 0.2 < rate.mean() < 0.9
        assert_mean(accepted, exact.mean)
        assert_mean((accepted - exact.mean) ** 2, exact.variance())
        with pytest.raises(AssertionError):  # the first sweep is plain SMC
            assert_mean(first, exact.mean)

    def test_the_accepted_sweep_is_consistent_with_all_its_particles(self):
        model, series, exact = self.problem()
        pimh = PIMH(SMC(5), self.SWEEPS)

        @jax.jit
        def weighted(key):
            chain = pimh(model, Bootstrap(), series, key=key, history=True)
            return genealogy(chain.trace).mean(), chain.trace.log_evidence, chain.log_evidences, chain.current

        means, accepted, all_sweeps, current = jax.vmap(weighted)(jax.random.split(jax.random.key(9), self.CHAINS))
        assert_mean(means, exact.mean)
        np.testing.assert_allclose(accepted, jnp.take_along_axis(all_sweeps, current[:, -1:], axis=1)[:, 0])
        truth = kalman_filter(model, series).log_evidence
        assert all_sweeps.mean() < truth
        assert_mean(jnp.exp(all_sweeps[:, 0] - truth), 1.0)

    @pytest.mark.parametrize("x64", [False, True])
    def test_the_trace_is_the_accepted_sweep(self, x64):
        with jax.enable_x64(x64):
            model = MODELS["scalar"]()
            _, values = simulate(model, 200, key=jax.random.key(0))
            series = Series.from_values(values)
            for seed in range(5):
                chain = PIMH(SMC(100), 5)(model, Bootstrap(), series, key=jax.random.key(seed))
                accepted = chain.log_evidences[chain.current[-1]]
                # The same increments, added up in another order; another run would differ by far more.
                np.testing.assert_allclose(chain.trace.log_evidence, accepted, rtol=1e-12 if x64 else 1e-6)

    def test_a_sweep_that_is_not_a_number_is_never_entered(self):
        from mcfo.smc.pimh import _accept

        np.testing.assert_array_equal(_accept(jnp.array([jnp.nan, 0.0, jnp.nan]), jax.random.key(0)), [0, 1, 1])

    def test_a_collapsed_sweep_is_left(self):
        from mcfo.smc.pimh import _accept

        log_evidences = jnp.array([-jnp.inf, -jnp.inf, 0.0, -jnp.inf])
        np.testing.assert_array_equal(_accept(log_evidences, jax.random.key(0)), [0, 1, 2, 2])

    @pytest.mark.parametrize("sweeps", [0, -1, 2.0])
    def test_a_chain_needs_an_iteration(self, sweeps):
        with pytest.raises((ValueError, TypeError), match=r"at least one iteration|sweeps"):
            PIMH(SMC(5), sweeps)
