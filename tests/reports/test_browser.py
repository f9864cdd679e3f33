"""A run's page in a real browser: its figures are seen, nothing is asked for, and nothing is wider than a phone."""

import json
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

from mcfo.reports.run import write_run_report
from support.runs import make_config, make_lines, make_results, make_seed, write_folder

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="There is no program chromium here: apt install chromium.")

FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-sync",
    "--no-first-run",
    "--enable-logging=stderr",
    "--dump-dom",
]
PHONE, DESK = 390, 1200
# A window cannot be as narrow as a phone, but a frame can; and the page in it stays as it is.
OUTSIDE = """<!doctype html><meta charset="utf-8"><title>outside</title>
{frames}
<script>
function measure(frame) {{
  const page = frame.contentDocument;
  const width = page.documentElement.clientWidth;
  const scrolls = element => element.parentElement.closest(".wide") !== null;
  return {{
    width: width,
    images: [...page.images].map(image => {{
      const box = image.getBoundingClientRect();
      return {{natural: image.naturalWidth, width: box.width, height: box.height}};
    }}),
    wide: [...page.querySelectorAll("body *")]
      .filter(element => !scrolls(element) && element.getBoundingClientRect().right > width + 0.5)
      .map(element => element.tagName),
    scrolls: page.documentElement.scrollWidth > width,
    requests: frame.contentWindow.performance.getEntriesByType("resource")
      .map(entry => entry.name).filter(name => !name.startsWith("data:")),
  }};
}}
addEventListener("load", () => {{
  const place = document.createElement("pre");
  place.id = "measured";
  place.textContent = JSON.stringify([...document.querySelectorAll("iframe")].map(measure));
  document.body.append(place);
}});
</script>
"""


def look_at(page: str, folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """What the browser measures on a phone and on a desk, and what it writes to its console."""
    frames = "\n".join(
        f'<iframe style="border: 0; width: {width}px; height: 800px" srcdoc="{escape(page)}"></iframe>'
        for width in (PHONE, DESK)
    )
    outside = folder / "outside.html"
    outside.write_text(OUTSIDE.format(frames=frames), encoding="utf-8")
    profile = folder / "profile"
    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", "--window-size=1300,1700", outside.as_uri()]
    done = subprocess.run(command, capture_output=True, timeout=120, check=True)
    found = re.search(r'<pre id="measured">(.*?)</pre>', done.stdout.decode(), re.DOTALL)
    assert found, f"the browser measured nothing: {done.stderr.decode()[-2000:]}"
    console = [line for line in done.stderr.decode(errors="replace").splitlines() if "CONSOLE" in line]
    return json.loads(unescape(found[1])), console


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
