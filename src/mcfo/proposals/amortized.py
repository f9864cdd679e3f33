"""Proposals that read the observation by a network: for models with real latents, and for recurrent ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float

from mcfo.models.deep import checked_traces, first_distribution, initialize_step, step_distribution
from mcfo.models.recurrent import shifted_normal
from mcfo.networks import MLP, rectified, xavier
from mcfo.proposals.base import Proposal
from mcfo.series import Series
from mcfo.types import Context, Distribution, Key, Memory, Numbers


class Amortized(Proposal):
    """q(z_t | z_t-1, x_t) = N(μ(z_t-1, e(x_t)), diag σ²(z_t-1, e(x_t))), and q(z_1 | x_1) by a network of its own.

    The encoder e runs once for all steps, outside the filter. It reads (x - center) / scale, with zero for missing
    values. Where all of x_t is missing, q is the prior, which is then locally optimal. The default sizes are the
    paper's. Chen et al. (2021), section 4.3.
    """

    encoder: MLP
    initial_network: MLP
    step_network: MLP
    center: Float[Array, " dimensions"]
    scale: Float[Array, " dimensions"]
    traces: int = eqx.field(static=True)

    def __init__(
        self,
        dimensions: int,
        latent: int,
        *,
        key: Key,
        encoder: Sequence[int] = (128, 32),
        hidden: Sequence[int] = (32,),
        persistent: bool = True,
        traces: int = 0,
        directions: Numbers | None = None,
        center: Numbers = 0.0,
        scale: Numbers = 1.0,
    ):
        """**Arguments:**

        - `dimensions`, `latent`: the sizes of x_t and of z_t, without traces.
        - `encoder`: the widths of the encoder's layers; the other networks read the last.
        - `hidden`: the widths of the hidden layers of the other two networks.
        - `persistent`: whether μ is initially near z_t-1 plus a function of the features; it needs hidden layers of
          more than twice the latent's size.
        - `traces`: how many latents have a trace, as in [`DeepMarkov`][mcfo.models.DeepMarkov]; for these q is p.
        - `directions`: one row for each of the first latents, whose mean is initially the product of that row with
          (x - center) / scale instead of the previous latent, so that it reads the observation from the first update
          on; principal components, for example. Each takes two units of every layer: if layers are too narrow for all,
          the first ones are used.
        - `center`, `scale`: location and scale of the observations; they are not meant to be learned.
        """
        of_encoder, of_initial, of_step = jax.random.split(key, 3)
        self.encoder = rectified(dimensions, *encoder, key=of_encoder)
        self.traces = checked_traces(traces, latent)
        self.initial_network = rectified(encoder[-1], *hidden, 2 * latent, key=of_initial)
        self.step_network = rectified(latent + self.traces + encoder[-1], *hidden, 2 * latent, key=of_step)
        rows = jnp.zeros((0, dimensions)) if directions is None else jnp.asarray(directions, float)
        if rows.ndim != 2 or len(rows) > latent or rows.shape[1] != dimensions:
            raise ValueError(
                f"directions must be a row of {dimensions} numbers for each of {latent} latents, or for some, but got "
                f"shape {rows.shape}."
            )
        # Two units carry one number; one unit is left for other features.
        room = (min(hidden, default=2 * latent + 1) - 1) // 2
        count = min(len(rows), room, (min(encoder) - 1) // 2)
        if count:
            unchanged = min(latent, room) - count if persistent else 0
            self.encoder = self.encoder.with_rows(rows[:count])
            self.initial_network = initialize_step(self.initial_network, unchanged=0, count=count)
            self.step_network = initialize_step(
                self.step_network, unchanged=unchanged, index=latent + self.traces, count=count
            )
        else:
            unchanged = latent if persistent else 0
            self.step_network = initialize_step(self.step_network, unchanged=unchanged, steady=False)
        self.center, self.scale = (
            jnp.broadcast_to(jnp.asarray(value, float), (dimensions,)) for value in (center, scale)
        )

    def encode(self, series: Series) -> Context:
        return _features(self.encoder, series, (series.observations - self.center) / self.scale)

    def initial(self, prior: Any, context: Context) -> Distribution:
        return prior_unless_seen(first_distribution(self.initial_network(context[0]), self.traces), prior, context)

    def step(self, prior: Any, memory: Memory, context: Context) -> Distribution:
        distribution = step_distribution(self.step_network(jnp.concatenate([memory, context[0]])), memory)
        return prior_unless_seen(distribution, prior, context)


class RecurrentProposal(Proposal):
    """q(z_t | h_t-1, x_t) = N(m + μ(h_t-1, e(x_t)), diag σ²(h_t-1, e(x_t))), m the prior's mean.

    A *residual* proposal is initially near the prior and learns to correct it; otherwise m is zero. The encoder e runs
    once for all steps, outside the filter, and reads zero for missing values. Where all of x_t is missing, q is the
    prior. Chen et al. (2021), section 4.4; Fraccaro et al. (2016).
    """

    encoder: MLP
    network: MLP
    center: Float[Array, " dimensions"]
    residual: bool = eqx.field(static=True)

    def __init__(
        self,
        dimensions: int,
        latent: int,
        hidden: int,
        *,
        key: Key,
        units: int = 64,
        center: Numbers = 0.0,
        residual: bool = True,
    ):
        """**Arguments:**

        - `dimensions`, `latent`, `hidden`: the sizes of x_t, of z_t and of the model's h_t.
        - `units`: the width of the one hidden layer of each network, and of the encoder's output.
        - `center`: subtracted from the observations before the encoder; not meant to be learned.
        """
        of_encoder, of_network, of_weights = jax.random.split(key, 3)
        network = MLP(hidden + units, units, 2 * latent, key=of_network)
        self.encoder, self.network = xavier((MLP(dimensions, units, units, key=of_encoder), network), key=of_weights)
        self.center = jnp.broadcast_to(jnp.asarray(center, float), (dimensions,))
        self.residual = residual

    def encode(self, series: Series) -> Context:
        return _features(self.encoder, series, series.observations - self.center)

    def initial(self, prior: Any, context: Context) -> Distribution:
        hidden = self.network.layers[0].weight.shape[1] - context[0].shape[-1]
        return self._distribution(prior, jnp.zeros(hidden), context)

    def step(self, prior: Any, memory: Memory, context: Context) -> Distribution:
        return self._distribution(prior, memory.output, context)

    def _distribution(self, prior: Any, output: Float[Array, " hidden"], context: Context) -> Distribution:
        around = prior.mean if self.residual else 0.0
        return prior_unless_seen(shifted_normal(self.network(output, context[0]), around), prior, context)


def _features(encoder: MLP, series: Series, values: Float[Array, "steps dimensions"]) -> Context:
    """Return the features of each step, with zero for missing values, and whether anything was observed at it."""
    mask = series.mask()
    features = jax.nn.relu(jax.vmap(encoder)(jnp.where(mask, values, 0.0)))
    return features, None if series.observed is None else jnp.any(mask, axis=-1)


def prior_unless_seen(distribution: Any, prior: Any, context: Context) -> Distribution:
    """Return the distribution, or a Gaussian like the prior where nothing was observed."""
    _, seen = context
    if seen is None:
        return distribution
    mean = jnp.where(seen, distribution.mean, prior.mean)
    return dist.Normal(mean, jnp.where(seen, distribution.base_dist.scale, jnp.sqrt(prior.variance))).to_event(1)
