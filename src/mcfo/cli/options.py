"""What the commands share: options, how a command ends, what it refuses, the files it writes."""

import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn

import typer

from mcfo import interrupts
from mcfo.errors import InputError, RunError, for_the_command_line, machine_message, nearest, printable

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console


def panel(name: str | None) -> Callable[..., Any]:
    """Options of one group in the help: `option(help, *flags, **settings)`."""

    def option(help: str, *flags: str, **settings: Any) -> Any:
        return typer.Option(*flags, help=help, rich_help_panel=name, **settings)

    return option


main = panel(None)
"""What most people need stands outside of the groups, first."""
data, model, objective, optimization, sampling, output = map(
    panel, ("Data", "Model", "Objective", "Optimization", "Sampling", "Output")
)


def _trust(wanted: bool) -> bool:
    from mcfo.catalogue.trust import trust_everything

    return trust_everything(wanted)


Seed = Annotated[int, main("Seed of all random numbers.", min=0, max=2**31 - 2)]
RunFolder = Annotated[Path, typer.Argument(help="The folder of a run of mcfo fit.", metavar="RUN")]
Data = Annotated[Path, main("The series: a CSV file with a header, Parquet, NetCDF or NPZ.")]
Only = Annotated[list[str] | None, main("Use this series alone, by its name; repeat it for several.")]
OwnModel = Annotated[str | None, model("Your own model, path/to/file.py:Name, if the run is one of it.")]
OwnProposal = Annotated[str | None, model("Your own proposal, path/to/file.py:Name, if the run has one.")]
TrustCode = Annotated[
    bool, model("Run the code that the run folder names, whoever wrote it.", "--trust-code", callback=_trust)
]
RunSeed = Annotated[int | None, model("Which seed of the run; by default the one with the lowest NLL.", min=0)]
Columns = Annotated[str | None, data("The value columns, separated by commas; by default all.", "--columns")]
SeriesColumn = Annotated[str | None, data("The column with the names of the series.")]
TimeColumn = Annotated[str | None, data("The column with the times.")]
InputColumns = Annotated[
    str | None, data("Columns that drive the model without being explained by it, separated by commas.")
]
Plot = Annotated[Path | None, main("Draw a figure into this .png file; of series of images, a film into a .gif.")]
Particles = Annotated[int, sampling("Particles of the filter.", min=1)]
AskedParticles = Annotated[
    int | None,
    sampling(
        "Particles of the filter; by default none where the answer is known exactly, otherwise 1000 (evaluate: 500).",
        min=1,
    ),
]
Method = Annotated[
    str | None,
    sampling("exact or particles; by default exact where that is possible.", "--method", metavar="METHOD"),
]
Quantiles = Annotated[
    str | None,
    sampling(
        "Levels of the quantiles, separated by commas; by default 5, 25, 50, 75 and 95%.",
        "--quantiles",
        metavar="0.05,0.5,0.95",
    ),
]
Circular = Annotated[
    list[str] | None,
    data(
        "A column or a state that is an angle, in radians, or with its period, heading=360; repeat it for several.",
        "--circular",
        metavar="NAME",
    ),
]
Future = Annotated[Path | None, data("A table of the coming inputs, one row for each step, if the model reads inputs.")]
PosteriorFile = Annotated[
    Path | None,
    model("Average over the draws of the parameters in this file, the draws.nc of mcfo posterior.", "--posterior"),
]
StepsPerQuarter = Annotated[int, output("Steps of a quarter note: 2 for eighths.", min=1, max=48)]
Force = Annotated[bool, output("Write into the folder even if it exists.", "--force")]


def fail(message: str) -> NoReturn:
    """Ends the command: one message, exit code 2, no traceback."""
    print(f"mcfo: {printable(message)}", file=sys.stderr)
    raise typer.Exit(2)


@contextmanager
def messages() -> Iterator[None]:
    """Errors of the user and of the machine end with their message alone, in the words of the command line; those in
    the user's own file with its line. Ctrl-C ends with what there is."""
    try:
        with for_the_command_line():
            yield
    except KeyboardInterrupt:
        print(f"\nmcfo: Interrupted. {interrupts.outcome()}", file=sys.stderr)
        raise typer.Exit(interrupts.EXIT_CODE) from None
    except (InputError, RunError) as error:
        fail(str(_blamed(error) or error))
    except Exception as error:
        message = _blamed(error) or machine_message(error)
        if message is None or isinstance(error, BrokenPipeError):
            raise
        fail(str(message))


def forget_output() -> None:
    """Leaves unwritten what standard output still holds: writing it at exit would fail again, with a traceback."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _blamed(error: Exception) -> Exception | None:
    # Only where a file of the user was read; otherwise JAX would be imported to say that an option is wrong.
    if "mcfo.catalogue.user_code" not in sys.modules:
        return None
    from mcfo.catalogue.user_code import blamed

    return blamed(error)


@contextmanager
def refusing(what: str, *others: type[Exception]) -> Iterator[None]:
    """What a model cannot do with the data is the user's error: `what` says which, "The model in run cannot ...";
    `others` are kinds of errors that mean so beside TypeError and ValueError.

    An error in the user's own file keeps its line, because `messages` looks at the cause.
    """
    try:
        yield
    except InputError:
        raise
    except (TypeError, ValueError, *others) as error:
        raise InputError(f"{what}: {error}") from error


def table_columns(
    columns: str | None, series: str | None, time: str | None, **inputs: str | None
) -> dict[str, list[str] | str | None]:
    """The options about columns as `read_series` takes them."""
    lists = {"values": columns, **inputs}
    return {name: text.split(",") if text else None for name, text in lists.items()} | {"series": series, "time": time}


def read_levels(text: str | None) -> dict[str, tuple[float, ...]]:
    """The keyword `levels` of quantiles, if they were asked for."""
    if text is None:
        return {}
    try:
        levels = tuple(float(word) for word in text.split(","))
    except ValueError:
        levels = ()
    if not levels or not all(0 < level < 1 for level in levels) or list(levels) != sorted(set(levels)):
        fail(f"--quantiles {text!r} must be increasing numbers between 0 and 1, separated by commas: 0.05,0.5,0.95.")
    return {"levels": levels}


def read_circular(names: list[str] | None) -> dict[str, dict[str, float]]:
    """The keyword `circular`: the period of each angle."""
    periods = {}
    for text in names or ():
        name, sign, period = text.partition("=")
        try:
            periods[name] = float(period) if sign else math.tau
        except ValueError:
            fail(f"--circular {text!r} is neither the name of an angle nor name=period. Write heading or heading=360.")
    return {"circular": periods}


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
        fail(f"There is no folder {path.parent} for {path.name}. Create it, or choose another with {flag}.")


def check_out(out: Path, force: bool) -> None:
    """Refuses a folder that exists."""
    if exists(out) and not out.is_dir():
        fail(f"{out} is not a folder. Choose another one with --out.")
    if exists(out) and not force:
        fail(f"{out} exists already. Choose another folder with --out, or add --force to write into it.")


@contextmanager
def status(text: str) -> Iterator[None]:
    """Says what is done and how long it has taken, on a terminal; in a pipe nothing."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    # Standard output may be read by a program.
    console = Console(stderr=True)
    options = {"transient": True, "redirect_stdout": sys.stdout.isatty(), "disable": not console.is_terminal}
    with Progress(*columns, console=console, **options) as progress:
        progress.add_task(text, total=None)
        yield


@contextmanager
def writing(path: Path, flag: str) -> Iterator[None]:
    """An error of the machine while a file is written ends with one message, and Ctrl-C waits for its end."""
    try:
        with interrupts.deferred():
            yield
    except OSError as error:
        raise InputError(f"Cannot write {path}: {error.strerror}. Choose another file with {flag}.") from error


@contextmanager
def written(what: str, path: Path, flag: str, console: "Console") -> Iterator[None]:
    """Says where a file is once it is written."""
    with writing(path, flag):
        yield
        before = interrupts.outcome()
        interrupts.set_outcome(f"{before[:-1]}, {path}." if before.startswith("Complete: ") else f"Complete: {path}.")
    console.print(f"{what}: {path}", highlight=False, soft_wrap=True, markup=False)


def build_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    text: Sequence[str] = (),
    most: int | None = None,
    **options: Any,
) -> Any:
    """A table for the terminal, by rich.

    **Arguments:**

    - `text`: the columns beside the first that hold text, which may wrap; the others hold numbers.
    - `most`: the number of rows that are shown.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    def plain(text: str) -> Text:
        """Names of columns and files, in which nothing is markup."""
        return Text(printable(text))

    options = {name: plain(value) if isinstance(value, str) else value for name, value in options.items()}
    table = Table(
        box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True, title_justify="left", caption_justify="left", **options
    )
    for index, title in enumerate(header):
        is_text = index == 0 or title in text
        # A title may wrap on a narrow terminal, a number must be read whole.
        width = None if is_text else max((len(row[index]) for row in rows[:most]), default=None)
        table.add_column(plain(title), justify="left" if is_text else "right", no_wrap=index == 0, min_width=width)
    for row in rows[:most]:
        table.add_row(*map(plain, row))
    if most is not None and len(rows) > most:
        table.caption = f"and {len(rows) - most} more"
    return table


class Outputs(NamedTuple):
    """The files that a command writes, as far as they were asked for: numbers, a figure, music."""

    out: Path | None
    plot: Path | None
    midi: tuple[Path, ...] = ()

    def check(self, what: str, endings: Iterable[str], *, music: bool = False) -> None:
        """Refuses to work for nothing, and names that cannot be written."""
        if not any(self):
            other = "a figure (--plot) or music (--midi)" if music else "a figure (--plot)"
            fail(f"Nothing would be saved. Give a file for {what} (--out){',' if music else ' or'} {other}.")
        check_new_file(self.out, "--out", endings)
        check_new_file(self.plot, "--plot", (".png", ".gif"))
        for path in self.midi:
            check_new_file(path, "--midi", (".mid", ".midi"))

    def ends_in(self, ending: str) -> bool:
        """Whether the numbers go into a file of this kind."""
        return self.out is not None and self.out.suffix.lower() == ending

    def check_film(self, image: tuple[int, int] | None) -> None:
        """Refuses a film of anything but images."""
        if self.plot is not None and self.plot.suffix.lower() == ".gif" and image is None:
            raise InputError(
                f"{self.plot}: these are no series of images, so that nothing moves. Draw a .png. Images are "
                "`observations` of shape (series, steps, height, width) in an NPZ file."
            )

    def check_music(self, values: "np.ndarray", source: str) -> None:
        """Refuses music of anything but piano-rolls, and where the package for it is missing."""
        if not self.midi:
            return
        from mcfo.data.piano_rolls import KEYS, is_roll, require_mido

        require_mido()
        if not is_roll(values):
            columns = f"{values.shape[-1]} columns" + (" of other numbers" if values.shape[-1] == KEYS else "")
            raise InputError(
                f"--midi is for piano-rolls, {KEYS} columns of zeros and ones, but {source} has {columns}. Leave it "
                "out, or learn from music that mcfo data music converted."
            )


def read_options(pairs: list[str] | None, flag: str) -> dict[str, str]:
    """`name=value` pairs from the command line."""
    options = {}
    for text in pairs or ():
        name, sign, value = text.partition("=")
        if not sign or not name:
            fail(f"{flag} {text!r} is not of the form name=value. Write {flag} signal=0.5, for example.")
        if name in options:
            fail(f"{flag} gives {name} twice. Give it once.")
        options[name] = value
    return options


def read_values(pairs: list[str] | None, flag: str) -> dict[str, Any]:
    """The same, with numbers as numbers."""
    return {name: as_value(value) for name, value in read_options(pairs, flag).items()}


def as_value(text: str) -> bool | int | float | str | None:
    """The meaning of a word on the command line: a number, true, false, none, or itself."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
