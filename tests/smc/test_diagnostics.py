"""Sentences about runs: where it went wrong, and why."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from mcfo import SMC, MarkovModel, Series, describe, simulate, stack
from mcfo.models import LinearGaussian
from mcfo.proposals import Bootstrap
from mcfo.smc import require_finite, sis
from support.problems import MODELS, data


class Window(eqx.Module):
    """A distribution of one's own: even between two bounds, impossible outside."""

    low: jax.Array
    high: jax.Array

    def sample(self, key, sample_shape=()):
        return jax.random.uniform(key, (*sample_shape, *self.low.shape), minval=self.low, maxval=self.high)

    def log_prob(self, value):
        inside = (value >= self.low) & (value <= self.high)
        return jnp.sum(jnp.where(inside, -jnp.log(self.high - self.low), -jnp.inf))


class Bounded(MarkovModel):
    """A random walk seen to within one."""

    def initial(self, memory, inputs):
        return dist.Normal(jnp.zeros(1), 1.0).to_event(1)

    def transition(self, memory, inputs):
        return dist.Normal(memory, 0.1).to_event(1)

    def emission(self, memory, latent, inputs):
        return Window(latent - 1, latent + 1)


def run(model, values, sampler=None):
    return (sampler or SMC(50))(model, Bootstrap(), Series.from_values(values), key=jax.random.key(0))


def test_a_collapse_is_minus_infinity_at_its_step():
    trace = run(Bounded(), [0.0, 0.1, 50.0, 0.2, 0.1])
    assert trace.log_evidence == -jnp.inf
    np.testing.assert_array_equal(trace.record.finite, [True, True, False, True, True])
    assert np.isfinite(trace.record.ess).all()
    assert not any(np.isnan(leaf).any() for leaf in jax.tree.leaves(trace))
    sentence = describe(trace)
    assert "Collapsed at step 3 of 5" in sentence
    assert "impossible, or too far" in sentence
    with pytest.raises(FloatingPointError, match="Collapsed at step 3 of 5"):
        require_finite(trace)


def test_a_collapse_after_degeneration_says_so():
    model = LinearGaussian.scalar(0.9, 1.0, emission_variance=1e-4)
    values = [0.0, 0.3, 0.2]
    trace = run(model, values, sis(5))
    broken = eqx.tree_at(lambda t: t.record.log_evidence, trace, jnp.array([0.0, -1.0, -jnp.inf]))
    broken = eqx.tree_at(lambda t: t.record.ess, broken, jnp.array([3.0, 1.1, 5.0]))
    assert "They had degenerated before (effective sample size 1.1 at step 2)" in describe(broken)


class Broken(MarkovModel):
    """Returns NaN or an infinite density once the latent is negative."""

    infinite: bool = eqx.field(static=True)

    def initial(self, memory, inputs):
        return dist.Normal(jnp.ones(1), 0.01).to_event(1)

    def transition(self, memory, inputs):
        return dist.Normal(memory - 2, 0.01).to_event(1)

    def emission(self, memory, latent, inputs):
        scale = jnp.where(latent < 0, 0.0, 1.0) if self.infinite else jnp.sqrt(latent)
        return dist.Normal(jnp.zeros(1), scale).to_event(1)


def test_a_model_that_returns_nan_is_reported():
    trace = run(Broken(infinite=False), [0.0, 0.0, 0.0])
    assert np.isnan(trace.log_evidence)
    assert "NaN at step 2 of 3: a log-density of the model" in describe(trace)
    with pytest.raises(FloatingPointError, match="NaN at step 2 of 3"):
        require_finite(trace)


def test_an_infinite_density_is_reported():
    trace = run(Broken(infinite=True), [0.0, 0.0, 0.0])
    sentence = describe(trace)
    assert "at step 2 of 3" in sentence
    assert "scale" in sentence


def test_an_outlier_is_named():
    model = MODELS["scalar"]()
    values = np.array(simulate(model, 30, key=jax.random.key(3))[1])
    values[17] = 40.0
    sentence = describe(run(model, values, SMC(1000)))
    assert "Degenerate at step 18 of 30" in sentence
    assert "stands out" in sentence


def test_never_resampling_is_named():
    model = MODELS["scalar"]()
    values = simulate(model, 200, key=jax.random.key(3))[1]
    assert "Nothing was ever resampled" in describe(run(model, values, sis(100)))


def test_a_blind_proposal_is_named():
    model = LinearGaussian.scalar(0.9, 1.0, emission_variance=1e-6)
    values = simulate(model, 50, key=jax.random.key(3))[1]
    assert "low throughout" in describe(run(model, values, SMC(100)))


def test_a_healthy_run():
    model = MODELS["scalar"]()
    trace = SMC(100)(model, Bootstrap(), data(model).pad(9), key=jax.random.key(0))
    assert describe(trace).startswith("100 particles over 5 steps went well: log-evidence")
    assert require_finite(trace) is trace


def test_batches_name_the_first_in_trouble():
    dataset = [[0.0, 0.1], [0.0, 50.0, 0.0], [0.0, 0.2]]
    batch = stack([Series.from_values(values) for values in dataset])
    traces = jax.vmap(lambda series: SMC(20)(Bounded(), Bootstrap(), series, key=jax.random.key(0)))(batch)
    assert "1 of 3 series are in trouble, the first is number 1: Collapsed at step 2 of 3" in describe(traces)
    healthy = jax.tree.map(lambda array: array[::2], traces)
    assert describe(healthy).startswith("All 2 series went well")
