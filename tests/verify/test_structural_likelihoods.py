"""The exact log-likelihood of every combination of components that statsmodels has too, at the same parameters.

The long study writes results/verify/structural_likelihoods.csv. It takes the linear form of each model and runs the
exact filter on it in one shape, which compiles once; the small one in CI asks each model for its likelihood directly.
"""

import csv
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mcfo import MarkovModel, Series
from mcfo.exact import log_evidence
from mcfo.models.base import InitialForm, LinearForm
from support.structural_grid import combinations, data, model_of, of_statsmodels, series_of

FOLDER = Path(__file__).parent.parent.parent / "results" / "verify"
TOLERANCE = 1e-6
"""Of the log-likelihood."""
SMALL = 120
"""Every so many combinations one is compared in CI."""
STATES = 20
"""The size of the state of the largest model, or more."""
HEADER = ["components", "log_likelihood", "statsmodels", "relative_difference"]


def compare(theirs, ours):
    values, inputs = data(gaps=True)
    expected = float(of_statsmodels(theirs, values, inputs).llf)
    found = float(log_evidence(model_of(ours), series_of(ours, values, inputs)))
    return found, expected, abs(found / expected - 1)


class Padded(MarkovModel):
    """The linear form of another model, with entries of the state that are always zero; the row of the emission and its
    offset are linear in two inputs."""

    forms: LinearForm
    first: InitialForm

    def initial(self, memory, inputs):
        raise NotImplementedError

    def transition(self, memory, inputs):
        raise NotImplementedError

    def emission(self, memory, latent, inputs):
        raise NotImplementedError

    def linear_form(self, inputs):
        # At inputs (0, 0), (1, 0) and (0, 1).
        weights = jnp.array([1 - inputs.sum(), inputs[0], inputs[1]])
        return jax.tree.map(lambda each: jnp.tensordot(weights, each, 1), self.forms)

    def initial_form(self, inputs):
        return self.first


def padded(model):
    def grow(array, *shape):
        return np.pad(np.asarray(array), [(0, n - have) for n, have in zip(shape, np.shape(array), strict=True)])

    names = ((STATES, STATES), (STATES,), (STATES, STATES), (1, STATES), (1,), (1, 1))
    forms = [model.linear_form(jnp.array(inputs)) for inputs in ((0.0, 0.0), (1.0, 0.0), (0.0, 1.0))]
    stacked = [np.stack([grow(form[index], *shape) for form in forms]) for index, shape in enumerate(names)]
    first = model.initial_form(jnp.zeros(2))
    shapes = ((STATES,), (STATES, STATES), (STATES, STATES))
    return Padded(
        jax.tree.map(jnp.asarray, LinearForm(*stacked)),
        InitialForm(*(jnp.asarray(grow(array, *shape)) for array, shape in zip(first, shapes, strict=True))),
    )


@pytest.mark.verify
def test_every_combination_has_the_likelihood_of_statsmodels():
    values, inputs = data(gaps=True)
    series, rows = Series.from_values(values, inputs=inputs), []
    likelihood = eqx.filter_jit(log_evidence)
    for name, theirs, ours in combinations():
        expected = float(of_statsmodels(theirs, values, inputs).llf)
        found = float(likelihood(padded(model_of(ours)), series))
        rows.append([name, found, expected, abs(found / expected - 1)])
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "structural_likelihoods.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        writer.writerows([name, f"{ours:.10f}", f"{theirs:.10f}", f"{gap:.1e}"] for name, ours, theirs, gap in rows)
    worst = max(rows, key=lambda row: row[-1])
    assert worst[-1] < TOLERANCE, worst


def test_the_committed_study_covers_every_combination():
    with (FOLDER / "structural_likelihoods.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["components"] for row in rows] == [name for name, _, _ in combinations()]
    assert all(float(row["relative_difference"]) < TOLERANCE for row in rows)
    np.testing.assert_allclose(
        [float(row["log_likelihood"]) for row in rows], [float(row["statsmodels"]) for row in rows], rtol=TOLERANCE
    )


@pytest.mark.ci
@pytest.mark.filterwarnings("ignore::statsmodels.tools.sm_exceptions.SpecificationWarning")
def test_some_combinations_have_the_likelihood_of_statsmodels():
    chosen = list(combinations())[SMALL // 2 :: SMALL]
    assert len(chosen) > 8
    for name, theirs, ours in chosen:
        assert compare(theirs, ours)[-1] < TOLERANCE, name
    # A variance that is a thousandth larger fails.
    name, theirs, ours = chosen[0]
    wrong = compare(theirs, ours | {"irregular_scale": 0.7**0.5 * 1.0005})
    assert wrong[-1] > TOLERANCE
