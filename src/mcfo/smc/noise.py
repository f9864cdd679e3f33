"""Random numbers of a filter: for each step of each series, those of resampling, noise and imputation.

Numbers belong to (series, step), so that padding, windows and the order of a batch change no draw. Those of several
steps are drawn together: many small draws cost more than one large one.

The bits are those of `jax.random`. JAX runs the rounds of threefry in a loop on a CPU; here they are written out, which
three headline rows of `make bench ARGS=quick` need. CPU time of a step with stock `jax.random` in the same blocks, and
with this file (jaxlib 0.10): learning, K = 10, 0.82 and 0.59 ms; K = 100, 1.82 and 1.53 ms; K = 1000, 16.6 and 12.4 ms,
where stock numbers would miss the target of 5 times PyTorch; a filter of 1000 steps with 100 particles, 5.3 and 3.0 ms.

LLVM takes exponential time to compile a written-out hash that is fused with a reduction over a few numbers (it looks
for a cyclic redundancy check; jaxlib 0.10). Here that cannot happen: hashes are computed in loops that do nothing else
(`map_in_rounds`), and XLA does not fuse across a loop.
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
"""Iterations of the loop in `map_in_rounds`, the fewest first. A single one would be no loop."""

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
    """What is random in a step, or in several with the time axis first.

    - `resampling`: what the scheme draws, `Resampling.numbers`; None at the first step.
    - `noise`: of all particles, `draw_noise`.
    - `imputation`: a key for what is missing in x_t.
    """

    resampling: Any
    noise: Shaped[Array, "..."]
    imputation: KeyArray[Array, "..."]


def step_key(key: Key, frame: Frame) -> Key:
    """The key of one step of one series."""
    # Two folds, not one of a sum: no two steps share a key, however long the series are.
    return jax.random.fold_in(jax.random.fold_in(typed(key), frame.series_id), frame.time)


def step_keys(key: Key, series_ids: Int[Array, "steps ..."], times: Int[Array, "steps ..."]) -> Keys:
    """The keys of several steps, split from `step_key`, of one series or of a batch; the time axis comes first."""

    def of_step(step: Any) -> Keys:
        series_id, time = step
        return Keys(*split(_fold_in(_fold_in(typed(key), series_id), time), 3))

    return map_in_rounds(of_step if times.ndim == 1 else jax.vmap(of_step), (series_ids, times))


class NoiseShape(NamedTuple):
    """Shape and type of the standard normal noise from which a Gaussian draw is computed."""

    shape: tuple[int, ...]
    dtype: Any

    @property
    def size(self) -> int:
        """How many numbers one particle needs."""
        return math.prod(self.shape)


def noise_shape(distribution: Distribution) -> NoiseShape | None:
    """The noise that `from_noise` wants for this distribution; None if it wants a key of its own."""
    base: Any = _gaussian_base(distribution)
    if base is None:
        return None
    dtype = jnp.result_type(base.loc, base.scale if type(base) is dist.Normal else base.scale_tril)
    # Parameters may be integers; noise never is.
    event_shape = distribution.event_shape  # pyright: ignore[reportAttributeAccessIssue]
    return NoiseShape(event_shape, dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.result_type(float))


def draw_noise(noise: NoiseShape | None, particles: int, keys: KeyArray[Array, "steps ..."]) -> Shaped[Array, "..."]:
    """Noise for all particles of several steps, of one series or of a batch, from the keys of the steps.

    One draw a step where the distribution is Gaussian, otherwise a key for each particle: that costs a hash for each
    before the first number is drawn.
    """

    def of_steps(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return function if keys.ndim == 1 else jax.vmap(function)

    if noise is None:
        return map_in_rounds(of_steps(lambda key: split(key, particles)), keys)
    shape = (particles, *noise.shape)
    # Two loops: where one hashes and also computes normal numbers, XLA:CPU takes twice as long (jaxlib 0.10).
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
    """What is random in several steps of a filter, of one series or of a batch; the time axis comes first.

    **Arguments:**

    - `noise`: what noise the proposal wants.
    - `dtype`: of the weights before these steps; None for the first step, before which nothing is resampled.
    """
    keys, numbers = step_keys(key, series_ids, times), None
    if dtype is not None:
        # No scheme needs the weights to draw its numbers, so that they need not be drawn inside of the filter's loop.
        def of_step(key: Key) -> Any:
            return sampler.resampling.numbers(sampler.particles, dtype, key=key)

        numbers = map_in_rounds(of_step if times.ndim == 1 else jax.vmap(of_step), keys.resampling)
    return Randomness(numbers, draw_noise(noise, sampler.particles, keys.noise), keys.imputation)


def step_randomness(sampler: Any, noise: NoiseShape | None, dtype: Any, key: Key, frame: Frame) -> Randomness:
    """What is random in one step of one series."""
    rows = frame.series_id[None], frame.time[None]
    return jax.tree.map(lambda array: array[0], draw_randomness(sampler, noise, dtype, key, *rows))


def from_noise(distribution: Distribution, noise: Shaped[Array, "..."]) -> Array:
    """One draw, g(noise): differentiable in the parameters of a Gaussian."""
    base = _gaussian_base(distribution)
    if base is None:
        return distribution.sample(noise)
    if type(base) is dist.Normal:
        return base.loc + base.scale * noise  # pyright: ignore[reportOperatorIssue, reportReturnType]
    return base.loc + base.scale_tril @ noise


def is_reparameterized(distribution: Any) -> bool:
    """Whether draws are differentiable functions of the parameters: `has_rsample`, as in numpyro and PyTorch."""
    return _gaussian_base(distribution) is not None or bool(getattr(distribution, "has_rsample", False))


def _gaussian_base(distribution: Any) -> Any:
    """The Gaussian whose standard noise gives a draw of the distribution; None if there is none."""
    if type(distribution) is dist.Independent:
        return distribution.base_dist if type(distribution.base_dist) is dist.Normal else None
    return distribution if type(distribution) in (dist.Normal, dist.MultivariateNormal) else None


def map_in_rounds(function: Callable[[Any], Any], rows: Any) -> Any:
    """`jax.vmap(function)(rows)`, computed in a loop of a few iterations.

    XLA:CPU computes what a loop returns once. Without the loop it fuses the hash into every consumer and computes it
    again in each, together with the hashes of the keys it was drawn with (jaxlib 0.10).
    """
    count = len(jax.tree.leaves(rows)[0])
    rounds = next((rounds for rounds in _ROUNDS if count % rounds == 0), None)
    if rounds is None:  # an odd number of rows: the last one is computed twice
        indices = jnp.minimum(jnp.arange(-(-count // 2) * 2), count - 1)
        results = map_in_rounds(function, jax.tree.map(lambda array: array[indices], rows))
        return jax.tree.map(lambda array: array[:count], results)
    parts = jax.tree.map(lambda array: array.reshape(rounds, count // rounds, *array.shape[1:]), rows)
    results = jax.lax.map(jax.vmap(function), parts)
    return jax.tree.map(lambda array: array.reshape(count, *array.shape[2:]), results)


def uniform(key: Key, shape: tuple[int, ...], dtype: Any) -> Float[Array, "..."]:
    """`jax.random.uniform`, bit-identical; to be called inside of `map_in_rounds`."""
    return _fractions(_words(key, shape, dtype), dtype)


def exponential(key: Key, shape: tuple[int, ...], dtype: Any) -> Float[Array, "..."]:
    """`jax.random.exponential`, bit-identical; to be called inside of `map_in_rounds`."""
    return -jnp.log1p(-uniform(key, shape, dtype))


def normal_from_words(words: UInt[Array, "..."], dtype: Any) -> Float[Array, "..."]:
    """The numbers of `jax.random.normal` from random bits, up to rounding."""
    one = np.ones((), dtype)
    # Not -1 itself, where the inverse of the error function is infinite.
    lowest = np.nextafter(-one, 0 * one)
    signed = jnp.maximum(lowest, _fractions(words, dtype) * (one - lowest) + lowest)
    return np.sqrt(2).astype(dtype) * _erf_inv(signed)


def _fractions(words: UInt[Array, "..."], dtype: Any) -> Float[Array, "..."]:
    """Numbers in [0, 1). The bits are those behind the point of a number between one and two."""
    kind, one = jnp.finfo(dtype), np.ones((), dtype)
    exponent = one.view(f"uint{kind.bits}")
    fraction = (words >> (8 * words.dtype.itemsize - kind.nmant)).astype(exponent.dtype)
    return jax.lax.bitcast_convert_type(fraction | exponent, dtype) - one


def _erf_inv(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """`jax.lax.erf_inv`; of float32 by the same polynomials (Giles, 2012), but without `log1p`, which takes most of the
    time and adds nothing: 1 - x is exact where it is small, and near one its rounding changes little.
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
    """The random bits of which `jax.random` makes numbers of this type, one word a number."""
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


def split(key: Key, count: int) -> KeyArray[Array, " count"]:
    """`jax.random.split`, bit-identical; to be called inside of `map_in_rounds`."""
    if not _is_stock(key):
        return jax.random.split(key, count)
    return _as_key(_threefry(jax.random.key_data(key), jax.lax.iota(jnp.uint32, count)))


def typed(key: Key) -> Key:
    """The same key; one of JAX's old kind, an array of two words, as a key of the new."""
    return key if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else jax.random.wrap_key_data(key)


def _as_key(words: tuple[Word, Word]) -> KeyArray[Array, "..."]:
    return jax.random.wrap_key_data(jnp.stack(words, axis=-1), impl=_STOCK)


def _is_stock(key: Key) -> bool:
    """Whether the key is one of JAX's own generator, in its present order of counting."""
    partitionable = jax.config.jax_threefry_partitionable  # pyright: ignore[reportAttributeAccessIssue]
    return str(jax.random.key_impl(key)) == _STOCK and partitionable


@jax.jit  # traced once for each shape
def _threefry(key: UInt32[Array, "2"], counters: Word) -> tuple[Word, Word]:
    """Two words of hash for each counter (Salmon et al., 2011: Threefry-2x32, 20 rounds)."""
    # A Python loop: written out, the rounds become one pass of the compiler over each counter.
    keys = (key[0], key[1], key[0] ^ key[1] ^ _PARITY)
    first, second = jnp.broadcast_to(keys[0], counters.shape), counters + keys[1]
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            first = first + second
            second = first ^ ((second << np.uint32(rotation)) | (second >> np.uint32(32 - rotation)))
        first = first + keys[(group + 1) % 3]
        second = second + keys[(group + 2) % 3] + np.uint32(group + 1)
    return first, second
