"""`mcfo models`: the models that mcfo fit knows by name."""

from typing import Annotated, Any

import typer

from mcfo.cli.options import build_table, messages


def models(
    name: Annotated[str | None, typer.Argument(help="Show this one, with its options.", metavar="[NAME]")] = None,
) -> None:
    """List the models that mcfo fit knows by name, or show one with its options."""
    with messages():
        if name is None:
            _list()
        else:
            _show(name)


def _list() -> None:
    from rich.console import Console

    from mcfo.catalogue.registry import CATALOGUE

    header = ("model", "for series of", "options")
    rows = [[name, entry.summary, ", ".join(entry.options)] for name, entry in CATALOGUE.items()]
    Console().print(build_table(header, rows, text=header))
    print("mcfo models NAME explains the options. Your own model is a file: mcfo fit path/to/file.py:Name.")


def _show(name: str) -> None:
    from rich.console import Console

    from mcfo.catalogue.registry import entry

    model = entry(name)
    print(f"{name}: {model.summary}.\n")
    print(f"Proposal: {model.proposal}.")
    if model.rules:
        chosen = " ".join(f"--{side} {rule}" for side, rule in model.rules.items())
        print(f"Learned by maximum likelihood, unless you choose otherwise: {chosen}.")
    reads = [
        *(["columns named by --inputs"] if model.inputs else []),
        *(["the time between rows where that is uneven (--irregular)"] if model.gaps else []),
    ]
    print(f"It reads {' and '.join(reads)}." if reads else "It reads no inputs, and takes each row as one step.")
    header = ("option", "default", "meaning")
    rows = [[option, _default(one.default), model.options[option]] for option, one in model.parameters().items()]
    Console().print(build_table(header, rows, text=header, title="Options, --set name=value"))
    print(f"mcfo fit {name} --data series.csv --out run")
    print(f"Equations, starting values and an example: docs/models/{name}.md")


def _default(value: Any) -> str:
    if value is None or value == "":
        return ""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
