"""Small linear Gaussian problems, mild enough that a standard error of p̂/p means something."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mcfo import Series, simulate
from mcfo.models import LinearGaussian
from mcfo.proposals import AffineGaussian, Bootstrap, LocallyOptimal


def scalar_model():
    return LinearGaussian.scalar(0.9, 1.2)


def vector_model():
    """Three latent and two observed dimensions, nothing diagonal."""
    return LinearGaussian(
        initial_mean=[0.3, -0.2, 0.1],
        initial_noise=[[1.0, 0.3, 0.0], [0.3, 0.8, 0.1], [0.0, 0.1, 0.6]],
        transition_matrix=[[0.8, 0.2, 0.0], [-0.1, 0.7, 0.1], [0.0, 0.2, 0.5]],
        transition_noise=[[0.5, 0.1, 0.0], [0.1, 0.4, 0.05], [0.0, 0.05, 0.3]],
        emission_matrix=[[1.0, 0.0, 0.5], [0.2, 0.6, 0.0]],
        emission_noise=[[1.0, 0.3], [0.3, 1.5]],
        transition_offset=[0.1, 0.0, -0.1],
        emission_offset=[0.2, -0.3],
    )


MODELS = {"scalar": scalar_model, "vector": vector_model}
SLOW_VECTOR = ["scalar", pytest.param("vector", marks=pytest.mark.slow)]

PROPOSALS = {
    "bootstrap": lambda _: Bootstrap(),
    "affine": AffineGaussian.optimal,
    "locally-optimal": LocallyOptimal,
}


def data(model, steps=5, *, missing=False, seed=0, series_id=0):
    """A simulated series with a mask that is always there, so that one program serves with and without gaps."""
    _, values = simulate(model, steps, key=jax.random.key(seed))
    values = np.array(values)
    observed = np.ones(values.shape, bool)
    if missing:
        observed[1] = False
        observed[3, -1] = False
        values[~observed] = np.nan
    series = Series.from_values(values, series_id=series_id)
    return Series(
        observations=series.observations,
        observed=jnp.asarray(observed),
        inputs=None,
        length=None,
        series_id=series.series_id,
        start=series.start,
    )
