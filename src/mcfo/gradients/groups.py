"""Gradients that cross time, of few series at once: what is kept of their steps stays in the caches."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from mcfo.gradients.early import Gradient, repaired, whole
from mcfo.gradients.flow import Guard
from mcfo.gradients.lanes import Lane
from mcfo.gradients.moves import Run, Sampler
from mcfo.gradients.reverse import in_reverse
from mcfo.series import Series
from mcfo.smc.blocks import scan_over_blocks
from mcfo.smc.checks import check_fit
from mcfo.smc.frames import frame_at, frames
from mcfo.types import Key, Scalar

_AT_ONCE = 2**17
"""Latent numbers, of all particles and steps, that go back together. About 65 bytes are kept for each of them."""


def grouped(
    live: Any,
    constant: Any,
    sampler: Sampler,
    lanes: tuple[Lane, ...],
    batch: Series,
    key: Key,
    *,
    frugal: bool = False,
) -> tuple[Gradient, Run]:
    """Reverse mode through the scan, of one group of series after the other, for rules of a step.

    Memory does not grow with the batch. With few parameters next to nothing is computed for each number that is kept,
    so that to write and read them again takes the time: 100 series of 50 steps with 1000 particles went back in 30 ns
    for each particle and step, in 6.5 MB, where the whole batch at once took 101 ns and 323 MB. In groups of 400 000
    particles and steps it was 68 ns.
    """

    def of_group(total: Gradient, group: Series) -> tuple[Gradient, Run]:
        def surrogate(live: Any, guard: Guard) -> tuple[Scalar, Any]:
            modules = whole(live, constant)
            term, *seen = in_reverse(sampler, lanes, *modules, group, key, frugal=frugal, guard=guard)
            return term, seen

        once, (run, dead) = jax.grad(surrogate, has_aux=True)(live, "none")
        gradients = repaired(dead, once, lambda: jax.grad(surrogate, has_aux=True)(live, "stand-ins")[0])
        return jax.tree.map(jnp.add, total, gradients), run

    zero = jax.tree.map(jnp.zeros_like, live)
    most = _AT_ONCE // _latent_numbers(sampler, live, constant, batch)
    return scan_over_blocks(of_group, zero, batch, most=most, least=1)


def _latent_numbers(sampler: Sampler, live: Any, constant: Any, batch: Series) -> int:
    """Of all particles of one series at all of its steps."""
    model, proposal = whole(live, constant)
    one = jax.tree.map(lambda array: array[0], batch)
    noise = check_fit(model, proposal, frame_at(frames(proposal, one), 0)).step
    return len(one.observations) * sampler.particles * (1 if noise is None else math.prod(noise.shape))
