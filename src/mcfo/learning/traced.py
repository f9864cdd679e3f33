"""Traced programs, kept from one command to the next: to trace a step takes longer than to load what was compiled.

A program is kept as StableHLO (`jax.export`; nothing is pickled) under a digest of everything that it follows from.
What has no digest, as code of the user's own, is traced every time.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import jax
import numpy as np

import mcfo
from mcfo.files import write_atomically

_FOLDER: ContextVar[Path | None] = ContextVar("folder", default=None)
_PACKAGES = ("jax", "jaxlib", "equinox", "numpyro", "optax", "numpy")
"""Whose versions are part of the digest; their classes and functions are then known by their names, as are ours."""
_ELSEWHERE = ("_dir", "_dump_ir_to", "_log_compiles", "_logging_level")
"""Ends of the names of JAX's settings that say where files are and what is logged."""


class Unknown(Exception):
    """Something has no digest."""


@contextmanager
def keeping_traced(folder: Path | None) -> Iterator[None]:
    """Within it, programs are kept in this folder, which must exist; None keeps nothing."""
    before = _FOLDER.set(folder)
    try:
        yield
    finally:
        _FOLDER.reset(before)


def kept(
    function: Callable[..., Any],
    result_like: Callable[..., Any],
    facts: Any,
    compile: Callable[[Callable[..., Any]], Any],
) -> Any:
    """A compiled program of the function: traced now, or before and kept.

    The numbers are the same to the bit: what is compiled is the same program. A file that is torn or not ours is
    ignored and written anew; a folder that cannot be written to makes it only slower.

    **Arguments:**

    - `result_like`: from the arguments to something of the result's structure.
    - `facts`: everything that the program follows from, besides the shapes of the arguments, the code of this package
      and the versions of others.
    - `compile`: what makes a compiled program of a function.
    """
    folder, plain = _FOLDER.get(), compile(function)
    if folder is None:
        return plain
    chosen = None

    def program(*arguments: Any) -> Any:
        nonlocal chosen
        if chosen is None:
            chosen = _from_folder(folder, function, result_like, facts, compile, arguments) or plain
        return chosen(*arguments)

    return program


def _from_folder(
    folder: Path,
    function: Callable[..., Any],
    result_like: Callable[..., Any],
    facts: Any,
    compile: Callable[[Callable[..., Any]], Any],
    arguments: tuple[Any, ...],
) -> Any:
    try:
        shapes = jax.tree.map(_shape, arguments)
        path = folder / f"mcfo-{digest((facts, shapes))}.stablehlo"
        leaves, tree = jax.tree.flatten(arguments)
        exported = _read(path, leaves)
        if exported is None:
            from jax import export

            flat = jax.jit(lambda *leaves: jax.tree.leaves(function(*jax.tree.unflatten(tree, leaves))))
            content = bytes(export.export(flat)(*leaves).serialize())
            # Read back in any case, so that the first run computes by the same program as the next ones.
            exported = export.deserialize(bytearray(content))
            _write(path, content)
        structure = jax.tree.structure(result_like(*arguments))
    except Exception:
        # Whatever it is, a type that cannot be exported or an error in the function: tracing it the usual way works,
        # or says so better.
        return None
    return compile(lambda *arguments: jax.tree.unflatten(structure, exported.call(*jax.tree.leaves(arguments))))


def _shape(leaf: Any) -> tuple[Any, ...]:
    # Where an array lies decides how many devices there are.
    sharding = getattr(leaf, "sharding", None)
    return tuple(leaf.shape), str(leaf.dtype), bool(getattr(leaf, "weak_type", False)), str(sharding)


def _read(path: Path, leaves: list[Any]) -> Any:
    """The program in a file; None where there is none, or another one."""
    try:
        content = path.read_bytes()
    except OSError:
        return None
    check, content = content[:32], content[32:]
    if hashlib.sha256(content).digest() != check:
        return None
    from jax import export

    exported = export.deserialize(bytearray(content))
    wanted = [(tuple(leaf.shape), leaf.dtype) for leaf in leaves]
    fits = [(aval.shape, aval.dtype) for aval in exported.in_avals] == wanted
    return exported if fits and jax.default_backend() in exported.platforms else None


def _write(path: Path, content: bytes) -> None:
    with suppress(OSError):  # then the next run traces again
        write_atomically(path, hashlib.sha256(content).digest() + content)


def digest(facts: Any) -> str:
    """One number for the facts, the code of this package, the versions of others and JAX's settings.

    Raises `Unknown` where something has none.
    """
    versions = {name: sys.modules[name].__version__ for name in _PACKAGES if name in sys.modules}
    flags = {name: value for name, value in sorted(jax.config.values.items()) if not name.endswith(_ELSEWHERE)}
    devices = [device.device_kind for device in jax.local_devices()]
    everything = (_sources(), sys.version, versions, repr(flags), jax.default_backend(), devices, facts)
    return hashlib.sha256(_described(everything).encode()).hexdigest()


@functools.cache
def _sources() -> str:
    root = Path(mcfo.__file__).parent
    total = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        total.update(f"{path.relative_to(root)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def _described(value: Any) -> str:
    """A text that differs where the programs made of two values do."""
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | np.generic | np.dtype):
        return f"{type(value).__name__} {value!r}"
    if isinstance(value, np.ndarray | jax.Array):
        array = np.asarray(value)  # of what is traced, and of keys, there is none: an exception
        return f"array {array.shape} {array.dtype} {hashlib.sha256(array.tobytes()).hexdigest()}"
    if isinstance(value, type) or not (isinstance(value, tuple | list | Mapping) or dataclasses.is_dataclass(value)):
        return _name(value)
    if isinstance(value, tuple | list):
        parts = [_described(part) for part in value]
    else:
        named = value if isinstance(value, Mapping) else vars(value)
        parts = [f"{_described(name)}: {_described(part)}" for name, part in named.items()]
    return f"{_name(type(value))}({', '.join(parts)})"


def _name(thing: Any) -> str:
    """Of a class or a function of a package whose version is known, where it can be found."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        raise Unknown(f"{thing!r}")
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not thing or module.partition(".")[0] not in (*_PACKAGES, "mcfo", "builtins"):
        raise Unknown(f"{module}.{name}")
    return f"{module}.{name}"
