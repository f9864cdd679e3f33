"""Parquet and NetCDF files, inputs, and times that are not evenly spaced."""

import re
import sys

import numpy as np
import pandas as pd
import pytest
import xarray

from mcfo.data.inspection import describe_columns, describe_series
from mcfo.data.tables import read_series
from mcfo.errors import InputError

DAYS = pd.date_range("2020-01-01", periods=4, freq="D")


def refused(path, message, **options):
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read_series(path, **options)
    assert str(path) in str(caught.value)


def values(series):
    cells = np.asarray(series.observations).astype(object)
    cells[~np.asarray(series.mask())] = None
    return cells.tolist()


@pytest.fixture
def parquet(tmp_path):
    def write(frame, **options):
        pd.DataFrame(frame).to_parquet(tmp_path / "data.parquet", **options)
        return tmp_path / "data.parquet"

    return write


@pytest.fixture
def netcdf(tmp_path):
    def write(data, engine="h5netcdf"):
        data.to_netcdf(tmp_path / "data.nc", engine=engine)
        return tmp_path / "data.nc"

    return write


def test_parquet_is_read_as_csv_is(parquet, tmp_path):
    frame = pd.DataFrame(
        {
            "series": pd.Categorical(["a", "b", "a", "b"]),
            "time": DAYS,
            "x": [1.5, np.nan, -2.0, 1e-9],
            "k": pd.array([1, 2, None, 4], dtype="Int64"),
            "on": [True, False, True, True],
        }
    )
    frame.to_csv(tmp_path / "data.csv", index=False)
    found, wanted = read_series(parquet(frame)), read_series(tmp_path / "data.csv", values=["x", "k"])
    assert (found.names, found.columns) == (["a", "b"], ["x", "k", "on"])
    assert [values(one)[0][:2] for one in found.series_list] == [values(one)[0] for one in wanted.series_list]
    assert values(found.series_list[1]) == [[None, 2.0, 0.0], [1e-9, 4.0, 1.0]]
    assert found.spans == wanted.spans
    counts = read_series(parquet(frame), values=["on"])
    assert counts.series_list[0].observations.dtype == np.int32


@pytest.mark.parametrize("times", [DAYS, DAYS.tz_localize("Europe/Paris"), DAYS.date, [1, 2, 3, 5], [1.5, 2, 3, 4]])
def test_times_of_parquet(parquet, times):
    table = read_series(parquet({"time": times, "x": [1.0, 2.0, 3.0, 4.0]}))
    assert table.columns == ["x"]
    dates = not np.issubdtype(np.asarray(times).dtype, np.number)
    wanted = np.arange(4) * 86400.0 if dates else np.asarray(times) - times[0]
    np.testing.assert_array_equal(table.times[0], wanted)


def test_the_index_of_pandas(parquet):
    assert read_series(parquet(pd.DataFrame({"x": [1, 2, 3, 4]}, index=DAYS))).spans[0].last == "2020-01-04"
    assert read_series(parquet(pd.DataFrame({"x": [1, 2]}, index=[3, 1]))).columns == ["x"]
    named = pd.DataFrame({"x": [1, 2, 3, 4]}, index=DAYS.rename("when"))
    assert read_series(parquet(named), time="when").columns == ["x"]


@pytest.mark.parametrize(
    ("frame", "message", "options"),
    [
        ({"x": [1.0, 2.0], "y": ["1", "many"]}, "row 2, column 'y': 'many' is not a number. Correct it, or make", {}),
        ({"x": [1.0, np.inf]}, "row 2, column 'x': 'inf' is infinite", {}),
        ({"x": [1.0]}, "has no column 'y'. There are: x.", {"values": ["y"]}),
        ({"time": [2, 1], "x": [1, 1]}, "row 2, column 'time': the time 1 comes after 2 (row 1)", {}),
        ({"time": [1, 1], "x": [1, 1]}, "row 2, column 'time': the time 1 stands in row 1 too", {}),
        ({"x": [np.nan, np.nan]}, "All 2 values of the series are missing", {}),
        ({"x": [1.0, 2.0], "u": [1.0, None]}, "row 2, column 'u': the input is missing", {"inputs": ["u"]}),
        ({"x": []}, "no rows", {}),
    ],
)
def test_what_is_refused_in_parquet(parquet, frame, message, options):
    refused(parquet(frame), message, **options)


@pytest.mark.parametrize("ending", ["parquet", "nc"])
@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", b"PAR1 and no more", b"CDF\x01", b"\x89HDF\r\n\x1a\n"])
def test_damaged_files(tmp_path, ending, content):
    path = tmp_path / f"data.{ending}"
    path.write_bytes(content)
    refused(path, "is damaged, or no ")


@pytest.mark.parametrize(
    ("ending", "package", "command"),
    [
        ("parquet", "pyarrow", "pip install 'mcfo[parquet]'"),
        ("nc", "xarray", "pip install xarray"),
        ("nc", "h5py", "pip install h5py"),
    ],
)
def test_a_package_that_is_not_there(tmp_path, monkeypatch, ending, package, command):
    path = tmp_path / f"data.{ending}"
    path.write_bytes(b"\x89HDF")
    monkeypatch.setitem(sys.modules, package, None)
    refused(path, f"need the package {package}, which is not installed. Install it: {command}.")


GRID = np.arange(12.0).reshape(2, 3, 2)


@pytest.mark.parametrize("engine", ["h5netcdf", "scipy"])
def test_netcdf_with_series_and_times(netcdf, engine):
    grid = GRID[..., 0].copy()
    grid[0, 1] = np.nan
    data = xarray.Dataset(
        {"x": (("time", "series"), grid.T), "note": 7.0, "lengths": ("series", [3, 2])},
        coords={"series": ["a", "b"], "time": DAYS[:3]},
    )
    table = read_series(netcdf(data, engine))
    assert (table.names, table.columns) == (["a", "b"], ["x"])
    assert [values(one) for one in table.series_list] == [[[0.0], [None], [4.0]], [[6.0], [8.0]]]
    assert table.spans[1][:2] == ("2020-01-01", "2020-01-02")
    assert table.spacing.words == "1 day"


def test_a_further_dimension_of_netcdf_makes_columns(netcdf):
    data = xarray.Dataset({"y": (("series", "time", "dimension"), GRID)})
    table = read_series(netcdf(data))
    assert (table.names, table.columns) == (["1", "2"], ["y1", "y2"])
    np.testing.assert_array_equal([one.observations for one in table.series_list], GRID)
    named = data.assign_coords(dimension=["left", "right"])
    assert read_series(netcdf(named)).columns == ["left", "right"]
    two = named.assign(z=(("series", "time"), GRID[..., 0]))
    assert read_series(netcdf(two), values=["z", "y_right"]).columns == ["z", "y_right"]


def test_netcdf_in_rows(netcdf):
    data = xarray.Dataset({name: ("row", column) for name, column in {"series": [1, 2, 1], "x": [1, 2, 3]}.items()})
    assert [values(one) for one in read_series(netcdf(data)).series_list] == [[[1], [3]], [[2]]]
    stations = xarray.Dataset({"x": (("station", "when"), GRID[..., 0])}, coords={"when": [1, 2, 9]})
    table = read_series(netcdf(stations), series="station", time="when")
    assert table.names == ["1", "2"]
    np.testing.assert_array_equal(table.times[0], [0, 1, 8])
    refused(netcdf(stations), "has the dimensions station, when: which one are the steps?")
    refused(netcdf(data), "has no column 'y'.", values=["y"])


def test_inputs_are_read_and_are_no_values(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("x,u,w\n1,0.5,2\n,1.5,3\n3,2.5,4\n")
    table = read_series(path, inputs=["w", "u"])
    assert (table.columns, table.inputs) == (["x"], ["w", "u"])
    np.testing.assert_array_equal(table.series_list[0].inputs, [[2, 0.5], [3, 1.5], [4, 2.5]])
    refused(path, "is requested twice", values=["x", "u"], inputs=["u"])
    refused(path, "has no column 'z'", inputs=["z"])
    path.write_text("x,u\n1,0.5\n2,\n")
    refused(path, "line 3, column 'u': the input is missing. Inputs are known at every step", inputs=["u"])


def test_inputs_and_times_of_npz(tmp_path):
    path = tmp_path / "data.npz"
    cube, times = np.ones((2, 3, 1)), np.array([[0, 1, 4], [2, 3, 0]])
    np.savez(path, observations=cube, inputs=GRID, times=times, lengths=[3, 2])
    table = read_series(path).with_gaps()
    assert table.inputs == ["u1", "u2"]
    np.testing.assert_array_equal(table.series_list[0].inputs[:, 0], [1, 1, 3])
    np.testing.assert_array_equal(table.series_list[1].inputs, [[1, 6, 7], [1, 8, 9]])
    for changes, message in (
        ({"inputs": GRID[:1]}, "inputs have shape (1, 3, 2) and dtype float64, but numbers of shape (2, 3, inputs)"),
        ({"times": times[:, :2]}, "times have shape (2, 2)"),
        ({"times": times[:, ::-1]}, "in series 1 the time 1 comes after 4, but times must increase"),
        ({"times": times * np.nan}, "a time of series 1 is not finite"),
    ):
        np.savez(path, **{"observations": cube, **changes})
        refused(path, message)


def csv_of(tmp_path, times):
    path = tmp_path / "data.csv"
    path.write_text("time,x\n" + "".join(f"{time},{place}\n" for place, time in enumerate(times)))
    return read_series(path)


CLOSED = pd.date_range("2001-09-11", "2001-09-14")
SP500 = [str(day.date()) for day in pd.bdate_range("2001-08-20", "2001-12-31").difference(CLOSED)]


@pytest.mark.parametrize(
    ("times", "even", "words"),
    [
        (range(1871, 1900), True, "1"),
        ([0, 0.5, 1.0, 1.5], True, "0.5"),
        ([1, 2, 4, 5], False, "1"),
        (["2020-01", "2020-02", "2020-03"], True, "a month"),
        (["2019-12-31", "2020-01-31", "2020-02-29", "2020-03-31"], True, "a month"),
        (["2019-12-31", "2020-01-31", "2020-02-28", "2020-03-31"], False, "31 days"),
        (["2020-01-01", "2020-04-01", "2020-07-01", "2020-10-01"], True, "a quarter"),
        (["2018-02-01", "2019-02-01", "2020-02-01", "2021-02-01"], True, "a year"),
        (["2020-01", "2020-02", "2020-03", "2020-05"], False, "31 days"),
        (SP500, True, "a working day"),
        ([*SP500[:20], *SP500[40:60]], False, "1 day"),
        (["2020-01-01T00:00", "2020-01-01T01:00", "2020-01-01T03:00"], False, "1.5 hours"),
        (["2020-01-06", "2020-01-13", "2020-01-27"], False, "10.5 days"),
    ],
)
def test_which_times_are_even(tmp_path, times, even, words):
    found = csv_of(tmp_path, times).spacing
    assert (found.even, found.words) == (even, words)


def test_gaps_are_measured_in_the_typical_one(tmp_path):
    table = csv_of(tmp_path, ["2020-01-01", "2020-01-08", "2020-01-15", "2020-02-05"])
    assert table.spacing.longest == (3.0, 0, 3)
    np.testing.assert_array_equal(table.with_gaps().series_list[0].inputs[:, 0], [1, 1, 1, 3])
    table = table.with_gaps(86400.0)
    np.testing.assert_array_equal(table.series_list[0].inputs[:, 0], [1, 7, 7, 21])
    assert table.with_gaps() is table
    assert csv_of(tmp_path, ["March", "April"]).spacing is None
    with pytest.raises(InputError, match="There are no times from which to take the gaps"):
        csv_of(tmp_path, ["March", "April"]).with_gaps()


def test_what_is_in_a_table(tmp_path):
    path = tmp_path / "data.csv"
    rows = [
        f"a,{n},{n % 5},1,{n % 2},{'' if 3 <= n < 6 else 2.5 * n},{1e6 if n == 9 else n % 7 / 7}" for n in range(50)
    ]
    path.write_text("series,time,count,flat,bit,real,odd\n" + "\n".join([*rows, "b,0,1,1,1,2.0,0.1"]) + "\n")
    table = read_series(path)
    found = {one.name: one for one in describe_columns(table)}
    assert {name: one.notes for name, one in found.items()} == {
        "count": ("counts",),
        "flat": ("constant",),
        "bit": ("zeros and ones",),
        "real": (),
        "odd": ("1 far from the rest",),
    }
    assert (found["real"].known, found["real"].missing, found["real"].least) == (48, 3, 0.0)
    first, second = describe_series(read_series(path, values=["real"]))
    assert (first.name, first.steps, first.incomplete, first.longest_missing) == ("a", 50, 3, 3)
    assert (second.steps, second.first, second.last) == (1, "0", "0")
