"""Standard errors and intervals against Hessians by finite differences, statsmodels, and simulated data sets."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import statsmodels.api as sm
from jax.flatten_util import ravel_pytree

from mcfo import Series, exact, objectives, simulate
from mcfo.data.batching import as_buckets
from mcfo.learning.coordinates import Coordinates
from mcfo.learning.parameters import Modules, split
from mcfo.learning.particle_information import filter_score_information
from mcfo.learning.standard_errors import describe_uncertainty, exact_uncertainty
from mcfo.learning.uncertainty import model_uncertainty
from mcfo.models import GaussianStructural, LinearGaussian, StochasticVolatility, Trend
from mcfo.models.autoregression import PoissonCounts
from mcfo.proposals import Bootstrap, LocallyOptimal
from support.coverage import INITIAL, NOISES, coverage
from support.problems import vector_model

NILE = (15_098.5, 1_469.2)
"""The variances of irregular and level at the maximum, with a diffuse start (Durbin and Koopman)."""


def nile():
    values = sm.datasets.nile.load_pandas().data["volume"].to_numpy(float)
    model = GaussianStructural(trend=Trend(level_scale=NILE[1] ** 0.5), irregular_scale=NILE[0] ** 0.5)
    return model, ("model.initial_state", "model.log_initial_scale"), values[:, None]


def paper():
    model = LinearGaussian.scalar(0.9, 1.2)
    return model, (*INITIAL, *NOISES), np.asarray(simulate(model, 100, key=jax.random.key(0))[1])


def two_columns():
    model = LinearGaussian(
        initial_mean=[0.0, 0.0],
        initial_noise=[1.0, 1.0],
        transition_matrix=[[0.8, 0.1], [0.0, 0.6]],
        transition_noise=[[0.5, 0.1], [0.1, 0.4]],
        emission_matrix=np.eye(2),
        emission_noise=[0.3, 0.5],
    )
    return model, (*INITIAL, "model.emission_matrix"), np.asarray(simulate(model, 100, key=jax.random.key(1))[1])


def by_differences(model, fixed, values):
    """Standard errors by finite differences of log-likelihood and parameters, in numpy."""
    coordinates = Coordinates.build(model, fixed)
    series, vector = Series.from_values(values), np.asarray(coordinates.vector())
    likelihood = eqx.filter_jit(lambda theta: exact.log_evidence(coordinates.model(theta), series))
    size, step = len(vector), 1e-3
    unit = step * np.eye(size)
    hessian = np.empty((size, size))
    for i in range(size):
        for j in range(size):
            ends = [likelihood(vector + a * unit[i] + b * unit[j]) * a * b for a in (1, -1) for b in (1, -1)]
            hessian[i, j] = sum(map(float, ends)) / (4 * step**2)
    slopes = [(coordinates.values(vector + one) - coordinates.values(vector - one)) / (2 * step) for one in unit]
    slopes = np.stack(slopes, axis=1)
    return np.sqrt(np.diag(slopes @ np.linalg.inv(-hessian) @ slopes.T))


@pytest.mark.parametrize(
    "build", [paper, pytest.param(nile, marks=pytest.mark.ci), pytest.param(two_columns, marks=pytest.mark.ci)]
)
def test_standard_errors_are_those_of_the_hessian(build):
    model, fixed, values = build()
    found = exact_uncertainty(model, as_buckets([Series.from_values(values)]), fixed)
    assert not found.notes
    expected = by_differences(model, fixed, values)
    # Far nearer than the tenth that is asked for.
    np.testing.assert_allclose([row.stderr for row in found.rows], expected, rtol=1e-3)


def test_nile_equals_statsmodels():
    model, fixed, values = nile()
    rows = exact_uncertainty(model, as_buckets([Series.from_values(values)]), fixed).rows
    theirs = sm.tsa.UnobservedComponents(values[:, 0], "local level", use_exact_diffuse=True).smooth(
        list(NILE), cov_type="approx"
    )
    # Their parameters are variances: d σ² = 2 σ d σ.
    ours = {row.name: 2 * row.estimate * row.stderr for row in rows}
    np.testing.assert_allclose([ours["irregular_scale"], ours["trend.level_scale"]], theirs.bse, rtol=0.01)


def test_intervals_stay_in_their_range():
    coordinates = Coordinates.build(PoissonCounts(level=2.0, persistence=0.99, scale=0.01))
    rows = describe_uncertainty(coordinates, np.eye(3) / 4, method="a weak information").rows
    by_name = {row.name.rpartition(".")[2]: row for row in rows}
    assert by_name["persistence"].low > -1
    assert by_name["persistence"].high < 1
    assert 0 < by_name["scale"].low < 0.01 < by_name["scale"].high
    # On the real line the interval is symmetric: 2 standard deviations of 2.
    np.testing.assert_allclose(by_name["level"].high - 2, 1.96 * 2, rtol=1e-3)


def test_singular_information_names_the_parameters():
    # x = c z with z's scale free too: only c times the scale is seen.
    model = LinearGaussian.scalar(0.5, 1.0)
    fixed = ("model.initial_mean", "model.initial_noise", "model.transition_matrix", "model.emission_noise")
    model = eqx.tree_at(lambda m: m.initial_mean, model, jnp.zeros(1))
    coordinates = Coordinates.build(model, fixed)
    found = describe_uncertainty(coordinates, np.array([[2.0, 2.0], [2.0, 2.0]]), method="singular")
    assert [row.stderr for row in found.rows] == [None, None]
    assert "cannot tell transition_noise.standard_deviation and emission_matrix apart" in found.notes[0]
    indefinite = describe_uncertainty(coordinates, np.array([[2.0, 3.0], [3.0, 2.0]]), method="indefinite")
    assert "still rises along" in indefinite.notes[0]
    known = describe_uncertainty(
        coordinates, np.array([[2.0, 0.0], [0.0, 0.0]]), method="flat", at_bounds=["model.emission_matrix[0][0]"]
    )
    assert known.rows[0].stderr is not None
    assert "At a bound" in known.notes[0]


@pytest.mark.ci
def test_intervals_cover_the_truth():
    # 160 data sets: a share of 0.95 has a standard error of 0.017; four of them below.
    shares, missing = coverage("paper's model", 160, steps=100)
    assert missing == 0
    assert min(shares.values()) > 0.95 - 4 * 0.017
    # Negative control: half the standard error covers two thirds.
    halved, _ = coverage("paper's model", 160, steps=100, shrink=0.5)
    assert max(halved.values()) < 0.95 - 4 * 0.017


@pytest.mark.verify
@pytest.mark.parametrize("name", ["paper's model", "local level, Q/R = 0.5"])
def test_intervals_of_500_data_sets_cover_the_truth(name):
    shares, missing = coverage(name, 500)
    assert missing == 0
    assert all(0.92 <= share <= 0.975 for share in shares.values()), shares


@pytest.mark.ci
def test_particles_find_the_exact_standard_errors(monkeypatch):
    """The curvature of the estimated likelihood, on a model whose likelihood is known."""
    model, fixed, values = paper()
    data = as_buckets([Series.from_values(values[:50])])
    expected = exact_uncertainty(model, data, fixed)
    monkeypatch.setattr("mcfo.learning.uncertainty.exact.is_exact", lambda model: False)
    found = model_uncertainty(model, LocallyOptimal(model), data, fixed=fixed, rule="fisher")
    assert found.method.startswith("curvature")
    errors, exact_errors = (np.array([row.stderr for row in one.rows]) for one in (found, expected))
    # Monte Carlo, and the likelihood's own third and fourth derivatives over 1.5 standard errors.
    np.testing.assert_allclose(errors, exact_errors, rtol=0.15)


@pytest.mark.slow
def test_the_filter_score_spreads_as_its_sandwich_says():
    """The root of the filter score over simulated data sets: found by Newton's steps with its own Jacobian."""
    truth = LinearGaussian.scalar(0.8, 1.0)
    fixed = (*INITIAL, *NOISES, "model.emission_matrix")
    coordinates, roots, errors = Coordinates.build(truth, fixed), [], []
    for seed in range(40):
        values = np.asarray(simulate(truth, 200, key=jax.random.key(seed))[1])
        data = as_buckets([Series.from_values(values)])
        found = filter_score_information(coordinates, LocallyOptimal(truth), data, key=jax.random.key(seed))
        jacobian, noise = found.information.mean(), found.noise.mean()
        score = filter_score(coordinates, data, jax.random.key(seed))
        roots.append(0.8 + score / jacobian)
        errors.append(np.sqrt(noise) / jacobian)
    # The standard deviation of 40 has a relative standard error of 0.11; Newton's first step stands for the root.
    np.testing.assert_allclose(np.std(roots, ddof=1), np.mean(errors), rtol=0.35)


def filter_score(coordinates, data, key):
    """Σ_t E[s_t | x_1:t], by the rule that learns with it."""
    model = coordinates.model(coordinates.vector())
    objective = objectives.mcfo(2000, theta="filter-score")
    learned, rest = split(
        Modules(model, LocallyOptimal(model)), (*INITIAL, *NOISES, "model.emission_matrix", "proposal")
    )

    def loss(learned):
        modules = eqx.combine(learned, rest)
        return objective.loss(modules.model, modules.proposal, data[0], key=key)[0]

    return -float(np.squeeze(jax.tree.leaves(eqx.filter_grad(loss)(learned))[0]))


def test_networks_and_missing_standard_errors():
    assert model_uncertainty(vector_model(), Bootstrap(), (), fixed=("model",)) is None
    sizes = ravel_pytree(Coordinates.build(StochasticVolatility(), ()).learned)[0]
    assert len(sizes) == 3
