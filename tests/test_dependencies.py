"""What the package imports is declared in pyproject.toml."""

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import mcfo

ROOT = Path(mcfo.__file__).parent
PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def normalized(name: str) -> str:
    """Return the name of a distribution as indexes compare it, without extras and bounds."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", name)[0]).lower()


ADAPTERS = {"sktime.py": "sktime"}
"""Modules that are nothing without their extra, and say so when they are imported."""
REQUIRED = {normalized(name) for name in PROJECT["dependencies"]}
EXTRA = {normalized(name) for names in PROJECT["optional-dependencies"].values() for name in names}
PROVIDERS = packages_distributions()


def third_party(module: ast.Module) -> set[tuple[str, bool]]:
    """Return the top-level packages that a module imports, each with whether a function does so when it is called."""
    inside = {id(node) for outer in ast.walk(module) if isinstance(outer, ast.FunctionDef) for node in ast.walk(outer)}
    found = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        else:
            continue
        found |= {(name.split(".")[0], id(node) in inside) for name in names}
    return {(name, lazy) for name, lazy in found if name not in sys.stdlib_module_names and name != "mcfo"}


def undeclared(module: ast.Module, adapted: str | None = None) -> list[str]:
    """Return the packages that a module imports without a declared dependency that brings them.

    An extra may be absent: only a function may import from it, and a module that adapts to it (`adapted`).
    """
    return sorted(
        name
        for name, lazy in third_party(module)
        if name != adapted
        and not {normalized(one) for one in PROVIDERS.get(name, [])} & (REQUIRED | EXTRA if lazy else REQUIRED)
    )


def test_imports_are_declared():
    found = {
        str(path.relative_to(ROOT)): undeclared(
            ast.parse(path.read_text(encoding="utf-8")), ADAPTERS.get(str(path.relative_to(ROOT)))
        )
        for path in ROOT.rglob("*.py")
    }
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("import numpy.linalg", []),
        ("from PIL import Image", []),
        ("import packaging", ["packaging"]),  # installed with xarray, but not ours to use
        ("from pytest import raises", ["pytest"]),  # of the dev group
        ("import nobody_has_this", ["nobody_has_this"]),
        ("import pyarrow", ["pyarrow"]),
        ("try:\n    import pyarrow\nexcept ImportError:\n    pass", ["pyarrow"]),
        ("def read():\n    import pyarrow", []),
        ("def read():\n    import packaging", ["packaging"]),
    ],
)
def test_what_is_not_declared_is_refused(text, refused):
    assert undeclared(ast.parse(text)) == refused
