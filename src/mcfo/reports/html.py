"""One self-contained HTML page: figures inside, nothing loaded from elsewhere, readable on a phone and on paper."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Set
from contextlib import contextmanager
from html import escape
from pathlib import Path

from mcfo.files import write_atomically


class Report:
    """A page that is put together from top to bottom and written once. All text is plain and escaped here.

    **Arguments:**

    - `summary`: what was asked and what came out, in a few sentences.
    - `command`: the command that writes this page again, if there is one.
    """

    def __init__(self, title: str, *, summary: str, command: str | None):
        self._title = title
        self._parts = [f"<h1>{escape(title)}</h1>", f'<p class="summary">{escape(summary)}</p>']
        if command is not None:
            self._parts.append(f'<p class="command">Made by <code>{_whole_options(command)}</code></p>')
        self._tables = 0
        self._figures = 0

    def heading(self, text: str) -> None:
        """Starts a section."""
        self._parts.append(f"<h2>{escape(text)}</h2>")

    def text(self, paragraph: str) -> None:
        """A paragraph."""
        self._parts.append(f"<p>{_whole_options(paragraph)}</p>")

    def code(self, lines: str) -> None:
        """Lines to type as they are."""
        self._parts.append(f"<pre><code>{_whole_options(lines)}</code></pre>")

    def table(
        self,
        header: list[str],
        rows: list[list[str]],
        caption: str,
        marked: Set[tuple[int, int]] = frozenset(),
        words: Set[int] = frozenset(),
    ) -> None:
        """A table.

        **Arguments:**

        - `marked`: the cells set in bold, as (row, column) from zero.
        - `words`: the columns that hold text, also where one looks like a number.
        """
        for row in rows:
            if len(row) != len(header):
                raise ValueError(
                    f"The table has {len(header)} columns ({', '.join(header)}), but a row has {len(row)}: {row}. "
                    "Give each row one cell for each column."
                )
        self._tables += 1
        head = "".join(
            _heading(cell, column not in words and all(_is_number(row[column]) for row in rows))
            for column, cell in enumerate(header)
        )
        body = "\n".join(
            "<tr>"
            + "".join(
                _cell(cell, column not in words and _is_number(cell), (index, column) in marked)
                for column, cell in enumerate(row)
            )
            + "</tr>"
            for index, row in enumerate(rows)
        )
        name = f"table-{self._tables}"
        # The caption stands outside of the box that scrolls, and the box can be scrolled with the keyboard.
        self._parts.append(
            f'<p class="caption" id="{name}">Table {self._tables}. {escape(caption)}</p>\n'
            f'<div class="wide" role="region" tabindex="0" aria-labelledby="{name}"><table aria-labelledby="{name}">\n'
            f"<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table></div>"
        )

    def figure(self, path: Path, caption: str, *, alt: str | None = None, width: int | None = None) -> None:
        """A PNG figure, copied into the page.

        **Arguments:**

        - `alt`: what it shows, for those who cannot see it; by default the caption.
        - `width`: in pixels on a wide screen, so that its letters have the size of the text; else the whole width.
        """
        self._figures += 1
        data = base64.b64encode(path.read_bytes()).decode()
        limit = "" if width is None else f' style="max-width: {width}px"'
        self._parts.append(
            f'<figure><img src="data:image/png;base64,{data}" alt="{escape(alt or caption)}"{limit}>\n'
            f"<figcaption>Figure {self._figures}. {escape(caption)}</figcaption></figure>"
        )

    @contextmanager
    def details(self, title: str) -> Iterator[None]:
        """Folds what is added inside away under a title, for the few who want it."""
        self._parts.append(f"<details><summary>{escape(title)}</summary>")
        yield
        self._parts.append("</details>")

    def warning(self, text: str) -> None:
        """Something that the reader must know before believing a number."""
        self._parts.append(f'<p class="warning" role="note">{_whole_options(text)}</p>')

    def write(self, path: Path) -> None:
        """Writes the page, whole or not at all."""
        page = whole_page(self._title, "\n".join(self._parts))
        # Half of a surrogate pair, which JSON can bring in, has no UTF-8.
        write_atomically(path, page.encode(errors="replace"))


def whole_page(title: str, body: str) -> str:
    """A page from a body that is HTML already."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _whole_options(text: str) -> str:
    """Escaped, and no line ends inside of `--resume`."""
    return re.sub(r"(?<!\S)--[\w-]{1,30}", r'<span class="option">\g<0></span>', escape(text))


def _is_number(text: str) -> bool:
    return text in ("", "–") or text[0] in "0123456789+-−±<>≈"


def _heading(text: str, numbers: bool) -> str:
    return f'<th scope="col" class="number">{escape(text)}</th>' if numbers else f'<th scope="col">{escape(text)}</th>'


def _cell(text: str, number: bool, marked: bool) -> str:
    content = f"<strong>{escape(text)}</strong>" if marked else escape(text)
    return f'<td class="number">{content}</td>' if number else f"<td>{content}</td>"


_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
"""The browser's guarantee that a page runs nothing and asks nobody, should a text ever get through unescaped."""

_STYLE = """
:root { color-scheme: light dark; --text: #1b1b1b; --soft: #5a5a5a; --page: #ffffff; --line: #d8d8d8; --band: #f5f6f8;
  --accent: #08519c; --warn: #8a4b00; --warn-page: #fff4e0; }
@media (prefers-color-scheme: dark) {
  :root { --text: #e8e8e8; --soft: #a8a8a8; --page: #16181b; --line: #3a3d42; --band: #1f2226; --accent: #7db8ee;
    --warn: #ffcf8a; --warn-page: #38290f; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0.5rem 0 1rem; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 0.75rem; padding-top: 0.75rem; border-top: 1px solid var(--line); }
h1, h2, p, li, figcaption { overflow-wrap: anywhere; }
p, ul, pre { max-width: 48rem; }
.summary { font-size: 1.08rem; }
.command { color: var(--soft); font-size: 0.9rem; }
.option { white-space: nowrap; }
code { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: 0.92em; }
pre { background: var(--band); padding: 0.6rem 0.9rem; white-space: pre-wrap; overflow-wrap: anywhere; }
.warning { background: var(--warn-page); color: var(--warn); border-left: 4px solid currentColor;
  padding: 0.6rem 0.9rem; }
.wide { overflow-x: auto; margin: 0 0 1.5rem; }
details { margin: 0.75rem 0; }
details > summary { cursor: pointer; color: var(--accent); }
table { border-collapse: collapse; font-size: 0.86rem; font-variant-numeric: tabular-nums; }
.caption { color: var(--soft); font-size: 0.9rem; margin: 1.25rem 0 0.4rem; }
th, td { padding: 0.28rem 0.65rem; text-align: left; border-bottom: 1px solid var(--line); }
th, .number { white-space: nowrap; }
th { border-bottom: 2px solid var(--soft); }
.number { text-align: right; }
@media (max-width: 40rem) {
  table { font-size: 0.82rem; }
  th, td { padding: 0.28rem 0.4rem; }
  td:not(.number) { min-width: 6.5rem; }
}
tbody tr:nth-child(even) { background: var(--band); }
td strong { color: var(--accent); }
figure { margin: 1.5rem 0; }
figure img { display: block; width: 100%; height: auto; background: #ffffff; border-radius: 4px; }
figcaption { color: var(--soft); font-size: 0.9rem; margin-top: 0.5rem; max-width: 48rem; }
@media print {
  :root { --text: #000; --soft: #333; --page: #fff; --line: #999; --band: #fff; --accent: #000; --warn: #000;
    --warn-page: #fff; }
  :root { font-size: 10pt; }
  body { font-size: 1rem; }
  main { max-width: none; padding: 0; }
  .wide { overflow: visible; }
  table { font-size: 7.5pt; }
  th, td { padding: 0.15rem 0.35rem; }
  figure, tr, .warning { break-inside: avoid; }
  thead { display: table-header-group; }
  h2, .caption { break-after: avoid; }
}
"""
