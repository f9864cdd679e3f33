"""Whose theta gradient is the score of log p(x_1:T): Fisher's, not the filter's."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mcfo
from mcfo import Series, simulate
from mcfo.models import LinearGaussian
from mcfo.objectives import Accumulated
from mcfo.proposals import AffineGaussian, Bootstrap
from mcfo.rules import FilterScore
from support.gradients import PHI, THETA, ascent, exact_score, flat, off_optimum, samples
from support.means import assert_mean, standard_errors
from support.memory import Remembering, exact_log_evidence

TRUE = LinearGaussian.scalar(0.9, 1.2)


@pytest.fixture(scope="module")
def problem():
    """A model off the truth, its optimal proposal, 50 steps from the truth and the exact score."""
    model = LinearGaussian.scalar(0.8, 1.08)
    series = Series.from_values(simulate(TRUE, 50, key=jax.random.key(7))[1])
    return model, AffineGaussian.optimal(model), series, np.asarray(exact_score(model, series))


def estimates(problem, rule, particles, count):
    objective = mcfo.objectives.mcfo(particles, theta=rule)
    return np.asarray(samples(objective, *problem[:3], jax.random.key(8), count, 20_000 // particles))[:, THETA]


@pytest.mark.slow
def test_fisher_is_the_score_and_its_bias_falls_with_the_particles(problem):
    truth = problem[3]
    many = estimates(problem, "fisher", 1000, 200)
    assert_mean(many, truth, sigmas=4.0)
    # Enough replicates of fewer particles to see the bias that should be ten times smaller then.
    few = estimates(problem, "fisher", 100, 4000)
    bias, error = few.mean(axis=0) - truth, few.std(axis=0, ddof=1) / len(few) ** 0.5
    assert np.max(np.abs(bias) / error) > 4, "the bias at 100 particles can be seen"
    left = many.mean(axis=0) - truth - bias / 10
    assert np.all(np.abs(left) < 4 * np.hypot(error / 10, many.std(axis=0, ddof=1) / len(many) ** 0.5))


@pytest.mark.slow
@pytest.mark.parametrize("particles", [100, 1000])
def test_the_filter_score_is_another_and_particles_do_not_help(problem, particles):
    assert np.min(standard_errors(estimates(problem, "filter-score", particles, 200), problem[3])) > 20


@pytest.mark.slow
def test_a_lag_lies_between_the_filter_and_the_genealogy(problem):
    gaps = [
        np.abs(estimates(problem, rule, 200, 200).mean(axis=0) - problem[3]).max()
        for rule in ("filter-score", "fisher-lag-1", "fisher-lag-10")
    ]
    assert gaps[0] > 2 * gaps[1] > 4 * gaps[2], gaps
    spreads = [estimates(problem, rule, 200, 200).std(axis=0) for rule in ("fisher-lag-10", "fisher")]
    assert np.all(spreads[0] < spreads[1])


@pytest.mark.slow
@pytest.mark.parametrize(("side", "rule", "part"), [("theta", "fisher", THETA), ("phi", "path-kl", PHI)])
def test_a_lag_longer_than_the_series_is_the_genealogy(side, rule, part):
    series = Series.from_values([0.3, np.nan, -0.2, 1.0]).pad(6)
    proposal = AffineGaussian.optimal(TRUE)
    whole, lagged, shorter = (
        flat(
            *eqx.filter_jit(ascent)(mcfo.objectives.mcfo(5, **{side: name}), TRUE, proposal, series, jax.random.key(0))[
                0
            ]
        )
        for name in (rule, f"{rule}-lag-9", f"{rule}-lag-1")
    )
    np.testing.assert_allclose(whole, lagged, rtol=1e-12)
    assert not np.allclose(whole[part], shorter[part])


@pytest.mark.slow
def test_the_truth_is_a_root_of_the_filter_score():
    """Averaged over data from theta* it is zero there, and not at 1.1 theta*: a sound estimating equation."""
    count = 2000

    def scores(model):
        def one(key):
            data_key, filter_key = jax.random.split(key)
            values = simulate(TRUE, 20, key=data_key)[1]
            series = eqx.tree_at(lambda s: s.observations, Series.from_values(np.zeros(20)), values)
            objective = mcfo.objectives.mcfo(1000)
            return flat(*ascent(objective, model, AffineGaussian.optimal(model), series, filter_key)[0])[THETA]

        return jax.lax.map(one, jax.random.split(jax.random.key(9), count), batch_size=20)

    at_truth, beside = (
        np.asarray(eqx.filter_jit(scores)(model)) for model in (TRUE, LinearGaussian.scalar(0.99, 1.32))
    )
    assert_mean(at_truth, 0.0, sigmas=4.0)
    assert np.max(standard_errors(beside, 0.0)) > 10


@pytest.mark.slow
def test_fisher_learns_a_memory_with_missing_values():
    """A model that is not Markov, binary latents, a gap in x that the memory reads: against enumeration."""
    model = Remembering()
    values = np.array([[1.0, 0.0], [np.nan, 1.0], [0.0, np.nan], [1.0, 1.0]])
    series = Series.from_values(values)
    truth = jax.grad(lambda weights: exact_log_evidence(eqx.tree_at(lambda m: m.weights, model, weights), values))(
        model.weights
    )

    @eqx.filter_jit
    def draw(rule, key):
        def one(key):
            return ascent(mcfo.objectives.mcfo(1000, theta=rule), model, Bootstrap(), series, key)[0][0].weights

        return jax.lax.map(one, jax.random.split(key, 500), batch_size=50)

    assert_mean(draw("fisher", jax.random.key(1)), truth, sigmas=4.0)
    assert np.max(standard_errors(draw("filter-score", jax.random.key(1)), truth)) > 10
    assert jnp.all(jnp.isfinite(truth))


class TestDraws:
    """FilterScore(draws=n): the mean over a few particles drawn from the weights."""

    @staticmethod
    def gaps(problem, rule, **options):
        """Differences to the weighted sum over all particles of the same run."""
        model, proposal, series, _ = problem
        key = jax.random.key(3)
        few, all_of_them = (
            samples(mcfo.objectives.mcfo(20, theta=one, **options), model, proposal, series, key, 400, 100)
            for one in (rule, "filter-score")
        )
        return np.asarray(few - all_of_them)

    @pytest.mark.ci
    def test_they_have_the_same_mean(self, problem):
        gaps = self.gaps(problem, "filter-score-draws-2")
        assert_mean(gaps[:, THETA], 0.0)
        assert (gaps[:, THETA].std(axis=0) > 0).all()
        np.testing.assert_allclose(gaps[:, THETA.stop :], 0.0, atol=1e-9, err_msg="phi learns as before")

    @pytest.mark.ci
    def test_draws_that_ignore_the_weights_are_noticed(self, problem):
        """Negative control."""

        class Blind(FilterScore):
            def thinned(self, move, *, key):
                even = eqx.tree_at(lambda m: m.log_weights, move, jnp.full_like(move.log_weights, -jnp.log(20.0)))
                return super().thinned(even, key=key)

        with pytest.raises(AssertionError):
            assert_mean(self.gaps(problem, Blind(draws=2))[:, THETA], 0.0)

    @pytest.mark.slow
    def test_more_draws_vary_less(self, problem):
        few, many = (self.gaps(problem, f"filter-score-draws-{count}")[:, THETA].std(axis=0) for count in (2, 20))
        assert (many < few / 2).all()

    @pytest.mark.ci
    def test_accumulated_and_batched_agree(self, problem):
        model, proposal, series, _ = problem
        accumulated, batched = (
            flat(*eqx.filter_jit(ascent)(objective, model, proposal, series, jax.random.key(1))[0])
            for objective in (
                mcfo.objectives.mcfo(20, theta="filter-score-draws-3", backward=Accumulated(steps))
                for steps in (1, 100)
            )
        )
        np.testing.assert_allclose(accumulated, batched, rtol=1e-10)


def exact_path_kl(model, proposal, values, lag):
    """Σ_t E[d log q(z_t | z_t-1, x_t) / d phi | x_1:min(t+lag, T)] by conditioning one Gaussian, in NumPy.

    The score of an affine Gaussian is quadratic in (z_t-1, z_t), so that two moments are enough.
    """
    a, c = (float(matrix[0, 0]) for matrix in (model.transition_matrix, model.emission_matrix))
    steps = len(values)
    path = np.linalg.inv(np.eye(steps) - a * np.eye(steps, k=-1))  # latents from standard noise
    of_latents = path @ path.T
    total = np.zeros(5)
    for step in range(steps):
        known = slice(0, min(step + lag + 1, steps))
        gain = c * of_latents[:, known] @ np.linalg.inv(c**2 * of_latents[known, known] + np.eye(known.stop))
        mean, covariance = gain @ values[known], of_latents - c * gain @ of_latents[known]
        now, x = mean[step], values[step]
        if step == 0:
            weight, offset, variance = proposal.initial_weight, proposal.initial_offset, proposal.initial_noise.matrix
            rest = (now - weight[0, 0] * x - offset[0]) / variance[0, 0]
            total += np.array([rest * x, rest, 0, 0, 0])
            continue
        before, weight = mean[step - 1], proposal.latent_weight[0, 0]
        variance = proposal.noise.matrix[0, 0]
        rest = now - weight * before - proposal.observation_weight[0, 0] * x - proposal.offset[0]
        with_before = rest * before + covariance[step, step - 1] - weight * covariance[step - 1, step - 1]
        total += np.array([0, 0, with_before, rest * x, rest]) / variance
    return total


@pytest.mark.slow
def test_path_kl_draws_the_proposal_to_the_smoothing_law_of_its_lag():
    """Against one Gaussian conditioned in NumPy; each lag is far from the truth of the others."""
    model = LinearGaussian.scalar(0.9, 1.2, initial_mean=0.0)
    proposal = off_optimum(model)
    values = np.asarray(simulate(model, 5, key=jax.random.key(3))[1])[:, 0]
    series = Series.from_values(values)
    rules = {"inclusive-kl": 0, "path-kl-lag-1": 1, "path-kl-lag-2": 2, "path-kl": 4}
    truths = {rule: exact_path_kl(model, proposal, values, lag) for rule, lag in rules.items()}
    for rule, truth in truths.items():
        found = samples(mcfo.objectives.mcfo(4000, phi=rule), model, proposal, series, jax.random.key(4), 200, 5)
        found = np.asarray(found)[:, PHI]
        assert_mean(found, truth, sigmas=4.0)
        others = [other for name, other in truths.items() if name != rule]
        assert all(np.max(standard_errors(found, other)) > 6 for other in others), rule


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["path-kl-lag-2", "path-kl"])
def test_over_many_series_later_weights_leave_the_optimal_proposal_where_it_is(rule):
    """On each series they do not: what comes later is known there, and the proposal cannot know it."""
    model = LinearGaussian.scalar(0.9, 1.2)

    def gradients(proposal):
        def one(key):
            data_key, filter_key = jax.random.split(key)
            values = simulate(model, 8, key=data_key)[1]
            series = eqx.tree_at(lambda s: s.observations, Series.from_values(np.zeros(8)), values)
            return flat(*ascent(mcfo.objectives.mcfo(500, phi=rule), model, proposal, series, filter_key)[0])[PHI]

        return jax.lax.map(one, jax.random.split(jax.random.key(5), 2000), batch_size=40)

    at_optimum, beside = (
        np.asarray(eqx.filter_jit(gradients)(proposal))
        for proposal in (AffineGaussian.optimal(model), off_optimum(model))
    )
    assert_mean(at_optimum, 0.0, sigmas=4.0)
    assert np.max(standard_errors(beside, 0.0)) > 10
    series = Series.from_values(simulate(model, 8, key=jax.random.key(6))[1])
    alone = samples(
        mcfo.objectives.mcfo(500, phi=rule), model, AffineGaussian.optimal(model), series, jax.random.key(7), 200, 40
    )
    assert np.max(standard_errors(np.asarray(alone)[:, PHI], 0.0)) > 10
