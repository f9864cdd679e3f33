"""The keys of a filter's steps: each use of randomness in each step of each series has its own."""

from __future__ import annotations

from functools import partial

import equinox as eqx
import jax
from jaxtyping import Array, Int

from mcfo import random
from mcfo.smc.blocks import map_in_rounds
from mcfo.types import Key


class Keys(eqx.Module):
    """One key for each use of randomness in a step."""

    resampling: Key
    noise: Key
    imputation: Key


def keys_of(key: Key) -> Keys:
    """The keys of a step."""
    return Keys(*jax.random.split(key, 3))


def keys_at(key: Key, series_id: Int[Array, ""], time: Int[Array, ""]) -> Keys:
    """The keys of a series's step, hashed in one go: those of `keys_of(step_key(...))`."""
    return Keys(*random.split(random.fold_in(random.fold_in(key, series_id), time), 3))


def all_keys(key: Key, numbers: Int[Array, "steps ..."], times: Int[Array, "steps ..."]) -> Keys:
    """The keys of several steps of one series or of more, the time in front."""
    of_step = partial(keys_at, key)
    of_steps = of_step if times.ndim == 1 else jax.vmap(of_step)
    return map_in_rounds(lambda now: of_steps(*now), (numbers, times))
