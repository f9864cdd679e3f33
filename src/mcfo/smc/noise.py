"""Random numbers of a filter for resampling, noise and imputation, for each step of each series.

The numbers depend on (series, step) alone, so padding, windows and the order of a batch change no draw. Those of
several steps are drawn together, because many small draws cost more than one large draw.

The bits are those of `jax.random`. On a CPU, JAX runs the rounds of threefry in a loop; this module unrolls them, which
three headline rows of `make bench ARGS=quick` need. CPU time in ms, with stock `jax.random` in the same blocks and with
this module (jaxlib 0.10):

| | stock | here | |
|---|---|---|---|
| learning step, K = 10 | 0.82 | 0.59 | |
| learning step, K = 100 | 1.82 | 1.53 | |
| learning step, K = 1000 | 16.6 | 12.4 | with stock numbers it misses the target of 5 times PyTorch |
| filter of 1000 steps, K = 100 | 5.3 | 3.0 | |

LLVM takes exponential time to compile an unrolled hash that is fused with a reduction over a few numbers (it searches
for a cyclic redundancy check; jaxlib 0.10). That cannot happen here, because hashes are computed in loops that do
nothing else (`map_in_rounds`), and XLA does not fuse across a loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Float, Int, Shaped, UInt, UInt32
from jaxtyping import Key as KeyArray

from mcfo.series import Frame
from mcfo.types import Distribution, Key

_ROUNDS = range(2, 9)
"""Numbers of iterations of the loop in `map_in_rounds`, the fewest first. XLA removes a loop of one iteration."""

_STOCK = "threefry2x32"
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)

_ERF_INV = (
    (2.81022636e-08, -0.000200214257),
    (3.43273939e-07, 0.000100950558),
    (-3.5233877e-06, 0.00134934322),
    (-4.39150654e-06, -0.00367342844),
    (0.00021858087, 0.00573950773),
    (-0.00125372503, -0.0076224613),
    (-0.00417768164, 0.00943887047),
    (0.246640727, 1.00167406),
    (1.50140941, 2.83297682),
)
"""Coefficients of the polynomials for the middle and for the tails, the highest power first."""

Word = UInt32[Array, "..."]


class Keys(eqx.Module):
    """One key for each use of randomness in a step, or in several."""

    resampling: KeyArray[Array, "..."]
    noise: KeyArray[Array, "..."]
    imputation: KeyArray[Array, "..."]


class Randomness(eqx.Module):
    """The random numbers of a step, or of several with the time axis first.

    - `resampling`: the numbers of the scheme, `Resampling.numbers`; None at the first step.
    - `noise`: the noise of all particles, `draw_noise`.
    - `imputation`: a key for the missing values of x_t.
    """

    resampling: Any
    noise: Shaped[Array, "..."]
    imputation: KeyArray[Array, "..."]


def step_key(key: Key, frame: Frame) -> Key:
    """Return the key of one step of one series."""
    # Two folds, not one fold of a sum, so that no two steps share a key, however long the series are.
    return jax.random.fold_in(jax.random.fold_in(typed(key), frame.series_id), frame.time)


def step_keys(key: Key, series_ids: Int[Array, "steps ..."], times: Int[Array, "steps ..."]) -> Keys:
    """Return the keys of several steps, split from `step_key`, of a series or a batch; the time axis comes first."""

    def of_step(step: Any) -> Keys:
        series_id, time = step
        return Keys(*_split(_fold_in(_fold_in(typed(key), series_id), time), 3))

    return map_in_rounds(of_step if times.ndim == 1 else jax.vmap(of_step), (series_ids, times))


class NoiseShape(NamedTuple):
    """Shape and type of the standard normal noise from which a Gaussian draw is computed."""

    shape: tuple[int, ...]
    dtype: Any

    @property
    def size(self) -> int:
        """The number of random numbers that one particle needs."""
        return math.prod(self.shape)


def noise_shape(distribution: Distribution) -> NoiseShape | None:
    """Return the shape of the noise that `from_noise` needs for this distribution; None if it needs a key instead."""
    base: Any = _gaussian_base(distribution)
    if base is None:
        return None
    dtype = jnp.result_type(base.loc, base.scale if type(base) is dist.Normal else base.scale_tril)
    # Parameters may be integers; noise never is.
    event_shape = distribution.event_shape  # pyright: ignore[reportAttributeAccessIssue]
    return NoiseShape(event_shape, dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.result_type(float))


def draw_noise(noise: NoiseShape | None, particles: int, keys: KeyArray[Array, "steps ..."]) -> Shaped[Array, "..."]:
    """Return noise for all particles of several steps, of one series or of a batch, from the keys of the steps.

    For a Gaussian distribution each step needs one draw. Other distributions need a key for each particle, which costs
    a hash for each before the first number is drawn.
    """

    def of_steps(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return function if keys.ndim == 1 else jax.vmap(function)

    if noise is None:
        return map_in_rounds(of_steps(lambda key: _split(key, particles)), keys)
    shape = (particles, *noise.shape)
    # Two loops, because XLA:CPU takes twice as long for one loop that hashes and computes normal numbers (jaxlib 0.10).
    words = map_in_rounds(of_steps(lambda key: _words(key, shape, noise.dtype)), keys)
    return map_in_rounds(lambda words: normal_from_words(words, noise.dtype), words)


def draw_randomness(
    sampler: Any,
    noise: NoiseShape | None,
    dtype: Any,
    key: Key,
    series_ids: Int[Array, "steps ..."],
    times: Int[Array, "steps ..."],
) -> Randomness:
    """Return the random numbers of several steps of a filter, of a series or a batch; the time axis comes first.

    **Arguments:**

    - `noise`: the shape of the noise that the proposal needs.
    - `dtype`: the type of the weights before these steps; None for the first step, before which nothing is resampled.
    """
    keys, numbers = step_keys(key, series_ids, times), None
    if dtype is not None:
        # No scheme needs the weights to draw its numbers, so they are drawn outside of the filter's loop.
        def of_step(key: Key) -> Any:
            return sampler.resampling.numbers(sampler.particles, dtype, key=key)

        numbers = map_in_rounds(of_step if times.ndim == 1 else jax.vmap(of_step), keys.resampling)
    return Randomness(numbers, draw_noise(noise, sampler.particles, keys.noise), keys.imputation)


def step_randomness(sampler: Any, noise: NoiseShape | None, dtype: Any, key: Key, frame: Frame) -> Randomness:
    """Return the random numbers of one step of one series."""
    rows = frame.series_id[None], frame.time[None]
    return jax.tree.map(lambda array: array[0], draw_randomness(sampler, noise, dtype, key, *rows))


def from_noise(distribution: Distribution, noise: Shaped[Array, "..."]) -> Array:
    """Return one draw, g(noise); for a Gaussian it is differentiable in the parameters."""
    base = _gaussian_base(distribution)
    if base is None:
        return distribution.sample(noise)
    if type(base) is dist.Normal:
        return base.loc + base.scale * noise  # pyright: ignore[reportOperatorIssue, reportReturnType]
    return base.loc + base.scale_tril @ noise


def is_reparameterized(distribution: Any) -> bool:
    """Return whether draws are differentiable in the parameters: `has_rsample`, as in numpyro and PyTorch."""
    return _gaussian_base(distribution) is not None or bool(getattr(distribution, "has_rsample", False))


def _gaussian_base(distribution: Any) -> Any:
    """Return the Gaussian whose standard noise gives a draw of the distribution; None if there is none."""
    if type(distribution) is dist.Independent:
        return distribution.base_dist if type(distribution.base_dist) is dist.Normal else None
    return distribution if type(distribution) in (dist.Normal, dist.MultivariateNormal) else None


def map_in_rounds(function: Callable[[Any], Any], rows: Any) -> Any:
    """`jax.vmap(function)(rows)`, computed in a loop of a few iterations.

    XLA:CPU computes the result of a loop once. Without the loop it fuses the hash into every consumer and computes it
    again in each, together with the hashes of its keys (jaxlib 0.10).
    """
    count = len(jax.tree.leaves(rows)[0])
    rounds = next((rounds for rounds in _ROUNDS if count % rounds == 0), None)
    if rounds is None:  # pad to an even number: the last row is computed twice
        indices = jnp.minimum(jnp.arange(-(-count // 2) * 2), count - 1)
        results = map_in_rounds(function, jax.tree.map(lambda array: array[indices], rows))
        return jax.tree.map(lambda array: array[:count], results)
    parts = jax.tree.map(lambda array: array.reshape(rounds, count // rounds, *array.shape[1:]), rows)
    results = jax.lax.map(jax.vmap(function), parts)
    return jax.tree.map(lambda array: array.reshape(count, *array.shape[2:]), results)


def uniform(key: Key, shape: tuple[int, ...], dtype: Any) -> Float[Array, "..."]:
    """Draw bit-identical numbers to `jax.random.uniform`. Call it inside `map_in_rounds`."""
    return _fractions(_words(key, shape, dtype), dtype)


def exponential(key: Key, shape: tuple[int, ...], dtype: Any) -> Float[Array, "..."]:
    """Draw bit-identical numbers to `jax.random.exponential`. Call it inside `map_in_rounds`."""
    return -jnp.log1p(-uniform(key, shape, dtype))


def normal_from_words(words: UInt[Array, "..."], dtype: Any) -> Float[Array, "..."]:
    """Return the numbers of `jax.random.normal` from random bits, up to rounding."""
    one = np.ones((), dtype)
    # The smallest value above -1, where the inverse of the error function is infinite.
    lowest = np.nextafter(-one, 0 * one)
    signed = jnp.maximum(lowest, _fractions(words, dtype) * (one - lowest) + lowest)
    return np.sqrt(2).astype(dtype) * _erf_inv(signed)


def _fractions(words: UInt[Array, "..."], dtype: Any) -> Float[Array, "..."]:
    """Return numbers in [0, 1). The bits become the mantissa of a number between one and two, less one."""
    kind, one = jnp.finfo(dtype), np.ones((), dtype)
    exponent = one.view(f"uint{kind.bits}")
    fraction = (words >> (8 * words.dtype.itemsize - kind.nmant)).astype(exponent.dtype)
    return jax.lax.bitcast_convert_type(fraction | exponent, dtype) - one


def _erf_inv(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """`jax.lax.erf_inv`, for float32 with the same polynomials (Giles, 2012), but without `log1p`.

    `log1p` takes most of the time and adds no accuracy: 1 - x is exact where it is small, and near one its rounding
    changes little.
    """
    if x.dtype != jnp.float32:
        return jax.lax.erf_inv(x)
    depth = -jnp.log((1 - x) * (1 + x))
    middle = depth < 5
    offset = jnp.where(middle, depth - 2.5, jnp.sqrt(depth) - 3)
    ratio = jnp.zeros_like(x)
    for of_middle, of_tails in _ERF_INV:
        ratio = ratio * offset + jnp.where(middle, np.float32(of_middle), np.float32(of_tails))
    return ratio * x


def _words(key: Key, shape: tuple[int, ...], dtype: Any) -> UInt[Array, "..."]:
    """Return the random bits from which `jax.random` computes numbers of this type, one word for each number."""
    kind = jnp.finfo(dtype)
    if kind.bits < 32 or not _is_stock(key):
        # JAX draws fewer bits for numbers of half precision. No benchmark needs these to be fast.
        return jax.random.bits(key, shape, f"uint{8 if kind.nmant < 8 else kind.bits}")
    counters = jax.lax.iota(jnp.uint32, math.prod(shape)).reshape(shape)
    first, second = _threefry(jax.random.key_data(key), counters)
    if kind.bits == 32:
        return first ^ second
    return (first.astype(jnp.uint64) << np.uint64(32)) | second.astype(jnp.uint64)


def _fold_in(key: Key, number: Int[Array, ""]) -> Key:
    if not _is_stock(key):
        return jax.random.fold_in(key, number)
    return _as_key(_threefry(jax.random.key_data(key), number.astype(jnp.uint32)))


def _split(key: Key, count: int) -> KeyArray[Array, " count"]:
    if not _is_stock(key):
        return jax.random.split(key, count)
    return _as_key(_threefry(jax.random.key_data(key), jax.lax.iota(jnp.uint32, count)))


def typed(key: Key) -> Key:
    """Return the key as a typed key; JAX's old keys are arrays of two words."""
    return key if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(key)


def _as_key(words: tuple[Word, Word]) -> KeyArray[Array, "..."]:
    return jax.random.wrap_key_data(jnp.stack(words, axis=-1), impl=_STOCK)


def _is_stock(key: Key) -> bool:
    """Return whether the key is of JAX's own generator, with the counters in its present order."""
    partitionable = jax.config.jax_threefry_partitionable  # pyright: ignore[reportAttributeAccessIssue]
    return str(jax.random.key_impl(key)) == _STOCK and partitionable


@jax.jit  # traced once for each shape
def _threefry(key: UInt32[Array, "2"], counters: Word) -> tuple[Word, Word]:
    """Return two words of hash for each counter (Salmon et al., 2011: Threefry-2x32, 20 rounds)."""
    # A Python loop: XLA fuses the unrolled rounds into one pass over the counters.
    keys = (key[0], key[1], key[0] ^ key[1] ^ _PARITY)
    first, second = jnp.broadcast_to(keys[0], counters.shape), counters + keys[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            first = first + second
            second = first ^ ((second << np.uint32(rotation)) | (second >> np.uint32(32 - rotation)))
        first = first + keys[(group + 1) % 3]
        second = second + keys[(group + 2) % 3] + np.uint32(group + 1)
    return first, second
