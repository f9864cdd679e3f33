"""Random numbers of a filter: a key for each use in each step of each series, and the noise of all particles.

Keys belong to (series, step), so that padding, windows and the order of a batch change no draw. The keys and the noise
of several steps are drawn together: many small draws cost more than one large one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Int, Shaped

from mcfo import random
from mcfo.series import Frame
from mcfo.types import Distribution, Key

_ROUNDS = range(2, 9)
"""Iterations of the loop in `map_in_rounds`, the fewest first. A single one would be no loop."""


class Keys(eqx.Module):
    """One key for each use of randomness in a step."""

    resampling: Key
    noise: Key
    imputation: Key


def step_key(key: Key, frame: Frame) -> Key:
    """The key of one step of one series."""
    return _key_at(key, frame.series_id, frame.time)


def step_keys(key: Key, frame: Frame) -> Keys:
    """The keys of one step of one series, one for each use."""
    return _keys_at(key, frame.series_id, frame.time)


def _key_at(key: Key, series_id: Int[Array, ""], time: Int[Array, ""]) -> Key:
    return random.fold_in(random.fold_in(key, series_id), time)


def _keys_at(key: Key, series_id: Int[Array, ""], time: Int[Array, ""]) -> Keys:
    return Keys(*random.split(_key_at(key, series_id, time), 3))


def block_keys(key: Key, series_ids: Int[Array, "steps ..."], times: Int[Array, "steps ..."]) -> Keys:
    """The keys of several steps of one series or of a batch; the time axis comes first."""
    of_step = partial(_keys_at, key)
    of_steps = of_step if times.ndim == 1 else jax.vmap(of_step)
    return map_in_rounds(lambda step: of_steps(*step), (series_ids, times))


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
    event_shape = distribution.event_shape  # pyright: ignore[reportAttributeAccessIssue]
    return NoiseShape(event_shape, dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.result_type(float))


def draw_noise(noise: NoiseShape | None, particles: int, *, key: Key) -> Shaped[Array, "particles ..."]:
    """Noise for all particles: one draw where the distribution is Gaussian, otherwise a key for each particle.

    A key for each particle costs a hash for each before the first number is drawn.
    """
    if noise is None:
        return random.split(key, particles)
    return random.normal(key, (particles, *noise.shape), noise.dtype)


def block_noise(noise: NoiseShape | None, particles: int, keys: Keys) -> Shaped[Array, "steps ..."]:
    """`draw_noise` for several steps of one series or of a batch; the time axis comes first."""

    def draw(key: Key) -> Shaped[Array, "..."]:
        return draw_noise(noise, particles, key=key)

    return map_in_rounds(draw if keys.noise.ndim == 1 else jax.vmap(draw), keys.noise)


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
