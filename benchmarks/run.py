"""The benchmark suite. Run: make bench, or make bench ARGS=quick

    python benchmarks/run.py quick --only filtering --out results/bench

Ours and its peers, each in an environment of its own, one repeat after the other in one run; ratios of medians are what
counts, because machines are noisy. What comes out: tables, `bench.json`, `bench.csv` and `bench.png`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from suite import machine, startup, tables
from suite.contenders import CONTENDERS, OURS, contenders_of
from suite.figure import draw
from suite.growth import grow
from suite.measuring import FULL, QUICK, Effort, Entry, best, judge, measure
from suite.pool import Pool
from suite.targets import targets
from suite.workloads import Workload, rows, together

GROUPS = ("filtering", "schemes", "learning", "networks", "growth", "startup")
ROOT = Path(__file__).parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mode", nargs="?", choices=("full", "quick"), default="full", help="quick: under five minutes")
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=GROUPS, help="some of the tables")
    parser.add_argument("--peers", nargs="+", choices=[one.name for one in CONTENDERS], help="some of the contenders")
    parser.add_argument("--repeats", type=int, help="timed repeats, instead of the mode's")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "bench", help="folder for the results")
    options = parser.parse_args()
    quick = options.mode == "quick"
    effort = QUICK if quick else FULL
    if options.repeats is not None:
        effort = Effort(**{**asdict(effort), "repeats": options.repeats})
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)
    results = run(console, quick, effort, set(options.only), options.peers)
    tables.show(console, results)
    write(options.out, results)
    console.print(f"Written: bench.json, bench.csv and bench.png in {options.out}")


def run(
    console: Console, quick: bool, effort: Effort, only: set[str], peers: list[str] | None = None
) -> dict[str, Any]:
    """All that was asked for, with the targets."""
    groups = together(row for row in rows(quick) if row.group in only)
    results: dict[str, Any] = {"mode": "quick" if quick else "full", "machine": machine.describe(), "rows": []}
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as progress:
        task = progress.add_task("", total=len(groups) + len(only & {"growth"}) + len(only & {"startup"}))

        def teller(title: str) -> Callable[[str], None]:
            return lambda what: progress.update(task, description=f"{title}: {what}")

        with Pool(reuse=True) if quick else nullcontext() as shared:
            for group in groups:
                title = f"{group[0].group}, {group[0].title}"
                results["rows"] += compare(group, quick, effort, shared, teller(title), peers)
                progress.advance(task)
        if "growth" in only:
            results["growth"] = grow(quick, effort, teller("growth"))
            progress.advance(task)
        if "startup" in only:
            results["startup"] = startup.measure(3 if quick else 5, teller("start-up"))
            progress.advance(task)
    results["targets"] = [one._asdict() for one in targets(results)]
    return results


def compare(
    group: list[Workload],
    quick: bool,
    effort: Effort,
    shared: Pool | None,
    tell: Callable[[str], None],
    peers: list[str] | None = None,
) -> list[dict[str, Any]]:
    """The rows of a group, interleaved."""
    entries, left_out = entries_of(group, quick, peers)
    with Pool(reuse=False) if shared is None else nullcontext(shared) as pool:
        tell("environments and imports")
        pool.expect(entries)
        pool.wait()
        found = measure(entries, effort, start=pool.take, finish=pool.give_back, tell=tell)
    made = []
    for workload in group:
        results = [one for one in found if one["workload"] == workload.name]
        judge(workload, results)
        chosen = best(results)
        for one in results:
            # Of the log-evidences and gradients only what was concluded from them is kept.
            one["calls"] = len(one.pop("values"))
        described = {"name": workload.name, "title": workload.title, **asdict(workload)}
        made.append(
            {"workload": described, "results": results, "best": chosen, "left_out": left_out.get(workload.name, {})}
        )
    return made


def entries_of(
    group: list[Workload], quick: bool, peers: list[str] | None
) -> tuple[list[Entry], dict[str, dict[str, str]]]:
    """Who is measured on these rows; and who is not, with the reason."""
    entries: list[Entry] = []
    left_out: dict[str, dict[str, str]] = {}
    for workload in group:
        for contender in contenders_of(workload):
            if peers is not None and contender.name not in (OURS, *peers):
                continue
            if contender.is_too_slow(workload, quick):
                left_out.setdefault(workload.name, {})[contender.name] = "too slow for the short suite"
                continue
            variants = contender.variants_of(workload, machine.cores())
            entries += [Entry(workload, contender.name, variant) for variant in variants]
    return entries, left_out


def write(out: Path, results: dict[str, Any]) -> None:
    """All that was found, for programs, for spreadsheets and for the eye."""
    out.mkdir(parents=True, exist_ok=True)
    rows = [row | {"best": [_brief(one) for one in row["best"]]} for row in results["rows"]]
    (out / "bench.json").write_text(json.dumps(results | {"rows": rows}, indent=1) + "\n", encoding="utf-8")
    tables.write_csv(out / "bench.csv", results)
    draw(out / "bench.png", results)


def _brief(one: dict[str, Any]) -> dict[str, Any]:
    """Of a result that stands in the file already, what tells which it is."""
    return {name: one[name] for name in ("contender", "variant", "ratio", "crashed") if name in one}


if __name__ == "__main__":
    main()
