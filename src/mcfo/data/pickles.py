"""Pickles of plain data, read without running anything and without growing beyond their size."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from mcfo.errors import InputError, shown
from mcfo.limits import check_document

_INTEGERS = ("b", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8")
_REFUSED = (
    *(pickle.PERSID, pickle.BINPERSID, pickle.EXT1, pickle.EXT2, pickle.EXT4, pickle.INST, pickle.OBJ, pickle.NEWOBJ),
    *(pickle.NEWOBJ_EX, pickle.BYTEARRAY8, pickle.NEXT_BUFFER, pickle.READONLY_BUFFER),
)
"""Opcodes that construct objects, or that ask for memory before there is anything to put into it."""


def read_pickle(path: Path) -> Any:
    """Read a pickle of lists, tuples, dicts, strings, whole numbers and numpy's whole numbers.

    A pickle is a program that may call anything it can import. This reader imports nothing: constructors of numpy
    numbers are replaced by code that returns an int, and every other name is refused before it is called.
    """
    check_document(path)
    content = path.read_bytes()
    try:
        return _Restricted(io.BytesIO(content), encoding="latin1").load()
    except _ForbiddenError as error:
        raise InputError(
            f"{path} wants to run {error}, which a file of notes has no need for. It was not run, and the file was not "
            "read. Get the file from its source again."
        ) from None
    except MemoryError:
        raise
    # The errors that a damaged pickle causes have no narrower base.
    except Exception as error:
        raise InputError(f"{path} is damaged, or no pickle ({type(error).__name__}: {error}).") from error


class _ForbiddenError(Exception):
    """The name of what a pickle asked for."""


def _refuse(reader: Any) -> None:
    raise _ForbiddenError("something that constructs objects")


class _Restricted(pickle._Unpickler):  # pyright: ignore[reportAttributeAccessIssue]
    """The reader that is written in Python: the one in C allocates what a few bytes ask for, up to 32 GB."""

    dispatch = pickle._Unpickler.dispatch | {code[0]: _refuse for code in _REFUSED}  # pyright: ignore[reportAttributeAccessIssue]

    def find_class(self, module: str, name: str) -> Any:
        if module in ("numpy.core.multiarray", "numpy._core.multiarray") and name == "scalar":
            return _scalar
        if (module, name) == ("numpy", "dtype"):
            return _Integer
        if (module, name) == ("_codecs", "encode"):
            return _encode
        raise _ForbiddenError(f"{module}.{name}")


class _Integer:
    """Replaces a numpy dtype; only those of whole numbers are accepted."""

    def __init__(self, code: Any, *options: Any):
        if not isinstance(code, str) or code.lstrip("<>=|") not in _INTEGERS:
            raise _ForbiddenError(f"numpy.dtype({shown(code)})")
        self.dtype = np.dtype("<" + code.lstrip("<>=|"))

    def __setstate__(self, state: Any) -> None:
        # (version, byte order, ...): only the order matters to a whole number.
        if isinstance(state, tuple) and len(state) > 1 and state[1] == ">":
            self.dtype = self.dtype.newbyteorder(">")


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    """Replaces the codec by which newer Pythons write bytes for older ones."""
    if not isinstance(text, str) or encoding != "latin1":
        raise _ForbiddenError(f"_codecs.encode with {shown(encoding)}")
    return text.encode("latin1")


def _scalar(kind: Any, content: Any = b"") -> int:
    """Replaces numpy's constructor of scalars."""
    data = content.encode("latin1") if isinstance(content, str) else content
    if not isinstance(kind, _Integer) or not isinstance(data, bytes) or len(data) != kind.dtype.itemsize:
        raise _ForbiddenError("numpy.core.multiarray.scalar on something else than a whole number")
    return int(np.frombuffer(data, kind.dtype)[0])
