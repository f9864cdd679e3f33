"""Training steps call no LAPACK: batches of such calls inside a compiled loop can wait for each other for ever."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from mcfo import Series, objectives, stack
from mcfo.catalogue.linear import linear_gaussian, local_level, local_trend
from mcfo.catalogue.registry import CATALOGUE, build
from mcfo.gradients.rules import DEVICES
from mcfo.kalman import kalman_smoother, log_evidence
from mcfo.learning.devices import build_mesh
from mcfo.learning.parameters import Modules, split
from mcfo.learning.step import State, build_chunk
from mcfo.models import LinearGaussian, structural
from mcfo.proposals import AffineGaussian, LocallyOptimal
from support.lowering import lapack_calls_in_loops

COLUMNS, STEPS, SEEDS = 3, 6, 1
SMALL = {"latent": "2", "hidden": "4", "units": "4"}
OPTIONS = {"deep": {"latent": "2"}, "vrnn": SMALL, "srnn": SMALL}
DRAWS = {
    "real": lambda rng, shape: rng.standard_normal(shape),
    "counts": lambda rng, shape: rng.poisson(3.0, shape).astype(float),
    "binary": lambda rng, shape: rng.integers(0, 2, shape).astype(float),
}
KINDS = {"poisson-counts": "counts", "negative-binomial-counts": "counts", "vrnn": "binary", "srnn": "binary"}


def partly_observed(columns=COLUMNS, *, kind="real", gaps=False, inputs=False):
    """Two series of which a quarter of the cells is missing, in no row all of them alike."""
    rng = np.random.default_rng(0)
    series = []
    for number in range(2):
        values = DRAWS[kind](rng, (STEPS, columns))
        values[np.add.outer(np.arange(STEPS), np.arange(columns)) % 4 == 2] = np.nan
        read = [np.full((STEPS, 1), 0.5 + number)] * gaps + [rng.standard_normal((STEPS, 1))] * inputs
        given = np.concatenate(read, axis=1) if read else None
        series.append(Series.from_values(values, inputs=given, series_id=number + 1))
    return series


def lower(model, proposal, fixed, series, rules):
    """The program of a few updates, as `fit` compiles it: a loop over updates, with the filter's loops inside."""
    learned, rest = split(Modules(model, proposal), fixed)
    arrays, static = eqx.partition(rest, eqx.is_array)
    optimizer = optax.adam(0.01)
    chunk = build_chunk(objectives.mcfo(4, **rules), optimizer, static, (0,), build_mesh(1, DEVICES))
    batch = stack(series)
    places = np.zeros((1, SEEDS, 2), np.int32)
    seeds, count = np.arange(SEEDS, dtype=np.int32), np.asarray(1, np.int32)
    state = eqx.filter_eval_shape(State.start, learned, optimizer, SEEDS)
    return chunk.lower(state, arrays, (batch,), np.zeros(1, np.int32), places, seeds, count)


def variants(entry):
    """Without and with gaps and inputs for the linear models, whose proposals differ; the richest of the others."""
    richest = entry.gaps, entry.inputs
    return {(False, False), richest} if entry.build in (local_level, local_trend, linear_gaussian) else {richest}


CASES = [
    pytest.param(
        *(name, gaps, inputs),
        id="-".join([name, *["gaps"] * gaps, *["inputs"] * inputs]),
        marks=[pytest.mark.slow] * (name in OPTIONS),
    )
    for name, entry in CATALOGUE.items()
    for gaps, inputs in sorted(variants(entry))
]


@pytest.mark.ci
@pytest.mark.parametrize(("name", "gaps", "inputs"), CASES)
def test_catalogue(name, gaps, inputs):
    entry = CATALOGUE[name]
    columns = 1 if name == "structural" else COLUMNS
    series = partly_observed(columns, kind=KINDS.get(name, "real"), gaps=gaps, inputs=inputs)
    start = build(name, series, OPTIONS.get(name, {}), gaps=gaps)
    assert not lapack_calls_in_loops(lower(start.model, start.proposal, start.fixed, series, entry.rules))


@pytest.mark.ci
def test_more_latents_than_are_unrolled():
    series = partly_observed(6, gaps=True)
    start = build("local-trend", series, {}, gaps=True)
    assert start.model.latent_size == 12
    assert not lapack_calls_in_loops(lower(start.model, start.proposal, start.fixed, series, {}))


FULL = LinearGaussian(
    initial_mean=np.zeros(2),
    initial_noise=[[1.0, 0.3], [0.3, 1.0]],
    transition_matrix=0.9 * np.eye(2),
    transition_noise=[[0.5, 0.1], [0.1, 0.5]],
    emission_matrix=np.ones((3, 2)),
    emission_noise=0.5 * np.eye(3) + 0.2,
)


@pytest.mark.ci
@pytest.mark.parametrize("proposal", [AffineGaussian.optimal, LocallyOptimal], ids=["affine", "optimal"])
def test_full_covariances(proposal):
    assert not lapack_calls_in_loops(lower(FULL, eqx.filter_jit(proposal)(FULL), (), partly_observed(), {}))


def test_kalman_smoother():
    lowered = jax.jit(jax.vmap(lambda series: kalman_smoother(FULL, series))).lower(stack(partly_observed()))
    assert not lapack_calls_in_loops(lowered)


def test_diffuse_likelihood():
    model = structural(trend="local", season=4, ar=2)
    score = jax.jit(jax.vmap(jax.grad(log_evidence), in_axes=(None, 0)))
    assert not lapack_calls_in_loops(score.lower(model, stack(partly_observed(1))))


@pytest.mark.parametrize("name", ["cholesky", "solve", "eigh"])
def test_lapack_in_a_scan_is_found(name):
    function = {
        "cholesky": jnp.linalg.cholesky,
        "solve": lambda matrix: jax.scipy.linalg.solve_triangular(matrix, matrix[0], lower=True)[None],
        "eigh": lambda matrix: jnp.linalg.eigh(matrix)[1],
    }[name]

    def outside(matrices):
        return jnp.sum(jax.vmap(function)(matrices))

    def inside(matrices):
        return jax.lax.scan(lambda total, matrix: (total + jnp.sum(jax.jit(function)(matrix)), None), 0.0, matrices)[0]

    matrices = jnp.stack([jnp.eye(3)] * 2)
    assert not lapack_calls_in_loops(jax.jit(outside).lower(matrices))
    assert lapack_calls_in_loops(jax.jit(inside).lower(matrices))
    assert lapack_calls_in_loops(jax.jit(jax.vmap(inside)).lower(matrices[None]))
