"""What the samplers ask of a distribution beyond `sample` and `log_prob`: noise drawn at once, and partial views."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Shaped

from mcfo.types import Distribution, Key, Observation, Scalar


class NoiseShape(NamedTuple):
    """Shape and type of the standard normal noise from which a Gaussian draw is made."""

    shape: tuple[int, ...]
    dtype: Any


def noise_shape(distribution: Distribution) -> NoiseShape | None:
    """The noise that `from_noise` wants for this distribution; None if it wants a key of its own."""
    base = _base(distribution)
    if isinstance(base, dist.Normal | dist.MultivariateNormal):
        event_shape = distribution.event_shape  # pyright: ignore[reportAttributeAccessIssue]
        return NoiseShape(event_shape, jnp.result_type(base.loc))
    return None


def draw_noise(noise: NoiseShape | None, particles: int, *, key: Key) -> Shaped[Array, "particles ..."]:
    """Noise for all particles: one draw where the distribution is Gaussian, otherwise a key for each particle.

    One draw for a whole step costs half of what a key for each particle does.
    """
    if noise is None:
        return jax.random.split(key, particles)
    return jax.random.normal(key, (particles, *noise.shape), noise.dtype)


def from_noise(distribution: Distribution, noise: Shaped[Array, "..."]) -> Array:
    """One draw, g(noise): differentiable in the parameters of a Gaussian."""
    base = _base(distribution)
    if isinstance(base, dist.Normal):
        return base.loc + base.scale * noise
    if isinstance(base, dist.MultivariateNormal):
        return base.loc + base.scale_tril @ noise
    return distribution.sample(noise)


def observed_log_prob(
    distribution: Distribution, value: Observation, observed: Bool[Array, " #dimensions"] | None
) -> Scalar:
    """log p of the observed dimensions of a value, the others integrated out.

    The value must be one that the distribution accepts in the masked places too (`Sequence.sanitised`).
    """
    if observed is None:
        return distribution.log_prob(value)
    if observed.shape != value.shape:
        return jnp.where(observed[0], distribution.log_prob(value), 0.0)
    if isinstance(distribution, dist.Independent) and distribution.reinterpreted_batch_ndims == 1:
        return jnp.sum(jnp.where(observed, distribution.base_dist.log_prob(value), 0.0))
    if isinstance(distribution, dist.MultivariateNormal):
        return _marginal_normal_log_prob(distribution, value, observed)
    if value.shape == (1,):
        return jnp.where(observed[0], distribution.log_prob(value), 0.0)
    raise ValueError(
        f"Some dimensions of some observations are missing, and {type(distribution).__name__} cannot leave them out. "
        "Return an emission that factorises, `Distribution(...).to_event(1)`, or a MultivariateNormal; or mask whole "
        "steps."
    )


def _base(distribution: Any) -> Any:
    return distribution.base_dist if isinstance(distribution, dist.Independent) else distribution


def _marginal_normal_log_prob(normal: Any, value: Observation, observed: Bool[Array, " dimensions"]) -> Scalar:
    # A missing dimension becomes an independent standard normal at its mean: it adds log 2π / 2, taken off again.
    covariance = normal.scale_tril @ normal.scale_tril.T
    both = observed[:, None] & observed[None, :]
    factor = jnp.linalg.cholesky(jnp.where(both, covariance, jnp.eye(len(value))))
    residual = jnp.where(observed, value - normal.loc, 0.0)
    whitened = jax.scipy.linalg.solve_triangular(factor, residual, lower=True)
    log_normaliser = jnp.sum(jnp.log(jnp.diag(factor))) + 0.5 * jnp.log(2 * jnp.pi) * jnp.sum(observed)
    return -0.5 * jnp.sum(whitened**2) - log_normaliser
