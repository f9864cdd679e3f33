"""Scans in blocks are scans."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mcfo.smc import blocks


@pytest.mark.parametrize(
    ("count", "most"),
    [(0, 10), (1, 10), (7, 100), (12, 4), (11, 4), (13, 6), (12, 1)],
    ids=["none", "one", "all at once", "even", "rest", "prime", "one by one"],
)
def test_equal_to_a_scan(monkeypatch, count, most):
    monkeypatch.setattr(blocks, "_AT_ONCE", most * 3)
    keys = jax.random.split(jax.random.key(0), count)

    def prepare(key):
        return jax.random.normal(key, (3,))

    def body(carry, noise):
        carry = 0.5 * carry + noise
        return carry, {"sum": jnp.sum(carry)}

    start = jnp.ones(3)
    found = blocks.scan_in_blocks(body, start, keys, jax.vmap(prepare), size=3)
    wanted = jax.lax.scan(lambda carry, key: body(carry, prepare(key)), start, keys)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-14), found, wanted)


@pytest.mark.parametrize("count", [0, 1, 2, 9, 11, 17])
def test_rounds_are_a_map(count):
    values = jnp.arange(float(count))
    np.testing.assert_array_equal(blocks.map_in_rounds(lambda x: 2 * x, values), 2 * values)


def test_memory_does_not_grow_with_the_steps():
    def temporaries(count):
        keys = jax.random.split(jax.random.key(0), count)

        def run(keys):
            return blocks.scan_in_blocks(
                lambda carry, noise: (carry + jnp.sum(noise), None),
                jnp.zeros(()),
                keys,
                jax.vmap(lambda key: jax.random.normal(key, (2**14,))),
                size=2**14,
            )[0]

        return jax.jit(run).lower(keys).compile().memory_analysis().temp_size_in_bytes

    assert temporaries(2048) < 1.5 * temporaries(256)
