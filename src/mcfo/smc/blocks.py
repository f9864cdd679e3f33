"""Scans that prepare what several steps need at once, such as their random numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

_AT_ONCE = 2**20
"""Numbers that are prepared together: a few megabytes."""


def scan_in_blocks(
    body: Callable[[Any, Any], tuple[Any, Any]], carry: Any, steps: Any, prepare: Callable[[Any], Any], *, size: int
) -> tuple[Any, Any]:
    """`jax.lax.scan` of `body(carry, prepare(step))`, with `prepare` applied to as many steps at once as have room.

    Memory does not grow with the number of steps.

    **Arguments:**

    - `prepare`: must not depend on the carry.
    - `size`: how many numbers it makes for one step.
    """
    count = len(jax.tree.leaves(steps)[0])
    block = min(count, _AT_ONCE // max(1, size))
    if block <= 1:
        return jax.lax.scan(lambda carry, step: body(carry, prepare(step)), carry, steps)

    def of_block(carry: Any, steps: Any) -> tuple[Any, Any]:
        return jax.lax.scan(body, carry, jax.vmap(prepare)(steps))

    # Blocks that leave no rest, if they are not much smaller: the rest would compile the body a second time.
    divisor = max(part for part in range(1, block + 1) if count % part == 0)
    block = divisor if 2 * divisor > block else block
    whole = count - count % block
    table = jax.tree.map(lambda array: array[:whole].reshape(-1, block, *array.shape[1:]), steps)
    carry, found = jax.lax.scan(of_block, carry, table)
    found = jax.tree.map(lambda array: array.reshape(whole, *array.shape[2:]), found)
    if whole == count:
        return carry, found
    carry, rest = of_block(carry, jax.tree.map(lambda array: array[whole:], steps))
    return carry, jax.tree.map(lambda some, more: jnp.concatenate([some, more]), found, rest)
