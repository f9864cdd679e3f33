"""Truncated backpropagation: what it keeps, and what it cuts."""

import equinox as eqx
import jax
import numpy as np
import pytest

import mcfo
from mcfo import stack
from support.gradients import ascent, flat, off_optimum
from support.problems import data, scalar_model

MODEL = scalar_model()
PROPOSAL = off_optimum(MODEL)
KEY = jax.random.key(3)


def batch(missing=True):
    return stack(
        [data(MODEL, 7, missing=missing, seed=1, series_id=1), data(MODEL, 4, missing=missing, seed=2, series_id=2)]
    )


def gradient(objective, missing=True):
    gradients, run = eqx.filter_jit(ascent)(objective, MODEL, PROPOSAL, batch(missing), KEY)
    return np.asarray(flat(*gradients)), np.asarray(run.log_evidence), run


def test_a_window_of_one_step_is_the_filtering_objective():
    """Without the past, AESMC is MCFO where the proposal does not read theta, as it does at a gap; another pass."""
    wanted, evidence, _ = gradient(mcfo.objectives.mcfo(5), missing=False)
    found, same, _ = gradient(mcfo.objectives.aesmc(5).in_windows(1), missing=False)
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(same, evidence, rtol=1e-12)


@pytest.mark.slow
def test_a_window_as_long_as_the_series_cuts_nothing():
    whole, evidence, run = gradient(mcfo.objectives.aesmc(5))
    for window in (7, 100):
        found, same, _ = gradient(mcfo.objectives.aesmc(5).in_windows(window))
        np.testing.assert_allclose(found, whole, rtol=1e-9, atol=1e-11)
    between = []
    for window in (1, 2, 3, 5):
        # Windows that divide the series and windows that do not: the filter is always the same.
        found, same, cut = gradient(mcfo.objectives.aesmc(5).in_windows(window))
        np.testing.assert_allclose(same, evidence, rtol=1e-12)
        np.testing.assert_allclose(cut.record.ess, run.record.ess, rtol=1e-10)
        between.append(np.abs(found - whole).max())
    assert min(between) > 1e-6, "negative control: something was cut"


def test_windows_are_whole_numbers():
    with pytest.raises(ValueError, match="at least 1"):
        mcfo.objectives.mcfo(5).in_windows(0)


def test_rules_of_whole_series_refuse_windows():
    with pytest.raises(ValueError, match="adds up over the whole series"):
        mcfo.objectives.mcfo(5, theta="fisher").in_windows(3).loss(MODEL, PROPOSAL, batch(), key=KEY)
