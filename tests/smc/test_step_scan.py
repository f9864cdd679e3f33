"""Scans in blocks are scans; a visitor sees every step, and what it does not save is not kept."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mcfo.smc.noise import map_in_rounds
from mcfo.smc.step_scan import scan_blocks


@pytest.mark.parametrize(
    ("count", "size"),
    [(0, 10), (1, 10), (7, 100), (12, 4), (11, 4), (13, 6), (12, 1)],
    ids=["none", "one", "all at once", "even", "rest", "prime", "one by one"],
)
def test_equal_to_a_scan(count, size):
    keys = jax.random.split(jax.random.key(0), count)

    def draw(key):
        return jax.random.normal(key, (3,))

    def body(carry, noise):
        carry = 0.5 * carry + noise
        return carry, {"sum": jnp.sum(carry)}

    def of_block(carry, keys):
        return jax.lax.scan(body, carry, jax.vmap(draw)(keys))

    start = jnp.ones(3)
    blocks = scan_blocks(of_block, start, keys, size=size)
    wanted = jax.lax.scan(lambda carry, key: body(carry, draw(key)), start, keys)
    jax.tree.map(lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-14), blocks, wanted)


@pytest.mark.parametrize("count", [0, 1, 2, 9, 11, 17])
def test_rounds_are_a_map(count):
    values = jnp.arange(float(count))
    np.testing.assert_array_equal(map_in_rounds(lambda x: 2 * x, values), 2 * values)


def test_memory_does_not_grow_with_the_steps():
    def temporaries(count):
        keys = jax.random.split(jax.random.key(0), count)

        def of_block(carry, keys):
            noise = jax.vmap(lambda key: jax.random.normal(key, (2**14,)))(keys)
            return carry + jnp.sum(noise), jnp.zeros(len(keys))

        def run(keys):
            return scan_blocks(of_block, jnp.zeros(()), keys, size=64)[0]

        return jax.jit(run).lower(keys).compile().memory_analysis().temp_size_in_bytes

    assert temporaries(2048) < 1.5 * temporaries(256)
