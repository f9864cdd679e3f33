"""A Gaussian law of the latent, and what one step and one observed number do to it.

An update takes the observed dimensions one at a time after decorrelating their noise, so that it divides by numbers
only and never factorizes a covariance of the latent: singular noise is allowed.

Where the start is diffuse, P_1 = P + κ B Bᵀ with κ → ∞, the limit is taken exactly (Koopman and Durbin 2000): an
observation that B reaches removes one column of B and counts log F_∞ instead of log F + v² / F. Unlike in the paper,
B is stored instead of B Bᵀ, so that the unknowns that are left are counted, and not found by rounding.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from mcfo.linear_algebra import semidefinite_factor, solve_lower, unit_lower_factor
from mcfo.models.base import LinearForm
from mcfo.types import Key, Scalar

_UNROLLED = 4
"""The largest number of observed dimensions whose updates are unrolled."""


def reach(dtype: Any) -> float:
    """The relative size below which a diffuse entry is zero but for rounding."""
    return float(jnp.finfo(dtype).eps) ** 0.7


class Gaussians(eqx.Module):
    """A Gaussian law for each step.

    With a `diffuse` factor B, the covariance is that plus κ B Bᵀ in the limit κ → ∞.
    """

    mean: Float[Array, "*steps latent"]
    covariance: Float[Array, "*steps latent latent"]
    diffuse: Float[Array, "*steps latent unknowns"] | None = None

    def variance(self) -> Float[Array, "*steps latent"]:
        """The variances of the single dimensions; infinite where the start is not yet known."""
        finite = jnp.diagonal(self.covariance, axis1=-2, axis2=-1)
        if self.diffuse is None:
            return finite
        size = jnp.max(jnp.abs(self.diffuse), axis=(-2, -1), keepdims=True)
        return jnp.where(jnp.any(jnp.abs(self.diffuse) > reach(size.dtype) * size, axis=-1), jnp.inf, finite)

    def sample(self, count: int, *, key: Key) -> Float[Array, "steps count latent"]:
        """Independent draws at each step: of the marginal laws, not of paths."""
        factor = jax.vmap(semidefinite_factor)(self.covariance)
        noise = jax.random.normal(key, (len(self.mean), count, self.mean.shape[-1]), self.mean.dtype)
        return self.mean[:, None] + jnp.einsum("tij,tnj->tni", factor, noise)


class Law(NamedTuple):
    """N(mean, covariance + κ B Bᵀ), where the first `found` columns of B are zero.

    `unreduced` is what B would be if nothing had been seen: the size of its rows tells what in B is mere rounding.
    """

    mean: Float[Array, "*steps latent"]
    covariance: Float[Array, "*steps latent latent"]
    diffuse: Float[Array, "*steps latent unknowns"]
    unreduced: Float[Array, "*steps latent unknowns"]
    found: Int[Array, "*steps"]

    @classmethod
    def first(cls, mean: Array, covariance: Array, diffuse: Array) -> Law:
        """The law before anything is seen."""
        diffuse = diffuse.astype(mean.dtype)
        return cls(mean, covariance, diffuse, diffuse, jnp.zeros((), jnp.int32))

    def gaussians(self) -> Gaussians:
        return Gaussians(self.mean, self.covariance, self.diffuse if self.diffuse.shape[-1] else None)


class Update(NamedTuple):
    """What an observed number y = row · z + noise did, as the smoother needs it.

    Where the start is diffuse, 1 / F = F_0 + F_1 / κ + F_2 / κ² and the gain is K_0 + K_1 / κ.
    """

    row: Float[Array, " latent"]
    error: Scalar
    precisions: tuple[Scalar, Scalar, Scalar]
    gain: Float[Array, " latent"]
    second_gain: Float[Array, " latent"]
    log_density: Scalar
    innovation: Scalar


class _Observed(NamedTuple):
    """An observed number y = row · z + N(0, variance); its offset has been taken off."""

    value: Scalar
    row: Float[Array, " latent"]
    variance: Scalar
    known: Bool[Array, ""]


def select(condition: Any, new: Any, old: Any) -> Any:
    """`jnp.where` for trees."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), new, old)


def predict(law: Law, form: LinearForm) -> Law:
    """The law one step later."""
    matrix = form.transition_matrix
    covariance = matrix @ law.covariance @ matrix.T + form.transition_covariance
    mean = matrix @ law.mean + form.transition_offset
    covariance = (covariance + covariance.T) / 2
    return Law(mean, covariance, matrix @ law.diffuse, matrix @ law.unreduced, law.found)


def condition(law: Law, form: LinearForm, observation: Array, observed: Array) -> tuple[Law, Update]:
    """The law given the observed dimensions, and what each dimension did, in their order."""
    numbers = _decorrelate(form, observation, observed)
    size = len(observation)
    return jax.lax.scan(_update, law, numbers, unroll=size if size <= _UNROLLED else 1)


def _decorrelate(form: LinearForm, observation: Array, observed: Array) -> _Observed:
    """L⁻¹ y for R = L D Lᵀ has independent noise; a missing dimension has no part in it."""
    value, rows = observation - form.emission_offset, form.emission_matrix
    if len(value) == 1:
        return _Observed(value, rows, form.emission_covariance[0], observed)
    both = observed[:, None] & observed[None, :]
    factor, variances = unit_lower_factor(jnp.where(both, form.emission_covariance, jnp.eye(len(value))))
    solved = solve_lower(factor, jnp.column_stack([jnp.where(observed, value, 0.0), rows]))
    return _Observed(solved[:, 0], solved[:, 1:], variances, observed)


def _update(law: Law, number: _Observed) -> tuple[Law, Update]:
    """Condition on one number. Koopman and Durbin (2000), section 5."""
    row, known = number.row, number.known
    error = jnp.where(known, number.value - row @ law.mean, 0.0)
    shared = law.covariance @ row
    variance = row @ shared + number.variance
    # Floored, because a value that is certain in advance must not divide by zero: another one is then impossible.
    positive = jnp.where(known, jnp.maximum(variance, jnp.finfo(variance.dtype).tiny), 1.0)
    zero = jnp.zeros_like(variance)
    update = Update(
        row,
        error,
        (jnp.where(known, 1 / positive, 0.0), zero, zero),
        jnp.where(known, shared / positive, 0.0),
        jnp.zeros_like(shared),
        jnp.where(known, -0.5 * (jnp.log(2 * jnp.pi * positive) + error**2 / positive), 0.0),
        jnp.where(known, error / jnp.sqrt(positive), jnp.nan),
    )
    diffuse, found = law.diffuse, law.found
    if diffuse.shape[1]:
        reached, first, rest = _diffuse_update(law, number, error, shared, variance)
        update = select(reached, first, update)
        diffuse, found = jnp.where(reached, rest, diffuse), found + reached
    # Joseph's form (I - K C) P (I - K C)ᵀ + K R Kᵀ, by updates of rank one; it stays positive definite when rounded.
    gain = update.gain
    half = law.covariance - jnp.outer(gain, shared)
    covariance = half - jnp.outer(half @ row, gain) + number.variance * jnp.outer(gain, gain)
    mean, covariance = law.mean + gain * error, (covariance + covariance.T) / 2
    return Law(mean, covariance, diffuse, law.unreduced, found), update


def _diffuse_update(
    law: Law, number: _Observed, error: Scalar, shared: Array, variance: Scalar
) -> tuple[Bool[Array, ""], Update, Float[Array, "latent unknowns"]]:
    """Whether B reaches the number, the update in that case, and the columns of B that are then left."""
    seen = law.diffuse.T @ number.row
    # Compared with the terms of the sum, as large as they were: the unit of the data decides nothing.
    size = jnp.abs(number.row) @ jnp.sum(jnp.abs(law.unreduced), axis=1)
    reached = number.known & (jnp.sum(seen**2) > (reach(seen.dtype) * size) ** 2)
    seen = jnp.where(reached, seen, 1.0)
    variance_diffuse = jnp.sum(seen**2)
    gain = law.diffuse @ seen / variance_diffuse
    precision, second = 1 / variance_diffuse, -variance / variance_diffuse**2
    log_density = -0.5 * jnp.log(2 * jnp.pi * variance_diffuse)
    zero = jnp.zeros_like(precision)
    second_gain = (shared - gain * variance) / variance_diffuse
    update = Update(
        number.row, error, (zero, precision, second), gain, second_gain, log_density, jnp.full_like(zero, jnp.nan)
    )
    # A reflection turns the direction that was seen into the first column that is left, which is then dropped.
    first = jnp.arange(len(seen)) == law.found
    along = jnp.sum(jnp.where(first, seen, 0.0))
    mirror = seen + first * jnp.where(along < 0, -1.0, 1.0) * jnp.sqrt(variance_diffuse)
    turned = law.diffuse - jnp.outer(law.diffuse @ mirror, 2 * mirror / jnp.sum(mirror**2))
    return reached, update, jnp.where(first, 0.0, turned)
