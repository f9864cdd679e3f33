"""A run's page in a real browser: its figures are seen, nothing is asked for, and nothing is wider than a phone."""

import re

import pytest

from mcfo.reports.run_page import write_run_report
from support.browser import DESK, NEEDS_CHROMIUM, PHONE, look_at
from support.runs import make_config, make_lines, make_results, make_seed, write_folder

pytestmark = NEEDS_CHROMIUM


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> str:
    """A page with everything on it, and names that have no place to break."""
    name = "series-" + "long" * 30 + ".csv"
    config = make_config(command=f"mcfo fit x --data {name}", data={"file": name, "series": 4, "steps": 400})
    lines = [
        {**line, "skipped": line["step"] // 100, "watched": {"theta_1": line["loss"], "b" * 70: 2.0, "c": 1.0}}
        for line in make_lines(0, 1, 2, steps=300)
    ]
    seeds = [{**make_seed(seed, ess=2.0, collapsed=seed), "skipped": 3} for seed in range(3)]
    results = make_results(*seeds, warnings=["w" * 300])
    folder = write_folder(tmp_path_factory.mktemp("browser") / "run", config, lines, results)
    return write_run_report(folder).read_text(encoding="utf-8")


def test_everything_is_seen_and_nothing_is_wider_than_the_screen(page, tmp_path):
    measured, console = look_at(page, tmp_path)
    assert console == []
    for found, width in zip(measured, (PHONE, DESK), strict=True):
        assert width - 20 <= found["width"] <= width
        assert len(found["images"]) == 5
        for image in found["images"]:
            assert image["natural"] >= 1000
            assert image["width"] > 0.5 * min(width, 700)
            assert image["height"] > 80
        assert found["wide"] == []
        assert not found["scrolls"]
        assert found["requests"] == []


def test_a_broken_page_is_noticed(page, tmp_path):
    """The negative control: a broken picture, a picture from elsewhere, a script, and a box that is too wide."""
    broken = re.sub(r"base64,.{200}", "base64,", page, count=1)
    broken = broken.replace(
        "</main>", '<div style="width: 1500px">wide</div><img src="https://mcfo.invalid/a.png"></main>'
    )
    broken = broken.replace("</body>", "<script>document.title = 'ran'</script></body>")
    measured, console = look_at(broken, tmp_path)
    for found in measured:
        naturals = [image["natural"] for image in found["images"]]
        assert naturals[0] == naturals[-1] == 0
        assert min(naturals[1:-1]) >= 1000
        assert "DIV" in found["wide"]
        assert found["scrolls"]
    assert any("mcfo.invalid" in line for line in console), "the page's policy refuses to ask elsewhere"
    assert any("script" in line for line in console), "and to run anything"
