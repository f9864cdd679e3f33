"""Scans whose operations are taken out of the loop compute the same as those that are left in it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mcfo.gradients import recurrence
from mcfo.gradients.programs import lifted_scan, stacked_outputs
from mcfo.gradients.recurrence import linearised_recurrence

STEPS, ROWS, SIZE = 11, 3, 4


def _problem():
    keys = jax.random.split(jax.random.key(0), 4)
    shared = {
        "weight": jax.random.normal(keys[0], (SIZE, SIZE)) / 2,
        "bias": jax.random.normal(keys[1], (SIZE,)),
        "unused": jnp.ones(2),
    }
    data = jax.random.normal(keys[2], (STEPS, ROWS, SIZE))
    own = jax.random.normal(keys[3], (STEPS, SIZE))
    return shared, data, own


def _step(shared, own, strand, data):
    """One step of a recurrence: the next strand, and a number that depends on all of it."""
    hidden = jax.nn.relu(strand @ shared["weight"] + shared["bias"]) + own
    later = jnp.tanh(hidden @ shared["weight"] + data * shared["bias"])
    return later, jnp.sum(jnp.log1p(hidden**2) * data) + jnp.sum(jnp.sin(data @ shared["weight"]))


def _expected(shared, own, strand, data):
    def total(shared, own, strand):
        def body(carry, now):
            strand, number = _step(shared, now[1], carry, now[0])
            return strand, number

        last, numbers = jax.lax.scan(body, strand, (data, own))
        return jnp.sum(numbers) + jnp.sum(last**2)

    return jax.grad(total, argnums=(0, 1, 2))(shared, own, strand)


@pytest.mark.parametrize("length", [1, 2, 4, 5, STEPS])
def test_gradients_are_those_of_reverse_mode_whatever_the_blocks(length, monkeypatch):
    # Blocks of four and five steps leave some over.
    shared, data, own = _problem()
    start = jnp.full((ROWS, SIZE), 0.3)

    def gradient(shared, own, start):
        def body(state, strand, data):
            return state + 1, lambda shared, own, strand: _step(shared, own, strand, data), state

        (state, last), outputs, back = linearised_recurrence(body, 0, start, data, shared, own)
        return back(2 * last), state, outputs

    monkeypatch.setattr(recurrence, "_block_length", lambda residuals: length)
    found, state, outputs = jax.jit(gradient)(shared, own, start)
    assert state == STEPS
    np.testing.assert_array_equal(outputs, np.arange(STEPS))
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(_expected(shared, own, start, data)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_lifted_scan_is_a_scan(reverse):
    _, data, own = _problem()
    matrix = jnp.eye(SIZE) * 0.5

    def body(carry, now):
        value, own = now
        alone = jax.jit(jnp.exp)(value @ matrix)  # needs no carry
        carry = jnp.tanh(carry + alone + own)
        return carry, {"both": carry * alone, "alone": alone, "constant": jnp.sum(matrix), "again": carry * alone}

    start = jnp.zeros((ROWS, SIZE))
    last, outputs = jax.lax.scan(body, start, (data, own), reverse=reverse)
    found, lifted, stacked = lifted_scan(body, start, (data, own), reverse=reverse)
    assert stacked == {"both": True, "alone": True, "constant": False, "again": True}
    lifted = stacked_outputs(lifted, stacked, STEPS)
    for one, other in zip(jax.tree.leaves((found, lifted)), jax.tree.leaves((last, outputs)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_what_needs_no_carry_is_multiplied_for_all_steps_at_once():
    _, data, _ = _problem()

    def body(carry, value):
        return jnp.tanh(carry + value @ jnp.ones((SIZE, SIZE))), None

    program = str(jax.make_jaxpr(lambda: lifted_scan(body, jnp.zeros((ROWS, SIZE)), data)[0])())
    assert program.count("dot_general") == 1
    assert program.index("dot_general") < program.index("scan[")


def test_blocks_are_of_about_the_same_length(monkeypatch):
    residuals = [jnp.zeros((199, 10))]
    size = residuals[0].nbytes // 199
    for room, length in ((1000, 199), (199, 199), (100, 100), (67, 67), (66, 50), (1, 1), (0, 1)):
        monkeypatch.setattr(recurrence, "_AT_ONCE", room * size)
        assert recurrence._block_length(residuals) == length
