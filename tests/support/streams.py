"""Streams that learn three parameters of a scalar model, of which the filter score sees two combinations."""

import jax
import jax.numpy as jnp
import numpy as np

from mcfo import online, simulate
from mcfo.models import LinearGaussian
from mcfo.proposals import LocallyOptimal

FIRST, LAST = (0.6, 0.6, 0.9), (0.8, 1.0, 0.5)
"""A, Q and R at the start, and those that the data have."""


def estimates(theta, streams, steps, *, rate=1e-3, particles=100):
    """A, Q and R at the end of each stream, (streams, 3)."""
    model, truth = (
        LinearGaussian.scalar(a, 1.0, transition_variance=q, emission_variance=r) for a, q, r in (FIRST, LAST)
    )
    fixed = ("model.initial_mean", "model.initial_noise", "model.emission_matrix", "proposal")
    learning = online.Learning(rate, theta=theta, fixed=fixed)

    @jax.jit
    def learn(state, values):
        found = jax.lax.scan(online.step, state, values)[0].model
        return jnp.array(
            [found.transition_matrix[0, 0], found.transition_noise.matrix[0, 0], found.emission_noise.matrix[0, 0]]
        )

    proposal, found = LocallyOptimal(model), []
    for number in range(streams):
        key = jax.random.key(1000 + number)
        state = online.init(model, proposal, key=key, particles=particles, learning=learning)
        found.append(learn(state, simulate(truth, steps, key=jax.random.key(number))[1]))
    return np.stack(found)


def standard_errors(found):
    """How far the mean over streams is from the truth, in standard errors."""
    return (found.mean(axis=0) - LAST) / (found.std(axis=0, ddof=1) / len(found) ** 0.5)
