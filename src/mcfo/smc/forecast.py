"""What comes after the last observation."""

from __future__ import annotations

from collections.abc import Sequence as Listing
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from mcfo.models.base import Model
from mcfo.models.simulation import Path, continued
from mcfo.proposals.base import Proposal
from mcfo.sequences import Sequence
from mcfo.smc.filter import SMC
from mcfo.smc.resampling import systematic_indices
from mcfo.types import Key

_TAG = 0x666F7265
"""Keeps the future's random numbers apart from the filter's."""


class Forecast(eqx.Module):
    """Draws from p(z_T+1:T+h, x_T+1:T+h | x_1:T), one path for each.

    `finite` says whether the filter reached the last observation; without it the draws mean nothing.
    """

    paths: Path
    finite: Bool[Array, "*batch"]

    @property
    def mean(self) -> Float[Array, "*batch steps dimensions"]:
        """E[x_T+s | x_1:T]: the average of E[x | z] where emissions have a mean, of the draws of x elsewhere."""
        values = self.paths.observations if self.paths.means is None else self.paths.means
        return jnp.mean(values, axis=-3)

    def quantiles(self, levels: Listing[float]) -> Float[Array, "levels *batch steps dimensions"]:
        """Of each x_T+s given x_1:T."""
        return jnp.quantile(self.paths.observations.astype(float), jnp.asarray(levels, float), axis=-3)


def forecast(
    model: Model,
    proposal: Proposal,
    sequence: Sequence,
    *,
    steps: int,
    key: Key,
    sampler: SMC | None = None,
    draws: int = 200,
    inputs: Any = None,
) -> Forecast:
    """Filters a sequence and lets the model go on from where it ends.

    **Arguments:**

    - `steps`: how many steps after the last observation.
    - `sampler`: the filter; 1000 particles unless given.
    - `draws`: paths, each from a particle that was drawn from the last weights.
    - `inputs`: (steps, inputs), of the future, for a model that takes them.
    """
    if steps < 1 or draws < 1:
        raise ValueError(f"A forecast needs a step and a draw, one or more of each, but got {steps} and {draws}.")
    if (inputs is None) != (sequence.inputs is None) or (inputs is not None and len(inputs) != steps):
        raise ValueError(
            f"The forecast of {steps} steps needs as many rows of inputs if the sequence has inputs, and none if not."
        )
    inputs = None if inputs is None else jnp.asarray(inputs, float)
    return _forecast(model, proposal, sequence, sampler or SMC(1000), steps, draws, inputs, key)


@eqx.filter_jit
def _forecast(
    model: Model,
    proposal: Proposal,
    sequence: Sequence,
    sampler: SMC,
    steps: int,
    draws: int,
    inputs: Any,
    key: Key,
) -> Forecast:
    trace = sampler(model, proposal, sequence, key=key)
    of_choice, of_paths = jax.random.split(jax.random.fold_in(jax.random.fold_in(key, sequence.number), _TAG))
    chosen = systematic_indices(trace.state.log_weights, draws, key=of_choice)
    memories = jax.tree.map(lambda array: array[chosen], trace.state.memory)
    keys = jax.random.split(of_paths, (draws, steps))
    paths = jax.vmap(lambda memory, keys: continued(model, memory, inputs, keys))(memories, keys)
    return Forecast(paths, jnp.isfinite(trace.log_evidence))
