"""What the samplers ask of a distribution beyond `sample` and `log_prob`: noise drawn at once, and partial views."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float, Shaped, UInt

from mcfo import random
from mcfo.linear_algebra import cholesky, gaussian_log_density, solve_positive_definite
from mcfo.types import Distribution, Key, Observation, Scalar


class NoiseShape(NamedTuple):
    """Shape and type of the standard normal noise from which a Gaussian draw is made."""

    shape: tuple[int, ...]
    dtype: Any


def noise_shape(distribution: Distribution) -> NoiseShape | None:
    """The noise that `from_noise` wants for this distribution; None if it wants a key of its own."""
    base: Any = _base(distribution)
    if base is None:
        return None
    dtype = jnp.result_type(base.loc, base.scale if type(base) is dist.Normal else base.scale_tril)
    event_shape = distribution.event_shape  # pyright: ignore[reportAttributeAccessIssue]
    return NoiseShape(event_shape, dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.result_type(float))


def draw_noise(noise: NoiseShape | None, particles: int, *, key: Key) -> Shaped[Array, "particles ..."]:
    """Noise for all particles: one draw where the distribution is Gaussian, otherwise a key for each particle.

    A key for each particle costs a hash for each before the first number is drawn.
    """
    if noise is None:
        return jax.random.split(key, particles)
    return random.normal(key, (particles, *noise.shape), noise.dtype)


def draw_words(noise: NoiseShape | None, particles: int, *, key: Key) -> Shaped[Array, "particles ..."]:
    """The random bits of `draw_noise`: to be drawn for several steps in a loop that does nothing else, which is faster,
    and made numbers of by `noise_from_words` after it."""
    if noise is None:
        return random.split(key, particles)
    return random.normal_words(key, (particles, *noise.shape), noise.dtype)


def noise_from_words(noise: NoiseShape, words: UInt[Array, "..."]) -> Float[Array, "..."]:
    """What `draw_noise` draws, as many as there are words."""
    return random.normal_from_words(words, noise.dtype)


def from_noise(distribution: Distribution, noise: Shaped[Array, "..."]) -> Array:
    """One draw, g(noise): differentiable in the parameters of a Gaussian."""
    base = _base(distribution)
    if base is None:
        return distribution.sample(noise)
    if type(base) is dist.Normal:
        return base.loc + base.scale * noise  # pyright: ignore[reportOperatorIssue, reportReturnType]
    return base.loc + base.scale_tril @ noise


def is_reparameterized(distribution: Any) -> bool:
    """Whether draws are differentiable functions of the parameters: `has_rsample`, as in numpyro and PyTorch."""
    return _base(distribution) is not None or bool(getattr(distribution, "has_rsample", False))


def log_prob(distribution: Distribution, value: Array) -> Scalar:
    """`distribution.log_prob(value)`, but without LAPACK where the distribution is a MultivariateNormal.

    numpyro's density of that one calls LAPACK for all particles at once, which can stop a run for ever: see
    `mcfo.linear_algebra`.
    """
    if type(distribution) is dist.MultivariateNormal:
        normal: Any = distribution
        return gaussian_log_density(value - normal.loc, normal.scale_tril)
    return distribution.log_prob(value)


def observed_log_prob(
    distribution: Distribution, value: Observation, observed: Bool[Array, " #dimensions"] | None
) -> Scalar:
    """log p of the observed dimensions of a value, the others integrated out.

    The value must be one that the distribution accepts in the masked places too (`Series.sanitized`).
    """
    if observed is None:
        return log_prob(distribution, value)
    if observed.shape != value.shape:
        return jnp.where(observed[0], log_prob(distribution, value), 0.0)
    if isinstance(distribution, dist.Independent) and distribution.reinterpreted_batch_ndims == 1:
        return jnp.sum(jnp.where(observed, distribution.base_dist.log_prob(value), 0.0))
    if isinstance(distribution, dist.MultivariateNormal):
        return _marginal_normal_log_prob(distribution, value, observed)
    if value.shape == (1,):
        return jnp.where(observed[0], distribution.log_prob(value), 0.0)
    raise ValueError(
        f"Some dimensions of some observations are missing, and {type(distribution).__name__} cannot leave them out. "
        "Return an emission that factorizes, `Distribution(...).to_event(1)`, or a MultivariateNormal; or mask whole "
        "steps."
    )


def impute(distribution: Any, value: Observation, observed: Bool[Array, " #dimensions"], *, key: Key) -> Array:
    """The value with its missing dimensions drawn from their law given the observed ones."""
    return fill(distribution, distribution.sample(key), value, observed)


def fill(distribution: Any, drawn: Array, value: Observation, observed: Bool[Array, " #dimensions"]) -> Array:
    """The value with its missing dimensions taken from a draw of everything, or from the mean, that is corrected for
    what is known: a draw from their law given the observed ones, or its mean."""
    if observed.shape == value.shape and isinstance(distribution, dist.MultivariateNormal):
        # Kriging: corrected by how far it missed what is known.
        covariance = _covariance(distribution)
        both = observed[:, None] & observed[None, :]
        factor = cholesky(jnp.where(both, covariance, jnp.eye(len(value))))
        missed = jnp.where(observed, value - drawn, 0.0)
        drawn = drawn + covariance @ solve_positive_definite(factor, missed)
    return jnp.where(observed, value, drawn)


def _covariance(normal: Any) -> Array:
    return normal.scale_tril @ normal.scale_tril.T


def _base(distribution: Any) -> Any:
    """The Gaussian whose standard noise makes a draw of the distribution; None if there is none."""
    if type(distribution) is dist.Independent:
        return distribution.base_dist if type(distribution.base_dist) is dist.Normal else None
    return distribution if type(distribution) in (dist.Normal, dist.MultivariateNormal) else None


def _marginal_normal_log_prob(normal: Any, value: Observation, observed: Bool[Array, " dimensions"]) -> Scalar:
    # A missing dimension becomes an independent standard normal at its mean, whose log 2π / 2 is taken off again.
    covariance = _covariance(normal)
    both = observed[:, None] & observed[None, :]
    factor = cholesky(jnp.where(both, covariance, jnp.eye(len(value))))
    residual = jnp.where(observed, value - normal.loc, 0.0)
    return gaussian_log_density(residual, factor) + 0.5 * jnp.log(2 * jnp.pi) * jnp.sum(~observed)
