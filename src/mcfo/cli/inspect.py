"""`mcfo data inspect`: what is in a file, before one learns from it."""

from pathlib import Path
from typing import Annotated, Any

import typer

from mcfo.cli.common import SHOWN, Columns, SeriesColumn, TimeColumn, check_new_file, messages, written

_ROWS = 12
"""Series and columns that a table shows at most."""


def inspect(
    file: Annotated[Path, typer.Argument(help="A CSV file with a header, Parquet, NetCDF or NPZ.", metavar="FILE")],
    plot: Annotated[
        Path | None, typer.Option(help="Draw a picture into this .png file; it must not exist yet.")
    ] = None,
    columns: Columns = None,
    series: SeriesColumn = None,
    time: TimeColumn = None,
    inputs: Annotated[str | None, typer.Option(help="The input columns, by commas.")] = None,
) -> None:
    """Look at the series in a file: lengths, gaps, ranges, what is constant or missing."""
    check_new_file(plot, "--plot", (".png",))
    with messages():
        _inspect(file, plot, columns, series, time, inputs)


def _inspect(
    file: Path, plot: Path | None, columns: str | None, series: str | None, time: str | None, inputs: str | None
) -> None:
    import shlex

    from rich.console import Console

    from mcfo.data.inspection import describe_columns, describe_series, suggestions
    from mcfo.data.tables import read_series

    table = read_series(
        file,
        values=columns.split(",") if columns else None,
        series=series,
        time=time,
        inputs=inputs.split(",") if inputs else None,
    )
    console = Console()
    found, each = describe_columns(table), describe_series(table)
    lengths = sorted(one.steps for one in each)
    steps = f"{lengths[0]} steps"
    if lengths[0] < lengths[-1]:
        steps = f"{lengths[0]} to {lengths[-1]} steps (median {lengths[len(lengths) // 2]})"
    print(f"{file}: {len(each)} series of {steps}" + (f", {sum(lengths)} in all." if len(each) > 1 else "."))
    print(_times(table))
    if table.inputs:
        print(f"Inputs: {', '.join(table.inputs)}.")
    console.print(_of_columns(found))
    if len(each) > 1:
        console.print(_of_series(each))
    _warn(console, found, each)
    options = [("--columns", columns), ("--series", series), ("--time", time), ("--inputs", inputs)]
    words = [word for name, value in options if value is not None for word in (name, value)]
    fitting = suggestions(found)
    print(f"Models that may fit: {', '.join(fitting)}.")
    command = shlex.join(["mcfo", "fit", fitting[0], "--data", str(file), *words, "--out", "run"])
    print(f"Learn from it: {command}")
    if plot is not None:
        with written("Picture", plot, "--plot", console):
            _draw(plot, table)


def _times(table: Any) -> str:
    if table.times is None or table.spans is None:
        return "No times: each row is one step."
    found = table.spacing
    first, last = table.spans[0][:2]
    span = f"Times from {first} to {last}" + (" in the first series" if len(table.names) > 1 else "")
    if not found.words:
        return f"{span}."
    if found.even:
        return f"{span}, evenly spaced: {found.words}."
    longest, series, row = found.longest
    where = f" (series {table.names[series]}, before row {row + 1})"
    return (
        f"{span}, not evenly spaced: typically {found.words}, at most {longest:.3g} times that{where}. Models that can "
        "do so read the gaps (mcfo fit --irregular)."
    )


def _of_columns(found: list[Any]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, padding=(0, 1))
    for title in ("column", "known", "missing", "least", "mean", "deviation", "greatest", ""):
        table.add_column(title, justify="left" if title in ("column", "") else "right", no_wrap=bool(title))
    for one in found[:_ROWS]:
        numbers = (f"{number:.5g}" for number in (one.least, one.mean, one.deviation, one.greatest))
        missing = (
            f"{one.missing}" if not one.missing else f"{one.missing} ({one.missing / (one.known + one.missing):.0%})"
        )
        table.add_row(one.name, f"{one.known}", missing, *numbers, ", ".join(one.notes))
    if len(found) > _ROWS:
        table.add_row(f"and {len(found) - _ROWS} more")
    return table


def _of_series(each: list[Any]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, padding=(0, 1))
    timed = any(one.first for one in each)
    titles = ("series", "steps", "incomplete", "longest gap", *(("from", "to") if timed else ()))
    for title in titles:
        table.add_column(title, justify="right" if title in titles[1:4] else "left", no_wrap=True)
    for one in each[:_ROWS]:
        span = (one.first, one.last) if timed else ()
        table.add_row(one.name, f"{one.steps}", f"{one.incomplete}", f"{one.longest_missing}", *span)
    if len(each) > _ROWS:
        table.add_row(f"and {len(each) - _ROWS} more")
    return table


def _warn(console: Any, found: list[Any], each: list[Any]) -> None:
    def say(text: str) -> None:
        console.print(text, style="yellow", highlight=False, markup=False)

    for one in found:
        if "constant" in one.notes:
            say(f"Column {one.name} is constant ({one.least:g}). Gaussian models refuse it: leave it out by --columns.")
        if "always missing" in one.notes:
            say(f"Column {one.name} is always missing. Leave it out by --columns.")
    if len(each) == 1 and each[0].longest_missing > 1:
        say(f"The longest run of missing steps has {each[0].longest_missing}.")
    short = sum(one.steps < 2 for one in each)
    if short:
        say(f"{short} of {len(each)} series have a single row, from which no change can be learned.")


def _draw(plot: Path, table: Any) -> None:
    import numpy as np

    from mcfo.reports.axes import axis_title
    from mcfo.reports.overview import Panel, draw_overview

    moments, panels = table.moments, []
    for place, (name, series) in enumerate(zip(table.names, table.series_list, strict=True)):
        values = series.values()
        places = np.arange(1, len(values) + 1) if moments is None else moments[place]
        for number, column in enumerate(table.columns[: 2 * SHOWN]):
            title = column if len(table.names) == 1 else f"{column}, series {name}"
            panels.append(Panel(title, places, values[:, number]))
    draw_overview(plot, panels[: 2 * SHOWN], axis=axis_title(None if moments is None else moments[0]))
