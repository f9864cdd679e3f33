"""`mcfo models`: the models that mcfo fit knows by name."""

from typing import Annotated, Any

import typer

from mcfo.cli.options import messages


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
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from mcfo.catalogue.registry import CATALOGUE

    table = Table(box=SIMPLE_HEAD, padding=(0, 1))
    table.add_column("model", no_wrap=True)
    table.add_column("for series of")
    table.add_column("options")
    for name, entry in CATALOGUE.items():
        table.add_row(name, entry.summary, ", ".join(entry.options))
    console = Console()
    console.print(table)
    print("mcfo models NAME explains the options. Your own model is a file: mcfo fit path/to/file.py:Name.")


def _show(name: str) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    from mcfo.catalogue.registry import entry

    model = entry(name)
    console = Console()
    print(f"{name}: {model.summary}.\n")
    print(f"Proposal: {model.proposal}.")
    if model.rules:
        chosen = " ".join(f"--objective-option {side}={rule}" for side, rule in model.rules.items())
        print(f"Learned by maximum likelihood, unless you choose otherwise: {chosen}.")
    reads = [
        *(["columns named by --inputs"] if model.inputs else []),
        *(["the time between rows where that is uneven (--irregular)"] if model.gaps else []),
    ]
    print(f"It reads {' and '.join(reads)}." if reads else "It reads no inputs, and takes each row as one step.")
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), title="Options, --set name=value", title_justify="left")
    for title in ("option", "default", "meaning"):
        table.add_column(title, no_wrap=title != "meaning")
    for option, parameter in model.parameters().items():
        table.add_row(option, _default(parameter.default), model.options[option])
    console.print(table)
    print(f"mcfo fit {name} --data series.csv --out run")
    print(f"Equations, starting values and an example: docs/models/{name}.md")


def _default(value: Any) -> str:
    if value is None or value == "":
        return ""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
