"""What all experiments of the paper share: from the data to the report, in one order, resumable at every point.

An experiment is a [`Study`][], which says what is run, and its [`Outcomes`][], which say what came out. `run_study`
does the rest: prepare, jobs, tables, figures, claims, report, configuration.
"""

from __future__ import annotations

import abc
import json
import math
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from mcfo.errors import OtherRunError
from mcfo.experiments.jobs import WORKERS, Job, at_once, run_all
from mcfo.experiments.outcomes import FAILS, HOLDS, OPEN, Claim, Estimate, write_table
from mcfo.files import write_atomically
from mcfo.reports.figures import Figure
from mcfo.reports.formatting import setting_texts
from mcfo.reports.html import Report

JOBS = "jobs"
"""The folder of what is finished, until the study ends."""
_FREE = ("command", "seconds", "methods", "particles", "seeds", "courses")
"""Settings in which a resumed study may differ: they choose jobs, and do not change what a finished job gave."""
_PACKAGES = ("mcfo", "jax", "equinox", "numpyro", "optax")


class TextTable(NamedTuple):
    """A table of text, as `Report.table` takes it."""

    header: list[str]
    rows: list[list[str]]
    caption: str
    marked: frozenset[tuple[int, int]] = frozenset()
    words: frozenset[int] = frozenset()

    def for_terminal(self, columns: Sequence[str]) -> Table:
        """Some of its columns, by rich."""
        shown = Table(box=SIMPLE_HEAD)
        for place, title in enumerate(columns):
            shown.add_column(title, justify="right" if place else "left", no_wrap=not place)
        for row in self.rows:
            shown.add_row(*(row[self.header.index(title)] for title in columns))
        return shown


@dataclass(frozen=True)
class Study(abc.ABC):
    """One experiment: its size, its seed and, for those that read files, their folder."""

    size: Any
    seed: int = 0
    data: Path | None = None

    name: ClassVar[str]
    title: ClassVar[str]
    presets: ClassVar[Mapping[str, Any]]
    outcomes: ClassVar[type[Outcomes]]
    double: ClassVar[bool] = False
    reads_files: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if hasattr(self.size, "seeds"):
            seeds = tuple(self.seed + number for number in self.size.seeds)
            object.__setattr__(self, "size", replace(self.size, seeds=seeds))

    @property
    def workers(self) -> int:
        """Jobs that may run side by side."""
        return WORKERS

    def precision(self) -> AbstractContextManager[Any]:
        """Double precision where exact statements are compared exactly; else JAX's own."""
        return jax.enable_x64(True) if self.double else nullcontext()

    @abc.abstractmethod
    def prepare(self) -> Any:
        """The data and all that is known without sampling."""

    @abc.abstractmethod
    def jobs(self, problem: Any) -> dict[str, Job]:
        """What is run, by names that are file names too."""

    def settings(self) -> dict[str, Any]:
        """What determines the results besides size and seed."""
        return {}

    def config(self, preset: str, command: str) -> dict[str, Any]:
        """All that determines the results, as it is in JSON."""
        with self.precision():
            precision = str(jnp.result_type(float))
        config = {
            "experiment": self.name, "command": command, "preset": preset, "seed": self.seed, **asdict(self.size),
            **self.settings(), "precision": precision,
            "versions": {name: metadata.version(name) for name in _PACKAGES},
        }  # fmt: skip
        return json.loads(json.dumps(config))


class Outcomes(abc.ABC):
    """What came out of a study of some size, from its problem and the results of its jobs: files, figures, claims and a
    page. `shown` are the columns of the page's first table that the terminal has too."""

    shown: ClassVar[Sequence[str]]

    def __init__(self, size: Any, problem: Any, results: Mapping[str, Any]):
        self.size, self.problem = size, problem
        # Also what those took that had ended before the study was resumed.
        self.seconds = sum(result.seconds for result in results.values())

    @abc.abstractmethod
    def files(self) -> dict[str, tuple[Sequence[str], Iterable[Iterable[object]]]]:
        """Header and rows of each CSV file, by its name."""

    @abc.abstractmethod
    def claims(self) -> list[Claim]:
        """What the paper says, and whether it holds."""

    @abc.abstractmethod
    def text(self) -> list[str]:
        """What was asked, in a sentence or two; then how it was run, as far as the settings do not say it."""

    @abc.abstractmethod
    def tables(self) -> list[TextTable]:
        """Tables of the page."""

    @abc.abstractmethod
    def figures(self, folder: Path) -> list[Figure]:
        """Draws all figures into the folder."""

    def warnings(self) -> list[str]:
        """What a reader must know before believing a number."""
        return []


def run_study(study: Study, out: Path, *, preset: str, command: str) -> Path:
    """Runs a study, or the rest of it where `out` holds finished jobs of the same one, and returns the report's path.

    Writes the study's tables, `claims.csv`, `figures/`, `config.json` and `report.html`.
    """
    console = Console()
    started = time.perf_counter()
    config = study.config(preset, command)
    check_resumable(out, config)
    (out / "figures").mkdir(parents=True, exist_ok=True)
    with study.precision():
        with console.status("Preparing the data"):
            problem = study.prepare()
        # Written before the first job: a resumed run is compared with it.
        _write_config(out, config)
        results = run_all(
            study.jobs(problem), out / JOBS, console=console, workers=study.workers, context=study.precision
        )
        outcomes = study.outcomes(study.size, problem, results)
        claims = outcomes.claims()
        for name, (header, rows) in (outcomes.files() | {"claims.csv": (Claim._fields, claims)}).items():
            write_table(out / name, header, rows)
        with console.status("Drawing the figures"):
            figures = outcomes.figures(out / "figures")
        # What the jobs of a resumed run took before counts too.
        elapsed = max(time.perf_counter() - started, outcomes.seconds / at_once(study.workers))
        build_page(study.title, outcomes, claims, figures, config, elapsed).write(out / "report.html")
        console.print(outcomes.tables()[0].for_terminal(outcomes.shown))
    console.print(f"{tally(claims)} {elapsed / 60:.1f} minutes.", highlight=False)
    _write_config(out, {**config, "seconds": round(elapsed, 1)})
    shutil.rmtree(out / JOBS, ignore_errors=True)
    return out / "report.html"


def check_resumable(out: Path, config: dict[str, Any]) -> None:
    """Refuses a folder with finished jobs of other settings."""
    path = out / "config.json"
    if not ((out / JOBS).exists() and path.exists()):
        return
    found = json.loads(path.read_text())
    names = (config.keys() | found.keys()) - set(_FREE)
    different = sorted(name for name in names if config.get(name) != found.get(name))
    if different:
        raise OtherRunError(
            f"{out} holds an unfinished run with another {' and '.join(different)}. Resume it with the settings in "
            f"{path}, or start again with --force."
        )


def _write_config(out: Path, config: dict[str, Any]) -> None:
    write_atomically(out / "config.json", (json.dumps(config, indent=2) + "\n").encode())


def build_page(
    title: str, outcomes: Outcomes, claims: list[Claim], figures: list[Figure], config: dict[str, Any], elapsed: float
) -> Report:
    """The page: first what holds, then tables and figures, then how it was run."""
    asked, *method = outcomes.text()
    summary = f"{asked} {tally(claims)} It took {elapsed / 60:.1f} minutes."
    page = Report(title, summary=summary, command=config["command"])
    for claim in claims:
        if (claim.source, claim.verdict) == ("theorem", FAILS):
            page.warning(f"This must hold by the mathematics, but does not here: {claim.claim} ({claim.setting}).")
    for warning in outcomes.warnings():
        page.warning(warning)
    page.heading("What of the paper holds")
    page.table(*claims_table(claims))
    page.heading("Numbers")
    for table in outcomes.tables():
        page.table(*table)
    page.heading("Figures")
    for figure in figures:
        page.figure(*figure)
    page.heading("How it was run")
    for paragraph in method:
        page.text(paragraph)
    page.text("Numbers in full precision are in the CSV files beside this page; what determines them, in config.json.")
    with page.details("All settings"):
        rows = [list(pair) for pair in setting_texts(config)]
        page.table(["setting", "value"], rows, caption="What determines the results.", words={0, 1})
    return page


def claims_table(claims: list[Claim]) -> TextTable:
    """The claims for the page."""
    rows = []
    for claim in claims:
        paper = "–" if math.isnan(claim.paper) else f"{claim.paper:.4g}"
        ours = "–" if math.isnan(claim.ours) else Estimate(claim.ours, claim.spread).text()
        rows.append([claim.claim, claim.verdict, claim.setting, paper, ours, claim.test, claim.source])
    return TextTable(
        ["claim", "verdict", "where", "paper", "ours", "test", "source"],
        rows,
        "What is claimed, whether it holds, the paper's number and ours ± its standard error, and the test; numbers of "
        "comparisons are differences. Erratum: the paper's statement is known to be wrong. Theorem: what must hold. "
        "Ours: what the paper does not say. Also in claims.csv.",
        frozenset((row, 1) for row, claim in enumerate(claims) if claim.verdict != HOLDS),
        words=frozenset({0, 1, 2, 5, 6}),
    )


def tally(claims: list[Claim]) -> str:
    """How many claims hold."""
    counts = {verdict: sum(claim.verdict == verdict for claim in claims) for verdict in (HOLDS, FAILS, OPEN)}
    return f"Of {len(claims)} claims {counts[HOLDS]} hold, {counts[FAILS]} do not, {counts[OPEN]} are not decided."
