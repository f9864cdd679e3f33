"""A learned model as a page inside of a notebook."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from typing import Any

from mcfo.reports.figures import png
from mcfo.reports.html import whole_page
from mcfo.reports.summary import FitSummary


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
