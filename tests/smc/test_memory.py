"""Models that are not Markov: the particles' histories must be their true ancestral paths."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from mcfo import SMC, MarkovModel, Model, Series
from mcfo.proposals import Bootstrap
from mcfo.resampling import Always, ESSBelow
from mcfo.smc import genealogy, sis
from support.means import assert_mean
from support.memory import Remembering, exact_evidence

VALUES = np.array([[1, 0], [0, 0], [1, 1], [1, 0], [0, 1], [1, 1]], float)
GAPS = np.array([[1, 0], [np.nan, 0], [1, np.nan], [np.nan, np.nan], [0, 1], [1, 1]])
RUNS = 4000


@eqx.filter_jit
def ratios(sampler, model, series, exact, key):
    keys = jax.random.split(key, RUNS)
    return jax.vmap(lambda key: jnp.exp(sampler(model, Bootstrap(), series, key=key).log_evidence) / exact)(keys)


@pytest.mark.parametrize("values", [VALUES, GAPS], ids=["complete", "missing"])
@pytest.mark.parametrize("criterion", [Always(), ESSBelow(0.5)], ids=["always", "ess"])
def test_evidence_is_unbiased_against_enumeration(values, criterion):
    model = Remembering()
    samples = ratios(
        SMC(50, criterion=criterion),
        model,
        Series.from_values(values),
        exact_evidence(model, values),
        jax.random.key(0),
    )
    assert samples.std() < 0.5
    assert_mean(samples, 1.0)


class WrongAncestors(Remembering):
    """Negative control: the memory is shuffled against the latents, as if another particle's had been handed over."""

    def advance(self, memory, latent, observation):
        return super().advance(memory, 1 - latent, observation)


def test_wrong_histories_are_noticed():
    exact = exact_evidence(Remembering(), VALUES)
    samples = ratios(SMC(50), WrongAncestors(), Series.from_values(VALUES), exact, jax.random.key(0))
    with pytest.raises(AssertionError, match="standard errors"):
        assert_mean(samples, 1.0)


def test_filling_gaps_with_a_constant_is_noticed():
    """Negative control: a memory that reads zeros where the observation is missing."""

    class Zeros(Remembering):
        def advance(self, memory, latent, observation):
            return super().advance(memory, latent, jnp.zeros(2))

    values = np.where(np.arange(6)[:, None] % 2, np.nan, VALUES)
    samples = ratios(
        SMC(50),
        Zeros(),
        Series.from_values(values),
        exact_evidence(Remembering(), values),
        jax.random.key(0),
    )
    with pytest.raises(AssertionError, match="standard errors"):
        assert_mean(samples, 1.0)


class Correlated(Model):
    """x_t is two correlated views of the second view of x_t-1."""

    def start(self, inputs):
        return jnp.zeros(1)

    def initial(self, memory, inputs):
        return dist.Normal(jnp.zeros(1), 0.5).to_event(1)

    def transition(self, memory, inputs):
        return self.initial(memory, inputs)

    def emission(self, memory, latent, inputs):
        return dist.MultivariateNormal(jnp.concatenate([memory, memory]) + latent, COVARIANCE)

    def advance(self, memory, latent, observation):
        return observation[1:]


COVARIANCE = jnp.array([[1.0, 0.9], [0.9, 1.0]])


def test_what_is_missing_is_drawn_given_what_is_not():
    """Drawing the second view without regard to the first is biased (by exp(-0.6) here)."""
    values = np.array([[1.5, np.nan], [1.2, 1.6]])
    step = COVARIANCE + 0.25
    # (x_11, x_21, x_22): the second row adds the first row's second view.
    cross = np.array([step[0, 1], step[0, 1]])
    joint = np.block([[step[:1, :1], cross[None]], [cross[:, None], step + step[1, 1]]])
    exact = stats.multivariate_normal(np.zeros(3), joint).pdf([1.5, 1.2, 1.6])
    run = jax.jit(
        jax.vmap(lambda key: SMC(100)(Correlated(), Bootstrap(), Series.from_values(values), key=key).log_evidence)
    )
    samples = jnp.exp(run(jax.random.split(jax.random.key(0), RUNS))) / exact
    assert samples.std() < 0.5
    assert_mean(samples, 1.0)


class Echo(Model):
    """x_t = x_t-1 + drift + N(0, 1)."""

    drift: jax.Array

    def start(self, inputs):
        return jnp.zeros(1)

    def initial(self, memory, inputs):
        return dist.Normal(jnp.zeros(1), 1.0).to_event(1)

    def transition(self, memory, inputs):
        return self.initial(memory, inputs)

    def emission(self, memory, latent, inputs):
        return dist.Normal(memory + self.drift, 1.0).to_event(1)

    def advance(self, memory, latent, observation):
        return observation.astype(float)


@pytest.mark.ci
@pytest.mark.parametrize("dtype", [float, int])
def test_imputed_values_keep_their_score_and_their_fractions(dtype):
    """x_2 ~ N(2 drift, 2) if x_1 is missing: log p and its derivative are known."""
    series = Series.from_values(np.array([0, 2], dtype), observed=[False, True])
    drift = jnp.array(0.3)
    value, gradient = eqx.filter_value_and_grad(
        lambda model: sis(200_000)(model, Bootstrap(), series, key=jax.random.key(0)).log_evidence
    )(Echo(drift))
    np.testing.assert_allclose(value, stats.norm(0.6, np.sqrt(2)).logpdf(2.0), atol=0.02)
    np.testing.assert_allclose(gradient.drift, 2 - 2 * 0.3, atol=0.03)


class Narrow(Echo):
    """Observations lie within one of the last."""

    def emission(self, memory, latent, inputs):
        center = jnp.concatenate([memory, memory])
        return dist.TruncatedNormal(center, 1.0, low=center - 1, high=center + 1).to_event(1)

    def advance(self, memory, latent, observation):
        return observation[:1]


def test_an_impossible_observation_with_a_gap_is_a_collapse():
    series = Series.from_values([[0.1, np.nan], [np.nan, 50.0], [0.2, 0.1]])
    trace = SMC(20)(Narrow(jnp.array(0.0)), Bootstrap(), series, key=jax.random.key(0))
    assert trace.log_evidence == -jnp.inf
    np.testing.assert_array_equal(trace.record.finite, [True, False, True])


class Diary(Remembering):
    """Remembers its latents literally, so that histories can be compared with genealogies."""

    def start(self, inputs):
        return jnp.zeros(2), jnp.full(6, -1), jnp.zeros((), jnp.int32)

    def transition(self, memory, inputs):
        return super().transition(memory[0], inputs)

    def emission(self, memory, latent, inputs):
        return super().emission(memory[0], latent, inputs)

    def advance(self, memory, latent, observation):
        numbers, diary, step = memory
        return super().advance(numbers, latent, observation), diary.at[step].set(latent.astype(int)), step + 1


@pytest.mark.parametrize("criterion", [Always(), ESSBelow(0.9)], ids=["always", "ess"])
def test_histories_are_ancestral_paths(criterion):
    series = Series.from_values(VALUES)
    trace = SMC(20, criterion=criterion)(Diary(), Bootstrap(), series, key=jax.random.key(3), history=True)
    assert trace.record.resampled.any()
    _, diaries, steps = trace.state.memory
    assert (steps == 6).all()
    np.testing.assert_array_equal(genealogy(trace).latents.T, diaries)


def test_a_markov_model_with_another_memory_is_refused():
    with pytest.raises(TypeError, match=r"Sly defines advance\(\).*Derive from Model"):

        class Sly(MarkovModel):
            def advance(self, memory, latent, observation):
                return memory
