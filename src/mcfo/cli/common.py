"""What the commands share: how they end, what they refuse."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from mcfo.files import InputError, RunError
from mcfo.suggestions import nearest

Seed = Annotated[int, typer.Option(help="Seed of all random numbers.", min=0, max=2**31 - 2)]
Force = Annotated[bool, typer.Option("--force", help="Write into the folder even if it exists.")]


def fail(message: str) -> NoReturn:
    """Ends the command: one message, exit code 2, no traceback."""
    print(f"mcfo: {message}", file=sys.stderr)
    raise typer.Exit(2)


@contextmanager
def messages() -> Iterator[None]:
    """Errors of the user's, and of the machine, end with their message alone."""
    try:
        yield
    except (InputError, RunError) as error:
        fail(str(error))


def check_known(name: str, known: Iterable[str], what: str) -> None:
    """Refuses an unknown name, with the nearest."""
    if name not in known:
        fail(f"There is no {what} {name!r}. {nearest(name, known)}")


def exists(path: Path) -> bool:
    """Whether there is such a file or folder; refuses a name that cannot be one."""
    try:
        return path.exists()
    except OSError as error:
        fail(f"{str(path)[:60]}... cannot be a name: {error.strerror}. Choose another one.")


def check_out(out: Path, force: bool) -> None:
    """Refuses a folder that exists."""
    if exists(out) and not out.is_dir():
        fail(f"{out} is not a folder. Choose another one with --out.")
    if exists(out) and not force:
        fail(f"{out} exists already. Choose another folder with --out, or add --force to write into it.")


def read_options(given: list[str], flag: str) -> dict[str, str]:
    """`name=value` pairs from the command line."""
    options = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not name:
            fail(f"{flag} {text!r} is not of the form name=value. Write {flag} signal=0.5, say.")
        if name in options:
            fail(f"{flag} gives {name} twice. Give it once.")
        options[name] = value
    return options


def read_values(given: list[str], flag: str) -> dict[str, bool | int | float | str | None]:
    """The same, with numbers as numbers."""
    return {name: as_value(value) for name, value in read_options(given, flag).items()}


def as_value(text: str) -> bool | int | float | str | None:
    """What a word on the command line stands for: a number, true, false, none, or itself."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
