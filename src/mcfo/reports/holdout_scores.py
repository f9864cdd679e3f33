"""The scores of the steps that a run held out, beside those of naive forecasts, as a table of its page."""

from __future__ import annotations

from typing import Any

from mcfo.data.run_record import RunRecord, entries, number, whole
from mcfo.files import nested
from mcfo.reports.formatting import MISSING, percent, shortened, significant
from mcfo.reports.html import Report


def add_holdout_scores(report: Report, run: RunRecord) -> None:
    """Add the table, if the run held steps out."""
    steps, seeds = (nested(run.ended, "holdout", name) for name in ("steps", "seeds"))
    rows, naive = [], {}
    for one in seeds if isinstance(seeds, list) else []:
        seed = whole(nested(one, "seed"))
        rows += _rows("model" if len(seeds) == 1 else f"seed {seed}", nested(one, "scores"))
        naive = naive or entries(nested(one, "naive"))
    for name, scores in naive.items():
        rows += _rows(shortened(name, 40), scores)
    if not rows:
        return
    report.table(
        ["forecasts by", "ahead", "forecasts", "log score", "CRPS", "RMSE", "in 50%", "in 90%"],
        rows,
        caption=f"Out of sample: forecasts of the last {whole(steps)} steps, which were held out. Log score in nats, "
        "higher is better; CRPS and RMSE in the units of the data. Naive forecasts repeat the last value (seasonal: of "
        "the same season); their errors are Gaussian.",
        words={0},
    )


def _rows(name: str, scores: Any) -> list[list[str]]:
    rows = []
    for one in scores if isinstance(scores, list) else []:
        ahead, forecasts = (whole(nested(one, key)) for key in ("ahead", "forecasts"))
        sizes = [significant(number(nested(one, key))) for key in ("crps", "rmse")]
        shares = [_share(nested(one, key)) for key in ("coverage_50", "coverage_90")]
        rows.append([name, str(ahead or MISSING), str(forecasts or MISSING), _log_score(one), *sizes, *shares])
    return rows


def _log_score(scores: Any) -> str:
    """With its Monte Carlo error, if it has one; missing where that is too large to mean anything."""
    value, error = (number(nested(scores, name)) for name in ("log_score", "log_score_error"))
    return significant(value) + (f" ± {significant(error, 2)}" if value is not None and error else "")


def _share(value: Any) -> str:
    share = number(value)
    return MISSING if share is None else percent(share)
