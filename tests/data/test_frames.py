"""Data frames in and out: every form comes back as it was, and forecasts continue its dates."""

import json

import jax
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import xarray

import mcfo
from mcfo.data.export import write_summaries
from mcfo.data.frame_forms import FrameForm
from mcfo.data.tables import read_series
from mcfo.errors import InputError
from mcfo.inference.datasets import build_dataset, named_series, write_netcdf

DRAW = np.random.default_rng(0)


def values(count, columns=1):
    return DRAW.normal(size=(count, columns)).round(3) if columns > 1 else DRAW.normal(size=count).round(3)


def long(dates):
    frame = pd.DataFrame({"unique_id": ["b"] * len(dates) + ["a"] * 3, "ds": [*dates, *dates[:3]]})
    return frame.assign(y=values(len(frame)))


MONTH_ENDS = pd.date_range("2019-10-31", periods=8, freq="ME", name="when")
FRAMES = {
    "series": pd.Series(values(6), pd.period_range("2020-01", periods=6, freq="M"), name="sales"),
    "series without a name": pd.Series(values(5)),
    "wide, quarters": pd.DataFrame(values(5, 2), pd.period_range("2020Q3", periods=5, freq="Q"), columns=["a", "b"]),
    "wide, month ends": pd.DataFrame({"n": np.arange(8), "x": values(8)}, MONTH_ENDS),
    "wide, numbered columns": pd.DataFrame(values(6, 2), pd.date_range("2020-01-01", periods=6, freq="MS")),
    "weeks": pd.DataFrame({"x": values(6)}, pd.date_range("2020-01-05", periods=6, freq="W")),
    "hours of a zone": pd.DataFrame(
        {"x": values(6)}, pd.date_range("2020-10-24 22:00", periods=6, freq="h", tz="Europe/Berlin")
    ),
    "days of a zone": pd.DataFrame({"x": values(6)}, pd.date_range("2020-10-23", periods=6, tz="Europe/Berlin")),
    "years": pd.DataFrame({"x": values(5)}, pd.Index(range(1871, 1876), name="year")),
    "rows that were selected": pd.DataFrame({"x": values(5)}, index=[3, 4, 5, 6, 7]),
    "uneven dates": pd.DataFrame(
        {"x": values(4)}, pd.to_datetime(["2020-01-01", "2020-01-02", "2020-01-09", "2020-04-01"])
    ),
    "durations": pd.DataFrame({"x": values(4)}, pd.to_timedelta(range(4), unit="s")),
    "text of dates": pd.DataFrame({"month": ["2020-01", "2020-02", "2020-03"], "x": [0.5, 1.5, 2.5]}),
    "long": long(pd.date_range("2020-01-31", periods=4, freq="ME")),
    "long, text": long(["2020-01-01", "2020-01-02", "2020-01-03", "2020-01-04"]),
    "long, other names": long(range(4))
    .rename(columns={"unique_id": "firm", "ds": "year"})
    .assign(firm=[2] * 4 + [1] * 3),
    "long, years": long([2000, 2001, 2002, 2003]).rename(columns={"unique_id": "firm", "ds": "year"}),
    "panel": long(pd.period_range("2020Q1", periods=4, freq="Q")).set_index(["unique_id", "ds"]),
    "panel without names": long(pd.date_range("2020-01-01", periods=4))
    .set_index(["unique_id", "ds"])
    .rename_axis([None, None]),
    "dtypes": pd.DataFrame(
        {
            "i": pd.Series([1, 2, None], dtype="Int64"),
            "f": pd.Series([0.5, 1.5, 2.5], dtype="float32"),
            "b": [True, False, True],
            "date": pd.date_range("2020-01-01", periods=3, unit="s"),
        }
    ),
}


@pytest.mark.parametrize("case", FRAMES)
def test_a_round_trip_keeps_index_names_and_dtypes(case):
    frame = FRAMES[case]
    named = {"series": "firm", "time": "year"} if case == "long, other names" else {}
    table = read_series(frame, **named)
    found = table.to_frame()
    if isinstance(frame, pd.Series):
        pd.testing.assert_series_equal(found, frame)
    else:
        pd.testing.assert_frame_equal(found, frame)
    assert FrameForm.from_json(table.form.to_json()) == table.form


def dataset(data, steps=None, level=0.5):
    """A data set as `filter` returns it, or `forecast` for some steps, without any filter: the mean is the step."""
    named = named_series(data)
    lengths = [len(series.values()) for series in named.series_list]
    counts = lengths if steps is None else [steps] * len(lengths)
    results = []
    for series, count in zip(named.series_list, counts, strict=True):
        mean = np.tile(np.arange(1.0, count + 1)[:, None], len(named.columns))
        one = {
            "observation_mean": mean,
            "observation_quantiles": np.stack([mean - 1, mean + 1], 1),
            "latent_mean": mean,
        }
        results.append(one if steps else {**one, "observation": series.values()})
    moments = named.moments if steps is None else [one.moments for one in named.coming(steps)]
    form = {} if named.form is None else {"frame": named.form.to_json()}
    about = {"series": named.names, "columns": named.columns, "lengths": lengths, "attributes": form}
    return build_dataset(results, **about, levels=(0.05, 0.95), moments=moments)


@pytest.mark.parametrize("case", ["series", "wide, month ends", "weeks", "days of a zone", "hours of a zone", "years"])
def test_results_have_the_index_of_the_data(case):
    frame = FRAMES[case]
    found = mcfo.inference.to_frame(dataset(frame), "mean")
    pd.testing.assert_index_equal(found.index, frame.index, exact="equiv")
    assert [*found.columns] == ([frame.name] if isinstance(frame, pd.Series) else [*frame.columns])
    observed = mcfo.inference.to_frame(dataset(frame), "observed")
    np.testing.assert_array_equal(observed.to_numpy().ravel(), frame.to_numpy(float).ravel())


@pytest.mark.parametrize(
    ("case", "following"),
    [
        ("series", pd.period_range("2020-07", periods=3, freq="M")),
        ("wide, quarters", pd.period_range("2021Q4", periods=3, freq="Q")),
        ("wide, month ends", pd.date_range("2020-06-30", periods=3, freq="ME", name="when")),
        ("weeks", pd.date_range("2020-02-16", periods=3, freq="W")),
        ("days of a zone", pd.date_range("2020-10-29", periods=3, tz="Europe/Berlin")),
        ("hours of a zone", pd.date_range("2020-10-25 03:00", periods=3, freq="h", tz="Europe/Berlin")),
        ("years", pd.Index([1876, 1877, 1878], name="year")),
        ("series without a name", pd.RangeIndex(5, 8)),
    ],
)
def test_forecasts_continue_the_index(case, following):
    frame = FRAMES[case]
    named = named_series(frame)
    if named.moments is None:
        made = dataset(frame).isel(time=slice(0, 3)).drop_vars("observation")
    else:
        made = dataset(frame, 3)
    found = mcfo.inference.to_frame(made, 0.95)
    pd.testing.assert_index_equal(found.index, following, exact="equiv")
    assert getattr(found.index, "freq", None) == getattr(following, "freq", None)


def test_month_ends_stay_month_ends():
    leap = pd.Series(values(14), pd.date_range("2018-12-31", periods=14, freq="ME"))
    found = mcfo.inference.to_frame(dataset(leap, 3), "mean").index
    assert [str(day.date()) for day in found] == ["2020-02-29", "2020-03-31", "2020-04-30"]


def test_long_forecasts():
    found = mcfo.inference.to_frame(dataset(FRAMES["long"], 2))
    assert [*found.columns] == ["unique_id", "ds", "mean", "q05", "q95"]
    assert found["unique_id"].tolist() == ["b", "b", "a", "a"]
    assert found["ds"].dt.strftime("%Y-%m-%d").tolist() == ["2020-05-31", "2020-06-30", "2020-04-30", "2020-05-31"]
    panel = mcfo.inference.to_frame(dataset(FRAMES["long"], 2), "mean", shape="panel")
    assert (panel.index.names, [*panel.columns]) == (["unique_id", "ds"], ["y"])
    back = mcfo.inference.to_frame(dataset(FRAMES["panel"], 2), "mean", shape="long")
    assert [*back.columns] == ["unique_id", "ds", "y"]
    assert back["ds"].astype(str).tolist() == ["2021Q1", "2021Q2", "2020Q4", "2021Q1"]
    two = mcfo.inference.to_frame(dataset(FRAMES["wide, quarters"], 1))
    assert [*two.columns] == [f"{name}_{one}" for name in "ab" for one in ("mean", "q05", "q95")]
    with pytest.raises(InputError, match=r"There is no shape 'log' of a data frame. Did you mean 'long'?"):
        mcfo.inference.to_frame(dataset(FRAMES["long"], 2), shape="log")
    with pytest.raises(InputError, match=r"no statistic 0\.3"):
        mcfo.inference.to_frame(dataset(FRAMES["long"], 2), 0.3)


def test_the_form_survives_netcdf_and_dates_reach_csv(tmp_path):
    frame = FRAMES["wide, month ends"]
    made = dataset(frame, 2)
    write_netcdf(tmp_path / "f.nc", made)
    with xarray.open_dataset(tmp_path / "f.nc") as opened:
        again = mcfo.inference.to_frame(opened.load(), "mean")
    pd.testing.assert_frame_equal(again, mcfo.inference.to_frame(made, "mean"))
    write_summaries(tmp_path / "f.csv", made)
    rows = pd.read_csv(tmp_path / "f.csv")
    assert rows["moment"].tolist()[::2] == ["2020-06-30", "2020-07-31"]


@pytest.mark.ci
def test_a_forecast_of_a_model_has_dates():
    """The real thing once: a model, a filter, a forecast of a frame with two series of different ends."""
    model = mcfo.models.StochasticVolatility(level=-1.0, persistence=0.9, scale=0.3)
    frame = FRAMES["long"]
    made = mcfo.forecast(model, mcfo.proposals.Bootstrap(), frame, 2, particles=5, draws=4)
    found = mcfo.inference.to_frame(made, "mean")
    assert found["ds"].dt.strftime("%Y-%m").tolist() == ["2020-05", "2020-06", "2020-04", "2020-05"]
    assert np.isfinite(found["y"]).all()
    filtered = mcfo.filter(model, mcfo.proposals.Bootstrap(), frame, particles=5)
    pd.testing.assert_frame_equal(mcfo.inference.to_frame(filtered, "observed"), frame)
    assert mcfo.evaluate(model, mcfo.proposals.Bootstrap(), frame, particles=5, key=jax.random.key(0)).series == 2


def test_other_libraries():
    frame = FRAMES["long"]
    table = pa.Table.from_pandas(frame, preserve_index=False)
    found = read_series(table)
    assert (found.names, found.columns) == (["b", "a"], ["y"])
    np.testing.assert_array_equal(found.series_list[0].values()[:, 0], frame["y"][:4])


def test_missing_cells_of_every_kind():
    frame = pd.DataFrame({"x": [1.5, None, 2.5], "y": pd.array([1, None, 3], "Int64"), "z": ["1", None, "2.5"]})
    found = read_series(frame).series_list[0].values()
    np.testing.assert_array_equal(found, [[1.5, 1, 1], [np.nan, np.nan, np.nan], [2.5, 3, 2.5]])


BAD = {
    "columns of one name": (pd.DataFrame([[1, 2]], columns=["x", "x"]), "two columns called 'x'. Rename one"),
    "cells that are no numbers": (
        pd.DataFrame({"x": [1, "many"]}),
        "The data frame, row 2, column 'x': 'many' is not a number.*values=.*series=",
    ),
    "lists": (pd.DataFrame({"x": [[1], [2]]}), r"row 1, column 'x': '\[1\]' is not a number"),
    "complex numbers": (pd.DataFrame({"x": [1j, 2]}), "complex numbers in 'x'"),
    "three levels": (pd.DataFrame({"x": [1.0]}, pd.MultiIndex.from_tuples([(1, 2, 3)])), "an index of 3 levels"),
    "columns of two levels": (pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "b")])), "columns of 2 le"),
    "the same time twice": (
        pd.DataFrame({"unique_id": ["a", "a"], "ds": ["2020-01-01"] * 2, "y": [1, 2]}),
        "row 2, column 'ds': the time 2020-01-01 stands in row 1 too, in the same series 'a'",
    ),
    "unsorted": (pd.Series([1, 2], pd.to_datetime(["2020-01-02", "2020-01-01"])), "comes after 2020-01-02"),
    "no time": (pd.Series([1, 2], pd.to_datetime(["2020-01-02", None])), "the time is empty"),
    "an index called like a column": (pd.DataFrame({"time": [1, 2]}, pd.date_range("2020", periods=2)), "both called"),
    "no such column": (pd.DataFrame({"x": [1, 2]}), "The data frame has no column 'q'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_frames_are_refused(case):
    frame, message = BAD[case]
    with pytest.raises(InputError, match=message):
        read_series(frame, values=["q"] if case == "no such column" else None)


def test_attributes_are_plain():
    form = read_series(FRAMES["panel"]).form
    assert json.loads(form.to_json())["shape"] == "panel"
