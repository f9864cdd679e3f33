"""The command line. Nothing heavy is imported before a command needs it, so that help comes at once."""

import os
import sys
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
from mcfo.cli.options import forget_output, messages
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
    if code := _run():
        # The message is the last word: threads of libraries that still write to a full disk print tracebacks while the
        # interpreter ends. What they leave behind is what `kill -9` would leave, from which a run resumes.
        sys.stderr.flush()
        os._exit(code)


def _run() -> int:
    """Runs the command, and returns its exit code."""
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception as error:
        # What no command foresaw of the machine: its memory is full, its disk, or nobody can write to its terminal.
        message = machine_message(error)
        if message is None:
            raise
        forget_output()
        print(f"mcfo: {message}", file=sys.stderr)
        return 2
    return 0
