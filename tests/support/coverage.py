"""Coverage of the 95 % intervals over simulated data sets, all fitted at once.

PYTHONPATH=src:tests python -m support.coverage results/verify/coverage.csv
"""

import csv
import sys
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from mcfo import Series, exact, simulate
from mcfo.learning.coordinates import Coordinates
from mcfo.learning.standard_errors import describe_uncertainty, observed_information
from mcfo.linear_algebra import cholesky, solve_positive_definite
from mcfo.models import LinearGaussian
from mcfo.precision import in_float64

NOISES = ("model.transition_noise", "model.emission_noise")
INITIAL = ("model.initial_mean", "model.initial_noise")
MATRICES = ("model.transition_matrix", "model.emission_matrix")
PROBLEMS = {
    "paper's model": (lambda: LinearGaussian.scalar(0.9, 1.2), (*INITIAL, *NOISES)),
    "local level, Q/R = 0.5": (
        lambda: LinearGaussian.scalar(1.0, 1.0, transition_variance=0.5, initial_mean=0.0),
        (*INITIAL, *MATRICES),
    ),
}


def at(coordinates, vector):
    """The same coordinates at another θ."""
    return eqx.tree_at(lambda c: c.learned, coordinates, ravel_pytree(coordinates.learned)[1](vector))


def minimum(loss, start):
    """Newton's method with the damping of Levenberg and Marquardt."""

    def step(_, carried):
        point, value, damping = carried
        gradient, hessian = jax.grad(loss)(point), jax.hessian(loss)(point)
        factor = cholesky(hessian + damping * jnp.diag(jnp.abs(jnp.diag(hessian)) + 1e-6))
        trial = point - solve_positive_definite(factor, gradient)
        new = loss(trial)
        better = new <= value
        point, value = jax.tree.map(lambda a, b: jnp.where(better, a, b), (trial, new), (point, value))
        return point, value, jnp.clip(jnp.where(better, damping / 10, damping * 10), 1e-12, 1e12)

    return jax.lax.fori_loop(0, 40, step, (start, loss(start), jnp.asarray(1e-2)))[0]


@in_float64
@eqx.filter_jit
def fits(truth, coordinates, keys, steps):
    """Maximum-likelihood estimates and observed informations of simulated data sets, with the largest score left."""

    template = Series.from_values(np.zeros((steps, 1)))

    def one(key):
        _, values = simulate(truth, steps, key=key)
        series = eqx.tree_at(lambda s: s.observations, template, values)

        def loss(vector):
            return -exact.log_evidence(coordinates.model(vector), series)

        found = minimum(loss, coordinates.vector())
        batch = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], series)
        information = observed_information(at(coordinates, found), (batch,))
        return found, information, jnp.max(jnp.abs(jax.grad(loss)(found)))

    return jax.vmap(one)(keys)


def coverage(name, count, *, steps=200, seed=0, shrink=1.0):
    """The share of the intervals that hold the truth, for each parameter, and the number of data sets without one.

    `shrink` multiplies the standard errors: 1 / 2 is a negative control.
    """
    build, fixed = PROBLEMS[name]
    with jax.enable_x64(True):
        truth = build()
        coordinates = Coordinates.build(truth, fixed)
        keys = jax.random.split(jax.random.key(seed), count)
    found, informations, scores = fits(truth, coordinates, keys, steps)
    assert np.max(scores) < 1e-3, np.sort(scores)[-5:]
    expected = np.asarray(in_float64(coordinates.values)(coordinates.vector()))
    held, missing = np.zeros((count, len(expected)), bool), 0
    for index, (vector, information) in enumerate(zip(found, informations, strict=True)):
        rows = describe_uncertainty(at(coordinates, vector), information / shrink**2, method="exact").rows
        missing += any(row.stderr is None for row in rows)
        held[index] = [
            row.stderr is not None and row.low <= value <= row.high for row, value in zip(rows, expected, strict=True)
        ]
    return {
        entry.label: float(share) for entry, share in zip(coordinates.entries, held.mean(axis=0), strict=True)
    }, missing


def main(path, count=500):
    with Path(path).open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["model", "steps", "data_sets", "parameter", "coverage", "without_interval"])
        for name in PROBLEMS:
            shares, missing = coverage(name, count)
            for parameter, share in shares.items():
                writer.writerow([name, 200, count, parameter, f"{share:.4f}", missing])
                print(name, parameter, share, missing)


if __name__ == "__main__":
    Path(sys.argv[1]).parent.mkdir(parents=True, exist_ok=True)
    main(sys.argv[1])
