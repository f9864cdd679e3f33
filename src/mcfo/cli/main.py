"""The command line. Nothing heavy is imported before a command needs it, so that help comes at once."""

from importlib import metadata
from typing import Annotated

import typer

from mcfo.cli.apply import filter, forecast, smooth
from mcfo.cli.compare import compare
from mcfo.cli.compile_cache import use_compile_cache
from mcfo.cli.data import app as data
from mcfo.cli.demo import demo
from mcfo.cli.evaluate import evaluate
from mcfo.cli.fit import fit
from mcfo.cli.models import models
from mcfo.cli.report import report
from mcfo.cli.reproduce import reproduce
from mcfo.cli.simulate import simulate
from mcfo.cli.stream import stream
from mcfo.cli.sweep import sweep

app = typer.Typer(
    name="mcfo",
    help="Learn state-space models and their proposals from time series by particle methods.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> bool:
    if wanted:
        print(f"mcfo {metadata.version('mcfo')}")
        raise typer.Exit
    return wanted


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """The options before the command."""


_COMMANDS = {
    "Start": (demo, models),
    "Learn": (fit, report, evaluate, compare, sweep),
    "Use what was learned": (filter, smooth, forecast, simulate, stream),
    "The paper": (reproduce,),
}
for panel, commands in _COMMANDS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)
app.add_typer(data, name="data", rich_help_panel="Start")


def main() -> None:
    use_compile_cache()
    app()
