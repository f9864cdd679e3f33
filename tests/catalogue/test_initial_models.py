"""Where the models of the catalogue begin, and what is said of them."""

import operator
from pathlib import Path

import jax
import numpy as np
import pytest

from mcfo import Series, fit, kalman_filter
from mcfo.catalogue.registry import CATALOGUE, build
from mcfo.models import LeveragedVolatility, LinearGaussian
from mcfo.objectives import mcfo
from mcfo.proposals import Amortized, LocallyOptimal

REAL = [Series.from_values([[1.0, 10.0], [2.0, np.nan], [np.nan, 30.0]])]
COUNTS = [Series.from_values([[0, 0], [4, 0]]), Series.from_values([[np.nan, 0.0], [5.0, 0.0]], series_id=1)]


def _walk(steps, *, level, noise, slope=0.0):
    draw = np.random.default_rng(0)
    slopes = np.cumsum(slope * draw.normal(size=steps))
    return np.cumsum(level * draw.normal(size=steps) + slopes) + noise * draw.normal(size=steps)


@pytest.mark.parametrize(("level", "noise"), [(1.0, 3.0), (2.0, 1.0)])
def test_a_local_level_begins_near_the_variances_of_the_data(level, noise):
    start = build("local-level", [Series.from_values(_walk(4000, level=level, noise=noise))], {})
    np.testing.assert_allclose(np.exp(start.model.transition_noise.log_diagonal), level, rtol=0.2)
    np.testing.assert_allclose(np.exp(start.model.emission_noise.log_diagonal), noise, rtol=0.1)
    assert isinstance(start.proposal, LocallyOptimal)
    parts = ("initial_mean", "initial_noise", "transition_matrix", "emission_matrix")
    assert set(start.fixed) == {"proposal", *(f"model.{name}" for name in parts)}


def test_a_local_trend_begins_near_the_variances_of_the_data():
    # So long because level and noise are hard to tell apart in second differences.
    values = _walk(400_000, level=1.0, noise=2.0, slope=1.5)
    model = build("local-trend", [Series.from_values(values)], {}).model
    found = np.exp(np.concatenate([model.transition_noise.log_diagonal, model.emission_noise.log_diagonal]))
    np.testing.assert_allclose(found, [1.0, 1.5, 2.0], rtol=0.2)
    np.testing.assert_array_equal(model.transition_matrix, [[1, 1], [0, 1]])


def test_structural_models_of_many_ragged_columns():
    """Nothing is taken for a difference across two series, or across what is missing."""
    jump = [Series.from_values([[1.0, 5.0], [2.0, np.nan], [1.0, 6.0], [2.0, 5.0]])]
    jump.append(Series.from_values([[1001.0, 5.0], [1002.0, 5.5]], series_id=1).pad(9))
    given = {"initial_mean": "7", "initial_variance": 4.0, "signal": "0.5"}
    model = build("local-level", jump, given).model
    np.testing.assert_allclose(model.transition_noise.matrix[0, 0], 0.5)
    np.testing.assert_allclose(model.initial_mean, [7, 7])
    np.testing.assert_allclose(model.initial_noise.matrix, 4 * np.eye(2))
    np.testing.assert_allclose(build("local-level", jump, {}).model.initial_mean, [501.0, 5.0])
    assert build("local-trend", jump, {}).model.latent_size == 4


def test_inputs_begin_at_least_squares():
    draw = np.random.default_rng(1)
    inputs = draw.normal(size=(200, 2))
    values = 3.0 + inputs @ [2.0, -1.0] + 0.1 * draw.normal(size=200)
    values[5] = np.nan
    series = Series.from_values(values, inputs=inputs)
    for name in ("local-level", "local-trend", "linear-gaussian"):
        start = build(name, [series], {})
        np.testing.assert_allclose(start.model.emission_inputs, [[2.0, -1.0]], atol=0.05)
        assert isinstance(start.proposal, LocallyOptimal)
        assert all(jax.tree.leaves(operator.attrgetter(path)(start)) for path in start.fixed)
        assert float(start.model.initial_noise.matrix[0, 0]) < 0.1
    timed = Series.from_values(values, inputs=np.column_stack([np.ones(200), inputs]))
    assert build("local-level", [timed], {}, gaps=True).model.emission_inputs.shape == (1, 2)
    assert build("poisson-counts", [Series.from_values([1, 2], inputs=np.ones(2))], {}).model.input_weights.shape == (
        1,
        1,
    )


def test_hidden_factors_begin_at_principal_components():
    draw = np.random.default_rng(2)
    shared = draw.normal(size=(500, 1))
    values = shared * [1.0, -2.0, 3.0] + 0.1 * draw.normal(size=(500, 3)) + [0.0, 5.0, 0.0]
    start = build("linear-gaussian", [Series.from_values(values)], {"latent": "1", "signal": 0.9})
    loadings = np.asarray(start.model.emission_matrix)[:, 0]
    np.testing.assert_allclose(loadings / loadings[0], [1.0, -2.0, 3.0], rtol=0.1)
    np.testing.assert_allclose(start.model.emission_offset, values.mean(axis=0))
    wide = build("linear-gaussian", [Series.from_values(values)], {"latent": 5}).model
    assert wide.emission_matrix.shape == (3, 5)
    stationary = np.linalg.matrix_rank(np.asarray(wide.emission_matrix)), float(wide.transition_matrix[4, 4])
    assert stationary == (3, 0.45)


@pytest.mark.slow
def test_where_the_deep_model_begins_it_learns():
    """Held-out series of a linear Gaussian model: nearly as likely as by the true model's Kalman filter, within a few
    hundred updates. From a proposal that begins near the latent before it does not come near."""
    move, show = np.array([[0.9, 0.2], [-0.2, 0.9]]), np.array([[1.0, 0.5], [0.0, 1.0], [1.0, -1.0]])
    truth = LinearGaussian(
        initial_mean=np.zeros(2),
        initial_noise=np.eye(2),
        transition_matrix=move,
        transition_noise=0.09 * np.eye(2),
        emission_matrix=show,
        emission_noise=0.09 * np.eye(3),
    )
    draw = np.random.default_rng(0)
    latents = [draw.normal(size=(30, 2))]
    for _ in range(39):
        latents.append(latents[-1] @ move.T + 0.3 * draw.normal(size=(30, 2)))
    values = np.stack(latents, axis=1) @ show.T + 0.3 * draw.normal(size=(30, 40, 3))
    series = [Series.from_values(one, series_id=number) for number, one in enumerate(values)]
    learned_from, held_out = series[:20], series[20:]
    start = build("deep", learned_from, {"emission_units": "16,32"})
    plain = Amortized(3, 3, key=jax.random.key(0), center=start.proposal.center, scale=start.proposal.scale)

    def nll(proposal):
        fitted = fit(
            start.model,
            proposal,
            learned_from,
            objective=mcfo(20),
            validation=held_out,
            steps=300,
            schedule="cosine",
            rates="by-width",
            fixed=start.fixed,
            evaluate_every=300,
            evaluation_particles=200,
            select="last",
        )
        return fitted.metrics[-1]["validation_nll_per_step"]

    exact = -np.mean([float(kalman_filter(truth, one).log_evidence) for one in held_out]) / 40
    assert -0.05 < nll(start.proposal) - exact < 0.2
    assert nll(plain) - exact > 0.5, "negative control"


def test_counts_that_scatter_begin_with_a_concentration():
    draw = np.random.default_rng(3)
    wide = draw.negative_binomial(2.0, 2.0 / (2.0 + 6.0), size=4000)
    assert 2.0 < float(build("negative-binomial-counts", [Series.from_values(wide)], {}).model.concentration[0]) < 6.0
    narrow = build("negative-binomial-counts", [Series.from_values(draw.poisson(6.0, size=4000))], {})
    assert float(narrow.model.concentration[0]) > 50
    given = build("negative-binomial-counts", COUNTS, {"concentration": "3"})
    np.testing.assert_allclose(given.model.concentration, 3.0)


def test_tails_and_leverage_are_options():
    plain = build("stochastic-volatility", REAL, {}).model
    heavy = build("stochastic-volatility", REAL, {"tails": "student", "degrees": "5"}).model
    both = build("stochastic-volatility", REAL, {"tails": "student", "leverage": "-0.4"}).model
    assert plain.returns.degrees is None
    np.testing.assert_allclose(heavy.returns.degrees, 5.0)
    assert isinstance(both, LeveragedVolatility)
    np.testing.assert_allclose(both.leverage, -0.4)
    np.testing.assert_allclose(both.returns.degrees, 8.0)


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_model_has_a_page(name):
    """The page has the options, the initial values, the proposal and a command; the overview links to it."""
    docs = Path(__file__).parent.parent.parent / "docs"
    page = (docs / "models" / f"{name}.md").read_text()
    for wanted in (f"# {name}\n", "**Initial values**", "**Proposal**", f"\nmcfo fit {name} --data"):
        assert wanted in page
    for option in CATALOGUE[name].options:
        assert f"`{option}`" in page, f"docs/models/{name}.md says nothing of {option}"
    assert f"](models/{name}.md)" in (docs / "models.md").read_text()
