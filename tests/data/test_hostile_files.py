"""Files that are wrong on purpose: each is refused with one message, and none takes much memory or time."""

import io
import json
import pickle
import re
import struct
import time
import tracemalloc
import zipfile
import zlib
from decimal import Decimal
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray

from mcfo.data.calendar import read_holidays
from mcfo.data.column_layout import RequestedColumns
from mcfo.data.music_files import read_music
from mcfo.data.table_files import read_file
from mcfo.errors import InputError, printable, shown
from mcfo.limits import VARIABLE, limits

SECRET = "the file of somebody else"
MEGABYTES = 2**20


@pytest.fixture
def bounded():
    """A block in which nothing may take more than this memory, in bytes of Python and numpy, and ten seconds."""

    class Bounded:
        most = 200 * MEGABYTES

        def __enter__(self):
            tracemalloc.start()
            self.start = time.process_time()

        def __exit__(self, *_):
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < self.most
            assert time.process_time() - self.start < 10

    return Bounded()


def read(path, **options):
    return read_file(Path(path), RequestedColumns(**options))


def refused(path, message, reader=read, **options):
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        reader(path, **options)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 2000


# A file that reads other files


def external_storage(path, secret):
    with h5py.File(path, "w") as file:
        file.create_dataset("time", data=np.arange(3))
        file.create_dataset("x", (3,), "f8", external=[(str(secret), 0, 24)])


def virtual(path, secret):
    with h5py.File(secret.with_suffix(".h5"), "w") as other:
        other["x"] = np.arange(3.0)
    layout = h5py.VirtualLayout((3,), "f8")
    layout[:] = h5py.VirtualSource(str(secret.with_suffix(".h5")), "x", (3,))
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("x", layout)


def external_link(path, secret):
    with h5py.File(path, "w") as file:
        file["x"] = h5py.ExternalLink(str(secret), "/x")


def in_a_group(path, secret):
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(3.0)
        file.create_group("deep")["below"] = h5py.ExternalLink(str(secret), "/x")
        file["deep"]["round"] = file["/"]  # groups that lead back to each other end


@pytest.mark.parametrize("build", [external_storage, virtual, external_link, in_a_group])
def test_a_file_that_reads_other_files(tmp_path, build):
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    build(tmp_path / "data.nc", secret)
    refused(tmp_path / "data.nc", "which is not opened: a file of data could show any other file")


def test_links_within_a_file_are_no_harm(tmp_path):
    xarray.Dataset({"x": ("time", [1.0, 2.0])}).to_netcdf(tmp_path / "data.nc", engine="h5netcdf")
    with h5py.File(tmp_path / "data.nc", "a") as file:
        file["other"] = h5py.SoftLink("/x")
    assert "x" in read(tmp_path / "data.nc").columns


# Bombs


def shared_lists(depth, leaf):
    for _ in range(depth):
        leaf = [leaf] * 10
    return leaf


def chunked(path, shape, chunks, kind="f8", **options):
    with h5py.File(path, "w") as file:
        file.create_dataset("x", shape, kind, chunks=chunks, compression="gzip", **options)


def zipped(path, **headers):
    """An archive of arrays whose headers promise more than there is."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (shape, kind) in headers.items():
            content = io.BytesIO()
            np.lib.format.write_array_header_1_0(content, {"descr": kind, "fortran_order": False, "shape": shape})
            archive.writestr(f"{name}.npy", content.getvalue() + bytes(1000))


def matlab(path, sizes):
    """A compressed matrix of these sizes in a file of version 5, without its numbers."""
    sizes = struct.pack("<2i", *sizes)
    body = struct.pack("<II", 6, 8) + struct.pack("<II", 1, 0) + struct.pack("<II", 5, 8) + sizes
    packed = zlib.compress(struct.pack("<II", 14, len(body)) + body)
    head = b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack("<H", 0x0100) + b"IM"
    path.write_bytes(head + struct.pack("<II", 15, len(packed)) + packed)


def long_varint(path):
    track = b"\xff" * 200_000 + b"\x00"
    path.write_bytes(b"MThd" + struct.pack(">IHHH", 6, 0, 1, 480) + b"MTrk" + struct.pack(">I", len(track)) + track)


BOMBS = {
    "shared.pickle": (lambda path: path.write_bytes(pickle.dumps({"train": shared_lists(9, 60)})), "is no MIDI number"),
    "many.pickle": (
        lambda path: path.write_bytes(pickle.dumps({"train": [[[60]] * 1000] * 100_000})), "elements, but at most"
    ),
    "memo.pickle": (lambda path: path.write_bytes(b"\x80\x04]r\xff\xff\xff\x7f."), "a list of steps|splits by name"),
    "array.pickle": (lambda path: path.write_bytes(b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b"."), "construct"),
    "deep.pickle": (lambda path: path.write_bytes(b"\x80\x04" + b"]" * 10**4 + b"a" * (10**4 - 1) + b"."), "holds a l"),
    "cells.mat": (lambda path: matlab(path, (2**30, 2)), "names an array of shape"),
    "varint.mid": (long_varint, "a number of 1000 bytes"),
    "chunk.nc": (lambda path: chunked(path, (10,), (10,), maxshape=(None,)), None),
    "huge.nc": (lambda path: chunked(path, (2**40,), (2**20,)), "elements, but at most"),
    "chunks.nc": (lambda path: chunked(path, (2**29 - 1,), (2**29 - 1,)), "but at most"),
    "bytes.npz": (lambda path: zipped(path, a=((2**31,), "<f8")), "elements, but at most"),
    "wide.npz": (lambda path: zipped(path, a=((10,), "<U99999999")), "bytes after unpacking, but at most"),
    "empty.npz": (lambda path: zipped(path, a=((2**40, 0, 2**40), "<f8"), b=((2**50,), "|V0")), "elements, but at"),
    "line.csv": (lambda path: path.write_bytes(b"x\n" + b"1" * 2 * 10**6), "characters in a row, but at most"),
    "quoted.csv": (lambda path: path.write_bytes(b"x\n" + b'"\n",' * 10**6), "characters in a row, but at most"),
    "columns.csv": (lambda path: path.write_bytes(b"a," * 200_000 + b"a\n"), "columns, but at most 100000"),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_bombs(tmp_path, monkeypatch, name, bounded):
    monkeypatch.setenv(VARIABLE, "line=1e6")
    build, message = BOMBS[name]
    path = tmp_path / name
    build(path)
    reader = read if path.suffix in (".nc", ".npz", ".csv") else read_music
    if path.suffix == ".mid":
        from mcfo.data.piano_rolls import read_midi as reader
    with bounded:
        if message is None:
            reader(path)
            return
        with pytest.raises(InputError, match=message) as caught:
            reader(path)
    assert len(str(caught.value)) < 2000


def test_texts_that_share_one_place_of_a_file(tmp_path, monkeypatch, bounded):
    """A thousand names of a megabyte each, all of them the same bytes of the file."""
    with h5py.File(tmp_path / "data.nc", "w") as file:
        texts = file.create_dataset("x", (1000,), h5py.string_dtype())
        texts[:] = "n" * 1000
    monkeypatch.setenv(VARIABLE, "bytes=1e5")
    with bounded:
        refused(tmp_path / "data.nc", "bytes after unpacking, but at most 100000")


def test_limits_are_raised(tmp_path, monkeypatch):
    path = tmp_path / "data.csv"
    path.write_text(",".join(f"x{number}" for number in range(30)) + "\n" + ",".join(["1"] * 30) + "\n")
    monkeypatch.setenv(VARIABLE, "columns=20")
    refused(path, "asks for 30 columns, but at most 20 are read")
    monkeypatch.setenv(VARIABLE, "columns=20,columns=3e1")
    assert len(read(path).columns) == 30
    for text, message in (("colums=3", "Did you mean 'columns'?"), ("columns=0", "a positive number is wanted")):
        monkeypatch.setenv(VARIABLE, text)
        with pytest.raises(InputError, match=re.escape(message)):
            limits()


def seconds(call):
    start = time.process_time()
    call()
    return time.process_time() - start


@pytest.mark.ci
def test_time_is_linear_in_columns(tmp_path):
    def table(columns):
        path = tmp_path / f"{columns}.csv"
        header = ",".join(f"name {number}" for number in range(columns))
        path.write_text("\n".join([header, *[",".join(["1.5"] * columns)] * 4]) + "\n")
        return path

    few, many = table(2_000), table(20_000)
    read(few)
    first = min(seconds(lambda: read(few)) for _ in range(3))
    assert seconds(lambda: read(many)) < 25 * first, "ten times as many, and some for the cache"


# Tracebacks


def parquet(path, columns):
    pq.write_table(pa.table(columns), path)


TYPES = {
    "list": pa.array([[1.0], [2.0, 3.0]]),
    "struct": pa.array([{"a": 1}, {"a": 2}]),
    "binary": pa.array([b"\xff", b"1"]),
    "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
}


@pytest.mark.parametrize("kind", TYPES)
def test_parquet_of_types_that_are_no_numbers(tmp_path, kind):
    path = tmp_path / "data.parquet"
    parquet(path, {"x": pa.array([1.0, 2.0]), "y": TYPES[kind]})
    refused(path, "the column 'y' has cells of type")
    assert [one.tolist() for one in read(path, values=["x"]).arrays] == [[[1.0], [2.0]]]


def test_parquet_of_types_that_are_numbers(tmp_path):
    path = tmp_path / "data.parquet"
    columns = {
        "decimal": pa.array([Decimal("1.5"), None]),
        "half": pa.array(np.array([1.5, 2.5], np.float16)),
        "none": pa.nulls(2),
        "coded": pa.array([0.5, 0.5]).dictionary_encode(),
    }
    parquet(path, {"name": pa.array(["a", "b"]), **columns})
    raw = read(path, series="name", values=[*columns])
    np.testing.assert_array_equal(raw.arrays, [[[1.5, 1.5, np.nan, 0.5]], [[np.nan, 2.5, np.nan, 0.5]]])


def test_two_columns_of_one_name(tmp_path):
    pq.write_table(pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], ["x", "x"]), tmp_path / "data.parquet")
    refused(tmp_path / "data.parquet", "two columns are called 'x'")


def nested(leaf):
    return {"train": [[[leaf]]], "valid": [[[60]]], "test": [[[60]]]}


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("data.csv", b"t,x\n1,2\n" + b"9" * 400 + b",3\n", "is not a number, as the first time is"),
        ("data.csv", b"t,x\n" + b"9" * 400 + b",2\n1" + b"0" * 400 + b",3\n", None),
        ("data.csv", b"t,x\n-9" + b"0" * 307 + b",1\n9" + b"0" * 307 + b",2\n", "lies too far from"),
        ("data.csv", b'"year,1",month,x\n2000,1,5\n2001,2,6\n', None),
        ("data.csv", b"x\n" + b"a" * 10**5 + b"\n", "is not a number"),
        ("data.csv", b"series,x\n\x1b]0;title\x07,1\n", None),
        ("data.csv", "a\x1b[2Jb,\u202ex\nz,1\n".encode(), r"column 'a\\x1b[2Jb': 'z' is not a number"),
        ("data.csv", b"x\n1\n\xff\n", "line 3: this is not text in UTF-8"),
        ("notes.pickle", pickle.dumps(nested(10**6000)), "a number of 19932 bits"),
        ("notes.pickle", pickle.dumps(nested("n" * 10**6)), "is no MIDI number"),
        ("notes.json", json.dumps(nested({"a": [[[[[1]]]]]})).encode(), "is no MIDI number"),
        ("notes.json", b"[" * 10**5, "is not JSON"),
        ("notes.json", b"1" * 5000, "is not JSON"),
    ],
)
def test_messages_in_place_of_tracebacks(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    reader = read if name == "data.csv" else read_music
    if message is not None:
        refused(path, message, reader)
        return
    raw = reader(path)
    assert all(map(str.isprintable, [*raw.names, *raw.columns]))


def test_holidays_that_are_no_text(tmp_path):
    (tmp_path / "days.csv").write_bytes(b"\xff\xfe")
    refused(tmp_path / "days.csv", "not text in UTF-8", read_holidays)


def test_what_is_shown_of_a_value():
    assert shown(10**9) == "1000000000"
    assert len(shown(["x" * 10**6] * 10**5)) < 500
    assert shown(shared_lists(9, 1)).count("[") < 100
    assert printable("naïve – 3 µm") == "naïve – 3 µm"
    assert printable("a\x1b[31m\u202e\n") == "a\\x1b[31m\\u202e\\n"


# Silent losses


def test_two_variables_on_one_column(tmp_path):
    grid = ("time", "site"), np.ones((3, 2))
    data = xarray.Dataset({"x": grid, "x1": ("time", np.zeros(3))})
    data.to_netcdf(tmp_path / "data.nc", engine="scipy")
    refused(tmp_path / "data.nc", "two columns are called 'x1'")


@pytest.mark.parametrize("length", [-1, 0, 4, np.nan, 1.5, np.inf])
def test_lengths_that_are_none(tmp_path, length):
    data = xarray.Dataset({"x": (("series", "time"), np.ones((2, 3))), "lengths": ("series", [3.0, length])})
    data.to_netcdf(tmp_path / "data.nc", engine="scipy")
    refused(tmp_path / "data.nc", "the length of series 2 is")


def test_two_arrays_of_one_name(tmp_path):
    content = io.BytesIO()
    np.save(content, np.ones(3))
    with zipfile.ZipFile(tmp_path / "data.npz", "w") as archive:
        archive.writestr("a.npy", content.getvalue())
        archive.writestr("a", content.getvalue())
    refused(tmp_path / "data.npz", "two arrays called 'a'")
