"""The exact smoother of models with a linear form, also from a diffuse start."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mcfo.kalman.filter import check, filter_frames, forms, frames_of
from mcfo.kalman.update import Gaussians, Law, Update, condition, select
from mcfo.models.base import Model
from mcfo.series import Frame, Series


class _Backward(eqx.Module):
    """What the future says about a state: its mean moves by P r_0 + P_∞ r_1, and its covariance falls by
    P N_0 P + P_∞ N_1 P + P N_1ᵀ P_∞ + P_∞ N_2 P_∞."""

    r0: Float[Array, " latent"]
    r1: Float[Array, " latent"]
    n0: Float[Array, "latent latent"]
    n1: Float[Array, "latent latent"]
    n2: Float[Array, "latent latent"]


def kalman_smoother(model: Model, series: Series) -> Gaussians:
    """The exact smoother, p(z_t | x_1:T) for t = 1..T. Koopman and Durbin (2003), one dimension at a time.

    It inverts no covariance, so that singular noise of the state is allowed.
    """
    check(model, series)
    return jitted_smoother(model, series)


@eqx.filter_jit
def jitted_smoother(model: Model, series: Series) -> Gaussians:
    """`kalman_smoother` without its checks."""
    return smooth_frames(model, frames_of(model, series))


def smooth_frames(model: Model, frames: Frame) -> Gaussians:
    """The smoother of steps that `frames_of` has prepared."""
    forward, predicted = filter_frames(model, frames)
    form_at = forms(model, frames)

    def step(later: _Backward, laws: Any) -> tuple[_Backward, Gaussians]:
        frame, law, filtered = laws
        form = form_at(frame.inputs)
        _, updates = condition(law, form, frame.observation, frame.observed)
        now, _ = jax.lax.scan(_before_update, later, updates, reverse=True, unroll=min(len(frame.observation), 4))
        smoothed = _smooth(law, now)
        earlier = _before_transition(now, form.transition_matrix)
        if frame.present is not None:
            smoothed = select(frame.present, smoothed, Gaussians(filtered.mean, filtered.covariance))
            earlier = select(frame.present, earlier, later)
        return earlier, smoothed

    mean, covariance = jnp.zeros_like(predicted.mean[0]), jnp.zeros_like(predicted.covariance[0])
    end = _Backward(mean, mean, covariance, covariance, covariance)
    return jax.lax.scan(step, end, (frames, predicted, forward.filtered), reverse=True)[1]


def _smooth(law: Law, future: _Backward) -> Gaussians:
    covariance, unknown = law.covariance, law.diffuse @ law.diffuse.T
    cross = unknown @ future.n1 @ covariance
    known = covariance @ future.n0 @ covariance + cross + cross.T + unknown @ future.n2 @ unknown
    smoothed = covariance - known
    return Gaussians(law.mean + covariance @ future.r0 + unknown @ future.r1, (smoothed + smoothed.T) / 2)


def _before_update(later: _Backward, update: Update) -> tuple[_Backward, None]:
    """Go back over one observed number, with L_0 = I - K_0 C and L_1 = -K_1 C."""
    row = update.row
    seen = jnp.outer(row, row)
    first = jnp.eye(len(row), dtype=row.dtype) - jnp.outer(update.gain, row)
    second = -jnp.outer(update.second_gain, row)
    f0, f1, f2 = update.precisions
    mixed = first.T @ later.n1 @ second
    return _Backward(
        r0=row * f0 * update.error + first.T @ later.r0,
        r1=row * f1 * update.error + first.T @ later.r1 + second.T @ later.r0,
        n0=seen * f0 + first.T @ later.n0 @ first,
        n1=seen * f1 + first.T @ later.n1 @ first + second.T @ later.n0 @ first,
        n2=seen * f2 + first.T @ later.n2 @ first + mixed + mixed.T + second.T @ later.n0 @ second,
    ), None


def _before_transition(later: _Backward, matrix: Array) -> _Backward:
    return _Backward(
        matrix.T @ later.r0,
        matrix.T @ later.r1,
        matrix.T @ later.n0 @ matrix,
        matrix.T @ later.n1 @ matrix,
        matrix.T @ later.n2 @ matrix,
    )
