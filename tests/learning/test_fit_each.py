"""Many series, each with parameters of its own: the single fit's maxima, unusable series, interruptions, particles."""

import numpy as np
import pytest

import mcfo
from mcfo import Series
from mcfo.data.column_layout import RequestedColumns
from mcfo.data.panels import Panel, read_panel
from mcfo.errors import InputError, OtherRunError
from mcfo.learning import fit_each as module
from mcfo.learning.fit_each import chunks
from mcfo.learning.saved_each import load_each

LENGTHS = [30, 24, 30, 27, 30]


def walks(lengths=LENGTHS, seed=0):
    """Noisy walks, one for each length; the second is constant, the third has gaps."""
    random = np.random.default_rng(seed)
    values = [np.cumsum(random.normal(size=length)) + random.normal(size=length) for length in lengths]
    values[1][:] = 2.0
    values[2][3:7] = np.nan
    return [Series.from_values(one, series_id=index) for index, one in enumerate(values)]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("each") / "run"
    return folder, mcfo.fit_each("local-level", walks(), out=folder, chunk=3, steps=200, devices=1)


@pytest.mark.ci
def test_every_series_has_the_maximum_of_its_own_fit(fitted):
    _, many = fitted
    assert many.unusable.keys() == {"2"}
    assert "constant" in many.unusable["2"]
    assert many.not_converged == []
    gaps = []
    for index, series in enumerate(walks()):
        if index == 1:
            assert np.isnan(many.dataset["log_likelihood"][index])
            continue
        alone = mcfo.fit("local-level", [series], steps=200)
        gaps.append(
            float(many.dataset["log_likelihood"][index]) - -alone.evaluation.exact_nll_per_step * alone.evaluation.steps
        )
    np.testing.assert_allclose(gaps, 0.0, atol=1e-3)


@pytest.mark.ci
def test_an_interrupted_run_resumes_with_the_next_chunk(fitted, tmp_path, monkeypatch):
    """What is done is not done again, and the results are the same numbers; another configuration is refused."""
    whole = fitted[1]
    options = {"out": tmp_path / "run", "chunk": 3, "steps": 200, "devices": 1}
    learn, calls = module._Learner.__call__, []

    def interrupted(self, *arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return learn(self, *arguments)

    monkeypatch.setattr(module._Learner, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        mcfo.fit_each("local-level", walks(), **options)
    with pytest.raises(InputError, match="exists already"):
        mcfo.fit_each("local-level", walks(), **options)
    with pytest.raises(OtherRunError, match=r"settings\.steps was 200 and is 100"):
        mcfo.fit_each("local-level", walks(), resume=True, **options | {"steps": 100})
    resumed = mcfo.fit_each("local-level", walks(), resume=True, **options)
    assert len(calls) == 3
    assert resumed.dataset.identical(whole.dataset)


@pytest.mark.ci
def test_forecasts_and_scores_are_those_of_each_series_own_model(fitted):
    folder, many = fitted
    saved, series = load_each(folder), walks()
    with pytest.raises(InputError, match=r"Series '2' was not learned: .*constant"):
        saved.modules("2")
    with pytest.raises(InputError, match="has no series '7'"):
        saved.modules("7")
    usable = mcfo.inference.datasets.named_series(series).choose([0, 2, 3])
    forecasts = saved.forecast(usable, 4)
    assert forecasts["series"].values.tolist() == ["1", "3", "4"]
    alone = saved.modules("3")
    expected = mcfo.forecast(alone.model, alone.proposal, [series[2]], 4)
    np.testing.assert_allclose(forecasts["observation_mean"].values[1], expected["observation_mean"].values[0])
    smoothed = saved.smooth(usable)
    assert smoothed["length"].values.tolist() == [30, 30, 27]
    np.testing.assert_allclose(
        smoothed["log_evidence"].values, many.dataset["log_likelihood"].values[[0, 2, 3]], rtol=1e-8
    )
    rolling = saved.evaluate_rolling(usable, first=20)
    own = [mcfo.evaluate_rolling(*saved._both(name), [series[int(name) - 1]], first=20) for name in "134"]
    scores = np.concatenate([one.series[0].log_score for one in own])
    np.testing.assert_allclose(np.concatenate([one.log_score for one in rolling.series]), scores)


@pytest.mark.ci
def test_particles_learn_each_series_as_if_it_were_alone():
    """The parameters do not depend on the series beside it, nor on its slot."""
    random = np.random.default_rng(1)
    series = [
        Series.from_values(random.normal(size=12) * scale, series_id=index) for index, scale in enumerate((1, 3, 2))
    ]
    options = {"steps": 20, "log_every": 5, "objective": mcfo.objectives.mcfo(10, theta="fisher"), "devices": 1}
    options["evaluation_particles"] = 50
    many = mcfo.fit_each("stochastic-volatility", series, **options).dataset
    few = mcfo.fit_each(
        "stochastic-volatility", Panel.of(series, ["1", "2", "3"], ["x"])._replace(unusable={0: "Left out."}), **options
    ).dataset
    level = next(name for name in many if name.endswith("log_variance.level"))
    np.testing.assert_allclose(many[level].values[1:], few[level].values[1:], rtol=1e-9)
    assert np.isnan(few[level].values[0]).all()
    assert np.ptp(many[level].values) > 0.5
    assert np.isfinite(many["log_likelihood"].values).all()


def test_chunks_have_series_of_similar_lengths():
    lengths = np.array([100, 8, 100, 9, 100, 40, 100])
    found = [(indices.tolist(), steps) for indices, steps in chunks(lengths, 3)]
    assert found == [([1, 3], 9), ([5], 40), ([0, 2, 4], 100), ([6], 100)]


def test_a_panel_is_read_from_parquet(tmp_path):
    """Rows in any order of the series; what is wrong with one of them is said of that one."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = {
        "shop": ["b", "a", "b", "a", "c", "c"],
        "time": [1, 1, 2, 2, 5, 5],
        "sales": [1.0, 10.0, None, 20.0, 3.0, 4.0],
        "count": [1, 2, 3, 4, 5, 6],
    }
    pq.write_table(pa.table(table), tmp_path / "panel.parquet")
    panel = read_panel(tmp_path / "panel.parquet", RequestedColumns(values=["sales"], series="shop"))
    assert panel.names == ["b", "a", "c"]
    np.testing.assert_array_equal(panel.series(0).values(), [[1.0], [np.nan]])
    np.testing.assert_array_equal(panel.series(1).values(), [[10.0], [20.0]])
    with pytest.raises(InputError, match="times do not increase"):
        panel.series(2)
    with pytest.raises(InputError, match="no column that identifies the series"):
        read_panel(tmp_path / "panel.parquet", RequestedColumns(values=["sales", "count"], time="time"))
    whole = read_panel(tmp_path / "panel.parquet", RequestedColumns(series="shop"))
    assert whole.columns == ["sales", "count"]


def test_what_each_series_cannot_be_given_is_refused():
    with pytest.raises(InputError, match=r"No series can be learned. The first, 1: .*constant"):
        mcfo.fit_each("local-level", [Series.from_values(np.ones(5))])
    with pytest.raises(InputError, match="There are no data"):
        mcfo.fit_each("local-level")
    with pytest.raises(InputError, match="no option 'persistance'"):
        mcfo.fit_each("linear-gaussian", walks(), persistance=0.5)
    with pytest.raises(InputError, match="There is no setting"):
        mcfo.fit_each(mcfo.models.LinearGaussian.scalar(0.9, 1.0), mcfo.proposals.Bootstrap(), walks(), step=5)
