"""`mcfo fit --each`: each series of a panel with parameters of its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcfo.cli.fit_setup import build_start, described, initial, with_suggestions
from mcfo.cli.options import build_table, fail

_ROWS = 20
"""Series that a table shows."""


def refuse(options: dict[str, Any]) -> None:
    """Refuse options that are about one model for all series; they are given by their flags, None where unused."""
    for flag, value in options.items():
        if value:
            fail(f"{flag} is about one model for all series. Leave it out, or leave out --each.")


def learn_each(
    model: str,
    data: Path,
    *,
    own: bool,
    proposal: str | None,
    options: dict[str, str],
    asked: tuple[Any, ...],
    columns: dict[str, Any],
    out: Path,
    chunk: int,
    resume: bool,
    settings: dict[str, Any],
    about: dict[str, Any],
) -> None:
    """Read the panel, learn it with a progress bar, and say what was learned."""
    import jax
    from rich.console import Console
    from rich.progress import Progress

    from mcfo.data.column_layout import RequestedColumns
    from mcfo.data.panels import read_panel
    from mcfo.data.tables import Table
    from mcfo.errors import InputError
    from mcfo.learning.fit_each import fit_panel, tried_first
    from mcfo.learning.settings import Settings
    from mcfo.precision import widened

    console = Console()
    panel = read_panel(data, RequestedColumns(**columns))
    for note in panel.notes:
        print(note)

    def table_of(series_list: list[Any]) -> Table:
        return Table(series_list, [str(index) for index in range(len(series_list))], panel.columns, unit=panel.unit)

    problems, objective, found = [], None, False
    for index in tried_first(panel):
        try:
            example = table_of([panel.series(index)])
            options = with_suggestions(model, options, example)
            _, objective = initial(model, proposal, own, options, example, asked)
            found = True
            break
        except InputError as error:
            problems.append(str(error))
    if not found:
        raise InputError(f"No series of {data} can be learned. The first, {panel.names[0]}: {problems[0]}")
    bootstrap = objective is not None and objective.prior_proposal

    def build(series: Any) -> Any:
        return build_start(model, proposal, own, options, table_of([series]), bootstrap=bootstrap)

    def build_precisely(series: Any) -> Any:
        with jax.enable_x64(True):
            return widened(build(series))

    how = "the exact likelihood of each is maximized" if objective is None else f"{settings['steps']} updates of each"
    console.print(f"{len(panel.names)} series, {how}. Compiling takes some seconds first.")
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("Learning", total=len(panel.names))
        fitted = fit_panel(
            (build_precisely, build),
            panel,
            "exact" if objective is None else objective,
            Settings.from_options(settings),
            out=out,
            resume=resume,
            chunk=chunk,
            listener=lambda done, total: bar.update(task, completed=done),
            about={**about, "model": described(model, own) | {"options": options}},
        )
    _show(fitted, out, data, console.print)


def _show(fitted: Any, out: Path, data: Path, show: Callable[..., Any]) -> None:
    from mcfo.learning.panel_files import RESULT

    facts = fitted.as_data()
    show(f"{facts['converged']} of {facts['series']} series converged, in {facts['seconds']:.0f} seconds.")
    for title, rows in (
        ("Not converged", [[name, "allow more --steps"] for name in fitted.not_converged]),
        ("Not learned", [[name, problem] for name, problem in fitted.unusable.items()]),
    ):
        if rows:
            show(build_table(("series", "why"), rows, most=_ROWS, title=f"{title}: {len(rows)}"))
    show(f"Parameters of each series: {out / RESULT}", highlight=False, soft_wrap=True, markup=False)
    show(f"Forecast them: mcfo forecast {out} --data {data}", highlight=False, soft_wrap=True, markup=False)
