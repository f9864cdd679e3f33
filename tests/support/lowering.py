"""What a lowered program calls inside its loops."""

from typing import Any

CALLS = ("stablehlo.custom_call", "mhlo.custom_call")
LAPACK = ("stablehlo.cholesky", "stablehlo.triangular_solve")
"""Operations that XLA:CPU may turn into LAPACK calls."""


def lapack_calls_in_loops(lowered: Any) -> set[str]:
    """The names of all LAPACK calls in what any `while` of the program executes, in functions that it calls too."""
    module = lowered.compiler_ir("stablehlo")
    functions = {one.attributes["sym_name"].value: one for one in module.body.operations}
    found: set[str] = set()
    visited: set[tuple[str, bool]] = set()

    def visit(operation: Any, in_loop: bool) -> None:
        name = operation.operation.name
        if name == "func.call":
            callee = operation.attributes["callee"].value
            if (callee, in_loop) not in visited:
                visited.add((callee, in_loop))
                visit(functions[callee], in_loop)
        if in_loop and name in CALLS and "lapack" in operation.attributes["call_target_name"].value:
            found.add(operation.attributes["call_target_name"].value)
        if in_loop and name in LAPACK:
            found.add(name)
        for region in operation.regions:
            for block in region:
                for inner in block:
                    visit(inner, in_loop or name == "stablehlo.while")

    visit(functions["main"], False)
    return found
