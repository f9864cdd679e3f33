"""Ancestors: the right number of copies, in order, of particles of positive weight only."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mcfo.resampling import ESSBelow, Multinomial, Residual, Stratified, Systematic
from mcfo.smc.weights import Cumulative, Positions, cumulative_count, effective_sample_size, normalize
from support.means import assert_mean

SCHEMES = [Multinomial(), Stratified(), Systematic(), Residual()]


def name(scheme):
    return type(scheme).__name__.lower()


def random_log_weights(particles, *, key, dtype=None, spread=2.0):
    return normalize(spread * jax.random.normal(key, (particles,), dtype))[0]


@pytest.mark.parametrize("scheme", SCHEMES, ids=name)
@pytest.mark.parametrize("particles", [1, pytest.param(2, marks=pytest.mark.slow), 7, 100])
def test_expected_copies(scheme, particles):
    log_weights = random_log_weights(particles, key=jax.random.key(0))
    keys = jax.random.split(jax.random.key(1), 20_000)
    ancestors = jax.jit(jax.vmap(lambda key: scheme(log_weights, key=key)))(keys)
    ancestors = np.asarray(ancestors)
    assert (ancestors >= 0).all()
    assert (ancestors < particles).all()
    assert (np.diff(ancestors, axis=1) >= 0).all()
    copies = np.stack([np.sum(ancestors == place, axis=1) for place in range(particles)], axis=1)
    expected = particles * np.exp(log_weights)
    varying = copies.std(axis=0) > 0
    np.testing.assert_allclose(copies[:, ~varying].mean(axis=0), expected[~varying], atol=1e-3)
    if varying.any():
        assert_mean(copies[:, varying], expected[varying])


@pytest.mark.parametrize("scheme", SCHEMES, ids=name)
def test_wrong_copies_are_noticed(scheme):
    """Negative control: the copies of weights that are off by a tenth of one particle's."""
    log_weights = random_log_weights(7, key=jax.random.key(0))
    wrong = normalize(log_weights.at[jnp.argmax(log_weights)].add(-0.1))[0]
    keys = jax.random.split(jax.random.key(1), 20_000)
    copies = jax.jit(jax.vmap(lambda key: jnp.bincount(scheme(wrong, key=key), length=7)))(keys)
    with pytest.raises(AssertionError):
        assert_mean(copies, 7 * jnp.exp(log_weights))


@pytest.mark.parametrize("scheme", [Systematic(), Residual()], ids=name)
def test_low_variance_schemes_keep_whole_copies(scheme):
    log_weights = random_log_weights(50, key=jax.random.key(2))
    certain = np.floor(50 * np.exp(log_weights))
    draw = jax.jit(lambda key: scheme(log_weights, key=key))
    for seed in range(50):
        assert (np.bincount(draw(jax.random.key(seed)), minlength=50) >= certain).all()


@pytest.mark.parametrize("scheme", SCHEMES, ids=name)
@pytest.mark.parametrize("particles", [10, pytest.param(1000, marks=pytest.mark.slow), 100_000])
@pytest.mark.parametrize("dtype", [jnp.float32, pytest.param(jnp.float64, marks=pytest.mark.slow)])
def test_particles_of_weight_zero_have_no_offspring(scheme, particles, dtype):
    numbers = np.random.default_rng(3)
    alive = numbers.random(particles) < 0.3
    alive[particles // 2] = True
    log_weights = normalize(jnp.asarray(np.where(alive, numbers.standard_normal(particles), -np.inf), dtype))[0]
    keys = jax.random.split(jax.random.key(3), 200 if particles < 100_000 else 20)
    draw = jax.jit(lambda key: scheme(log_weights, key=key))
    for key in keys:
        assert alive[np.asarray(draw(key))].all()


@pytest.mark.parametrize("scheme", SCHEMES, ids=name)
def test_one_particle_of_positive_weight_gets_everything(scheme):
    for place in (0, 3, 9):
        log_weights = jnp.full(10, -jnp.inf).at[place].set(0.0)
        assert (scheme(log_weights, key=jax.random.key(0)) == place).all()


@pytest.mark.parametrize("scheme", SCHEMES, ids=name)
def test_vmap_changes_nothing(scheme):
    keys = jax.random.split(jax.random.key(0), 8)
    weights = jax.vmap(lambda key: random_log_weights(33, key=key))(keys)
    draw = lambda w, key: scheme(w, key=key)  # noqa: E731
    together, alone = jax.jit(jax.vmap(draw))(weights, keys), jax.jit(draw)
    for w, key, ancestors in zip(weights, keys, together, strict=True):
        np.testing.assert_array_equal(alone(w, key), ancestors)


@pytest.mark.parametrize("scheme", SCHEMES, ids=name)
def test_no_callback(scheme):
    program = jax.jit(lambda w, key: scheme(w, key=key)).lower(jnp.zeros(8), jax.random.key(0)).as_text()
    assert "callback" not in program


def positions(values, n):
    return jax.jit(lambda values: Cumulative.of(values, n).positions())(values)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("size", [1, 15, 16, 17, 300, 1025, 5000, 10_007])
def test_cumulative_sums(size, dtype):
    numbers = np.random.default_rng(size)
    values = np.where(numbers.random(size) < 0.5, numbers.random(size), 0).astype(dtype)
    values[0] = 0.5
    values[size // 2 + 1 : size // 2 + 1000] = 0  # over the end of a group
    whole, within = positions(values, size)
    reached = np.asarray(whole) + np.asarray(within, np.float64)
    exact = np.cumsum(np.asarray(values, np.float64))
    np.testing.assert_allclose(reached / size, exact / exact[-1], atol=size * np.finfo(dtype).eps)
    assert reached[-1] == size
    steps = np.diff(reached)
    assert (steps >= 0).all()
    assert (steps[values[1:] == 0] == 0).all()
    counts = numbers.poisson(0.9, size).astype(np.int32)
    np.testing.assert_array_equal(jax.jit(lambda counts: cumulative_count(counts, 2 * size))(counts), np.cumsum(counts))


@pytest.mark.parametrize("size", [10, 17, 1000, 5000])
@pytest.mark.parametrize("value", [0, jnp.inf, jnp.nan])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_positions_without_a_total_are_even(size, value, dtype):
    values = jnp.zeros(size, dtype).at[size // 2].set(value)
    whole, within = positions(values, size)
    rtol = 1e-15 if dtype == jnp.float64 else 1e-6
    np.testing.assert_allclose(whole + np.asarray(within, np.float64), np.arange(1, size + 1), rtol=rtol)


@pytest.mark.parametrize("size", [1000, 5000])
def test_finding_is_the_inverse_of_positions(size):
    values = jnp.asarray(np.random.default_rng(0).uniform(0.1, 1, size), jnp.float32)
    whole, within = positions(values, size)
    ends = np.asarray(whole) + np.asarray(within, np.float64)
    middles = (ends + np.concatenate([[0], ends[:-1]])) / 2
    points = Positions(jnp.asarray(middles, jnp.int32), jnp.asarray(middles % 1, jnp.float32))
    found = jax.jit(lambda: Cumulative.of(values, size).find(points))()
    np.testing.assert_array_equal(found, np.arange(size))


@pytest.mark.parametrize("particles", [100, 1000, 4096])
def test_zero_weight_particles_have_no_offspring_where_sums_are_rounded(particles):
    # Few are alive, so that most blocks begin and end with zero weights, where sums over blocks meet sums within.
    log_weights = random_log_weights(particles, key=jax.random.key(particles)).astype(jnp.float32)
    alive = jax.random.bernoulli(jax.random.key(1), 0.05, (particles,)).at[particles // 2].set(True)
    log_weights = normalize(jnp.where(alive, log_weights, -jnp.inf))[0]
    for scheme in SCHEMES:
        draw = jax.jit(jax.vmap(lambda key, scheme=scheme: scheme(log_weights, key=key)))
        assert alive[draw(jax.random.split(jax.random.key(2), 300))].all()


def test_effective_sample_size():
    assert effective_sample_size(jnp.full(8, -jnp.log(8.0))) == pytest.approx(8.0)
    assert effective_sample_size(jnp.log(jnp.array([1.0, 0.0, 0.0]))) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("log_weights", "increment"),
    [([-jnp.inf] * 3, -jnp.inf), ([0.0, jnp.inf, 0.0], jnp.inf), ([0.0, jnp.nan, 0.0], jnp.nan)],
    ids=["zero", "infinite", "nan"],
)
def test_weights_that_cannot_be_normalised_become_even(log_weights, increment):
    normalized, found = normalize(jnp.array(log_weights))
    np.testing.assert_array_equal(found, increment)
    np.testing.assert_allclose(normalized, -np.log(3))


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_weights_sum_to_one_however_unlikely_the_observation(dtype):
    log_weights = -1e15 + 1e9 * jax.random.normal(jax.random.key(0), (20,), dtype)
    for shifted in (log_weights, jnp.linspace(-1e8, -1e8 + 5, 20, dtype=dtype)):
        normalized, _ = normalize(shifted)
        np.testing.assert_allclose(jnp.sum(jnp.exp(normalized)), 1.0, rtol=1e-5)
        assert effective_sample_size(normalized) >= 1 - 1e-5


@pytest.mark.parametrize("scheme", [Systematic(), Residual()], ids=name)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
@pytest.mark.parametrize("particles", [10, 100, 1000])
def test_even_weights_keep_everyone(scheme, dtype, particles):
    even = normalize(jnp.zeros(particles, dtype))[0]
    ancestors = jax.jit(lambda key: scheme(even, key=key))(jax.random.key(0))
    np.testing.assert_array_equal(ancestors, np.arange(particles))


@pytest.mark.parametrize("threshold", [-0.1, 1.5, float("nan")])
def test_threshold_outside_the_unit_interval_is_refused(threshold):
    with pytest.raises(ValueError, match="between 0 and 1"):
        ESSBelow(threshold)
