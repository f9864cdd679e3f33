"""Models, proposals and rules in the user's own files, `path/to/file.py:Name`; an error is reported at its line."""

import ast
import contextlib
import hashlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from mcfo.catalogue.from_data import Start
from mcfo.errors import InputError, nearest
from mcfo.models.base import Model
from mcfo.proposals.base import Bootstrap, Proposal
from mcfo.series import Series

_Kind = TypeVar("_Kind")

_PREFIX = "mcfo_own_"
"""The prefix of the names of modules from the user's own files."""


class OwnCodeError(InputError):
    """An error in the user's own file; the message has the line."""


def blamed(error: BaseException) -> OwnCodeError | None:
    """Return the error, or one that led to it, with its line in the user's own file; None if it came from elsewhere."""
    if isinstance(error, OwnCodeError):
        return error
    own = {vars(module).get("__file__") for name, module in sys.modules.items() if name.startswith(_PREFIX)}
    cause: BaseException | None = error
    while cause is not None:
        frames = [frame for frame in traceback.extract_tb(cause.__traceback__) if frame.filename in own]
        if frames:
            message = (str(cause).strip().splitlines() or [""])[0]
            what = f"{type(cause).__name__}: {message}" if message else type(cause).__name__
            last = frames[-1]
            return OwnCodeError(
                f"{last.filename}, line {last.lineno}, in {last.name}: {what.rstrip('.')}. Correct the model."
            )
        cause = cause.__cause__
    return None


def load_own(reference: str) -> Any:
    """Load what `path/to/file.py:Name` names; the file is run as a module, and can import from its folder.

    A file is run once, so that a model and a proposal of the same file share their classes.
    """
    path, name = _split(reference)
    try:
        source = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"There is no file {path}. Check the name and the folder.") from None
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror or error}.") from error
    module = _run(path, source)
    if not hasattr(module, name):
        imported = {
            alias.asname or alias.name.partition(".")[0]
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        public = {known for known in vars(module) if not known.startswith("_")} - imported
        there_are = nearest(name, public) if public else "It defines no public name."
        raise InputError(f"There is no {name!r} in {path}. {there_are}")
    return getattr(module, name)


def build_own(reference: str, series_list: list[Series], proposal_reference: str | None = None) -> Start:
    """Build the user's own model and proposal, each a class, an instance or a function of the series.

    The proposal is the named one, or the one that the model's function returned, or `Bootstrap()`.
    """
    built = _build(reference, Model, series_list)
    is_pair = isinstance(built, tuple) and len(built) == 2
    model = _checked(reference, built[0] if is_pair else built, Model)
    proposal = _checked(reference, built[1], Proposal) if is_pair else Bootstrap()
    if proposal_reference is not None:
        proposal = build_own_proposal(proposal_reference, series_list)
    return Start(model, proposal, ())


def build_own_proposal(reference: str, series_list: list[Series]) -> Proposal:
    """Build the user's own proposal: a class, an instance or a function of the series."""
    return _checked(reference, _build(reference, Proposal, series_list), Proposal)


def is_own(reference: object) -> bool:
    """Whether this names something in a file of the user's own: `path/to/file.py:Name`."""
    return isinstance(reference, str) and reference.rpartition(":")[0].endswith(".py")


def build_own_instance(reference: str, wanted: type[_Kind], home: str) -> _Kind:
    """Build an object of the user's own that needs no data, such as a rule: an instance, or a class without arguments.

    **Arguments:**

    - `home`: the public name of `wanted`, for messages.
    """
    own = load_own(reference)
    if isinstance(own, type) and issubclass(own, wanted):
        with _reporting_errors(_split(reference)[0]):
            own = own()
    if not isinstance(own, wanted):
        raise InputError(
            f"{reference} must be a class derived from {home}, or an instance of one, but it is {_described(own)}."
        )
    return own


def _split(reference: str) -> tuple[Path, str]:
    file, _, name = reference.rpartition(":")
    if not file.endswith(".py") or not name.isidentifier():
        raise InputError(f"{reference!r} names nothing in a Python file. Write path/to/file.py:Name.")
    return Path(file), name


def _run(path: Path, source: bytes) -> ModuleType:
    index = str(path.resolve())
    name = f"{_PREFIX}{hashlib.sha256(index.encode() + source).hexdigest()[:16]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, index)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    # Registered before the file runs, because dataclasses look up their module.
    sys.modules[name] = module
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        with _reporting_errors(path):
            # Compiled here, because the loader would write a __pycache__, and might read an outdated one.
            exec(compile(source, index, "exec", dont_inherit=True), vars(module))
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)
    return module


@contextlib.contextmanager
def _reporting_errors(path: Path) -> Iterator[None]:
    """Raise any error of the user's code as an OwnCodeError with its line."""
    try:
        yield
    except (Exception, SystemExit) as error:
        index = str(path.resolve())
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == index]
        if isinstance(error, SyntaxError) and error.filename == index:
            lines.append(error.lineno)
        where = f"{path}, line {lines[-1]}" if lines else f"{path}"
        message = error.msg if isinstance(error, SyntaxError) else str(error)
        what = f"{type(error).__name__}: {message}" if message else type(error).__name__
        raise OwnCodeError(f"{where}: {what.rstrip('.')}. Correct the file.") from error


def _build(reference: str, wanted: type, series_list: list[Series]) -> Any:
    """Return the instance that a reference names, or call the class or the function that it names."""
    own = load_own(reference)
    if isinstance(own, wanted):
        return own
    is_class = isinstance(own, type)
    if not callable(own) or (is_class and not issubclass(own, wanted)):
        raise InputError(
            f"{reference} must be a {wanted.__name__}, a class derived from mcfo.{wanted.__name__}, or a function that "
            f"takes the list of series and returns one, but it is {_described(own)}."
        )
    arguments = [] if is_class else [list(series_list)]
    try:
        inspect.signature(own).bind(*arguments)
    except ValueError:
        pass  # code that is not written in Python has no signature
    except TypeError as error:
        remedy = (
            f"A class is constructed without arguments: write a function that takes the list of series and returns "
            f"a {wanted.__name__}, and name that one."
            if is_class
            else "A function is called with the list of series, and nothing else."
        )
        raise InputError(f"Cannot call {reference}: {error}. {remedy}") from error
    with _reporting_errors(_split(reference)[0]):
        return own(*arguments)


def _checked(reference: str, built: Any, wanted: type[_Kind]) -> _Kind:
    if not isinstance(built, wanted):
        pair = ", or a pair (model, proposal)" if wanted is Model else ""
        raise InputError(
            f"{reference} returned {_described(built)}, but an instance of mcfo.{wanted.__name__} is wanted{pair}."
        )
    return built


def _described(value: Any) -> str:
    if value is None:
        return "None"
    return f"the class {value.__name__}" if isinstance(value, type) else f"an object of type {type(value).__name__}"
