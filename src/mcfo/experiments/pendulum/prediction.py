"""How well a model predicts the next frame: at the predicted mean latent, as the paper does, and by its mean."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mcfo.inference.evaluation import evaluation_sampler, series_at_once
from mcfo.models.base import Model
from mcfo.proposals.base import Proposal
from mcfo.series import Frame, Series
from mcfo.smc.noise import step_key
from mcfo.smc.resampling import systematic_indices
from mcfo.smc.step_scan import frames, split_first
from mcfo.smc.trace import Record, State
from mcfo.types import Key, Scalar

DRAWS = 100
"""Particles, drawn from the weights, whose pictures are averaged for the predictive mean."""
_TAG = 0x6672616D


class Followed(eqx.Module):
    """A filter's way along one video. Predictions are for frames 2 to T, from those before each.

    - `record`: how every step of the filter went.
    - `at_mean`: the picture at the predicted mean latent, Σ_i v_i E[z_t | z_t-1^i].
    - `mean`: the mean of the pictures at predicted latents, which is the prediction of the model.
    - `filtered`, `predicted`: a few latents of each frame given all frames up to it, and given those before it.
    """

    record: Record
    at_mean: Float[Array, "later pixels"]
    mean: Float[Array, "later pixels"]
    filtered: Float[Array, "frames draws latent"]
    predicted: Float[Array, "later draws latent"]


def follow(
    model: Model, proposal: Proposal, video: Series, *, particles: int, draws: int = DRAWS, key: Key
) -> Followed:
    """Filters a video and predicts each frame from those before it."""
    sampler = evaluation_sampler(particles)
    first, rest = split_first(frames(proposal, video))

    def drawn(state: State, key: Key) -> Array:
        return state.latents[systematic_indices(state.log_weights, draws, key=key)]

    def picture(latent: Array, frame: Frame) -> Array:
        return model.emission(None, latent, frame.inputs).mean  # pyright: ignore[reportAttributeAccessIssue]

    def keys(frame: Frame) -> Any:
        return jax.random.split(jax.random.fold_in(step_key(key, frame), _TAG), 3)

    def body(state: State, frame: Frame):
        of_choice, of_move, of_next = keys(frame)
        means = jax.vmap(lambda memory: model.transition(memory, frame.inputs).mean)(state.memory)  # pyright: ignore[reportAttributeAccessIssue]
        at_mean = picture(jnp.exp(state.log_weights) @ means, frame)
        moved = jax.vmap(lambda latent, key: model.transition(latent, frame.inputs).sample(key))(
            drawn(state, of_choice), jax.random.split(of_move, draws)
        )
        mean = jnp.mean(jax.vmap(lambda latent: picture(latent, frame))(moved), axis=0)
        state, record = sampler.step(model, proposal, state, frame, key=key)
        return state, (record, at_mean, mean, drawn(state, of_next), moved)

    state, first_record = sampler.init(model, proposal, first, key=key)
    first_drawn = drawn(state, keys(first)[2])
    _, (records, at_mean, mean, filtered, predicted) = jax.lax.scan(body, state, rest)
    record, filtered = jax.tree.map(
        lambda one, many: jnp.concatenate([one[None], many]), (first_record, first_drawn), (records, filtered)
    )
    return Followed(record, at_mean, mean, filtered, predicted)


@eqx.filter_jit
def follow_all(model: Model, proposal: Proposal, videos: Series, *, particles: int, key: Key) -> Followed:
    """Each of several videos, one at a time; what is found has one more axis in front."""
    return jax.lax.map(lambda video: follow(model, proposal, video, particles=particles, key=key), videos)


def scores(
    model: Model,
    proposal: Proposal,
    videos: Series,
    gray: Float[Array, "videos frames pixels"],
    *,
    particles: int,
    key: Key,
) -> dict[str, Scalar]:
    """Means over videos: `prediction`, the sum over t = 2..T of ‖picture at the predicted mean latent - gray‖; the same
    of the predictive mean, `prediction_by_mean`; `nll`, of a whole video; and `ess_at_test`, zero where it failed."""

    def one(video_and_gray: Any) -> dict[str, Scalar]:
        video, gray = video_and_gray
        found = follow(model, proposal, video, particles=particles, key=key)
        return {
            "prediction": _distance(found.at_mean, gray[1:]),
            "prediction_by_mean": _distance(found.mean, gray[1:]),
            "nll": -jnp.sum(found.record.log_evidence),
            "ess_at_test": jnp.mean(jnp.where(found.record.finite, found.record.ess, 0.0)),
        }

    found = jax.lax.map(one, (videos, gray), batch_size=series_at_once(videos, particles))
    return jax.tree.map(jnp.mean, found)


def _distance(predicted: Float[Array, "later pixels"], gray: Float[Array, "later pixels"]) -> Scalar:
    return jnp.sum(jnp.sqrt(jnp.sum((predicted - gray) ** 2, axis=-1)))
