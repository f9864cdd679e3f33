"""The exact smoothing law of a linear Gaussian series as one Gaussian of all latents, by dense linear algebra."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mcfo.smc.trajectory import Trajectory


def joint_law(model, series):
    """Mean and covariance of z_1:T, of a scalar model, given what was observed."""
    form, first = model.linear_form(None), model.initial_form(None)
    a, q = float(form.transition_matrix[0, 0]), float(form.transition_covariance[0, 0])
    c, r = float(form.emission_matrix[0, 0]), float(form.emission_covariance[0, 0])
    values = series.values()[:, 0]
    steps = len(values)
    # z = a z_before + e: the precision is Lᵀ D⁻¹ L, and each observation adds its own.
    difference = np.eye(steps) - a * np.eye(steps, k=-1)
    noise = np.diag([float(first.covariance[0, 0]), *[q] * (steps - 1)])
    seen = ~np.isnan(values)
    precision = difference.T @ np.linalg.inv(noise) @ difference + np.diag(np.where(seen, c**2 / r, 0.0))
    source = np.array([float(first.mean[0]), *[float(form.transition_offset[0])] * (steps - 1)])
    shift = float(form.emission_offset[0])
    pull = difference.T @ np.linalg.inv(noise) @ source + np.where(seen, c * (np.nan_to_num(values) - shift) / r, 0.0)
    covariance = np.linalg.inv(precision)
    return covariance @ pull, covariance


def moments(latents, mean):
    """Deviations, their squares and the products of neighbors, along paths of a scalar latent: (..., 3 T - 1)."""
    centered = latents[..., 0] - mean
    return jnp.concatenate([centered, centered**2, centered[..., 1:] * centered[..., :-1]], axis=-1)


def exact_moments(covariance):
    return np.concatenate([np.zeros(len(covariance)), np.diag(covariance), np.diag(covariance, 1)])


@eqx.filter_jit
def averages(sampler, model, proposal, series, law, key, *, chains, sweeps):
    """The moments of independent chains that start in the exact law, each averaged over its sweeps."""
    mean, covariance = law
    root = jnp.linalg.cholesky(covariance)

    def chain(key):
        start, *keys = jax.random.split(key, sweeps + 1)
        latents = mean + root @ jax.random.normal(start, mean.shape)
        path = Trajectory(jnp.pad(latents[:, None], ((0, series.steps - len(mean)), (0, 0))), None)

        def iterate(path, key):
            path = sampler(model, proposal, series, path, key=key).trajectory
            return path, moments(path.latents[: len(mean)], mean)

        return jnp.mean(jax.lax.scan(iterate, path, jnp.stack(keys))[1], axis=0)

    return jax.lax.map(chain, jax.random.split(key, chains), batch_size=chains)
