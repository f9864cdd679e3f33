"""Gradients that go back as far as a window: long series of models that remember, in bounded memory."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from mcfo.gradients.early import Gradient, contexts_of, repaired, whole, with_contexts, with_encoder
from mcfo.gradients.flow import Guard, frozen
from mcfo.gradients.lanes import Lane
from mcfo.gradients.moves import Data, Run, Sampler, finish, make_source, read_data
from mcfo.gradients.reverse import Reverse, Seen, Strands
from mcfo.series import Series
from mcfo.smc.filter import split_first
from mcfo.types import Key, Scalar


def windowed(
    live: Any,
    constant: Any,
    sampler: Sampler,
    lanes: tuple[Lane, ...],
    batch: Series,
    key: Key,
    *,
    window: int,
) -> tuple[Gradient, Run]:
    """Truncated backpropagation: particles, weights and memories go on from window to window, gradients do not.

    The filter is the same as without windows, to the number. Each window is gone back over when it ends, so that
    memory grows with the window and not with the series.
    """
    length = batch.observations.shape[1]
    count = -(-length // window)
    batch = _lengthened(batch, count * window)
    modules = whole(live, constant)
    data = read_data(modules[1], batch)
    source = make_source(sampler, *modules, batch, data.frames, key)

    def gradient(strands: Strands | None, now: Data, rest: Any) -> tuple[Gradient, tuple[Strands, Any]]:
        given = source.given(rest)

        def surrogate(arguments: Any, guard: Guard) -> tuple[Scalar, Any]:
            live, contexts = arguments
            steps = Reverse(source, lanes, *whole(live, constant), key, guard=guard)
            later = with_contexts(now, contexts)
            if strands is not None:
                after, total, seen = steps.follow(strands, later, given)
                return total, (frozen(after), seen)
            first, others = split_first(later)
            after, begun, first_seen = steps.begin(first)
            after, followed, seen = steps.follow(after, others, given)
            seen = jax.tree.map(lambda one, others: jnp.concatenate([one[None], others]), first_seen, seen)
            return begun + followed, (frozen(after), seen)

        arguments = live, contexts_of(now)
        once, (after, seen) = jax.grad(surrogate, has_aux=True)(arguments, "none")

        def again() -> Gradient:
            return jax.grad(surrogate, has_aux=True)(arguments, "stand-ins")[0]

        return repaired(jnp.any(seen.dead), once, again), (after, seen)

    def body(carry: Any, now: Any) -> tuple[Any, tuple[Any, Seen]]:
        strands, total = carry
        (gradients, contexts), (strands, seen) = gradient(strands, *now)
        return (strands, jax.tree.map(jnp.add, total, gradients)), (contexts, seen)

    head, tail = (jax.tree.map(cut, data) for cut in (lambda array: array[:window], lambda array: array[window:]))
    head_given = jax.tree.map(lambda array: array[: window - 1], source.rest)
    tail_given = jax.tree.map(lambda array: array[window - 1 :], source.rest)
    (gradients, contexts), (strands, seen) = gradient(None, head, head_given)

    def in_windows(array: Array) -> Array:
        return array.reshape(count - 1, window, *array.shape[1:])

    (_, gradients), (later, later_seen) = jax.lax.scan(
        body, (strands, gradients), jax.tree.map(in_windows, (tail, tail_given))
    )

    def joined(one: Array, others: Array) -> Array:
        return jnp.concatenate([one, others.reshape(-1, *one.shape[1:])])

    contexts, seen = jax.tree.map(joined, (contexts, seen), (later, later_seen))
    gradients = with_encoder(gradients, contexts, live, constant, batch)
    first_record, records = split_first(jax.tree.map(lambda array: array[:length], seen.record))
    return gradients, finish(source, first_record, records)


def _lengthened(batch: Series, steps: int) -> Series:
    """The same series with padding up to so many steps."""
    extra = steps - batch.observations.shape[1]
    if not extra:
        return batch

    def lengthen(array: Array) -> Array:
        return jnp.pad(array, ((0, 0), (0, extra), (0, 0)))

    longer = eqx.tree_at(lambda s: s.observations, batch, lengthen(batch.observations))
    for part in ("observed", "inputs"):
        if getattr(batch, part) is not None:
            longer = eqx.tree_at(lambda s, part=part: getattr(s, part), longer, lengthen(getattr(batch, part)))
    if batch.length is None:
        full = jnp.full(len(batch.observations), batch.observations.shape[1], jnp.int32)
        longer = eqx.tree_at(lambda s: s.length, longer, full, is_leaf=lambda leaf: leaf is None)
    return longer
