"""Models by name: where they begin, what they refuse, and the user's own."""

import operator
import re
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mcfo import Series, stack
from mcfo.catalogue.registry import CATALOGUE, build
from mcfo.catalogue.user_code import build_own, load_own
from mcfo.errors import InputError
from mcfo.models import LinearGaussian, PoissonCounts, StochasticVolatility
from mcfo.objectives import mcfo
from mcfo.proposals import Bootstrap, LocallyOptimal
from mcfo.smc.compatibility import check_fit
from mcfo.smc.step_scan import frame_at, frames

REAL = [
    Series.from_values([[1.0, 10.0], [2.0, np.nan], [np.nan, 30.0]]),
    Series.from_values([[6.0, 20.0]], series_id=1).pad(4),
]
COUNTS = [Series.from_values([[0, 0], [4, 0]]), Series.from_values([[np.nan, 0.0], [5.0, 0.0]], series_id=1)]
OF_ZEROS_AND_ONES = ("vrnn", "srnn")
OF_ONE_COLUMN = ("structural",)
MEAN, VARIANCE = np.array([3.0, 20.0]), np.array([14 / 3, 200 / 3])


def refused(call, message, *arguments):
    with pytest.raises(InputError, match=re.escape(message)):
        call(*arguments)


@pytest.mark.parametrize("name", CATALOGUE)
@pytest.mark.parametrize("x64", [True, False])
def test_every_entry_fits_its_data(name, x64):
    with jax.enable_x64(x64):
        first, second = (
            ([[0, 0], [1, 0], [1, 1]], [[0, 1]]) if name in OF_ZEROS_AND_ONES else ([[0, 0], [4, 0], [1, 2]], [[1, 3]])
        )
        columns = slice(0, 1 if name in OF_ONE_COLUMN else 2)
        series_list = [
            Series.from_values(np.array(values)[:, columns], series_id=number)
            for number, values in enumerate((first, second))
        ]
        start = build(name, series_list, {})
        frame = frame_at(frames(start.proposal, series_list[0]), 0)
        check_fit(start.model, start.proposal, frame)
        assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves((start.model, start.proposal)))
        for path in start.fixed:
            assert jax.tree.leaves(operator.attrgetter(path)(start)), f"{path} holds nothing"
    assert "\n" not in CATALOGUE[name].summary


def test_recurrent_models_begin_with_the_frequencies_of_the_notes():
    pieces = [Series.from_values([[0, 0], [1, 0], [1, 1]]), Series.from_values([[0, 0]], series_id=1).pad(3)]
    start = build("vrnn", pieces, {"latent": "3", "hidden": "5", "units": "4", "proposal": "plain"})
    np.testing.assert_allclose(start.model.center, [2.5 / 5, 1.5 / 5])
    assert (start.model.latent_size, start.model.cell.hidden_size, start.proposal.residual) == (3, 5, False)
    assert start.fixed == ("model.center", "proposal.center")
    refused(build, "must be at least 1", "srnn", pieces, {"hidden": 0})
    refused(build, "There is no proposal 'best'", "vrnn", pieces, {"proposal": "best"})
    refused(build, "is neither 0 nor 1", "vrnn", COUNTS, {})


def test_linear_gaussian_has_the_moments_of_the_data():
    start = build("linear-gaussian", REAL, {"persistence": "0.8", "signal": 0.25})
    model = start.model
    assert isinstance(model, LinearGaussian)
    assert isinstance(start.proposal, LocallyOptimal)
    assert start.fixed == ("model.initial_mean", "model.initial_noise", "model.emission_matrix", "proposal")
    np.testing.assert_allclose(model.initial_mean, MEAN)
    np.testing.assert_allclose(model.initial_noise.matrix, np.diag(VARIANCE))
    stationary_mean = np.linalg.solve(np.eye(2) - model.transition_matrix, model.transition_offset)
    np.testing.assert_allclose(stationary_mean, MEAN)
    stationary_variance = model.transition_noise.matrix / (1 - 0.8**2)
    np.testing.assert_allclose(stationary_variance, np.diag(0.25 * VARIANCE))
    np.testing.assert_allclose(stationary_variance + model.emission_noise.matrix, np.diag(VARIANCE))
    np.testing.assert_array_equal(model.emission_matrix, np.eye(2))


def test_stochastic_volatility_begins_at_the_mean_square():
    start = build("stochastic-volatility", REAL, {"persistence": 0.5, "scale": "0.2"})
    assert isinstance(start.model, StochasticVolatility)
    assert isinstance(start.proposal, Bootstrap)
    np.testing.assert_allclose(start.model.log_variance.level, np.log(VARIANCE + MEAN**2))
    np.testing.assert_allclose(start.model.log_variance.persistence, 0.5)
    np.testing.assert_allclose(start.model.log_variance.scale, 0.2)


def test_poisson_counts_begin_at_the_mean_count():
    start = build("poisson-counts", COUNTS, {})
    assert isinstance(start.model, PoissonCounts)
    np.testing.assert_allclose(start.model.log_intensity.level, np.log([3.0, 0.5 / 4]))


@pytest.mark.parametrize("name", ["linear-gaussian", "stochastic-volatility", "local-level", "local-trend"])
def test_large_and_small_numbers_do_not_overflow(name):
    for scale in (1e-120, 1e120, 1e140):
        start = build(name, [Series.from_values(np.array([1.0, -2.0, 3.0] * 100) * scale)], {})
        assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves((start.model, start.proposal)))


ONES, ZEROS = Series.from_values([[1.5, 0.1], [2.0, 0.1], [2.5, 0.1]]), Series.from_values([0.0, np.nan, 0.0])
HALF_KNOWN = Series.from_values([[1.0, np.nan], [2.0, np.nan]])


@pytest.mark.parametrize(
    ("name", "series_list", "options", "message"),
    [
        ("linear-gausian", REAL, {}, "There is no model 'linear-gausian'. Did you mean 'linear-gaussian'?"),
        ("linear-gaussian", REAL, {"persistance": 1}, "has no option 'persistance'. Did you mean 'persistence'?"),
        ("linear-gaussian", REAL, {"series": 1}, "The model linear-gaussian has no option 'series'."),
        ("linear-gaussian", REAL, {"signal": "half"}, "The option signal must be a number, but got 'half'."),
        ("linear-gaussian", REAL, {"signal": "nan"}, "The option signal must lie between 0 and 1, but got nan."),
        ("linear-gaussian", REAL, {"signal": 1}, "The option signal must lie between 0 and 1, but got 1.0."),
        ("linear-gaussian", REAL, {"persistence": "-1"}, "The option persistence must lie between -1 and 1, but got"),
        ("stochastic-volatility", REAL, {"persistence": 2}, "The option persistence must lie between -1 and 1"),
        ("stochastic-volatility", REAL, {"scale": 0}, "The option scale must be positive and finite, but got 0.0."),
        ("poisson-counts", COUNTS, {"scale": "inf"}, "The option scale must be positive and finite, but got inf."),
        ("poisson-counts", COUNTS, {"persistence": -1.5}, "The option persistence must lie between -1 and 1"),
        ("linear-gaussian", [], {}, "There are no series"),
        ("linear-gaussian", [ONES, ZEROS], {}, "different numbers of observed dimensions: 1, 2"),
        ("linear-gaussian", [HALF_KNOWN], {}, "Column 2 of the values is missing at every step"),
        ("stochastic-volatility", [HALF_KNOWN], {}, "Column 2 of the values is missing at every step"),
        ("poisson-counts", [HALF_KNOWN], {}, "Column 2 of the values is missing at every step"),
        ("linear-gaussian", [ONES], {}, "Column 2 of the values is constant: every one that is known is 0.1."),
        ("linear-gaussian", [Series.from_values([3.0])], {}, "Column 1 of the values is constant"),
        ("stochastic-volatility", [ZEROS], {}, "Column 1 of the values is zero wherever it is known"),
        ("poisson-counts", [COUNTS[0], ONES], {}, "Series 2, step 1, column 1 of the values: 1.5 is not a count"),
        (
            "poisson-counts",
            [Series.from_values([2, 0, -1])],
            {},
            "Series 1, step 3, column 1 of the values: -1 is not a count. The model poisson-counts wants the whole",
        ),
        (
            "linear-gaussian",
            [Series.from_values([1e-160, 3e-160])],
            {},
            "Column 1 of the values has variance 9.99989e-321, for which the model needs one of 9.99989e-321: too",
        ),
        ("linear-gaussian", [Series.from_values([1e200, -1e200])], {}, "Column 1 of the values has variance inf"),
    ],
)
def test_what_is_refused(name, series_list, options, message):
    refused(build, message, name, series_list, options)


def test_options_are_rounded_before_they_are_checked():
    with jax.enable_x64(False):
        series = Series.from_values([1.0, 2.0])
        refused(build, "must lie between -1 and 1", "linear-gaussian", [series], {"persistence": 1 - 1e-12})
        refused(build, "must be positive and finite", "stochastic-volatility", [series], {"scale": 1e60})


OWN = """
import mcfo
from mcfo.models import LinearGaussian
from helper_of_own import FACTOR


class Walk(mcfo.models.StochasticVolatility):
    def __init__(self):
        super().__init__(persistence=FACTOR)


class Sized(mcfo.models.PoissonCounts):
    size: int

    def __init__(self, size, *, level):
        super().__init__()
        self.size = size


class Unfinished(mcfo.Model):
    pass


class Blind(mcfo.proposals.Bootstrap):
    pass


ready = LinearGaussian.scalar(0.5, 1.0)
blind = Blind()
number = 3


def model_only(series):
    return LinearGaussian.scalar(1.0 / len(series), 1.0)


def both(series):
    return ready, Blind()


def backwards(series):
    return Blind(), ready


def with_class(series):
    return ready, Blind


def blindly(series):
    return Blind()


def nothing(series):
    pass


def two(series, more):
    pass


def failing(series):
    if series:
        raise KeyError("gone")
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "helper_of_own.py").write_text("FACTOR = 0.25\n")
    yield f"{tmp_path}/own.py"
    sys.modules.pop("helper_of_own", None)


@pytest.mark.parametrize(
    ("name", "factor", "proposal"),
    [("ready", 0.5, "Bootstrap"), ("model_only", 0.5, "Bootstrap"), ("both", 0.5, "Blind")],
)
def test_own_models(own, name, factor, proposal):
    before = list(sys.path)
    start = build_own(f"{own}:{name}", REAL)
    assert float(start.model.transition_matrix[0, 0]) == factor
    assert type(start.proposal).__name__ == proposal
    assert start.fixed == ()
    assert sys.path == before


def test_own_classes(own, tmp_path):
    files = set(tmp_path.iterdir())
    start = build_own(f"{own}:Walk", REAL)
    assert isinstance(start.model, StochasticVolatility)
    np.testing.assert_allclose(start.model.log_variance.persistence, 0.25)
    # The helper is imported as usual, the file itself leaves nothing behind.
    assert {path.stem.split(".")[0] for path in tmp_path.rglob("*.pyc")} <= {"helper_of_own"}
    assert set(tmp_path.glob("*.*")) == files


@pytest.mark.parametrize("name", ["Blind", "blind", "blindly"])
def test_own_proposals_share_the_classes_of_the_file(own, name):
    start = build_own(f"{own}:both", REAL, f"{own}:{name}")
    assert type(start.proposal) is load_own(f"{own}:Blind")


def test_a_file_that_changed_is_run_again(tmp_path):
    path = tmp_path / "own.py"
    for value in ("1", "2"):
        path.write_text(f"value = {value}\n")
        assert load_own(f"{path}:value") == int(value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Wlak", "There is no 'Wlak' in"),
        ("Wlak", "Did you mean 'Walk'? There are: Blind, Sized, Unfinished, Walk, backwards, blind, blindly, both,"),
        ("Sized", "own.py:Sized: missing a required argument: 'size'. A class is constructed without arguments: write"),
        ("Unfinished", "own.py: TypeError: Can't instantiate abstract class Unfinished"),
        ("Blind", "must be a Model, a class derived from mcfo.Model, or a function that takes the list of series"),
        ("Blind", "and returns one, but it is the class Blind."),
        ("blind", "but it is an object of type Blind."),
        ("number", "but it is an object of type int."),
        (
            "backwards",
            "own.py:backwards returned an object of type Blind, but an instance of mcfo.Model is wanted, or a pair",
        ),
        ("with_class", "own.py:with_class returned the class Blind, but an instance of mcfo.Proposal is wanted."),
        ("nothing", "own.py:nothing returned None, but an instance of mcfo.Model is wanted"),
        ("two", "own.py:two: missing a required argument: 'more'. A function is called with the list of series"),
        ("failing", "own.py, line 63: KeyError: 'gone'. Correct the file."),
    ],
)
def test_own_models_that_are_refused(own, name, message):
    refused(build_own, message, f"{own}:{name}", REAL)


def test_own_proposals_that_are_refused(own):
    refused(build_own, "must be a Proposal, a class derived", f"{own}:ready", REAL, f"{own}:ready")
    refused(build_own, "returned None, but an", f"{own}:ready", REAL, f"{own}:nothing")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x = 1\n\ny = 1 / 0\n", "own.py, line 3: ZeroDivisionError: division by zero. Correct the file."),
        ("def f():\n    return 1 / 0\n\n\nf()\n", "own.py, line 2: ZeroDivisionError"),
        ("x = 1\ny = (\n", "own.py, line 2: SyntaxError: '(' was never closed."),
        ("import no_such_module_anywhere\n", "own.py, line 1: ModuleNotFoundError: No module named"),
        ("import sys\nsys.exit('help')\n", "own.py, line 2: SystemExit: help."),
        ("raise KeyError\n", "own.py, line 1: KeyError. Correct the file."),
        ("x = '\0'\n", "own.py"),
    ],
)
def test_files_that_cannot_be_run(tmp_path, content, message):
    path = tmp_path / "own.py"
    path.write_text(content)
    modules, search = set(sys.modules), list(sys.path)
    refused(load_own, message, f"{path}:Name")
    assert sys.path == search
    assert not [name for name in set(sys.modules) - modules if name.startswith("mcfo_own")]


def test_a_file_without_public_names(tmp_path):
    path = tmp_path / "own.py"
    path.write_text("import math\n_hidden = 1\n")
    refused(load_own, f"There is no 'Name' in {path}. It defines no public name.", f"{path}:Name")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("none/own.py:Name", "There is no file none/own.py"),
        ("own.py", "'own.py' names nothing in a Python file. Write path/to/file.py:Name."),
        ("own.py:", "names nothing in a Python file"),
        ("own.txt:Name", "names nothing in a Python file"),
        ("own.py:a.b", "names nothing in a Python file"),
        ("", "names nothing in a Python file"),
    ],
)
def test_references_that_name_nothing(reference, message):
    refused(load_own, message, reference)


def test_a_folder_that_looks_like_a_file(tmp_path):
    (tmp_path / "own.py").mkdir()
    refused(load_own, "Is a directory", f"{tmp_path}/own.py:Name")


BINARY = [Series.from_values([[0, 1], [1, 1], [np.nan, 1.0]]), Series.from_values([[0, 1]], series_id=1)]
NARROW = {"transition_units": "4", "emission_units": "3,5", "encoder_units": "4,2", "proposal_units": (3,)}


@pytest.mark.ci
def test_the_deep_model_begins_at_the_mean_of_the_data():
    start = build("deep", BINARY, {**NARROW, "latent": "2"})
    assert start.chosen == {"emission": "bernoulli"}
    assert start.model.latent_size == 2
    assert [layer.weight.shape for layer in start.model.emission_network.layers] == [(3, 2), (5, 3), (2, 5)]
    wanted = np.array([1.5 / 4, 4.5 / 5])
    np.testing.assert_allclose(jax.nn.sigmoid(start.model.emission_network.layers[-1].bias), wanted, rtol=1e-6)
    np.testing.assert_allclose(start.proposal.center, wanted, rtol=1e-6)
    real = build("deep", REAL, NARROW)
    assert real.chosen == {"emission": "gaussian"}
    np.testing.assert_allclose(real.model.center, MEAN)
    np.testing.assert_allclose(real.proposal.scale, np.sqrt(VARIANCE))
    assert build("deep", BINARY, {**NARROW, "emission": "gaussian"}).model.emission_raw_scale is not None
    traced = build("deep", BINARY, {**NARROW, "traces": "2"})
    assert [(one.model.traces, one.proposal.traces) for one in (start, traced)] == [(0, 0), (2, 2)]
    one, other = (build("deep", BINARY, {**NARROW, "network_seed": seed}).model for seed in (0, 1))
    assert not np.allclose(one.emission_network.layers[0].weight, other.emission_network.layers[0].weight)


@pytest.mark.parametrize(("rows", "columns"), [(300, 4), (5, 9)])
def test_the_proposal_of_the_deep_model_begins_at_principal_components(rows, columns):
    """Against the singular vectors of the table; a column without spread does no harm."""
    random = np.random.default_rng(0)
    table = random.normal(size=(rows, 2)) @ random.normal(size=(2, columns)) + 0.01 * random.normal(
        size=(rows, columns)
    )
    table[:, 1] = 3.0
    series = Series.from_values(table)
    start = build("deep", [series], {"latent": 2, "encoder_units": "8,6", "proposal_units": "6"})
    standard = np.nan_to_num((table - np.asarray(start.proposal.center)) / np.asarray(start.proposal.scale))
    _, _, vectors = np.linalg.svd(standard, full_matrices=False)
    wanted = standard @ vectors[:2].T
    wanted /= np.sqrt(np.mean(wanted**2, axis=0))
    network = start.proposal.initial_network  # without what its other units say
    bare = eqx.tree_at(lambda n: n.layers[-1].weight, network, replace_fn=lambda w: w.at[:2, 4:].set(0.0))
    features, _ = start.proposal.encode(series)
    found = np.asarray(jax.vmap(bare)(features))[:, :2]
    np.testing.assert_allclose(np.abs(found), np.abs(wanted), rtol=1e-4, atol=1e-4)
    assert np.abs(np.asarray(jax.vmap(network)(features))[:, :2] - found).max() > 1e-3, "the others say a little"


def test_the_deep_model_does_not_mind_units():
    """The likelihood of 10 000 x and 0.0001 x, each column in a unit of its own, is that of x but for the units."""
    table = np.random.default_rng(0).normal(size=(12, 2)).cumsum(axis=0)

    def loss(units):
        series = Series.from_values(table * units + 3 * units)
        start = build("deep", [series], {"latent": 2, "emission_units": "8", "encoder_units": "9,6"})
        assert set(start.fixed) == {f"{one}.{name}" for one in ("model", "proposal") for name in ("center", "scale")}
        found, _ = mcfo(5).loss(start.model, start.proposal, stack([series]), key=jax.random.key(0))
        return float(found)

    units = np.array([1e4, 1e-4])
    assert np.isfinite(loss(np.ones(2)))
    np.testing.assert_allclose(loss(units), loss(np.ones(2)), rtol=1e-9)
    np.testing.assert_allclose(loss(2 * units), loss(np.ones(2)) + 12 * 2 * np.log(2), rtol=1e-9)


@pytest.mark.ci
def test_more_latents_than_columns():
    """Those without a principal component begin near the latent before, and all that is there learns."""
    series = Series.from_values(np.random.default_rng(0).normal(size=50).cumsum())
    start = build("deep", [series], {"emission_units": "8,16"})
    features, _ = start.proposal.encode(series)

    def mean(latent, features):
        return start.proposal.step(None, latent, (features, None)).mean

    latents = jax.random.normal(jax.random.key(0), (50, 3))
    slopes = np.asarray(jax.vmap(jax.jacobian(mean))(latents, features).mean(0))
    np.testing.assert_allclose(slopes, np.diag([0.0, 1.0, 1.0]), atol=0.35)
    gradients = eqx.filter_grad(lambda both: mcfo(20).loss(*both, stack([series]), key=jax.random.key(0))[0])(
        (start.model, start.proposal)
    )
    first = gradients[1].encoder.layers[0]
    assert (np.asarray(first.weight[:, 0]) != 0).all()


def test_the_deep_model_refuses_what_it_cannot_be():
    for options, message in (
        ({"emission": "bernouli"}, "Did you mean 'bernoulli'"),
        ({"emission": "bernoulli"}, "Series 1, step 1, column 2 of the values: 10 is neither 0 nor 1"),
        ({"latent": "0"}, "latent must be at least 1"),
        ({"latent": "three"}, "latent must be a whole number, but got 'three'"),
        ({"traces": "4"}, "traces must be from 0 to 3, as latent is, but got 4"),
        ({"emission_units": "16,x"}, "emission_units must be positive whole numbers with commas"),
        ({"encoder_units": "0"}, "encoder_units must be positive whole numbers"),
    ):
        refused(build, message, "deep", REAL, {**NARROW, **options})
