"""Models that are not Markov: the particles' histories must be their true ancestral paths."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mcfo import SMC, Always, Bootstrap, ESSBelow, Sequence, genealogy
from support.means import assert_mean
from support.memory import Remembering, exact_evidence

VALUES = np.array([[1, 0], [0, 0], [1, 1], [1, 0], [0, 1], [1, 1]], float)
GAPS = np.array([[1, 0], [np.nan, 0], [1, np.nan], [np.nan, np.nan], [0, 1], [1, 1]])
RUNS = 4000


@eqx.filter_jit
def ratios(sampler, model, sequence, exact, key):
    keys = jax.random.split(key, RUNS)
    return jax.vmap(lambda key: jnp.exp(sampler(model, Bootstrap(), sequence, key=key).log_evidence) / exact)(keys)


@pytest.mark.parametrize("values", [VALUES, GAPS], ids=["complete", "missing"])
@pytest.mark.parametrize("criterion", [Always(), ESSBelow(0.5)], ids=["always", "ess"])
def test_evidence_is_unbiased_against_enumeration(values, criterion):
    model = Remembering()
    samples = ratios(
        SMC(50, criterion=criterion),
        model,
        Sequence.from_values(values),
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
    samples = ratios(SMC(50), WrongAncestors(), Sequence.from_values(VALUES), exact, jax.random.key(0))
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
        Sequence.from_values(values),
        exact_evidence(Remembering(), values),
        jax.random.key(0),
    )
    with pytest.raises(AssertionError, match="standard errors"):
        assert_mean(samples, 1.0)


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
    sequence = Sequence.from_values(VALUES)
    trace = SMC(20, criterion=criterion)(Diary(), Bootstrap(), sequence, key=jax.random.key(3), history=True)
    assert trace.record.resampled.any()
    _, diaries, steps = trace.state.memory
    assert (steps == 6).all()
    np.testing.assert_array_equal(genealogy(trace).latents.T, diaries)
