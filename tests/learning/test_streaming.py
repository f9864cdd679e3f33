"""Streams: the batch filter's numbers, one program, constant memory, states that go on to the bit, and learning."""

import gc
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from mcfo import SMC, MarkovModel, Proposal, Series, online, simulate
from mcfo.errors import InputError
from mcfo.exact import log_evidence
from mcfo.gradients.score import Fisher
from mcfo.inference.quantiles import weighted_quantiles
from mcfo.learning import streaming
from mcfo.models import LinearGaussian, StochasticVolatility
from mcfo.objectives import Estimator, Objective
from mcfo.objectives import mcfo as objective_mcfo
from mcfo.proposals import AffineGaussian, Bootstrap, LocallyOptimal
from support.learning import FIXED, TRUTH, start
from support.problems import vector_model
from support.streams import estimates, standard_errors

KEY = jax.random.key(7)


def stream(model, steps, *, missing=0.2):
    """A simulated series, a share of its values missing."""
    values = np.array(simulate(model, steps, key=jax.random.key(1))[1])
    values[np.random.default_rng(0).random(values.shape) < missing] = np.nan
    return values


def answers(state, values):
    """All outputs, one after the other, and the last state."""
    found = []
    for row in values:
        state, output = online.step(state, row)
        found.append(jax.device_get(output))
    return state, jax.tree.map(lambda *leaves: np.stack(leaves), *found)


@pytest.mark.ci
def test_a_stream_agrees_with_the_batch_filter_and_compiles_once():
    """1000 steps on the same key, single dimensions and whole steps missing: 1e-9."""
    model = vector_model()
    proposal, values = LocallyOptimal(model), stream(model, 1000)
    assert np.isnan(values).all(axis=1).any()
    state = online.init(model, proposal, key=KEY, particles=30)
    before = streaming._compiled._cache_size()
    state, found = answers(state, values)
    assert streaming._compiled._cache_size() == before + 1
    trace = SMC(30)(model, proposal, Series.from_values(values), key=KEY, history=True)
    np.testing.assert_allclose(found.log_predictive, trace.record.log_evidence, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found.ess, trace.record.ess, rtol=1e-9)
    np.testing.assert_allclose(found.mean, trace.history.particles.mean(), rtol=1e-9, atol=1e-9)
    last = weighted_quantiles(trace.state.latents, trace.state.log_weights, jnp.array(state.levels))
    np.testing.assert_allclose(found.quantiles[-1], last, rtol=1e-9)
    assert int(state.time) == 1000


@pytest.mark.ci
@pytest.mark.parametrize("theta", [None, "exact", "fisher-lag-20"], ids=["filter", "exact", "fisher-lag-20"])
def test_a_restored_stream_goes_on_to_the_bit(tmp_path, theta):
    learning = None if theta is None else online.Learning(1e-2, theta=theta, fixed=FIXED)
    model, proposal = start()
    values = stream(TRUTH, 40)
    begun = online.init(model, proposal, key=KEY, particles=20, learning=learning)
    last, whole = answers(begun, values)
    half, _ = answers(begun, values[:23])
    online.save(tmp_path / "state.npz", half)
    restored = online.restore(tmp_path / "state.npz", begun)
    assert int(restored.time) == 23
    again, rest = answers(restored, values[23:])
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(rest), strict=True):
        np.testing.assert_array_equal(one[23:], other)
    assert eqx.tree_equal(last, again)
    if learning is not None:
        assert float(last.model.transition_matrix[0, 0]) != 0.5
        np.testing.assert_array_equal(last.model.initial_mean, model.initial_mean)
    # Written again, it is the same file: nothing in it depends on when or where.
    online.save(tmp_path / "again.npz", restored)
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "state.npz").read_bytes()


@pytest.mark.ci
def test_the_first_update_is_the_objectives_gradient():
    """Gradient descent of rate one on one step, against the objective's loss on a series of that step."""
    model, proposal = start()
    learning = online.Learning(1.0, optimizer="sgd", theta="filter-score")
    state = online.init(model, proposal, key=KEY, particles=20, learning=learning)
    later, _ = online.step(state, 0.8)
    series = Series.from_values([0.8])
    loss = objective_mcfo(20, phi="dreg").loss
    expected = eqx.filter_grad(lambda both: loss(*both, series, key=KEY)[0])((model, proposal))
    changes = jax.tree.map(lambda new, old: old - new, (later.model, later.proposal), (model, proposal))
    for found, wanted in zip(jax.tree.leaves(changes), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-10)
    assert any(np.any(leaf) for leaf in jax.tree.leaves(changes[1]))


@pytest.mark.ci
def test_a_stream_learns():
    """From 0.5 towards the 0.9 of the data, as a scan of the same step; what is missing teaches nothing."""
    model, proposal = start()
    fixed = (*FIXED, "model.emission_matrix", "model.emission_noise")
    learning = online.Learning(5e-3, theta="fisher-lag-20", fixed=fixed)
    state = online.init(model, proposal, key=KEY, particles=50, learning=learning)
    values = jnp.asarray(stream(TRUTH, 4000, missing=0.1))
    state, _ = jax.jit(lambda state, values: jax.lax.scan(online.step, state, values))(state, values)
    # The emission is held at 1.0 and 0.2, so that the root lies near 0.9, not on it.
    assert abs(float(state.model.transition_matrix[0, 0]) - 0.9) < 0.1
    assert int(state.skipped) == 0
    # What is missing shows nothing, but the steps before it are still learned from, 20 steps long.
    blind, _ = answers(state, [None] * 21)
    assert not eqx.tree_equal(blind.modules, state.modules)
    later, _ = online.step(blind, None)
    assert eqx.tree_equal(later.modules, blind.modules)
    assert int(later.time) == 4022


class Unended(Fisher):
    """Without the last terms, of which a stream cannot know that they are the last."""

    def finish(self, carried, log_weights):
        return jnp.zeros(())


@pytest.mark.ci
def test_a_stream_sums_up_the_lagged_score():
    """Gradient descent so slow that parameters stay: the sum of its steps is the objective's gradient."""
    model = eqx.tree_at(lambda m: m.transition_noise.log_diagonal, start()[0], jnp.array([-0.3]))
    proposal, rate = LocallyOptimal(model), 1e-7
    values = stream(TRUTH, 30, missing=0.3)
    learning = online.Learning(rate, optimizer="sgd", theta="fisher-lag-4", fixed=("proposal",))
    state, _ = answers(online.init(model, proposal, key=KEY, particles=20, learning=learning), values)
    changes = jax.tree.map(lambda new, old: (old - new) / rate, state.model, model)

    def gradient(rule):
        loss = Objective(Estimator(SMC(20), rule), None).loss
        return eqx.filter_grad(lambda model: loss(model, proposal, Series.from_values(values), key=KEY)[0])(model)

    for found, wanted in zip(jax.tree.leaves(changes), jax.tree.leaves(gradient(Unended(lag=4))), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    other = gradient(Unended(lag=3))  # the control: another lag is another sum
    assert not np.allclose(changes.transition_matrix, other.transition_matrix, rtol=1e-2)


@pytest.mark.ci
def test_a_stream_follows_the_exact_score():
    """As above, against the derivative of the Kalman filter's likelihood; two columns, some values missing."""
    model, rate = vector_model(), 1e-7
    learning = online.Learning(rate, optimizer="sgd", fixed=("proposal",))
    values = stream(model, 12)
    begun = online.init(model, LocallyOptimal(model), key=KEY, particles=5, learning=learning)
    assert begun.learning.theta == "exact"
    last, _ = answers(begun, values)
    expected = jax.grad(log_evidence)(model, Series.from_values(values))
    changes = jax.tree.map(lambda new, old: (new - old) / rate, last.model, model)
    for found, wanted in zip(jax.tree.leaves(changes), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_the_default_rule_is_the_best_that_a_model_allows():
    def rule(model, proposal=None, **options):
        return online.Learning(**options).resolved(model, Bootstrap() if proposal is None else proposal).theta

    assert rule(TRUTH) == "exact"
    volatility = StochasticVolatility()
    assert rule(volatility) == "fisher-lag-20"
    assert rule(TRUTH, theta="filter-score") == "filter-score"
    size = 10
    many = LinearGaussian(
        initial_mean=np.zeros(size),
        initial_noise=np.ones(size),
        transition_matrix=np.eye(size),
        transition_noise=np.ones(size),
        emission_matrix=np.eye(size),
        emission_noise=np.ones(size),
    )
    assert rule(many) == "filter-score"
    with pytest.raises(InputError, match=r"is not known exactly. Use 'fisher-lag-20'"):
        rule(volatility, theta="exact")


@pytest.mark.ci
def test_an_observation_that_the_filter_cannot_explain_is_refused():
    """It changes nothing but its own answer; without the bound it does."""
    model, proposal = start()

    def after(value, **options):
        learning = online.Learning(0.1, theta="fisher-lag-2", fixed=FIXED, **options)
        state = online.init(model, proposal, key=KEY, particles=20, learning=learning)
        return answers(state, [0.3, -0.2, value, 0.1, 0.4, 0.2])

    (absurd, outputs), (missing, expected) = after(1e18), after(None)
    assert (int(absurd.refused), int(missing.refused)) == (1, 0)
    np.testing.assert_array_equal(outputs.refused, [False, False, True, False, False, False])
    assert outputs.log_predictive[2] < -1e30
    assert eqx.tree_equal((absurd.modules, absurd.filter), (missing.modules, missing.filter))
    np.testing.assert_array_equal(outputs.mean, expected.mean)
    unbounded, _ = after(1e18, refuse_below=-np.inf)
    assert int(unbounded.refused) == 0
    assert abs(unbounded.filter.latents).max() > 1e10


@pytest.mark.ci
@pytest.mark.parametrize("theta", ["exact", "filter-score"])
def test_a_stream_finds_the_truth_unless_it_follows_the_filter_score(theta):
    """tests/verify/test_streams.py has the whole study, at a lower rate."""
    worst = np.max(np.abs(standard_errors(estimates(theta, 8, 10_000, rate=2e-3, particles=30))))
    assert worst > 5 if theta == "filter-score" else worst < 5


def _resident():
    """MiB of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


@pytest.mark.ci
@pytest.mark.parametrize("steps", [5000, pytest.param(50_000, marks=pytest.mark.slow)])
def test_memory_does_not_grow(steps):
    """After a warm-up, less than 10 MiB; benchmarks/stream.py measures a million steps of the command."""
    state = online.init(TRUTH, AffineGaussian.optimal(TRUTH), key=KEY, particles=10)

    def run(state, count):
        for _ in range(count):
            state, output = online.step(state, 0.3)
            jax.device_get(output)
        gc.collect()
        return state

    state = run(state, 1000)
    before = _resident()
    run(state, steps)
    assert _resident() - before < 10


class Looking(Proposal):
    """Reads the step after its own."""

    def encode(self, series):
        return jnp.roll(series.observations, -1, axis=0)

    def initial(self, prior, context):
        return dist.Normal(context, 1.0).to_event(1)

    def step(self, prior, memory, context):
        return dist.Normal(context, 1.0).to_event(1)


class Together(MarkovModel):
    """Two dimensions that cannot be told apart."""

    def initial(self, memory, inputs):
        return dist.Normal(jnp.zeros(1), 1.0).to_event(1)

    def transition(self, memory, inputs):
        return dist.Normal(memory, 1.0).to_event(1)

    def emission(self, memory, latent, inputs):
        return dist.MultivariateStudentT(4.0, jnp.concatenate([latent, latent]), jnp.eye(2))


def test_what_a_stream_cannot_do_is_refused(tmp_path):
    model, proposal = start()
    state = online.init(model, proposal, key=KEY, particles=5)
    with pytest.raises(InputError, match=r"has shape \(2,\), but \(1,\)"):
        online.step(state, [1.0, 2.0])
    with pytest.raises(InputError, match="infinite"):
        online.step(state, np.inf)
    with pytest.raises(InputError, match="reads other steps"):
        online.init(model, Looking(), key=KEY)
    with pytest.raises(InputError, match="'fisher' looks back to the first step"):
        online.init(model, proposal, key=KEY, learning=online.Learning(theta="fisher"))
    with pytest.raises(ValueError, match="increasing levels"):
        online.init(model, proposal, key=KEY, levels=[2.0])
    together = online.init(Together(), Bootstrap(), key=KEY, particles=5)
    assert not together.apart
    with pytest.raises(InputError, match="cannot leave out"):
        online.step(together, [1.0, None])
    together, _ = online.step(together, None)
    online.save(tmp_path / "s.npz", state, about={"seed": 1})
    for other, about, message in (
        (online.init(model, proposal, key=KEY, particles=6), {"seed": 1}, "particles was 5 and is 6"),
        (state, {"seed": 2}, "seed was 1 and is 2"),
        (online.init(vector_model(), Bootstrap(), key=KEY, particles=5), {"seed": 1}, "another model"),
    ):
        with pytest.raises(InputError, match=message):
            online.restore(tmp_path / "s.npz", other, about=about)
    (tmp_path / "s.npz").write_bytes(b"PK rubbish")
    with pytest.raises(InputError, match="damaged"):
        online.restore(tmp_path / "s.npz", state)


def test_inputs_come_with_the_observation():
    model = LinearGaussian(
        initial_mean=0.0,
        initial_noise=1.0,
        transition_matrix=0.8,
        transition_noise=0.3,
        emission_matrix=1.0,
        emission_noise=0.5,
        transition_inputs=[[0.5, -0.2]],
    )
    inputs = np.random.default_rng(0).normal(size=(5, 2))
    state = online.init(model, Bootstrap(), key=KEY, particles=8, inputs=2)
    found = []
    for row in inputs:
        state, output = online.step(state, 0.4, inputs=row)
        found.append(float(output.log_predictive))
    trace = SMC(8)(model, Bootstrap(), Series.from_values(np.full(5, 0.4), inputs=inputs), key=KEY)
    np.testing.assert_allclose(found, trace.record.log_evidence, rtol=1e-10)
