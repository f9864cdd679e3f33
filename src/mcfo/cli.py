"""The command line. Nothing heavy is imported before a command needs it, so that help comes at once."""

import os
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="mcfo",
    help="Learn state-space models and their proposals from time series by particle methods.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"mcfo {metadata.version('mcfo')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """What stands before the command."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture; it must not exist yet.")] = Path("mcfo-demo"),
    steps: Annotated[int, typer.Option(help="Length of the simulated series.", min=10, max=10_000)] = 100,
    particles: Annotated[int, typer.Option(help="Number of particles.", min=2, max=100_000)] = 500,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.", min=0, max=2**31 - 2)] = 0,
    force: Annotated[bool, typer.Option("--force", help="Write into the folder even if it exists.")] = False,
) -> None:
    """See the library work: filter and smooth a series with gaps, and compare with the exact answer.

    It takes about half a minute, most of it compiling.
    """
    if out.exists() and not out.is_dir():
        _fail(f"{out} is not a folder. Choose another one with --out.")
    if out.exists() and not force:
        _fail(f"{out} exists already. Choose another folder with --out, or add --force to write into it.")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _fail(f"Cannot make the folder {out}: {error.strerror}. Choose another one with --out.")

    if not os.access(out, os.W_OK):
        _fail(f"Cannot write into the folder {out}. Choose another one with --out.")

    from mcfo.demo import run

    run(out, steps=steps, particles=particles, seed=seed)


def _fail(message: str) -> None:
    """Ends the command: one message, exit code 2, no traceback."""
    print(f"mcfo: {message}", file=sys.stderr)
    raise typer.Exit(2)


def main() -> None:
    app()
