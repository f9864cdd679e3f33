"""The last steps of a stream, for rules that judge a step by the observations after it."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Shaped

from mcfo.series import Series
from mcfo.smc.step import inherit
from mcfo.smc.trace import StepDraw
from mcfo.types import Ancestors, LogWeights, Memory


class StepRow(eqx.Module):
    """What a stored step needs to be computed again: its row of the data, and what its particles were.

    - `row`: the observation as a series of one step.
    - `memory`: the memories at the start of the step, after resampling; zeros at the first step, which has none.
    - `imputation`: the keys of what was missing, as numbers; None where nothing is imputed.
    - `observed`: whether anything of the row was observed.
    """

    row: Series
    memory: Memory
    latents: Shaped[Array, "..."]
    imputation: Shaped[Array, "..."] | None
    observed: Bool[Array, "*slots"]

    @classmethod
    def of(cls, row: Series, draw: StepDraw, like: Memory, observed: Array) -> StepRow:
        """Return what is stored of a step; `like` has the shapes of the memories."""
        memory = jax.tree.map(jnp.zeros_like, like) if draw.memory is None else draw.memory
        keys = None if draw.imputation is None else jax.random.key_data(draw.imputation)
        return cls(row, memory, draw.latents, keys, observed)


class RecentSteps(eqx.Module):
    """The last `lag` steps and the present one in a ring: step t is in slot t mod (lag + 1).

    `origins` has, for each slot, the index that the ancestor of every present particle had at that step. It follows the
    resampling, so that neither gradients nor whole paths need to be carried by the particles.
    """

    steps: StepRow
    origins: Int[Array, "slots particles"]

    @classmethod
    def empty(cls, lag: int, step: StepRow, particles: int) -> RecentSteps:
        """Return a ring without any step; `step` has the shapes."""

        def slots(leaf: Any) -> Array:
            return jnp.zeros((lag + 1, *leaf.shape), leaf.dtype)

        return cls(jax.tree.map(slots, step), jnp.zeros((lag + 1, particles), jnp.int32))

    @property
    def any_observed(self) -> Bool[Array, ""]:
        """Whether there is an observation in any of the steps."""
        return jnp.any(self.steps.observed)

    def push(self, time: Int[Array, ""], step: StepRow, ancestors: Ancestors) -> RecentSteps:
        """Return the ring with one more step in place of the oldest."""
        slot = time % len(self.origins)
        steps = jax.tree.map(lambda ring, new: ring.at[slot].set(new), self.steps, step)
        # Ancestors ascend, and so do ancestors of ancestors.
        origins = self.origins.at[:, ancestors].get(mode="promise_in_bounds", indices_are_sorted=True)
        return RecentSteps(steps, origins.at[slot].set(jnp.arange(len(ancestors), dtype=origins.dtype)))

    def ancestral(self, time: Int[Array, ""], log_weights: LogWeights) -> tuple[Series, StepDraw]:
        """Return the row of step `time`, and the ancestors of the present particles there, with today's weights."""
        slot = time % len(self.origins)
        stored: StepRow = jax.tree.map(lambda ring: ring[slot], self.steps)
        particles = stored.memory, stored.latents, stored.imputation
        memory, latents, keys = inherit(particles, self.origins[slot])
        draw = StepDraw(
            ancestors=jnp.arange(len(log_weights), dtype=jnp.int32),
            resampled=jnp.zeros((), bool),
            memory=memory,
            carried=log_weights,
            # Rules with a lag take latents as data: they never read the noise, whose place must be filled.
            noise=latents,
            latents=latents,
            log_weights=log_weights,
            imputation=None if keys is None else jax.random.wrap_key_data(keys),
        )
        return stored.row, draw
