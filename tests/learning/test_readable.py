"""Parameters as people mean them, beside those that are stored."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from mcfo.learning.parameters import Modules
from mcfo.learning.readable import finite_lists, readable_arrays, readable_fixed
from mcfo.models import LinearGaussian, NegativeBinomialCounts, StochasticVolatility
from mcfo.models.autoregression import LeveragedVolatility
from mcfo.proposals import Bootstrap

CASES = {
    "linear-gaussian": (
        LinearGaussian(
            initial_mean=[0.0, 1.0],
            initial_noise=[4.0, 9.0],
            transition_matrix=[[0.9, 0.0], [0.0, 0.5]],
            transition_noise=[[4.0, 3.0], [3.0, 9.0]],
            emission_matrix=[[1.0, 0.0]],
            emission_noise=0.25,
        ),
        {
            "initial_mean": [0.0, 1.0],
            "initial_noise.standard_deviation": [2.0, 3.0],
            "transition_matrix": [[0.9, 0.0], [0.0, 0.5]],
            "transition_noise.standard_deviation": [2.0, 3.0],
            "transition_noise.correlation": [[1.0, 0.5], [0.5, 1.0]],
            "emission_matrix": [[1.0, 0.0]],
            "emission_noise.standard_deviation": [0.5],
        },
    ),
    "negative-binomial-counts": (
        NegativeBinomialCounts(level=1.0, persistence=0.8, scale=0.3, concentration=5.0),
        {
            "log_intensity.level": [1.0],
            "log_intensity.persistence": [0.8],
            "log_intensity.scale": [0.3],
            "concentration": [5.0],
        },
    ),
    "stochastic-volatility": (
        StochasticVolatility(level=-1.0, persistence=0.9, scale=0.2, degrees=7.0),
        {
            "log_variance.level": [-1.0],
            "log_variance.persistence": [0.9],
            "log_variance.scale": [0.2],
            "returns.degrees": [7.0],
        },
    ),
    "leverage": (
        LeveragedVolatility(level=0.0, persistence=0.9, scale=0.2, leverage=-0.4),
        {
            "log_variance.level": [0.0],
            "log_variance.persistence": [0.9],
            "log_variance.scale": [0.2],
            "leverage": [-0.4],
        },
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_numbers_that_a_model_was_given_come_back(case):
    model, wanted = CASES[case]
    found = readable_arrays(model)
    assert list(found) == list(wanted)
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-6, atol=1e-7, err_msg=name)


def test_what_no_update_changes_is_fixed():
    model, _ = CASES["linear-gaussian"]
    modules = Modules(model, Bootstrap())
    fixed = ("model.initial_noise", "model.transition_noise.log_diagonal", "model.emission_matrix")
    assert readable_fixed(modules, fixed) == ["model.initial_noise.standard_deviation", "model.emission_matrix"]
    counts = Modules(CASES["negative-binomial-counts"][0], Bootstrap())
    assert readable_fixed(counts, ("model.log_intensity.atanh_persistence",)) == ["model.log_intensity.persistence"]


class _Own(eqx.Module):
    """A module of the user's own, whose arrays stand for themselves, and a number beyond all bounds."""

    rates: list
    scale: jnp.ndarray


def test_own_modules_and_numbers_beyond_all_bounds():
    own = _Own([jnp.ones(2), jnp.zeros(1)], jnp.asarray(3.0))
    assert list(readable_arrays(own)) == ["rates.0", "rates.1", "scale"]
    model = eqx.tree_at(lambda m: m.emission_noise.log_diagonal, CASES["linear-gaussian"][0], jnp.full(1, 1e5))
    assert finite_lists(readable_arrays(model)["emission_noise.standard_deviation"]) == [None]
    assert finite_lists(np.array([[1.5, 2.0]])) == [[1.5, 2.0]]
