"""Ways back: groups of series add up to the batch; windows keep the filter and cut the gradient."""

import equinox as eqx
import jax
import numpy as np
import pytest

import mcfo
from mcfo import stack
from mcfo.gradients import estimate
from mcfo.objectives import Accumulated, Reverse
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


@pytest.mark.ci
def test_a_window_of_one_step_is_the_filtering_objective():
    """Without the past, AESMC is MCFO where the proposal does not read theta, as it does at a gap; another pass."""
    wanted, evidence, _ = gradient(mcfo.objectives.mcfo(5), missing=False)
    found, same, _ = gradient(mcfo.objectives.aesmc(5, backward=Reverse(window=1)), missing=False)
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(same, evidence, rtol=1e-12)


@pytest.mark.slow
def test_a_window_as_long_as_the_series_cuts_nothing():
    whole, evidence, run = gradient(mcfo.objectives.aesmc(5))
    for window in (7, 100):
        found, same, _ = gradient(mcfo.objectives.aesmc(5, backward=Reverse(window=window)))
        np.testing.assert_allclose(found, whole, rtol=1e-9, atol=1e-11)
    between = []
    for window in (1, 2, 3, 5):
        # Windows that divide the series and windows that do not: the filter is always the same.
        found, same, cut = gradient(mcfo.objectives.aesmc(5, backward=Reverse(window=window)))
        np.testing.assert_allclose(same, evidence, rtol=1e-12)
        np.testing.assert_allclose(cut.record.ess, run.record.ess, rtol=1e-10)
        between.append(np.abs(found - whole).max())
    assert min(between) > 1e-6, "negative control: something was cut"


def test_windows_are_whole_numbers():
    with pytest.raises(ValueError, match="at least 1"):
        Reverse(window=0)


def test_rules_of_whole_series_refuse_windows():
    with pytest.raises(ValueError, match="adds up over the whole series"):
        mcfo.objectives.mcfo(5, theta="fisher", backward=Reverse(window=3)).loss(MODEL, PROPOSAL, batch(), key=KEY)


def test_accumulated_gradients_refuse_to_cross_time():
    with pytest.raises(ValueError, match="cross time"):
        mcfo.objectives.aesmc(5, backward=Accumulated()).loss(MODEL, PROPOSAL, batch(), key=KEY)


def test_groups_of_series_refuse_a_rule_that_compares_them():
    objective = mcfo.objectives.fivo(5, full=True, baseline="others", backward=Reverse(series=1))
    with pytest.raises(ValueError, match="compares the series"):
        objective.loss(MODEL, PROPOSAL, batch(), key=KEY)


def gappy_batch(count):
    """Series with gaps, of different lengths."""
    return stack([data(MODEL, 4 + n % 3, missing=True, seed=n, series_id=n) for n in range(count)])


@pytest.mark.ci
@pytest.mark.parametrize("checkpoint", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_groups_add_up_to_the_batch(checkpoint):
    sampler = {"resampling": mcfo.resampling.Multinomial(), "criterion": mcfo.resampling.ESSBelow(0.7)}
    groups = mcfo.objectives.fivo(5, **sampler, backward=Reverse(series=3, checkpoint=checkpoint))
    whole = mcfo.objectives.fivo(5, **sampler, backward=Reverse())
    five = gappy_batch(5)  # three of them, and two

    @eqx.filter_jit
    def gradients(batch):
        return [ascent(objective, MODEL, PROPOSAL, batch, KEY) for objective in (groups, whole)]

    (found, run), (wanted, same) = gradients(five)
    np.testing.assert_allclose(flat(*found), flat(*wanted), rtol=1e-10, atol=1e-12)
    for one, other in zip(jax.tree.leaves(run), jax.tree.leaves(same), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)
    other = eqx.tree_at(
        lambda one: one.observations, five, replace_fn=lambda array: jax.numpy.asarray(array).at[-1].add(1.0)
    )
    assert np.abs(flat(*gradients(other)[0][0]) - flat(*wanted)).max() > 1e-3, "negative control: the last group counts"


@pytest.mark.slow
def test_memory_does_not_grow_with_the_batch():
    objective, few = mcfo.objectives.fivo(1000), 3
    assert few == estimate._REPLAYED_AT_ONCE // (40 * 1000)

    def temporary(count):
        series = stack([data(MODEL, 40, series_id=n) for n in range(count)])
        step = jax.jit(jax.grad(lambda both: objective.loss(*both, series, key=KEY)[0]))
        return step.lower((MODEL, PROPOSAL)).compile().memory_analysis().temp_size_in_bytes

    assert temporary(4 * few) < 1.1 * temporary(few)
