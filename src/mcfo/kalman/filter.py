"""The exact filter and the exact likelihood of models with a linear form.

Missing values are integrated out, dimension by dimension; padded steps do not exist.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mcfo.kalman.update import Gaussians, Law, condition, predict, select
from mcfo.models.base import LinearForm, Model
from mcfo.series import Frame, Series
from mcfo.types import Inputs, Scalar

_DISTRIBUTIONS = (
    "start",
    "initial",
    "transition",
    "emission",
    "advance",
    "dynamics",
    "transition_mean",
    "emission_mean",
    "emit",
    "observation_transform",
)


class KalmanFilter(eqx.Module):
    """The laws p(z_t | x_1:t-1) and p(z_t | x_1:t), and log p(x_t | x_1:t-1), for t = 1..T.

    `innovations` are the standardized one-step errors of the decorrelated dimensions: independent N(0, 1) if the model
    is right. They are NaN where a value is missing or was needed to find a diffuse start.
    """

    predicted: Gaussians
    filtered: Gaussians
    log_evidences: Float[Array, "*steps"]
    innovations: Float[Array, "*steps dimensions"]

    @property
    def log_evidence(self) -> Float[Array, "*batch"]:
        """log p(x_1:T)."""
        return jnp.sum(self.log_evidences, axis=-1)


def is_linear_gaussian(model: Any) -> bool:
    """Whether the model has a linear form that is still true.

    The class that defines the form must be the last that changed a distribution: a subclass with another emission
    inherits the form, but is not linear any more.
    """
    if not isinstance(model, Model):
        return False
    classes = type(model).__mro__
    definer = next(index for index, one in enumerate(classes) if "linear_form" in vars(one))
    if any(name in vars(one) for one in classes[:definer] for name in _DISTRIBUTIONS):
        return False
    return classes[definer] is not Model


def kalman_filter(model: Model, series: Series) -> KalmanFilter:
    """The exact filter of a model with a linear form. Kalman (1960); Koopman and Durbin (2000)."""
    check(model, series)
    return jitted_filter(model, series)


def log_evidence(model: Model, series: Series) -> Scalar:
    """log p(x_1:T), exactly; its derivative by `jax.grad` is the exact score."""
    check(model, series)
    return _log_evidence(model, series)


def check(model: Any, series: Any) -> None:
    """Refuse a model without a linear form, and what is not one series."""
    if not is_linear_gaussian(model):
        raise TypeError(
            "The Kalman filter is exact for a LinearGaussian model and others with a linear form, but got "
            f"{type(model).__name__}. Use SMC."
        )
    if not isinstance(series, Series) or series.observations.ndim != 2:
        raise TypeError("One Series is wanted: read the values with Series.from_values, and use jax.vmap for a batch.")


@eqx.filter_jit
def jitted_filter(model: Model, series: Series) -> KalmanFilter:
    """`kalman_filter` without its checks."""
    return filter_frames(model, frames_of(model, series))[0]


def filter_frames(model: Model, frames: Frame) -> tuple[KalmanFilter, Law]:
    """The filter of steps that `frames_of` has prepared, and the predicted laws as they were used."""
    form_at = forms(model, frames)

    def step(carry: tuple[Law, Any], frame: Frame):
        law, begun = carry
        form = form_at(frame.inputs)
        predicted = select(begun, predict(law, form), law)
        filtered, updates = condition(predicted, form, frame.observation, frame.observed)
        log_density = jnp.sum(updates.log_density) + frame.context
        innovation = updates.innovation
        if frame.present is not None:
            filtered, predicted = select(frame.present, (filtered, predicted), (law, law))
            log_density = jnp.where(frame.present, log_density, 0.0)
            innovation = jnp.where(frame.present, innovation, jnp.nan)
        result = KalmanFilter(predicted.gaussians(), filtered.gaussians(), log_density, innovation)
        return (filtered, True), (result, predicted)

    # Before the first step the "filtered" law is the initial one, and nothing moves it.
    return jax.lax.scan(step, (initial_law(model, frames), False), frames)[1]


@eqx.filter_jit
def _log_evidence(model: Model, series: Series) -> Scalar:
    return jitted_filter(model, series).log_evidence


def form_of(model: Model, inputs: Inputs) -> LinearForm:
    """The linear form of a step."""
    form = model.linear_form(inputs)
    assert form is not None
    return form


def forms(model: Model, frames: Frame) -> Callable[[Inputs], LinearForm]:
    """The linear form as a function of the inputs; without inputs it is computed once, outside of the loop."""
    if frames.inputs is None:
        form = form_of(model, None)
        return lambda inputs: form
    return lambda inputs: form_of(model, inputs)


def initial_law(model: Model, frames: Frame) -> Law:
    """The law of z_1 before anything is seen."""
    form = model.initial_form(None if frames.inputs is None else frames.inputs[0])
    assert form is not None
    return Law.first(*form)


def frames_of(model: Model, series: Series) -> Frame:
    """The steps of a series, with transformed observations and a full mask; `context` is the log-Jacobian."""
    clean = series.sanitized()
    matrix = jax.eval_shape(lambda: form_of(model, None if clean.inputs is None else clean.inputs[0])).emission_matrix
    if clean.observations.shape[1] != matrix.shape[0]:
        raise ValueError(
            f"The model has {matrix.shape[0]} observed dimensions, but the series has {clean.observations.shape[1]}. "
            "Give them the same number."
        )
    values = clean.observations.astype(matrix.dtype)
    observed = jnp.broadcast_to(True if clean.observed is None else clean.observed, values.shape)
    log_jacobian = jnp.zeros(len(values), values.dtype)
    if model.observation_transform is not None:
        slopes = model.observation_transform.log_jacobian(values)
        log_jacobian = jnp.sum(jnp.where(observed, slopes, 0.0), axis=-1)
        values = model.observation_transform.forward(values)
    clean = eqx.tree_at(lambda s: (s.observations, s.observed), clean, (values, observed), is_leaf=lambda x: x is None)
    return clean.frames(log_jacobian)
