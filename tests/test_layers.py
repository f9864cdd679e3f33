"""Imports go one way."""

import ast
from pathlib import Path

import mcfo

ROOT = Path(mcfo.__file__).parent
LAYERS = [
    "suggestions",
    "files",
    "types",
    "random",
    "distributions",
    "covariance",
    "networks",
    "reading",
    "series",
    "data",
    "models",
    "proposals",
    "catalogue",
    "own_code",
    "exact",
    "smc",
    "gradients",
    "objectives",
    "inference",
    "training",
    "online",
    "reports",
    "experiments",
    "demo",
    "cli",
    "__main__",
]


def layer(module: str) -> int:
    return LAYERS.index(module.split(".")[1])


def modules():
    for path in sorted(ROOT.rglob("*.py")):
        name = ".".join(["mcfo", *path.relative_to(ROOT).with_suffix("").parts])
        if name != "mcfo.__init__":
            yield name, ast.parse(path.read_text())


def test_every_module_has_a_layer():
    assert {name.split(".")[1] for name, _ in modules()} == set(LAYERS)


def test_imports_go_from_top_to_bottom():
    for name, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("mcfo."):
                assert layer(node.module) <= layer(name), f"{name} imports {node.module}, which lies above it"


def test_no_relative_imports():
    for name, tree in modules():
        for node in ast.walk(tree):
            assert not (isinstance(node, ast.ImportFrom) and node.level), f"{name} has a relative import"


def test_public_names_exist():
    for name in mcfo.__all__:
        assert getattr(mcfo, name).__doc__, f"mcfo.{name} has no docstring"
