"""One path z_1:T through a series: its density, and that of what is left of it, given another past."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from mcfo.missing import log_prob, observed_log_prob
from mcfo.models.base import MarkovModel, Model
from mcfo.series import Frame
from mcfo.types import Latent, LogWeights, Memory, Observation, Scalar


class Trajectory(eqx.Module):
    """A path of the latents, time first.

    `observations` is what the path's memories read of x_1:T, where the model imputes something that is missing; a
    latent like the others. Otherwise it is None.
    """

    latents: Shaped[Array, "..."]
    observations: Shaped[Array, "*steps dimensions"] | None

    def complete(self, steps: Frame) -> Frame:
        """The steps with what was imputed, as if it had been observed."""
        if self.observations is None:
            return steps
        return eqx.tree_at(
            lambda frame: (frame.observation, frame.observed),
            steps,
            (self.observations, None),
            is_leaf=lambda leaf: leaf is None,
        )


def path_log_density(model: Model, steps: Frame, path: Trajectory) -> Scalar:
    """log p(z_1:T, x_1:T), of what was observed of x and what was imputed; `steps` are all steps of the series."""
    steps = path.complete(steps)
    first, rest = (
        jax.tree.map(lambda array, part=part: array[part], (path.latents, steps)) for part in (0, slice(1, None))
    )
    start = model.start(first[1].inputs)
    head = _log_density(model, model.initial(start, first[1].inputs), start, *first)

    def advance(memory: Memory, now: Any) -> tuple[Memory, Memory]:
        latent, frame = now
        return _advance(model, memory, latent, frame), memory

    # First the memories alone, then all densities at once: little is sequential.
    memories = path.latents[:-1]
    if not isinstance(model, MarkovModel):
        memories = jax.lax.scan(advance, _advance(model, start, *first), rest)[1]

    def later(memory: Memory, latent: Latent, frame: Frame) -> Scalar:
        return _log_density(model, model.transition(memory, frame.inputs), memory, latent, frame)

    tail = jax.vmap(later)(memories, *rest)
    if steps.present is not None:
        tail = jnp.where(steps.present[1:], tail, 0.0)
    return head + jnp.sum(tail)


def path_score(model: Model, steps: Frame, paths: Trajectory, log_weights: LogWeights) -> Any:
    """Σ_i W_i ∇_θ log p_θ(z_1:T^i, x_1:T) over weighted paths, (steps, particles, ...).

    It has the structure of the model, with None for what is no parameter.
    """

    def average(model: Model) -> Scalar:
        each = jax.vmap(lambda path: path_log_density(model, steps, path), in_axes=1)(paths)
        alive = log_weights > -jnp.inf
        return jnp.sum(jnp.where(alive, jnp.exp(log_weights) * jnp.where(alive, each, 0.0), 0.0))

    return eqx.filter_grad(average)(model)


def log_ahead(
    model: Model, memories: Memory, steps: Frame, path: Trajectory, time: Int[Array, ""], lag: int | None
) -> Float[Array, " particles"]:
    """log p(z_t:t+L, x_t:t+L | h_t-1) along the path, for each of several memories h_t-1; to the end without a lag.

    What a Markov model remembers after the step is the path's, so that one step says all.
    """
    steps = path.complete(steps)

    def at(time: Int[Array, ""]) -> tuple[Latent, Frame]:
        return jax.tree.map(lambda array: array[time], (path.latents, steps))

    def ahead(memory: Memory) -> Scalar:
        def extend(time: Int[Array, ""], carried: tuple[Memory, Scalar]) -> tuple[Memory, Scalar]:
            memory, total = carried
            latent, frame = at(time)
            density = _log_density(model, model.transition(memory, frame.inputs), memory, latent, frame)
            after = _advance(model, memory, latent, frame), total + density
            return frame.unless_padding(after, carried)

        if isinstance(model, MarkovModel):
            latent, frame = at(time)
            return _log_density(model, model.transition(memory, frame.inputs), memory, latent, frame)
        count = len(path.latents)
        end = count if lag is None else jnp.minimum(time + lag, count)
        dtype = jax.eval_shape(lambda: extend(time, (memory, jnp.zeros(())))[1]).dtype
        return jax.lax.fori_loop(time, end, extend, (memory, jnp.zeros((), dtype)))[1]

    return jax.vmap(ahead)(memories)


def _log_density(model: Model, prior: Any, memory: Memory, latent: Latent, frame: Frame) -> Scalar:
    emission = model.emission(memory, latent, frame.inputs)
    return log_prob(prior, latent) + observed_log_prob(emission, frame.observation, frame.observed)


def _advance(model: Model, memory: Memory, latent: Latent, frame: Frame) -> Memory:
    observation: Observation = frame.observation
    return model.advance_with(memory, latent, observation, frame.observed, frame.inputs)
