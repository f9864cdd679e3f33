"""Random numbers are JAX's own, bit-identical; normal ones of float32 up to rounding. No hash is fused with its use."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from mcfo import SMC, Series
from mcfo.models import LinearGaussian
from mcfo.proposals import Bootstrap
from mcfo.smc import noise
from mcfo.smc.noise import NoiseShape, draw_noise, map_in_rounds, normal_from_words, step_keys
from mcfo.smc.resampling import Systematic

KEYS = [jax.random.key(0), jax.random.fold_in(jax.random.key(2**31 + 5), 7)]


def one_block(draw, key):
    """A draw from one key as a filter makes it: in a loop."""
    return map_in_rounds(draw, key[None])[0]


@pytest.mark.parametrize("key", KEYS, ids=["seed", "folded"])
@pytest.mark.parametrize("shape", [(), (3,), (65,), (40, 3)], ids=str)
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.float32, jnp.float64])
@pytest.mark.parametrize("draw", ["uniform", "exponential"])
def test_numbers(draw, dtype, shape, key):
    own, stock = (
        one_block(lambda key, draw=function: draw(key, shape, dtype), key)
        # Both in a loop: there, a compiler may round the steps of half precision together.
        for function in (getattr(noise, draw), getattr(jax.random, draw))
    )
    np.testing.assert_array_equal(own, stock)


@pytest.mark.parametrize("key", [*KEYS, jax.random.key(0, impl="rbg")], ids=["seed", "folded", "other generator"])
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16, jnp.float32, jnp.float64])
def test_normal_numbers(dtype, key):
    own = draw_noise(NoiseShape((3,), dtype), 10, key[None])[0]
    tolerance = 1e-5 if dtype == jnp.float32 else 0
    assert own.dtype == dtype
    np.testing.assert_allclose(own, jax.random.normal(key, (10, 3), dtype), rtol=tolerance, atol=tolerance)


def test_normal_numbers_are_exact_in_the_tails():
    """JAX's own are off by 2e-5 there, where float32 allows for 3e-7."""
    words = jnp.concatenate([jnp.arange(2**16, dtype=jnp.uint32) << 9, jnp.arange(2**32 - 2**25, 2**32, 2**14)])
    words = words.astype(jnp.uint32)
    shares = np.float64(words >> 9) * 2.0**-23
    exact = np.sqrt(2) * scipy.special.erfinv(
        np.maximum(np.float64(np.float32(shares * 2) - (1 - 2**-24)), -1 + 2**-24)
    )
    np.testing.assert_allclose(normal_from_words(words, jnp.float32), exact, rtol=1e-6)


@pytest.mark.parametrize("key", [*KEYS, jax.random.PRNGKey(3), jax.random.key(1, impl="rbg")], ids=str)
def test_keys(key):
    ids, times = jnp.array([7, 7, 3]), jnp.array([0, 1, 2])
    own = step_keys(key, ids, times)
    typed = key if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(key)
    for row, (series_id, time) in enumerate(zip(ids, times, strict=True)):
        known = jax.random.split(jax.random.fold_in(jax.random.fold_in(typed, series_id), time), 3)
        for one, other in zip((own.resampling, own.noise, own.imputation), known, strict=True):
            assert one[row] == other


def test_a_key_for_each_particle():
    assert jnp.all(draw_noise(None, 4, KEYS[0][None])[0] == jax.random.split(KEYS[0], 4))


@pytest.mark.ci
@pytest.mark.parametrize("latent", [1, 2, 3])
@pytest.mark.parametrize("particles", [2, 8, 24, 32, 64])
def test_few_particles_compile(particles, latent):
    """They would not where the hash is fused with the search for the largest weight: this test would not end."""
    identity = np.eye(latent)
    model = LinearGaussian(
        initial_mean=np.zeros(latent),
        initial_noise=identity,
        transition_matrix=identity,
        transition_noise=identity,
        emission_matrix=identity,
        emission_noise=identity,
    )
    series = Series.from_values(np.zeros((3, latent)))
    assert jnp.isfinite(SMC(particles)(model, Bootstrap(), series, key=KEYS[0]).log_evidence)


def hashes_outside_of_loops(program):
    """The computations of a compiled program that shift bits, as a hash does, and that no loop reaches."""
    parts = re.split(r"\n(?=%|ENTRY)", program)[1:]
    computations = {re.match(r"(?:ENTRY )?%?([\w.\-]+)", part).group(1): part for part in parts}
    reached, pending = set(), set(re.findall(r"body=%?([\w.\-]+)", program))
    while pending:
        name = pending.pop()
        reached.add(name)
        pending |= set(re.findall(r"(?:calls|to_apply|body)=%?([\w.\-]+)", computations.get(name, ""))) - reached
    hashes = {name for name, part in computations.items() if "shift-left" in part}
    assert hashes, "the program has hashes"
    return hashes - reached


def test_every_hash_has_a_loop_of_its_own():
    """By construction, as XLA does not fuse across loops: no hash is fused with a reduction."""

    def evidence(values):
        series = Series.from_values(np.zeros(40))
        model = LinearGaussian.scalar(0.9, 1.0)
        return SMC(16, Systematic())(model, Bootstrap(), series, key=jax.random.key(values)).log_evidence

    assert not hashes_outside_of_loops(jax.jit(evidence).lower(0).compile().as_text())
    # The control: a hash outside of a loop of its own, as a careless draw would have it.
    careless = jax.jit(lambda key: jnp.max(noise.uniform(key, (100,), jnp.float32)))
    assert hashes_outside_of_loops(careless.lower(KEYS[0]).compile().as_text())
