"""Random numbers are JAX's own, to the bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mcfo import SMC, Bootstrap, LinearGaussian, Sequence, random

KEYS = [jax.random.key(0), jax.random.fold_in(jax.random.key(2**31 + 5), 7)]
DRAWS = ["normal", "uniform", "exponential"]


@pytest.mark.parametrize("key", KEYS, ids=["seed", "folded"])
@pytest.mark.parametrize("shape", [(), (3,), (65,), (40, 3)], ids=str)
@pytest.mark.parametrize("dtype", [jnp.float16, jnp.float32, jnp.float64])
@pytest.mark.parametrize("draw", DRAWS)
def test_numbers(draw, dtype, shape, key):
    np.testing.assert_array_equal(
        getattr(random, draw)(key, shape, dtype), getattr(jax.random, draw)(key, shape, dtype)
    )


@pytest.mark.parametrize("key", KEYS, ids=["seed", "folded"])
def test_keys(key):
    for number in (0, 7, -3):
        own, known = (module.fold_in(key, jnp.asarray(number)) for module in (random, jax.random))
        assert own == known
    assert jnp.all(random.split(key, 3) == jax.random.split(key, 3))
    other = jax.random.key(1, impl="rbg")
    assert random.fold_in(other, jnp.asarray(2)) == jax.random.fold_in(other, 2)
    assert jnp.all(random.split(other, 3) == jax.random.split(other, 3))


def test_few_apart():
    own, known = random.normal(KEYS[0], (10,), jnp.float32, apart=True), jax.random.normal(KEYS[0], (10,), jnp.float32)
    np.testing.assert_array_equal(own, known)


def test_many_keys():
    keys = jax.random.split(KEYS[0], 5)
    own, known = (
        jax.vmap(lambda key, draw=draw: draw(key, (70,), jnp.float32))(keys)
        for draw in (random.normal, jax.random.normal)
    )
    np.testing.assert_array_equal(own, known)


def test_no_loop():
    def program(draw):
        return jax.jit(lambda key: draw(key, (100,), jnp.float32)).lower(KEYS[0]).compile().as_text()

    assert "while" not in program(random.normal)
    assert "while" in program(jax.random.normal)


def test_other_generators_and_raw_keys():
    for key in (jax.random.key(0, impl="rbg"), jax.random.PRNGKey(3)):
        np.testing.assert_array_equal(
            random.normal(key, (100,), jnp.float32), jax.random.normal(key, (100,), jnp.float32)
        )


@pytest.mark.parametrize("latent", [1, 2, 3])
@pytest.mark.parametrize("particles", [8, 24, 32])
def test_few_particles_compile(particles, latent):
    """They do not with hashes that are written out: a test that would not come to an end."""
    identity = np.eye(latent)
    model = LinearGaussian(
        initial_mean=np.zeros(latent),
        initial_covariance=identity,
        transition_matrix=identity,
        transition_covariance=identity,
        emission_matrix=identity,
        emission_covariance=identity,
    )
    series = Sequence.from_values(np.zeros((3, latent)))
    assert jnp.isfinite(SMC(particles)(model, Bootstrap(), series, key=KEYS[0]).log_evidence)
