"""Learn state-space models and their proposals from time series by particle methods.

The public names and their homes are listed in `__init__.pyi`. JAX takes a second to import, which `mcfo --help` should
not wait for: a name is imported when it is first used.
"""

import ast
import importlib
import importlib.metadata
from pathlib import Path
from typing import Any


def _homes() -> dict[str, tuple[str, str]]:
    """Return the module and the name there of each public name, from the stub beside this file."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [statement for statement in stub.body if isinstance(statement, ast.ImportFrom)]
    return {
        str(alias.asname): (str(statement.module), alias.name) for statement in imports for alias in statement.names
    }


_HOME = _homes()

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.metadata.version("mcfo")
    if name not in _HOME:
        raise AttributeError(f"module 'mcfo' has no attribute {name!r}")
    module, attribute = _HOME[name]
    home = importlib.import_module(module)
    # A namespace is a module, which its package has as an attribute only once it is imported.
    return getattr(home, attribute) if attribute in vars(home) else importlib.import_module(f"{module}.{attribute}")


def __dir__() -> list[str]:
    return ["__version__", *__all__]
