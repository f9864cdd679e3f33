"""Rows that come back as they were, and pages that carry all that they show."""

import base64
import math
import re

import pytest

from mcfo.experiments.outcomes import Row, write_table
from mcfo.reports.html import Report


def test_rows_come_back_in_full_precision(tmp_path):
    rows = [
        Row("r1", "iwae", 10, "theta_1", "mean", 1 / 3, 1e-17),
        Row("r1", "iwae", 10, "theta_1", "exact", -4.6, math.nan),
    ]
    path = tmp_path / "results.csv"
    write_table(path, Row._fields, rows)
    lines = path.read_text().splitlines()
    assert lines[0] == "setting,method,particles,parameter,quantity,value,stderr"
    assert lines[2] == "r1,iwae,10,theta_1,exact,-4.6,"
    *about, value, stderr = lines[1].split(",")
    assert about == ["r1", "iwae", "10", "theta_1", "mean"]
    assert (float(value), float(stderr)) == rows[0][-2:]
    assert [entry.name for entry in tmp_path.iterdir()] == ["results.csv"]


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "results.csv"
    path.write_text("old")

    def rows():
        yield Row("r1", "iwae", 1, "theta_1", "mean", 1.0, 1.0)
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        write_table(path, Row._fields, rows())
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_page_is_escaped_and_carries_its_figures(tmp_path):
    picture = tmp_path / "picture.png"
    picture.write_bytes(b"\x89PNG and more")
    report = Report("K < 10 & more", summary="<script>alert(1)</script>", command="mcfo reproduce x > y")
    report.heading("A <b> heading")
    report.text("p(x) < 1")
    report.text("one & two")
    report.table(["method", "value"], [["iwae", "1.0"], ["<i>", "-2"]], caption="a & b", marked={(1, 1)})
    report.figure(picture, "what it shows", alt='a "curve"')
    report.warning("beware of <")
    path = tmp_path / "report.html"
    report.write(path)
    page = path.read_text()
    assert "<script" not in page
    assert "<b>" not in page
    assert "<i>" not in page
    assert "<title>K &lt; 10 &amp; more</title>" in page
    assert 'class="number"><strong>-2</strong>' in page
    assert base64.b64encode(picture.read_bytes()).decode() in page
    assert 'alt="a &quot;curve&quot;"' in page
    assert not re.findall(r"(?:src|href)=\"(?!data:)", page), "nothing is loaded from elsewhere"


def test_words_options_and_widths(tmp_path):
    picture = tmp_path / "picture.png"
    picture.write_bytes(b"\x89PNG")
    report = Report("title", summary="", command=None)
    report.table(["file", "value"], [["2024.csv", "1"], ["a.csv", "–"]], caption="", words={0})
    report.warning("go on with --resume, not --<b>")
    report.code("mcfo fit --out a<b")
    report.figure(picture, "", alt="", width=660)
    report.write(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "Made by" not in page
    assert '<td>2024.csv</td><td class="number">1</td>' in page
    assert '<td>a.csv</td><td class="number">–</td>' in page
    assert 'with <span class="option">--resume</span>, not --&lt;b&gt;' in page
    assert '<pre><code>mcfo fit <span class="option">--out</span> a&lt;b</code></pre>' in page
    assert 'style="max-width: 660px"' in page
    assert "default-src 'none'" in page


def test_a_row_of_another_width_is_refused():
    report = Report("title", summary="", command="")
    with pytest.raises(ValueError, match="2 columns"):
        report.table(["a", "b"], [["1"]], caption="")
