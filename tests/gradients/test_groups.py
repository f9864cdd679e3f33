"""A batch that goes back in groups of series, against the whole of it at once."""

from functools import partial

import equinox as eqx
import jax
import numpy as np
import pytest
from mcfo.gradients.early import early
from mcfo.gradients.reverse import in_reverse

import mcfo
from mcfo import stack
from mcfo.gradients import groups
from mcfo.gradients.replay import Lane
from support.gradients import flat, off_optimum
from support.problems import data, scalar_model

MODEL = scalar_model()
PROPOSAL = off_optimum(MODEL)
KEY = jax.random.key(3)


def batch(count):
    """Series with gaps, of different lengths."""
    return stack([data(MODEL, 4 + n % 3, missing=True, seed=n, series_id=n) for n in range(count)])


@pytest.mark.parametrize("frugal", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_groups_add_up_to_the_batch(frugal, monkeypatch):
    monkeypatch.setattr(groups, "_AT_ONCE", 3 * 6 * 5)  # three of them, and two
    lanes = (Lane(mcfo.rules.Pathwise(), True, True),)
    sampler = mcfo.SMC(5, mcfo.resampling.Multinomial(), mcfo.resampling.ESSBelow(0.7))

    def in_groups(modules, batch):
        return early(modules, partial(groups.grouped, frugal=frugal), sampler, lanes, batch, KEY)

    def at_once(modules, batch):
        return in_reverse(sampler, lanes, *modules, batch, KEY)[:2]

    @eqx.filter_jit
    def gradients(batch):
        return [eqx.filter_grad(way, has_aux=True)((MODEL, PROPOSAL), batch) for way in (in_groups, at_once)]

    five = batch(5)
    (found, run), (wanted, same) = gradients(five)
    np.testing.assert_allclose(flat(*found), flat(*wanted), rtol=1e-10, atol=1e-12)
    for one, other in zip(jax.tree.leaves(run), jax.tree.leaves(same), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)
    other = eqx.tree_at(lambda one: one.observations, five, replace_fn=lambda array: array.at[-1].add(1.0))
    assert np.abs(flat(*gradients(other)[0][0]) - flat(*wanted)).max() > 1e-3, "negative control: the last group counts"


@pytest.mark.slow
def test_memory_does_not_grow_with_the_batch():
    objective, few = mcfo.objectives.fivo(1000), 3
    assert few == groups._AT_ONCE // (40 * 1000)

    def temporary(count):
        series = stack([data(MODEL, 40, series_id=n) for n in range(count)])
        step = jax.jit(jax.grad(lambda both: objective.loss(*both, series, key=KEY)[0]))
        return step.lower((MODEL, PROPOSAL)).compile().memory_analysis().temp_size_in_bytes

    assert temporary(4 * few) < 1.1 * temporary(few)
