"""Exact likelihoods: which models have one, and its value."""

from __future__ import annotations

from typing import Any

from mcfo import forward_algorithm, kalman
from mcfo.series import Series
from mcfo.types import Scalar


def is_exact(model: Any) -> bool:
    """Whether the likelihood of the model is known exactly."""
    return kalman.is_linear_gaussian(model) or forward_algorithm.is_finite(model)


def log_evidence(model: Any, series: Series) -> Scalar:
    """log p(x_1:T), exactly and in the data's unit; its derivative by `jax.grad` is the exact score."""
    if not is_exact(model):
        raise TypeError(f"The likelihood of a {type(model).__name__} has no exact form. Estimate it with SMC.")
    if forward_algorithm.is_finite(model):
        return forward_algorithm.log_evidence(model, series)
    return kalman.log_evidence(model, series)
