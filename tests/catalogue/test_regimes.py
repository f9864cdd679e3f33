"""Where models with regimes begin, what their parameters are called, and what is refused."""

import jax
import numpy as np
import pytest

from mcfo import Series, initialize
from mcfo.catalogue.registry import build
from mcfo.errors import InputError
from mcfo.learning.readable import readable_arrays
from mcfo.models import HiddenMarkov, PoissonEmission
from mcfo.proposals import OptimalRegimes
from support.regime_data import categories, counts, levels, volatilities


def start(name, values, **options):
    return initialize(name, Series.from_values(values), **options)


def test_regimes_begin_at_clusters_of_levels_or_of_scatter():
    path, values = levels()
    emissions = start("hmm", values).model.canonical().emissions
    wanted = [[values[path == k].mean(), values[path == k].std()] for k in (0, 1)]
    found = np.concatenate([emissions.mean, emissions.standard_deviation], axis=1)
    np.testing.assert_allclose(found, wanted, atol=0.3)
    path, values = volatilities()
    scales = start("hmm", values).model.canonical().emissions.standard_deviation[:, 0]
    np.testing.assert_allclose(scales, [0.5, 2.5], rtol=0.3)
    # Halves of the sorted values, which ignore how regimes last, do not see what differs.
    halves = np.split(np.sort(values), 2)
    assert max(half.std() for half in halves) < 0.75 * 2.5


def test_counts_and_categories_begin_at_their_frequencies():
    _, values = counts()
    rates = start("hmm", values, emission="poisson").model.canonical().emissions.rate[:, 0]
    np.testing.assert_allclose(rates, [1.0, 6.0], rtol=0.3)
    _, values = categories()
    found = start("hmm", values, emission="categorical")
    assert found.chosen == {"categories": "3"}
    np.testing.assert_allclose(
        found.model.canonical().emissions.probabilities[:, 0], [[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]], atol=0.15
    )


@pytest.mark.parametrize("dynamics", ["autoregression", "level"])
def test_switching_models_begin_at_both_scatters(dynamics):
    _, values = volatilities()
    values = values if dynamics == "autoregression" else np.cumsum(values)
    model = start("switching", values, dynamics=dynamics).model.canonical()
    scales = model.regimes.transition_noise.standard_deviation[:, 0]
    assert 3.0 < scales[1] / scales[0] < 7.0


def test_units_and_more_regimes_than_clusters_do_no_harm():
    _, values = levels()
    for name in ("hmm", "switching"):
        for scale in (1e-100, 1e100):
            found = start(name, values * scale)
            assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found.model))
    found = start("hmm", [1.0, 0.0, 1.0, 1.0], states=5)
    assert found.model.finite_states == 5
    assert isinstance(found.proposal, OptimalRegimes)


def test_parameters_are_called_as_people_call_them():
    emissions = PoissonEmission([5.0, 1.0])
    model = HiddenMarkov(emissions, transition_probabilities=[[0.9, 0.1], [0.3, 0.7]]).canonical()
    found = readable_arrays(model)
    assert list(found) == ["chain.transition_probabilities", "chain.initial_probabilities", "emissions.rate"]
    np.testing.assert_allclose(found["emissions.rate"], [[1.0], [5.0]])
    np.testing.assert_allclose(found["chain.transition_probabilities"], [[0.7, 0.3], [0.1, 0.9]])
    np.testing.assert_allclose(found["chain.initial_probabilities"], [0.25, 0.75])


@pytest.mark.parametrize(
    ("name", "values", "options", "message"),
    [
        ("hmm", [1.0, 2.0, 3.0], {"states": 0}, "The option states must lie from 1 to 50, but got 0."),
        ("hmm", [1.0, 2.0, 3.0], {"emission": "poison"}, "There is no emission 'poison'. Did you mean 'poisson'?"),
        ("hmm", [1.5, 2.0], {"emission": "poisson"}, "1.5 is not a count. The model hmm with emission=poisson wants"),
        ("hmm", [1.0, -2.0], {"emission": "categorical"}, "-2 is no category. Number the categories 0, 1, 2, ..."),
        ("hmm", [1, 3], {"emission": "categorical", "categories": "3"}, "3 is no category: the model has 3"),
        ("hmm", [1, 30000], {"emission": "categorical"}, "so there would be 30001 categories"),
        ("hmm", [1.0, 2.0], {"categories": 3}, "The option categories is for emission=categorical"),
        ("hmm", [1.0, 2.0], {"initial": "fixed"}, "There is no initial 'fixed'."),
        ("hmm", [1.0, 1.0], {}, "Column 1 of the values is constant"),
        ("hmm", [1.0, 2.0], {"stay": 1.0}, "The option stay must lie between 0 and 1"),
        ("switching", [1.0, 2.0], {"regimes": 100}, "The option regimes must lie from 1 to 50"),
        ("switching", [1.0, 2.0], {"dynamics": "trend"}, "There is no dynamics 'trend'."),
        ("switching", [1.0, 2.0], {"dynamics": "level", "persistence": 0.5}, "A level has no persistence"),
    ],
)
def test_what_is_refused(name, values, options, message):
    with pytest.raises(InputError) as error:
        build(name, [Series.from_values(values)], options)
    assert message in str(error.value)


def test_categories_take_no_inputs():
    with pytest.raises(InputError, match="Categories take no inputs"):
        build("hmm", [Series.from_values([0, 1, 2], inputs=[1.0, 2.0, 3.0])], {"emission": "categorical"})
