"""The evaluation against the Kalman filter, and predictions against its own."""

import equinox as eqx
import jax
import numpy as np
import pytest

import mcfo
from support.learning import TRUTH, make_series
from support.means import assert_mean, standard_errors

pytestmark = pytest.mark.xdist_group("evaluation")  # its fixtures take long: one worker makes them


@pytest.fixture(scope="module")
def found():
    data = make_series(5, steps=8)
    return data, mcfo.evaluate(TRUTH, mcfo.proposals.LocallyOptimal(TRUTH), data, particles=4000, key=jax.random.key(0))


def ratios(model, data, exact):
    """p̂ / p over independent runs, whose mean is one for the right model."""
    batch = mcfo.stack(data)
    found = [
        mcfo.evaluate(
            model, mcfo.proposals.LocallyOptimal(model), batch, particles=200, key=jax.random.key(seed)
        ).log_evidence
        for seed in range(60)
    ]
    return np.exp(np.array(found) - exact)


def test_the_likelihood_is_the_exact_one(found):
    data, evaluation = found
    exact = sum(float(mcfo.kalman_filter(TRUTH, one).log_evidence) for one in data)
    steps = sum(int(np.any(~np.isnan(one.values()), axis=-1).sum()) for one in data)
    assert steps < sum(one.steps for one in data)
    np.testing.assert_allclose(evaluation.exact_nll_per_step, -exact / steps, rtol=1e-12)
    assert_mean(ratios(TRUTH, data, exact), 1.0)
    wrong = eqx.tree_at(lambda m: m.emission_matrix, TRUTH, TRUTH.emission_matrix * 1.2)
    assert standard_errors(ratios(wrong, data, exact), 1.0) > 5
    assert evaluation.steps == steps
    assert evaluation.series == 5
    assert evaluation.collapsed == 0
    assert 1 <= evaluation.ess_min <= evaluation.ess <= 4000


def test_predictions_are_those_of_the_kalman_filter(found):
    data, evaluation = found
    squares, values = 0.0, 0
    for one in data:
        predicted = np.asarray(mcfo.kalman_filter(TRUTH, one).predicted.mean) * 1.2
        known = np.asarray(one.mask())
        squares += float(((predicted - np.asarray(one.observations)) ** 2)[known].sum())
        values += int(known.sum())
    # The mean of 4000 particles misses the exact one by some 0.02, which enters the error squared.
    np.testing.assert_allclose(evaluation.prediction_rmse, np.sqrt(squares / values), rtol=0.01)


def test_without_predictions_the_rest_is_the_same(found):
    data, evaluation = found
    proposal = mcfo.proposals.LocallyOptimal(TRUTH)
    plain = mcfo.evaluate(TRUTH, proposal, data, particles=4000, predictions=False, key=jax.random.key(0))
    assert plain.prediction_rmse is None
    assert plain.log_evidence == pytest.approx(evaluation.log_evidence, rel=1e-12)
    assert plain.ess == pytest.approx(evaluation.ess, rel=1e-12)
