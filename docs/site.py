"""What `make docs` adds to these pages: the README in front, the examples, and a reference of every public name."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
TITLES = {
    "models": "Models",
    "proposals": "Proposals",
    "smc": "Filters and smoothers",
    "kalman": "Exact answers",
    "objectives": "Objectives",
    "gradients": "Gradient rules",
    "inference": "Filtering, forecasting and evaluating",
    "learning": "Learning",
    "online": "Streams",
    "catalogue": "Models by name",
}
"""The pages of the reference; other names are on the last one."""
REST = "data"


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that are generated from other files."""
    pages = {
        "index.md": (ROOT / "README.md").read_text(),
        "contributing.md": (ROOT / "CONTRIBUTING.md").read_text(),
        "changelog.md": (ROOT / "CHANGELOG.md").read_text(),
        "security.md": (ROOT / "SECURITY.md").read_text(),
    }
    for example in examples():
        summary = ast.get_docstring(ast.parse(example.read_text())) or example.stem
        pages[f"examples/{example.stem}.md"] = (
            f"# {summary.splitlines()[0].rstrip('.')}\n\n`examples/{example.name}`\n\n"
            f"```python\n{example.read_text()}```\n"
        )
    listed = [f"- [{name.split('/')[1]}]({name.split('/')[1]})" for name in pages if name.startswith("examples/")]
    pages["examples/index.md"] = "# Examples\n\n" + "\n".join(listed) + "\n"
    pages |= reference()
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_config(config: Any) -> Any:
    """Puts the reference and the examples into the menu."""
    config.nav = [
        *config.nav,
        {"Reference": [f"reference/{part}.md" for part in [*TITLES, REST]]},
        {"Examples": ["examples/index.md", *(f"examples/{one.stem}.md" for one in examples())]},
    ]
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links as they are on this site."""
    markdown = markdown.replace("](docs/", "](").replace("](CONTRIBUTING.md", "](contributing.md")
    markdown = markdown.replace("](CHANGELOG.md", "](changelog.md").replace("](../CHANGELOG.md", "](changelog.md")
    markdown = markdown.replace("](../SECURITY.md", "](security.md")
    markdown = re.sub(r"\]\((?:\.\./)?examples\)", "](examples/index.md)", markdown)
    return re.sub(r"\]\((?:\.\./)?examples/(\w+)\.py\)", r"](examples/\1.md)", markdown)


def examples() -> list[Path]:
    return sorted((ROOT / "examples").glob("*.py"))


def reference() -> dict[str, str]:
    """A page for each part of the library, with all of its public names."""
    stub = ast.parse((ROOT / "src" / "mcfo" / "__init__.pyi").read_text())
    found: dict[str, list[str]] = {part: [] for part in [*TITLES, REST]}
    for statement in stub.body:
        if not isinstance(statement, ast.ImportFrom):
            continue
        for alias in statement.names:
            if statement.module == "mcfo":
                path, part = f"mcfo.{alias.name}", alias.name
            else:
                path, part = f"{statement.module}.{alias.name}", str(statement.module).split(".")[1]
            # The anchor is what docstrings say, [`fit`][]; the module is where it is found.
            entry = f"[](){{#{alias.name}}}\n\n::: {path}\n"
            found[part if part in TITLES else REST].append(entry)
    titles = {**TITLES, REST: "Data and the rest"}
    return {f"reference/{part}.md": f"# {titles[part]}\n\n" + "\n".join(names) for part, names in found.items()}
