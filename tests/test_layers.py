"""Imports go one way: between the layers of the package, and inside the folders where the order is easily lost."""

import ast
import functools
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import mcfo

ROOT = Path(mcfo.__file__).parent
# From bottom to top. A module imports from its own layer and from those before it.
LAYERS = [
    "errors",
    "limits",
    "files",
    "interrupts",
    "types",
    "precision",
    "linear_algebra",
    "missing",
    "covariance",
    "networks",
    "validation",
    "series",
    "data",
    "transforms",
    "models",
    "proposals",
    "kalman",
    "forward_algorithm",
    "exact",
    "catalogue",
    "smc",
    "resampling",
    "gradients",
    "rules",
    "objectives",
    "inference",
    "reports",
    "learning",
    "posterior",
    "online",
    "sktime",
    "experiments",
    "cli",
    "__main__",
]
# From bottom to top inside a layer. Its `__init__` stands above all of them.
INNER = {
    "smc": [
        "weights",
        "noise",
        "resampling",
        "trace",
        "compatibility",
        "step",
        "step_scan",
        "filter",
        "smoothing",
        "pimh",
        "trajectory",
        "conditional",
        "coupled",
        "diagnostics",
    ],
    "gradients": [
        "rules",
        "score",
        "registry",
        "draws",
        "replay",
        "estimate",
        "unbiased",
    ],
    "learning": [
        "prior_families",
        "optimizers",
        "settings",
        "parameters",
        "readable",
        "batch_gradients",
        "step",
        "looks",
        "progress",
        "watchdog",
        "devices",
        "checks",
        "standardization",
        "coordinates",
        "priors",
        "standard_errors",
        "estimated_likelihood",
        "particle_information",
        "uncertainty",
        "maximum_likelihood",
        "many_searches",
        "fitted_model",
        "results",
        "evaluator",
        "trainer",
        "checkpoints",
        "run_folder",
        "exact_fit",
        "named_models",
        "panel_problems",
        "panel_exact",
        "panel_particles",
        "panel_files",
        "fit_each",
        "fit",
        "saved_runs",
        "saved_each",
        "stream_settings",
        "recent_steps",
        "tangent_filter",
        "stream_updates",
        "statsmodels_forecasts",
        "comparison",
        "streaming",
        "stream_files",
    ],
    "posterior": ["target", "chains", "result", "sampling", "averaging", "page"],
}


@functools.cache
def package() -> dict[str, ast.Module]:
    """Return every module by its name; a folder's `__init__` goes by the folder's name."""
    names = {path: ".".join(["mcfo", *path.relative_to(ROOT).with_suffix("").parts]) for path in ROOT.rglob("*.py")}
    # The package's own `__init__` imports nothing before it is asked for a name; what it may import is in its stub.
    return {
        name.removesuffix(".__init__"): ast.parse(path.read_text(encoding="utf-8"))
        for path, name in sorted(names.items())
        if name != "mcfo.__init__"
    }


@functools.cache
def imports(module: ast.Module, known: frozenset[str]) -> set[str]:
    """Return the modules of this package that a module imports, also in functions and, as text, by `import_module`.

    A relative import is returned with its dots.
    """
    found = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            found.add("." * node.level + (node.module or ""))
        elif isinstance(node, ast.ImportFrom):
            # `from mcfo.smc import filter` imports the module, `from mcfo.smc import SMC` the folder's `__init__`.
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {member if member in known else str(node.module) for member in members}
        elif isinstance(node, ast.Constant) and node.value in known:
            found.add(node.value)
    return {name for name in found if name.split(".")[0] in ("mcfo", "")}


def has_place(name: str) -> bool:
    layer, *inner = name.split(".")[1:]
    return layer in LAYERS and (layer not in INNER or not inner or inner[0] in INNER[layer])


def rank(name: str) -> tuple[int, int]:
    """Return the position of a module's layer, and its own within the layer where that has an order."""
    layer, *inner = name.split(".")[1:]
    order = INNER.get(layer, [])
    return LAYERS.index(layer), order.index(inner[0]) if order and inner else len(order)


def violations(package: dict[str, ast.Module]) -> list[str]:
    """Return a sentence for each breach of the order."""
    found = [f"{name} has no place in LAYERS or INNER of this test" for name in package if not has_place(name)]
    graph = {name: imports(module, frozenset(package)) for name, module in package.items() if has_place(name)}
    for name, targets in graph.items():
        if any(target.startswith(".") for target in targets):
            found.append(f"{name} has a relative import")
        if "mcfo" in targets:
            found.append(f"{name} imports from the top of the package, which may import everything: name the module")
        for target in sorted(targets & set(graph)):
            if rank(target) > rank(name):
                found.append(f"{name} imports {target}, which lies above it")
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        found.append(f"imports go in a circle: {' imports '.join(reversed(error.args[1]))}")
    return found


def test_imports_go_from_top_to_bottom():
    assert violations(package()) == []


def test_every_entry_of_the_order_exists():
    modules = package()
    for folder, entries in [("mcfo", LAYERS), *((f"mcfo.{layer}", inner) for layer, inner in INNER.items())]:
        depth = len(folder.split("."))
        assert set(entries) == {name.split(".")[depth] for name in modules if name.startswith(f"{folder}.")}


def test_only_the_command_line_lies_above_the_experiments():
    assert LAYERS[LAYERS.index("experiments") + 1 :] == ["cli", "__main__"]


@pytest.mark.parametrize(
    ("name", "line", "complaint"),
    [
        ("mcfo.types", "from mcfo.series import Frame", "mcfo.types imports mcfo.series, which lies above it"),
        ("mcfo.types", "from mcfo import series", "mcfo.types imports mcfo.series, which lies above it"),
        ("mcfo.types", "import mcfo.series", "mcfo.types imports mcfo.series, which lies above it"),
        ("mcfo.types", "import mcfo.smc.filter as below", "mcfo.types imports mcfo.smc.filter, which lies above it"),
        ("mcfo.types", "def use():\n    from mcfo import series", "mcfo.types imports mcfo.series, which lies above"),
        ("mcfo.types", "import_module('mcfo.series')", "mcfo.types imports mcfo.series, which lies above it"),
        ("mcfo.types", "import mcfo", "mcfo.types imports from the top of the package"),
        ("mcfo.types", "from mcfo import SMC", "mcfo.types imports from the top of the package"),
        ("mcfo.cli.fit", "from mcfo import SMC", "mcfo.cli.fit imports from the top of the package"),
        ("mcfo.types", "from .errors import InputError", "mcfo.types has a relative import"),
        ("mcfo.reports.html", "from mcfo.experiments import demo", "imports mcfo.experiments.demo, which lies above"),
        ("mcfo.smc.weights", "from mcfo.smc import filter", "imports mcfo.smc.filter, which lies above it"),
        ("mcfo.smc.weights", "from mcfo.smc import SMC", "mcfo.smc.weights imports mcfo.smc, which lies above it"),
        ("mcfo.gradients.rules", "import mcfo.gradients.score", "imports mcfo.gradients.score, which lies above it"),
        ("mcfo.learning.step", "from mcfo.learning.fit import fit", "imports mcfo.learning.fit, which lies above it"),
        ("mcfo.data.times", "from mcfo.data.tables import read_series", "imports go in a circle: "),
        ("mcfo.newcomer", "", "mcfo.newcomer has no place"),
        ("mcfo.smc.newcomer", "", "mcfo.smc.newcomer has no place"),
    ],
)
def test_what_breaks_the_order_is_refused(name, line, complaint):
    known = package().get(name, ast.Module([], []))
    changed = package() | {name: ast.Module([*known.body, *ast.parse(line).body], [])}
    new = set(violations(changed)) - set(violations(package()))
    assert any(complaint in sentence for sentence in new), new


def test_public_names_exist():
    for name in mcfo.__all__:
        assert getattr(mcfo, name).__doc__, f"mcfo.{name} has no docstring"
