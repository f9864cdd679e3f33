"""What is seen of a signal: numbers with heavy tails, counts, shares of trials."""

from __future__ import annotations

import abc
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Float

from mcfo.errors import InputError
from mcfo.models.components import read_scale
from mcfo.transforms import Transform, Transformed
from mcfo.types import Distribution, Inputs, Numbers, Scalar, is_known


class Emission(eqx.Module):
    """The distribution of x_t given the signal."""

    @abc.abstractmethod
    def distribution(self, signal: Float[Array, " one"], inputs: Inputs) -> Distribution:
        """Return p(x_t | signal), with event shape (1,)."""


class StudentEmission(Emission):
    """g(x) = signal + σ T_ν, where T_ν has Student's t distribution with ν > 2 degrees of freedom."""

    log_scale: Scalar
    log_excess_degrees: Scalar
    transform: Transform | None
    readable: ClassVar = ("scale", "degrees", "transform")

    def __init__(self, *, scale: Numbers = 1.0, degrees: Numbers = 5.0, transform: Transform | None = None):
        if is_known(degrees) and not float(degrees) > 2:  # pyright: ignore[reportArgumentType]
            raise InputError(f"degrees must be greater than 2, where the variance is finite, but got {degrees}.")
        log_scale = read_scale(scale, "scale")
        assert log_scale is not None
        self.log_scale = log_scale
        self.log_excess_degrees = jnp.log(jnp.asarray(degrees, float) - 2)
        self.transform = transform

    @property
    def scale(self) -> Scalar:
        return jnp.exp(self.log_scale)

    @property
    def degrees(self) -> Scalar:
        return 2 + jnp.exp(self.log_excess_degrees)

    def distribution(self, signal: Float[Array, " one"], inputs: Inputs) -> Distribution:
        return in_unit(dist.StudentT(self.degrees, signal, self.scale), self.transform)


class PoissonEmission(Emission):
    """x ~ Poisson(exp(signal))."""

    def distribution(self, signal: Float[Array, " one"], inputs: Inputs) -> Distribution:
        return dist.Poisson(jnp.exp(signal)).to_event(1)


class NegativeBinomialEmission(Emission):
    """Counts with mean m = exp(signal) and variance m + m² / r."""

    log_concentration: Scalar
    readable: ClassVar = ("concentration",)

    def __init__(self, *, concentration: Numbers = 10.0):
        log_concentration = read_scale(concentration, "concentration")
        assert log_concentration is not None
        self.log_concentration = log_concentration

    @property
    def concentration(self) -> Scalar:
        return jnp.exp(self.log_concentration)

    def distribution(self, signal: Float[Array, " one"], inputs: Inputs) -> Distribution:
        return dist.NegativeBinomial2(jnp.exp(signal), self.concentration).to_event(1)


class BinomialEmission(Emission):
    """x ~ Binomial(n_t, sigmoid(signal)); without `trials`, n_t is the last input."""

    trials: int | None = eqx.field(static=True)

    def distribution(self, signal: Float[Array, " one"], inputs: Inputs) -> Distribution:
        trials = self.trials
        if trials is None:
            if inputs is None:
                raise ValueError(
                    "A binomial emission reads the number of trials from the last input, but the series has none. "
                    "Give inputs, or trials=N."
                )
            trials = inputs[-1]
        return dist.Binomial(trials, logits=signal).to_event(1)


def in_unit(distribution: dist.Distribution, transform: Transform | None) -> Distribution:
    """The distribution in the data's unit, of an event of one number."""
    return (distribution if transform is None else Transformed(distribution, transform)).to_event(1)
