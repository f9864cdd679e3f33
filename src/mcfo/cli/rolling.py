"""`mcfo evaluate --rolling`: forecasts from one origin after the other, scored on what came."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from mcfo.cli.common import written
from mcfo.errors import InputError
from mcfo.files import write_atomically


class Asked(NamedTuple):
    """What is to be forecast, and where the answer goes."""

    horizon: int
    first: int
    origins: int | None
    particles: int
    draws: int
    seed: int
    as_json: bool
    out: Path | None
    plot: Path | None


def evaluate_rolling(run: Path, data: Path, table: Any, saved: Any, asked: Asked) -> None:
    """Scores every seed of a run and says how they did."""
    import jax
    from rich.console import Console

    from mcfo.inference.rolling_evaluation import evaluate_rolling as compute

    console = Console(stderr=asked.as_json)
    found = []
    with console.status(f"Forecasting {len(table.series_list)} series with {asked.particles} particles"):
        for one in saved.seeds:
            try:
                result = compute(
                    one.model,
                    one.proposal,
                    table.series_list,
                    horizon=asked.horizon,
                    first=asked.first,
                    origins=asked.origins,
                    particles=asked.particles,
                    draws=asked.draws,
                    key=jax.random.key(asked.seed),
                )
            except InputError:
                raise
            except (TypeError, ValueError) as error:
                raise InputError(f"The model in {run} cannot forecast {data}: {error}") from error
            found.append((one, result))
    content = {
        "run": str(run),
        "data": str(data),
        "horizon": asked.horizon,
        "from": asked.first,
        "origins": asked.origins,
        "seed": asked.seed,
        "seeds": [{"seed": one.seed, **result.as_data()} for one, result in found],
    }
    text = json.dumps(content, indent=2, allow_nan=False)
    if asked.as_json:
        print(text)
    else:
        console.print(_table(found, f"{run} on {data}: forecasts"))
    for one, result in found:
        if result.collapsed:
            console.print(
                f"[yellow]Seed {one.seed}: the filter lost {result.collapsed} of {len(result.series)} series, so that "
                "their scores mean little. Use more particles.[/yellow]"
            )
    if asked.out is not None:
        with written("Scores", asked.out, "--out", console):
            write_atomically(asked.out, (text + "\n").encode())
    if asked.plot is not None:
        from mcfo.reports.calibration import draw_rolling

        best = saved.choose()
        result = next(result for one, result in found if one is best)
        with written("Picture", asked.plot, "--plot", console):
            draw_rolling(asked.plot, result, columns=table.columns, names=table.names)


def _table(found: list[tuple[Any, Any]], title: str) -> Any:
    """A row for each seed and distance."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title))
    for name in ("seed", "ahead", "forecasts", "log score", "CRPS", "RMSE", "in 50 %", "in 90 %"):
        table.add_column(name, justify="right")
    for one, result in found:
        for scores in result.scores:
            table.add_row(
                str(one.seed),
                str(scores.ahead),
                str(scores.forecasts),
                f"{scores.log_score:.4f}",
                f"{scores.crps:.4g}",
                f"{scores.rmse:.4g}",
                f"{scores.coverage_50:.1%}",
                f"{scores.coverage_90:.1%}",
            )
    return table
