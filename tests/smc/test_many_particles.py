"""Resampling of millions of particles in float32: each can be chosen, as often as its weight says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mcfo.resampling import Multinomial, Residual, Stratified, Systematic
from mcfo.smc import weights
from mcfo.smc.resampling import draw_indices, systematic_indices

SIZES = [10**6, pytest.param(10**7, marks=pytest.mark.slow)]
BLOCKS = 1000
DRAWS = {
    "multinomial": lambda log_weights, key: Multinomial()(log_weights, key=key),
    "stratified": lambda log_weights, key: Stratified()(log_weights, key=key),
    "residual": lambda log_weights, key: Residual()(log_weights, key=key),
    "draw_indices": lambda log_weights, key: draw_indices(log_weights, len(log_weights), key=key),
}
INDEPENDENT = ("multinomial", "draw_indices")


def prepare(weights):
    """Log-weights in float32 and the expected numbers of copies in float64."""
    with np.errstate(divide="ignore"):
        log_weights = np.log(weights / np.sum(weights)).astype(np.float32)
    weights = np.exp(log_weights.astype(np.float64))
    return jnp.asarray(log_weights), len(weights) * weights / np.sum(weights)


def various(particles):
    numbers = np.random.default_rng(particles)
    return prepare(np.where(numbers.random(particles) < 0.1, 0.0, np.exp(numbers.standard_normal(particles))))


def alternating(particles):
    """Every other weight is small: a fifth of the mean at K = 10^7."""
    return prepare(np.tile([particles / 5e7, 2.0], particles // 2))


def count_copies(draw, log_weights):
    return np.bincount(draw(log_weights, jax.random.key(1)), minlength=len(log_weights))


def assert_within_one(copies, expected):
    assert np.max(np.abs(copies - expected)) < 1.001


def assert_parity(copies, expected):
    """The first, third, ... index in each block together, in standard errors of independent draws."""
    mean = expected[::2].sum()
    error = np.sqrt(mean * (1 - mean / expected.sum()))
    assert abs(copies[::2].sum() - mean) < 5 * error


def assert_blocks(copies, expected, *, independent):
    """Chi-square of the copies in a thousand blocks, in its standard deviations; other schemes vary less."""
    copies, expected = (array.reshape(BLOCKS, -1).sum(axis=1) for array in (copies, expected))
    statistic = np.sum((copies - expected) ** 2 / expected)
    gap = (statistic - (BLOCKS - 1)) / np.sqrt(2 * (BLOCKS - 1))
    assert gap < 5
    assert not independent or gap > -5


@pytest.mark.parametrize("particles", SIZES)
def test_systematic_copies_are_expected_ones_up_to_one(particles):
    log_weights, expected = various(particles)
    copies = count_copies(jax.jit(lambda log_weights, key: Systematic()(log_weights, key=key)), log_weights)
    assert_within_one(copies, expected)
    assert not copies[expected == 0].any()


@pytest.mark.parametrize("particles", SIZES)
def test_few_systematic_draws_from_many(particles):
    log_weights, expected = various(particles)
    draw = jax.jit(lambda log_weights, key: systematic_indices(log_weights, 1001, key=key))
    blocks = count_copies(draw, log_weights).reshape(BLOCKS, -1).sum(axis=1)
    assert_within_one(blocks, expected.reshape(BLOCKS, -1).sum(axis=1) * 1001 / particles)


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("particles", SIZES)
def test_blocks_and_parity_of_other_schemes(draw, particles):
    compiled = jax.jit(lambda *arguments: DRAWS[draw](*arguments))  # traced in each test
    for log_weights, expected in (various(particles), alternating(particles)):
        copies = count_copies(compiled, log_weights)
        assert_blocks(copies, expected, independent=draw in INDEPENDENT)
        assert_parity(copies, expected)
        assert not copies[expected == 0].any()


@pytest.fixture
def one_level(monkeypatch):
    """Cumulative weights as shares of the total, rounded to 2^-24 of it."""
    monkeypatch.setattr(weights, "_group_shape", lambda size, dtype: (1, size))


@pytest.mark.parametrize("particles", SIZES)
def test_one_level_is_noticed_by_copies(particles, one_level):
    """Negative control."""
    log_weights, expected = various(particles)
    copies = count_copies(jax.jit(lambda log_weights, key: Systematic()(log_weights, key=key)), log_weights)
    with pytest.raises(AssertionError):
        assert_within_one(copies, expected)


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("particles", [pytest.param(10**7, marks=pytest.mark.slow)])
def test_one_level_is_noticed_by_parity(draw, particles, one_level):
    """Negative control, where a quarter of the particles is lost: with 10^6 it is a third of a percent."""
    log_weights, expected = alternating(particles)
    copies = count_copies(jax.jit(lambda *arguments: DRAWS[draw](*arguments)), log_weights)
    with pytest.raises(AssertionError):
        assert_parity(copies, expected)


def test_wrong_blocks_are_noticed():
    """Negative control: every other block has too much weight, by a twentieth."""
    log_weights, expected = various(10**6)
    wrong = jnp.where(jnp.arange(10**6) // BLOCKS % 2 == 0, log_weights, log_weights + np.float32(0.05))
    copies = count_copies(jax.jit(DRAWS["multinomial"]), wrong)
    with pytest.raises(AssertionError):
        assert_blocks(copies, expected, independent=True)
