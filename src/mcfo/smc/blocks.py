"""Scans that prepare what several steps need at once, such as their random numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

_AT_ONCE = 2**20
"""Numbers that are prepared together: a few megabytes."""
_ROUNDS = range(2, 9)
"""Rounds that are tried, the fewest first. One would be no loop."""


def map_in_rounds(function: Callable[[Any], Any], steps: Any) -> Any:
    """`jax.vmap(function)(steps)`, made in a loop of a few rounds.

    What a loop makes, the compiler makes once. Otherwise it would fuse it with whatever uses it: hashes would be
    computed again for each use, and with the keys of hashes the hashes that made them.
    """
    count = len(jax.tree.leaves(steps)[0])
    rounds = next((rounds for rounds in _ROUNDS if count % rounds == 0), None)
    if rounds is None:  # the last step twice, once in vain
        places = jnp.minimum(jnp.arange(-(-count // 2) * 2), count - 1)
        found = map_in_rounds(function, jax.tree.map(lambda array: array[places], steps))
        return jax.tree.map(lambda array: array[:count], found)
    parts = jax.tree.map(lambda array: array.reshape(rounds, count // rounds, *array.shape[1:]), steps)
    found = jax.lax.map(jax.vmap(function), parts)
    return jax.tree.map(lambda array: array.reshape(count, *array.shape[2:]), found)


def scan_in_blocks(
    body: Callable[[Any, Any], tuple[Any, Any]], carry: Any, steps: Any, prepare: Callable[[Any], Any], *, size: int
) -> tuple[Any, Any]:
    """`jax.lax.scan` of `body` over `prepare(steps)`, which is applied to as many steps at once as have room.

    Memory does not grow with the number of steps.

    **Arguments:**

    - `prepare`: must not depend on the carry.
    - `size`: how many numbers it makes for one step.
    """

    def of_block(carry: Any, steps: Any) -> tuple[Any, Any]:
        return jax.lax.scan(body, carry, prepare(steps))

    return scan_over_blocks(of_block, carry, steps, most=_AT_ONCE // max(1, size))


def scan_over_blocks(
    of_block: Callable[[Any, Any], tuple[Any, Any]], carry: Any, steps: Any, *, most: int, least: int = 2
) -> tuple[Any, Any]:
    """`of_block(carry, some steps)` for one block of them after the other.

    Returns the last carry and the outputs of all steps, as `jax.lax.scan` does. A block has at most so many steps, but
    two rather than one, unless `least` says otherwise.
    """
    count = len(jax.tree.leaves(steps)[0])
    if count == 0:
        return of_block(carry, steps)
    block = min(count, max(least, most))
    # Blocks that leave no rest, if they are not much smaller: the rest would compile the body a second time.
    divisor = max(part for part in range(1, block + 1) if count % part == 0)
    block = divisor if divisor >= least and 2 * divisor >= block else block
    whole = count - count % block
    table = jax.tree.map(lambda array: array[:whole].reshape(-1, block, *array.shape[1:]), steps)
    carry, found = jax.lax.scan(of_block, carry, table)
    found = jax.tree.map(lambda array: array.reshape(whole, *array.shape[2:]), found)
    if whole == count:
        return carry, found
    carry, rest = of_block(carry, jax.tree.map(lambda array: array[whole:], steps))
    return carry, jax.tree.map(lambda some, more: jnp.concatenate([some, more]), found, rest)
