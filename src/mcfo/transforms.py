"""Monotone maps from the data's unit to the one in which a model is linear and Gaussian."""

from __future__ import annotations

import abc

import equinox as eqx
from jaxtyping import Array, Float


class Transform(eqx.Module):
    """An increasing function y = g(x) of one number, applied to each entry of an array."""

    @abc.abstractmethod
    def forward(self, values: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return g(x)."""

    @abc.abstractmethod
    def inverse(self, values: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return the x with g(x) = y."""

    @abc.abstractmethod
    def log_jacobian(self, values: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return log g'(x), which turns a density of y into one of x."""
