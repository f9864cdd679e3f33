"""What a learned model sees in its data: on the page of a run, and as a page inside of a notebook."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from mcfo.data.outlook import Outlook
from mcfo.reports.figures import PIXELS, png, save_figure
from mcfo.reports.formatting import counted, shortened
from mcfo.reports.html import Report, whole_page
from mcfo.reports.model_plots import INTERVAL, draw_components, draw_fit
from mcfo.reports.summary import FitSummary


def add_outlook(report: Report, outlook: Outlook, figures: Path) -> None:
    """Data, level and forecast of the first series, and its components."""
    first = "" if outlook.name in ("1", "") else f" of {shortened(outlook.name, 40)}"
    report.heading("The data, and what the model sees in them")
    ahead = f", and the forecast of the next {counted(len(outlook.coming), 'step')}" if len(outlook.coming) else ""
    seen = "the level" if outlook.level_name == "level" else "the distribution of each value"
    report.figure(
        save_figure(draw_fit(outlook), figures / "outlook.png"),
        f"The data{first}, {seen} given all of them (orange, with a {INTERVAL} interval){ahead}.",
        width=PIXELS,
    )
    if outlook.structural:
        report.figure(
            save_figure(draw_components(outlook), figures / "components.png"),
            f"The components given the whole series, each with its {INTERVAL} interval, in the unit of the signal: "
            "that of the data, or of their transform.",
            width=PIXELS,
        )


def notebook_page(summary: FitSummary, figures: Sequence[tuple[str, Any]]) -> str:
    """A frame with the summary and figures, each a caption and a matplotlib figure.

    The frame separates the page's style from the notebook's.
    """
    parts = [summary._repr_html_()]
    for caption, figure in figures:
        data = base64.b64encode(png(figure)).decode()
        source = f"data:image/png;base64,{data}"
        parts.append(
            f'<figure><img src="{source}" alt="{escape(caption)}" style="max-width: 660px"><figcaption>'
            f"{escape(caption)}</figcaption></figure>"
        )
    page = whole_page(summary.title, "\n".join(parts))
    height = 30 + 30 * len(figures)
    return (
        f'<iframe title="{escape(summary.title)}" srcdoc="{escape(page)}" '
        f'style="width: 100%; height: {height}rem; border: 0"></iframe>'
    )
