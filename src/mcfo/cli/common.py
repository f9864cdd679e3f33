"""What the commands share: how they end, what they refuse."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, NoReturn

import typer

from mcfo.errors import InputError, RunError, nearest

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console

SHOWN = 4
"""Panels or films of a picture."""

Seed = Annotated[int, typer.Option(help="Seed of all random numbers.", min=0, max=2**31 - 2)]
RunFolder = Annotated[Path, typer.Argument(help="The folder of a run of mcfo fit.", metavar="RUN")]
Data = Annotated[Path, typer.Option(help="The series: a CSV file with a header, Parquet, NetCDF or NPZ.")]
OwnModel = Annotated[
    str | None, typer.Option(help="Where your own model is, path/to/file.py:Name; not for those of the catalogue.")
]
OwnProposal = Annotated[str | None, typer.Option(help="Where your own proposal is, path/to/file.py:Name.")]
Columns = Annotated[str | None, typer.Option("--columns", help="The value columns, by commas; all by default.")]
SeriesColumn = Annotated[str | None, typer.Option(help="The column that names the series.")]
TimeColumn = Annotated[str | None, typer.Option(help="The column of times.")]
RunSeed = Annotated[
    int | None, typer.Option(help="Which seed of the run; by default the one with the lowest NLL.", min=0)
]
Plot = Annotated[
    Path | None, typer.Option(help="Draw a picture into this .png file; of series of pictures, a film into a .gif.")
]
StepsPerQuarter = Annotated[
    int, typer.Option(help="Steps of a quarter note in MIDI files: 2 for eighths.", min=1, max=48)
]
Force = Annotated[bool, typer.Option("--force", help="Write into the folder even if it exists.")]


def fail(message: str) -> NoReturn:
    """Ends the command: one message, exit code 2, no traceback."""
    print(f"mcfo: {message}", file=sys.stderr)
    raise typer.Exit(2)


@contextmanager
def messages() -> Iterator[None]:
    """Errors of the user's, and of the machine, end with their message alone; those in the user's own file, with its
    line."""
    try:
        yield
    except (InputError, RunError) as error:
        fail(str(_blamed(error) or error))
    except Exception as error:
        own = _blamed(error)
        if own is None:
            raise
        fail(str(own))


def _blamed(error: Exception) -> Exception | None:
    # Only where a file of the user's was read; otherwise JAX would be imported to say that an option is wrong.
    if "mcfo.catalogue.user_code" not in sys.modules:
        return None
    from mcfo.catalogue.user_code import blamed

    return blamed(error)


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


def check_new_file(path: Path | None, flag: str, endings: Iterable[str]) -> None:
    """Refuses a file that exists, that has no folder, or whose ending says nothing."""
    if path is None:
        return
    endings = tuple(endings)
    if path.suffix.lower() not in endings:
        fail(f"{flag} {path} must end in {' or '.join(endings)}. Choose another name.")
    if exists(path):
        fail(f"{path} exists already. Choose another file with {flag}.")
    if not path.parent.is_dir():
        fail(f"There is no folder {path.parent} for {path.name}. Make it, or choose another with {flag}.")


@contextmanager
def writing(path: Path, flag: str) -> Iterator[None]:
    """What the machine says against writing a file is said in one message."""
    try:
        yield
    except OSError as error:
        raise InputError(f"Cannot write {path}: {error.strerror}. Choose another file with {flag}.") from error


class Kept(NamedTuple):
    """The files that a command writes, as far as they were asked for: numbers, a picture, music."""

    out: Path | None
    plot: Path | None
    midi: tuple[Path, ...]

    def check(self, what: str) -> None:
        """Refuses to work for nothing, and names that cannot be written."""
        if not any(self):
            fail(f"Nothing would be kept. Give a file for {what} (--out), a picture (--plot) or music (--midi).")
        check_new_file(self.out, "--out", (".csv", ".npz", ".nc"))
        check_new_file(self.plot, "--plot", (".png", ".gif"))
        for path in self.midi:
            check_new_file(path, "--midi", (".mid", ".midi"))

    def check_film(self, image: tuple[int, int] | None) -> None:
        """Only pictures move."""
        if self.plot is not None and self.plot.suffix.lower() == ".gif" and image is None:
            raise InputError(
                f"{self.plot}: these are no series of pictures, so that nothing moves. Draw a .png. Pictures are "
                "`observations` of shape (series, steps, height, width) in an NPZ file."
            )

    def check_music(self, values: "np.ndarray", source: str) -> None:
        """Only piano-rolls can be heard."""
        from mcfo.data.piano_rolls import KEYS, is_roll

        if self.midi and not is_roll(values):
            found = f"{values.shape[-1]} columns" + (" of other numbers" if values.shape[-1] == KEYS else "")
            raise InputError(
                f"--midi is for piano-rolls, {KEYS} columns of zeros and ones, but {source} has {found}. Leave it out, "
                "or learn from music that mcfo data music converted."
            )


@contextmanager
def written(what: str, path: Path, flag: str, console: "Console") -> Iterator[None]:
    """Says where it is once a file is written."""
    with writing(path, flag):
        yield
    console.print(f"{what}: {path}", highlight=False, soft_wrap=True, markup=False)


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
