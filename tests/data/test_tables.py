"""Reading series from files: what is read, what is refused, and how it is said."""

import io
import re
import zipfile
from pathlib import Path

import jax
import numpy as np
import pytest

from mcfo import Series
from mcfo.data.tables import read_series, write_series
from mcfo.errors import InputError


@pytest.fixture
def csv_file(tmp_path):
    def write(content: str | bytes) -> Path:
        path = tmp_path / "data.csv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


@pytest.fixture
def npz_file(tmp_path):
    def write(*arrays, **named) -> Path:
        np.savez(tmp_path / "data.npz", *arrays, **named)
        return tmp_path / "data.npz"

    return write


def refused(path: Path, message: str, **options):
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read_series(path, **options)
    assert str(path) in str(caught.value)


def values(series: Series) -> list:
    """Rows with NaN as None, so that lists can be compared."""
    cells = np.asarray(series.observations).astype(object)
    cells[~np.asarray(series.mask())] = None
    return cells.tolist()


def test_series_are_told_apart_and_keep_the_order_of_the_file(csv_file):
    table = read_series(csv_file("series,time,a,b\nx,1,1.5,2\ny,1,10,20\nx,2,,4\ny,5,30,NA\nx,9,5,NaN\n"))
    assert table.names == ["x", "y"]
    assert table.columns == ["a", "b"]
    assert [int(series.series_id) for series in table.series_list] == [0, 1]
    assert values(table.series_list[0]) == [[1.5, 2.0], [None, 4.0], [5.0, None]]
    assert values(table.series_list[1]) == [[10.0, 20.0], [30.0, None]]


@pytest.mark.parametrize(
    "content",
    [
        "time,a,b\n1,1,2\n2,3,4\n",
        "\ufefftime,a,b\n1,1,2\n2,3,4\n",
        "T;a;b\r\n1;1;2\r\n2;3;4\r\n",
        "DATE\ta\tb\r2020-01-01\t1\t2\r2020-01-02\t3\t4\r",
        '"time", "a", b \n1, 1 , +2\n2,"3",4\n\n  \n\n',
        "a,b\n1,2\n3,4",
    ],
)
def test_forms_of_the_same_table(csv_file, content):
    table = read_series(csv_file(content))
    assert (table.names, table.columns) == (["1"], ["a", "b"])
    assert values(table.series_list[0]) == [[1, 2], [3, 4]]
    assert table.series_list[0].observations.dtype == np.int32


@pytest.mark.parametrize(
    ("content", "dtype"),
    [
        ("a,b\n1,2\n-3,4\n", np.int32),
        ("a,b\n1,2\n3,\n", np.float64),
        ("a,b\n1,2\n3,4.0\n", np.float64),
        ("a,b\n1,2\n3,1e2\n", np.float64),
        ("a,b\n1,2\n3,3000000000\n", np.float64),
        ("series,a\nx,1\ny,3000000000\n", np.float64),
        ("series,a\nx,1\ny,0.5\n", np.float64),
    ],
)
def test_counts_stay_integers(csv_file, content, dtype):
    assert {series.observations.dtype for series in read_series(csv_file(content)).series_list} == {np.dtype(dtype)}


def test_columns_are_chosen(csv_file):
    path = csv_file("id,t,when,a,note\n7,1,3,0.5,x\n7,2,1,1.5,y\n8,0,2,2.5,z\n")
    table = read_series(path, values=["a", "t"], series="id", time=None)
    assert (table.names, table.columns) == (["7", "8"], ["a", "t"])
    assert values(table.series_list[0]) == [[0.5, 1.0], [1.5, 2.0]]
    assert read_series(path, values="a", series="id").columns == ["a"]
    refused(path, "line 3, column 'when': the time 1 comes after 3 (line 2)", values=["a"], series="id", time="when")


def test_in_one_column_an_empty_line_is_a_missing_value(csv_file):
    assert values(read_series(csv_file('x\n1\n\n3\n""\n\n')).series_list[0]) == [[1.0], [None], [3.0], [None]]


@pytest.mark.parametrize(
    "times",
    [
        ["1", "2", "10"],
        ["-1.5", "1e-3", "2"],
        ["1700000000000000001", "1700000000000000002", "1700000000000000003"],
        ["1999-12-31", "2020-01-01", "2020-01-10"],
        ["2020-01", "2020-02", "2020-11"],
        ["2020-01-01T10:00", "2020-01-01 11:00", "2020-01-01T11:00:00.5"],
        ["2020-01-01T10:00+02:00", "2020-01-01T09:00Z", "2020-01-01T10:00Z"],
        ["2020-01-01T00:00:00.000000001", "2020-01-01T00:00:00.000000002", "2020-01-01T00:00:00.0000001"],
        ["March", "April", "April"],
    ],
)
def test_times_that_increase(csv_file, times):
    path = csv_file("time,x\n" + "".join(f"{time},{place}\n" for place, time in enumerate(times)))
    assert values(read_series(path).series_list[0]) == [[0], [1], [2]]


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ("2 1", "line 3, column 'time': the time 1 comes after 2 (line 2) in series '1', but times must increase"),
        ("1 1.0", "line 3, column 'time': the time 1.0 stands in line 2 too, in the same series '1'. Keep one row"),
        ("9 10 9.5", "line 4, column 'time': the time 9.5 comes after 10 (line 3)"),
        ("2020-01-02 2020-01-01", "line 3, column 'time': the time 2020-01-01 comes after 2020-01-02 (line 2)"),
        ("2020-01-01T01Z 2020-01-01T02+01:00", "line 3, column 'time': the time 2020-01-01T02+01:00 stands in line 2"),
        ("2020-01-01T01Z 2020-01-01T02", "line 3, column 'time': of 2020-01-01T02 and 2020-01-01T01Z (line 2) one has"),
        ("1 x", "line 3, column 'time': 'x' is not a number, as the first time is"),
        ("1 nan", "line 3, column 'time': 'nan' is not a number, as the first time is"),
        ("2020-01-01 2020-13-01", "line 3, column 'time': '2020-13-01' is not an ISO date, as the first time is"),
        (["1", ""], "line 3, column 'time': the time is empty"),
        (["March", " "], "line 3, column 'time': the time is empty"),
    ],
)
def test_times_that_do_not(csv_file, times, message):
    times = times.split() if isinstance(times, str) else times
    refused(csv_file("time,x\n" + "".join(f"{time},1\n" for time in times)), message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "line 1: there is no header"),
        ("\n1,2\n", "line 1: there is no header"),
        ("a,,b\n1,2,3\n", "line 1: column 2 has no name. Name it, or remove it (pandas leaves its index out"),
        ("a,b, a\n1,2,3\n", "line 1: two columns are called 'a'. Rename one."),
        ("1.5,2\n3,4\n", "line 1: 1.5, 2 look like data, but a header is wanted"),
        ("2020-01-01,NA\n2020-01-02,4\n", "line 1: 2020-01-01, NA look like data"),
        ("a,b\n", "has a header, but no rows below it"),
        ("a,b\n\n  \n", "has a header, but no rows below it"),
        ("series,time\nx,1\n", "has no column of values: there are series, time"),
        ("a,b\n1,2\n3\n", "line 3: the row has 1 cells, but the header has 2"),
        ("a,b\n1,2\n3,4,5\n", "line 3: the row has 3 cells, but the header has 2"),
        ("a,b\n1,2\n\n3,4\n", "line 3: the line is empty, but 2 cells are wanted"),
        ('a,b\n"1\n",2\n3\n', "line 4: the row has 1 cells"),
        ('a,b\n1,2\n3,"4\n5,6\n', "line 3: the row cannot be read (unexpected end of data)"),
        ('a,b\n1,"2"3\n', "line 2: the row cannot be read"),
        ("a,b\n1,2\n3,x\n", "line 3, column 'b': 'x' is not a number. Correct it, or leave the cell empty"),
        ("a,b\n1,2\n3,1_000\n", "line 3, column 'b': '1_000' is not a number"),
        ("a;b\n1;2\n3;4,5\n", "line 3, column 'b': '4,5' is not a number. Write decimals with a point."),
        ("a,b\nx,y\n", "line 2, column 'a': 'x' is not a number"),
        ("a,b\n1,inf\n", "line 2, column 'b': 'inf' is infinite"),
        ("a,b\n1,-Infinity\n", "line 2, column 'b': '-Infinity' is infinite"),
        ("a,b\n1,1e200\n", "line 2, column 'b': 1e200 is too large: its square overflows float64"),
        ("a,b\n1,-1e400\n", "line 2, column 'b': -1e400 is too large"),
        ("series,a\nx,1\n,2\n", "line 3, column 'series': the cell is empty. Write to which series the row belongs"),
        ("series,a\nx,1\ny,\ny,NA\n", "series 'y': All 2 values of the series are missing"),
        (b"a,b\n1,2\n3,\xe9\n", "line 3: this is not text in UTF-8. Save the file with that encoding"),
        ("a,b\n1,2\n".encode("utf-16"), "line 1: this is not text in UTF-8"),
        ("a,b\n1,2\n".encode("utf-16-le"), "line 1: this is not text in UTF-8"),
        (b"PK\x03\x04\x00\x00,\n1,2\n", "line 1: this is not text in UTF-8"),
    ],
)
def test_what_is_refused_in_csv(csv_file, content, message):
    refused(csv_file(content), message)


def test_the_undecodable_line_is_exact_in_a_long_file(csv_file):
    refused(csv_file(b"a\n" + b"1\n" * 5000 + b"\xff\n" + b"1\n" * 50000), "line 5002: this is not text")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"values": ["presure"]}, "has no column 'presure'. Did you mean 'pressure'?"),
        ({"series": "Station"}, "has no column 'Station'. Did you mean 'station'?"),
        ({"time": "zzz"}, "has no column 'zzz'. There are: pressure, station, x."),
        ({"values": ["x", "x"]}, "The column 'x' of"),
        ({"values": ["x"], "series": "x"}, "is requested twice"),
        ({"series": "x", "time": "x"}, "is requested twice"),
        ({"values": []}, "has no column of values"),
    ],
)
def test_columns_that_cannot_be_chosen(csv_file, options, message):
    refused(csv_file("station,pressure,x\n1,2,3\n"), message, **options)


def test_large_values_are_those_of_the_float_type_in_use(csv_file, npz_file):
    content = "a\n1.5\n1e20\n"
    assert values(read_series(csv_file(content)).series_list[0]) == [[1.5], [1e20]]
    with jax.enable_x64(False):
        refused(
            csv_file(content),
            "line 3, column 'a': 1e20 is too large: its square overflows float32. If it stands for a missing value, "
            "leave the cell empty; otherwise rescale the column.",
        )
        refused(npz_file([1.0, 1e20]), "series 'arr_0', [1]: 1e+20 is too large: its square overflows float32")
        assert read_series(csv_file("a\n1e19\n")).series_list[0].observations.dtype == np.float64


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.csv", "There is no file"),
        ("none.npz", "There is no file"),
        ("folder.csv", "is a folder, but a file is wanted"),
        (
            "data.xlsx",
            "files that end in .csv, .parquet, .nc or .npz are read, but this one ends in .xlsx. Convert it.",
        ),
        ("data", "files that end in .csv, .parquet, .nc or .npz are read, but this one has no ending"),
        ("x" * 300 + ".csv", "Cannot read"),
    ],
)
def test_files_that_cannot_be_read(tmp_path, name, message):
    (tmp_path / "folder.csv").mkdir()
    for file in ("data.xlsx", "data"):
        (tmp_path / file).write_text("a\n1\n")
    refused(tmp_path / name, message)


@pytest.mark.parametrize("ending", ["csv", "npz"])
def test_a_file_that_may_not_be_read(tmp_path, monkeypatch, ending):
    path = tmp_path / f"data.{ending}"
    path.write_text("a\n1\n")

    def refuse(*arguments, **options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    refused(path, "Permission denied.")


def test_npz_with_all_series_in_one_array(npz_file):
    observations = np.arange(12.0).reshape(2, 3, 2)
    observations[1, 1:] = np.inf
    observations[0, 1, 0] = np.nan
    table = read_series(npz_file(observations=observations, lengths=[3, 1]))
    assert (table.names, table.columns) == (["1", "2"], ["x1", "x2"])
    assert [int(series.series_id) for series in table.series_list] == [0, 1]
    assert values(table.series_list[0]) == [[0, 1], [None, 3], [4, 5]]
    assert values(table.series_list[1]) == [[6, 7]]


def test_npz_with_one_array_a_series(npz_file):
    table = read_series(npz_file(late=np.array([1, 2, 3]), early=np.array([[True], [False]])))
    assert (table.names, table.columns) == (["late", "early"], ["x1"])
    assert [values(series) for series in table.series_list] == [[[1], [2], [3]], [[1], [0]]]
    assert {series.observations.dtype for series in table.series_list} == {np.dtype(np.int32)}
    mixed = read_series(npz_file(np.array([1, 2]), np.array([0.5])))
    assert {series.observations.dtype for series in mixed.series_list} == {np.dtype(np.float64)}


CUBE = np.zeros((2, 3, 1))


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "holds no arrays"),
        ({"observations": np.zeros((3, 2))}, "observations have shape (3, 2), but (series, steps, dimensions)"),
        ({"observations": np.zeros((0, 3, 1))}, "observations have shape (0, 3, 1)"),
        (
            {"observations": CUBE, "mask": CUBE},
            "holds 'mask' beside 'observations', where only 'lengths', 'inputs' and",
        ),
        ({"observations": CUBE, "lengths": [3]}, "lengths have shape (1,) and dtype int64, but 2 whole numbers"),
        ({"observations": CUBE, "lengths": [3.0, 2.0]}, "lengths have shape (2,) and dtype float64"),
        ({"observations": CUBE, "lengths": [3, 4]}, "the length of series 2 is 4, but it must lie from 1 to 3"),
        ({"observations": CUBE, "lengths": [0, 3]}, "the length of series 1 is 0"),
        ({"observations": CUBE * np.nan}, "series '1': All 3 values of the series are missing"),
        ({"a": CUBE}, "the array 'a' has shape (2, 3, 1), but a series has shape (steps,) or (steps, dimensions)"),
        ({"a": np.zeros(())}, "the array 'a' has shape ()"),
        ({"a": np.zeros((3, 2)), "b": np.zeros(3)}, "the series 'a' has 2 dimensions, but 'b' has 1"),
        ({"a": np.zeros(0)}, "series 'a': There are no observations"),
        ({"a": np.array(["x"])}, "series 'a': The observations have dtype <U1"),
        ({"a": np.array([1j])}, "series 'a': The observations have dtype complex128"),
        ({"a": np.array([0.0, np.inf])}, "series 'a': observations[1, 0] is infinite"),
        ({"a": np.array([[0.0, 1e200]])}, "series 'a', [0, 1]: 1e+200 is too large: its square overflows float64"),
        ({"a": np.array([1, None])}, "is damaged, or no NPZ file of numbers (ValueError: Object arrays cannot be"),
    ],
)
def test_what_is_refused_in_npz(npz_file, arrays, message):
    refused(npz_file(**arrays), message)


@pytest.mark.parametrize("option", ["values", "series", "time", "inputs"])
def test_an_npz_file_has_no_columns_to_choose(npz_file, option):
    given = ["x1"] if option in ("values", "inputs") else "x1"
    refused(npz_file(np.zeros(3)), f"The option {option} is about the columns of a CSV, Parquet", **{option: given})


def damaged_archives():
    whole = io.BytesIO()
    np.savez_compressed(whole, a=np.random.default_rng(0).normal(size=1000))
    plain = io.BytesIO()
    np.save(plain, np.zeros(3))
    other = io.BytesIO()
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("readme.txt", "no array")
    content = whole.getvalue()
    return {
        "truncated": (content[:4000], "is damaged, or no NPZ file of numbers (BadZipFile"),
        "altered": (content[:3000] + bytes(100) + content[3100:], "is damaged, or no NPZ file of numbers"),
        "empty": (b"", "is damaged, or no NPZ file of numbers (BadZipFile"),
        "text": (b"a,b\n1,2\n", "is damaged, or no NPZ file of numbers (BadZipFile"),
        "pickle": (b"\x80\x04K\x01.", "is damaged, or no NPZ file of numbers (BadZipFile"),
        "npy": (plain.getvalue(), "holds one array without a name (.npy)"),
        "zip": (other.getvalue(), "is damaged, or no NPZ file of numbers (ValueError: the magic string is not correct"),
    }


@pytest.mark.parametrize("kind", damaged_archives())
def test_damaged_archives(tmp_path, kind):
    content, message = damaged_archives()[kind]
    path = tmp_path / "data.npz"
    path.write_bytes(content)
    refused(path, message)


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "data.csv"
    ragged = np.random.default_rng(0).normal(size=(5, 2)) * [1e-9, 1e9]
    ragged[2, 0] = ragged[3] = np.nan
    series_list = [Series.from_values(ragged), Series.from_values(np.ones((2, 2)) / 3, series_id=1).pad(4)]
    for columns in (["a", "b"], ["t", "a;b;c;d;e"], ['say "a"', "x,\ty"]):
        write_series(path, series_list, columns)
        table = read_series(path)
        # A control character in a name never reaches a terminal.
        assert (table.names, table.columns) == (["1", "2"], [name.replace("\t", "\\t") for name in columns])
        assert values(table.series_list[0]) == values(series_list[0])
        assert values(table.series_list[1]) == [[1 / 3, 1 / 3]] * 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["data.csv"]


def test_counts_and_single_precision_are_written_exactly(tmp_path):
    path = tmp_path / "data.csv"
    write_series(path, [Series.from_values([3, 0, 2])], ["count"])
    assert path.read_text() == "series,time,count\n1,1,3\n1,2,0\n1,3,2\n"
    assert read_series(path).series_list[0].observations.dtype == np.int32
    with jax.enable_x64(False):
        single = Series.from_values([0.1, np.nan, 1 / 3])
        write_series(path, [single], ["x"])
        assert values(read_series(path).series_list[0]) == values(single)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["time"], "Cannot name the columns"),
        (["Series"], "Cannot name the columns"),
        ([""], "Cannot name the columns"),
        ([" a"], "Cannot name the columns"),
        (["a", "a"], "Cannot name the columns"),
        (["a", "b"], "series 1 has observations of shape (2, 1), but (steps, 2) is wanted for the columns a, b"),
    ],
)
def test_what_cannot_be_written(tmp_path, columns, message):
    with pytest.raises(InputError, match=re.escape(message)):
        write_series(tmp_path / "data.csv", [Series.from_values([1.0, 2.0])], columns)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match=r"Cannot write .*: No such file or directory"):
        write_series(tmp_path / "none" / "data.csv", [Series.from_values([1.0])], ["x"])
