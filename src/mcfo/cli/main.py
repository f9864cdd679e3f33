"""The command line. Nothing heavy is imported before a command needs it, so that help comes at once."""

import gc
import inspect
import re
import sys
from importlib import metadata
from typing import Annotated

import typer

from mcfo import interrupts
from mcfo.cli.apply import filter, smooth
from mcfo.cli.compare import compare
from mcfo.cli.compile_cache import use_compile_cache
from mcfo.cli.data import app as data
from mcfo.cli.demo import demo
from mcfo.cli.evaluate import evaluate
from mcfo.cli.fit import fit
from mcfo.cli.forecast import forecast
from mcfo.cli.models import models
from mcfo.cli.options import forget_output, messages
from mcfo.cli.posterior import posterior
from mcfo.cli.report import report
from mcfo.cli.reproduce import reproduce
from mcfo.cli.simulate import simulate
from mcfo.cli.stream import stream
from mcfo.cli.sweep import sweep
from mcfo.errors import machine_message
from mcfo.limits import raise_limits

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
    limit: Annotated[
        list[str] | None,
        typer.Option(
            help="Raise a limit of what is read from files, name=value: bytes, elements, columns, line, document, "
            "nesting.",
            metavar="NAME=VALUE",
        ),
    ] = None,
) -> None:
    """The options before the command."""
    if limit:
        with messages():
            raise_limits(limit)


_COMMANDS = {
    "Start": (demo, models),
    "Learn": (fit, report, evaluate, posterior, compare, sweep),
    "Use what was learned": (filter, smooth, forecast, simulate, stream),
    "The paper": (reproduce,),
}
for panel, commands in _COMMANDS.items():
    for command in commands:
        app.command(rich_help_panel=panel)(command)
app.add_typer(data, name="data", rich_help_panel="Start")
for command in (*app.registered_commands, *data.registered_commands):
    # Paragraphs are wrapped to the terminal, and not where the source has them.
    command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(command.callback) or "")


def main() -> None:
    """Run the command of this process, and end it."""
    interrupts.take_over()
    # Importing JAX and tracing make many objects that live on: with Python's thresholds, looking through them again and
    # again takes an eighth of a short command.
    gc.set_threshold(100_000, 50, 50)
    use_compile_cache()
    code = 1
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BrokenPipeError:
        forget_output()  # nobody reads any more
    except Exception as error:
        # What no command foresaw of the machine: its memory is full, its disk, or nobody can write to its terminal.
        message = machine_message(error)
        if message is None:
            raise
        forget_output()
        print(f"mcfo: {message}", file=sys.stderr)
        code = 2
    interrupts.leave(code)
