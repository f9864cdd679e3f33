"""Generators of files of every format and of run folders: some are right, most are damaged or hostile."""

from __future__ import annotations

import functools
import io
import json
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from support.runs import make_config, make_lines, make_results, make_seed


class Case(NamedTuple):
    """Files by name, and the reader that gets the first of them, or their folder."""

    reader: str
    files: dict[str, bytes]


# Parts

NUMBERS = st.sampled_from(
    [
        *("0", "1", "-1.5", "1e-320", "1e300", "1e999", "NaN", "inf", "-0", "1_000", "1,5", "0x10", "１２", "9" * 400),
        *("2020-01-31", "2020-13-01", "2020Q1", "0001-01-01", "9999-12-31T23:59:59.9999999", "2020-01-01\x1b00:00"),
        *("2020-01-01T00:00+25:00", "2020-W01-1", "1" * 5000, "-" + "9" * 308, "true", "null", "", " "),
    ]
)
NAMES = st.one_of(
    st.sampled_from(
        [
            *(
                "x",
                "y",
                "time",
                "series",
                "year",
                "month",
                "year,1",
                "id",
                "ds",
                "unique_id",
                "date",
                "a$b$",
                "[red]x[/]",
            ),
            *(
                "=1+1",
                "\x1b[2J",
                "\u202egnp",
                "a\nb",
                'q"q',
                "",
                " ",
                "x" * 300,
                "../x",
                "\ud7ff",
                "lengths",
                "observations",
            ),
        ]
    ),
    st.text(max_size=6),
)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(15, 115),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from([10**400, 1e308, "\x1b[31m", "x" * 2000, -1, 2**63, 1e15]),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(NAMES, inner, max_size=4)),
    max_leaves=12,
)
BYTES = st.sampled_from(
    [b"\x00", b"\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\xff\xff\xff\xff", b"\x80" * 8, b'"', b"\n", b","]
)
MUTATIONS = st.lists(
    st.tuples(st.sampled_from("oociidrt"), st.floats(0, 1), st.one_of(BYTES, st.binary(min_size=1, max_size=8))),
    max_size=6,
)


def mutated(content: bytes, mutations: list[tuple[str, float, bytes]]) -> bytes:
    """The bytes after overwriting, cutting, inserting, deleting and repeating at some places."""
    for kind, share, new in mutations:
        at = int(share * len(content))
        if kind == "o":
            content = content[:at] + new + content[at + len(new) :]
        elif kind == "i":
            content = content[:at] + new + content[at:]
        elif kind == "d":
            content = content[:at] + content[at + len(new) :]
        elif kind == "r":
            content = content[:at] + content[max(0, at - 64) : at] * len(new) + content[at:]
        elif kind == "c":
            content = content[:at] + content[at:][::-1][:8] + content[at + 8 :]
        else:
            content = content[:at]
    return content


# Right files, built once, to be damaged


def _buffer(write: Callable[[Any], Any]) -> bytes:
    content = io.BytesIO()
    write(content)
    return content.getvalue()


@functools.cache
def parquet_files() -> list[bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    days = np.arange("2020-01-01", "2020-01-05", dtype="datetime64[D]")
    tables = [
        {"time": days, "x": [1.5, None, 2.0, 3.0], "series": ["a", "a", "a", "a"]},
        {"x": pa.array([1, 2, 3]), "y": pa.array([[1], [], [2, 3]]), "z": pa.array([b"\xff", None, b""])},
        {"a": pa.array(["u", "v", "u"]).dictionary_encode(), "b": [1, 2, 3]},
    ]
    return [
        _buffer(lambda file, one=one, packing=packing: pq.write_table(pa.table(one), file, compression=packing))
        for one in tables
        for packing in ("none", "gzip")
    ]


@functools.cache
def netcdf_files() -> list[bytes]:
    import h5py
    import xarray

    grid = np.arange(12.0).reshape(2, 3, 2)
    days = np.arange("2020-01-01", "2020-01-04", dtype="datetime64[D]").astype("datetime64[ns]")
    datasets = [
        xarray.Dataset({"x": ("time", [1.0, 2.0, 3.0])}, coords={"time": days}),
        xarray.Dataset({"x": (("series", "time", "site"), grid), "lengths": ("series", [3, 2])}, {"site": ["a", "b"]}),
        xarray.Dataset({"x": (("series", "time"), grid[..., 0], {"scale_factor": 0.1, "_FillValue": -1.0})}),
    ]
    files = [bytes(data.to_netcdf(engine=engine)) for data in datasets for engine in ("scipy", "h5netcdf")]

    def packed(content: Any) -> None:
        with h5py.File(content, "w") as file:
            file.create_dataset("x", data=np.arange(50.0), chunks=(10,), compression="gzip", shuffle=True)
            file.create_dataset("n", data=["a", "b"], dtype=h5py.string_dtype())
            file["l"] = h5py.SoftLink("/x")

    return [*files, _buffer(packed)]


@functools.cache
def other_files() -> dict[str, list[bytes]]:
    import mido
    from scipy.io import savemat

    def matlab(file: Any, packed: bool) -> None:
        pieces = np.empty((1, 2), object)
        pieces[0, 0] = pieces[0, 1] = np.eye(3, 88)
        savemat(file, {f"{split}data": pieces for split in ("train", "valid", "test")}, do_compression=packed)

    track = mido.MidiTrack([mido.Message("note_on", note=60, time=0), mido.Message("note_off", note=60, time=480)])
    return {
        "mat": [_buffer(lambda file, packed=packed: matlab(file, packed)) for packed in (False, True)],
        "mid": [_buffer(lambda file: mido.MidiFile(type=1, tracks=[track, track]).save(file=file))],
    }


# Cases


@st.composite
def csv_case(draw: Any) -> Case:
    names = draw(st.lists(NAMES, min_size=1, max_size=5))
    cells = st.one_of(NUMBERS, NAMES)
    rows = draw(st.lists(st.lists(cells, min_size=len(names), max_size=len(names)), max_size=6))
    mark = draw(st.sampled_from([",", ";", "\t"]))
    text = "\n".join(mark.join(row) for row in [names, *rows]) + draw(st.sampled_from(["", "\n", "\r\n\n"]))
    content = text.encode(draw(st.sampled_from(["utf-8", "utf-8", "utf-8-sig", "utf-16", "latin1"])), "replace")
    return Case(
        draw(st.sampled_from(["series", "series", "holidays"])), {"data.csv": mutated(content, draw(MUTATIONS))}
    )


@st.composite
def binary_case(draw: Any) -> Case:
    ending = draw(st.sampled_from(["parquet", "nc", "nc", "mat", "mid"]))
    files = {"parquet": parquet_files, "nc": netcdf_files}.get(ending, lambda: other_files()[ending])()
    content = mutated(draw(st.sampled_from(files)), draw(MUTATIONS))
    reader = {"mat": "music", "mid": "midi"}.get(ending, "series")
    return Case(reader, {f"data.{ending}": content})


KINDS = [
    "<f8",
    "<f4",
    "<f2",
    "<i8",
    "<u8",
    "|b1",
    "<c16",
    "<U3",
    "|S2",
    "|O",
    "|V4",
    "<M8[s]",
    "<m8[s]",
    ">i2",
    "<U1000000",
    "|V0",
]


@st.composite
def npz_case(draw: Any) -> Case:
    """Arrays whose headers are right or not."""
    from zipfile import ZIP_DEFLATED, ZipFile

    content = io.BytesIO()
    names = st.one_of(
        NAMES, st.sampled_from(["observations", "lengths", "inputs", "times", "train_roll", "train_lengths"])
    )
    sizes = st.one_of(st.integers(0, 5), st.sampled_from([88, 11, 2**31, 2**62, -1]))
    with ZipFile(content, "w", ZIP_DEFLATED) as archive:
        for name in draw(st.lists(names, max_size=4, unique=True)):
            shape, kind = tuple(draw(st.lists(sizes, max_size=4))), draw(st.sampled_from(KINDS))
            file = io.BytesIO()
            np.lib.format.write_array_header_1_0(file, {"descr": kind, "fortran_order": False, "shape": shape})
            small = 0 < np.prod([float(size) for size in shape]) < 1000
            length = int(np.prod(shape)) * min(np.dtype(kind).itemsize, 64) if small and kind != "|O" else 16
            archive.writestr(
                f"{name}.npy", file.getvalue() + draw(st.sampled_from([b"\x00", b"\x01", b"\x7f"])) * length
            )
    reader = draw(st.sampled_from(["series", "series", "music", "arrays"]))
    return Case(reader, {"data.npz": mutated(content.getvalue(), draw(MUTATIONS) if draw(st.booleans()) else [])})


@st.composite
def notes_case(draw: Any) -> Case:
    """Notes of music in JSON and pickles, with lists that are shared and opcodes at random."""
    piece = st.lists(st.lists(st.one_of(st.integers(21, 108), LEAVES), max_size=3), max_size=3)
    splits = {split: draw(st.lists(st.one_of(piece, VALUES), max_size=2)) for split in ("train", "valid", "test")}
    content: Any = draw(st.one_of(st.just(splits), VALUES))
    if draw(st.booleans()):
        return Case("music", {"data.json": mutated(json.dumps(content).encode(), draw(MUTATIONS))})
    for _ in range(draw(st.integers(0, 8))):
        content = [content] * draw(st.integers(1, 50)) if draw(st.booleans()) else {"train": content}
    packed = pickle.dumps(content, draw(st.integers(0, 5)))
    opcodes = draw(st.lists(st.sampled_from([*map(bytes, zip(range(256), strict=True))]), max_size=5))
    return Case("music", {"data.pickle": mutated(packed[:-1] + b"".join(opcodes) + b".", draw(MUTATIONS))})


@st.composite
def lines_case(draw: Any) -> Case:
    lines = st.one_of(st.builds(json.dumps, VALUES), NUMBERS, st.just("[" * 3000), st.just("1" * 3000))
    content = "\n".join(draw(st.lists(lines, max_size=4))).encode("utf-8", "replace")
    return Case("lines", {"lines": mutated(content, draw(MUTATIONS))})


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places in nested data."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(path for key, part in parts for path in paths(part, (*at, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(copy[path[0]], path[1:], new)
    return copy


@st.composite
def run_case(draw: Any) -> Case:
    """A run folder of which some values are others, and some bytes too."""
    lines = make_lines(0, 1, steps=30)
    contents: dict[str, Any] = {"config.json": make_config(), "results.json": make_results(make_seed(0), make_seed(1))}
    for name in contents:
        for _ in range(draw(st.integers(0, 2))):
            place = draw(st.sampled_from(paths(contents[name])[1:]))
            contents[name] = replaced(contents[name], place, draw(VALUES))
    for _ in range(draw(st.integers(0, 2))):
        index = draw(st.integers(0, len(lines) - 1))
        lines[index] = replaced(lines[index], draw(st.sampled_from(paths(lines[index]))), draw(VALUES))
    files = {name: json.dumps(content).encode() for name, content in contents.items()}
    files["metrics.jsonl"] = "".join(json.dumps(line) + "\n" for line in lines).encode()
    checks = {
        "columns": np.array(["x"]),
        "lengths": np.array([4, 3]),
        "residuals": np.linspace(-1, 1, 7)[:, None],
        "values": np.arange(7.0)[:, None],
        "predicted": np.arange(7.0)[:, None],
        "observed": np.ones((8, 1)),
        "simulated": np.ones((5, 8, 1)),
        "paths": np.ones((3, 4, 1)),
    }
    name = draw(st.sampled_from([*checks]))
    odd = [
        np.array(-1),
        np.array([1e300] * 7)[:, None],
        np.array([np.inf, -5]),
        np.array([2**62, 2**62]),
        np.array(["a"]),
    ]
    checks[name] = draw(st.sampled_from([checks[name], *odd]))
    files["checks.npz"] = _buffer(lambda file: np.savez(file, **checks))
    spoiled = draw(st.sampled_from([*files]))
    return Case("run", {**files, spoiled: mutated(files[spoiled], draw(MUTATIONS))})


CASES = st.one_of(csv_case(), binary_case(), npz_case(), notes_case(), lines_case(), run_case())
