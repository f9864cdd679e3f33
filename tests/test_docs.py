"""What the documentation shows runs as it stands."""

import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import mcfo

ROOT = Path(__file__).parent.parent
QUICK = ("README", "growth")  # the other pages show what the tests of their subject run; the other examples learn
PAGES = [
    pytest.param(path, id=path.stem.lower(), marks=() if path.stem in QUICK else pytest.mark.slow)
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if "```python" in path.read_text()
]


@pytest.mark.parametrize("page", PAGES)
def test_code_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # what they write is not kept
    names: dict = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(compile(block, str(page), "exec"), names)


def test_the_readme_examples_have_at_most_twelve_lines():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        assert len([line for line in block.splitlines() if line.strip()]) <= 12


EXAMPLES = [
    pytest.param(path, id=path.stem, marks=() if path.stem in QUICK else pytest.mark.slow)
    for path in sorted((ROOT / "examples").glob("*.py"))
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_examples_run(example, tmp_path, monkeypatch, capsys):
    picture = tmp_path / "picture.png"
    monkeypatch.setattr(sys, "argv", [str(example), str(picture)])
    runpy.run_path(str(example), run_name="__main__")
    assert picture.stat().st_size > 10_000
    assert capsys.readouterr().out


def test_every_dependency_has_a_reason():
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = [*project["project"]["dependencies"], *project["dependency-groups"]["dev"]]
    reasons = (ROOT / "docs" / "dependencies.md").read_text()
    for requirement in wanted:
        name = re.match(r"[\w-]+", requirement)[0]
        assert name in reasons, f"docs/dependencies.md does not say why {name} is there"


def test_the_lock_names_no_index():
    lock = (ROOT / "requirements.lock").read_text()
    assert "://" not in lock
    assert "--index" not in lock
    assert "--find-links" not in lock
    requirements = [line for line in lock.splitlines() if "==" in line]
    assert all(line.endswith("\\") for line in requirements), "every requirement has hashes"


def test_links_lead_somewhere():
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_pictures_are_small_and_shown():
    pages = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    for picture in (ROOT / "docs" / "pictures").iterdir():
        assert f"](pictures/{picture.name})" in pages, f"no page shows {picture.name}"
        assert picture.stat().st_size < 150_000


@pytest.mark.slow
def test_the_site_has_every_page_and_every_public_name(tmp_path):
    """The build is strict: a link or a cross-reference that leads nowhere ends it."""
    words = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    built = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "index.html").exists()
    for page in (ROOT / "docs").rglob("*.md"):
        assert (tmp_path / page.relative_to(ROOT / "docs").with_suffix(".html")).exists()
    reference = "".join(page.read_text() for page in (tmp_path / "reference").glob("*.html"))
    for name in mcfo.__all__:
        assert f'id="{name}"' in reference, f"the reference has no {name}"
