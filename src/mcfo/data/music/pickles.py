"""Old pickles of numbers, without trusting them."""

from __future__ import annotations

import io
import pickle
import struct
from pathlib import Path
from typing import Any

from mcfo.files import InputError

_INTEGERS = {"b": 1, "i1": 1, "u1": 1, "i2": 2, "u2": 2, "i4": 4, "u4": 4, "i8": 8, "u8": 8}


def read_pickle(path: Path) -> Any:
    """What a pickle of lists, tuples, dicts, strings, whole numbers and numpy's whole numbers holds.

    A pickle is a program that may call anything it can import. This reader imports nothing: what stands for a numpy
    number is replaced by code of ours that makes an int, and every other name is refused before it is called.
    """
    content = path.read_bytes()
    try:
        return _Restricted(io.BytesIO(content), encoding="latin1").load()
    except _ForbiddenError as error:
        raise InputError(
            f"{path} wants to run {error}, which a file of notes has no need for. It was not run, and the file was not "
            "read. Get the file from its source again."
        ) from None
    # What a damaged pickle makes of the reader's stack has no narrower base.
    except Exception as error:
        raise InputError(f"{path} is damaged, or no pickle ({type(error).__name__}: {error}).") from error


class _ForbiddenError(Exception):
    """The name of what a pickle asked for."""


class _Restricted(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "scalar":
            return _scalar
        if (module, name) == ("numpy", "dtype"):
            return _Integer
        if (module, name) == ("_codecs", "encode"):
            return _encode
        raise _ForbiddenError(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        raise _ForbiddenError("a persistent object")


class _Integer:
    """In the place of a numpy dtype: only those of whole numbers."""

    def __init__(self, code: Any, *options: Any):
        if not isinstance(code, str) or code.lstrip("<>=|") not in _INTEGERS:
            raise _ForbiddenError(f"numpy.dtype({code!r})")
        self.code, self.order = code.lstrip("<>=|"), "<"

    def __setstate__(self, state: Any) -> None:
        # (version, byte order, ...): of what numpy keeps, only the order matters to a whole number.
        if isinstance(state, tuple) and len(state) > 1 and state[1] == ">":
            self.order = ">"


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    """In the place of the codec by which newer Pythons write bytes for older ones."""
    if not isinstance(text, str) or encoding != "latin1":
        raise _ForbiddenError(f"_codecs.encode with {encoding!r}")
    return text.encode("latin1")


def _scalar(kind: Any, content: Any = b"") -> int:
    """In the place of numpy's maker of scalars."""
    data = content.encode("latin1") if isinstance(content, str) else content
    if not isinstance(kind, _Integer) or not isinstance(data, bytes) or len(data) != _INTEGERS[kind.code]:
        raise _ForbiddenError("numpy.core.multiarray.scalar on something else than a whole number")
    letter = {1: "b", 2: "h", 4: "i", 8: "q"}[len(data)]
    (value,) = struct.unpack(kind.order + (letter.upper() if kind.code.startswith("u") else letter), data)
    return value
