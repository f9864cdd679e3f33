"""A page in a real browser, Chromium without a screen: what is seen on a phone and on a desk, what it complains of."""

import json
import re
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
NEEDS_CHROMIUM = pytest.mark.skipif(CHROMIUM is None, reason="There is no program chromium here: apt install chromium.")

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
