"""Learn state-space models and their proposals from time series by particle methods.

The public names and their homes are listed in `__init__.pyi`. JAX takes a second to import, which `mcfo --help` should
not wait for: a name is imported when it is first used.
"""

import ast
import importlib
import importlib.metadata
from pathlib import Path
from typing import Any


def _homes() -> dict[str, str]:
    """The module that each public name is defined in, from the stub beside this file."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [statement for statement in stub.body if isinstance(statement, ast.ImportFrom)]
    return {alias.name: str(statement.module) for statement in imports for alias in statement.names}


_HOME = _homes()

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.metadata.version("mcfo")
    if name not in _HOME:
        raise AttributeError(f"module 'mcfo' has no attribute {name!r}")
    if _HOME[name] == __name__:
        return importlib.import_module(f"{__name__}.{name}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return ["__version__", *__all__]
