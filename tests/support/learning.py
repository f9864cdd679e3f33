"""A learning problem that compiles quickly: a scalar model, its affine proposal, a few ragged series with gaps."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mcfo import Series, simulate
from mcfo.models import LinearGaussian
from mcfo.proposals import AffineGaussian

TRUTH = LinearGaussian.scalar(0.9, 1.2, emission_variance=0.1)
FIXED = ("model.initial_mean", "model.initial_noise", "proposal.initial_noise")


def start():
    """A model and a proposal that have something to learn."""
    model = LinearGaussian.scalar(0.5, 1.0, emission_variance=0.2)
    proposal = AffineGaussian.optimal(model)
    return model, eqx.tree_at(lambda q: q.observation_weight, proposal, jnp.full((1, 1), 0.5))


def make_series(count, *, seed=0, steps=6, series_id=0):
    """Series of different lengths, some values missing."""
    found = []
    for place in range(count):
        length = steps - place % 3
        values = np.array(simulate(TRUTH, length, key=jax.random.key(1000 * seed + place))[1])
        if place % 2:
            values[1] = np.nan
        found.append(Series.from_values(values, series_id=series_id + place + 1))
    return found


def same_metrics(first, second):
    """Whether two runs logged the same numbers to the bit, time apart."""

    def timeless(lines):
        return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]

    return timeless(first) == timeless(second)
