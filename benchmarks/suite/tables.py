"""The results as tables on a terminal, and as CSV."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from suite.growth import SYMBOLS
from suite.measuring import GRADIENTS

FIELDS = (
    "group",
    "row",
    "series",
    "steps",
    "particles",
    "scheme",
    "objective",
    "contender",
    "variant",
    "median_ms",
    "low_ms",
    "high_ms",
    "repeats",
    "ratio_to_ours",
    "first_call_s",
    "temporary_mb",
    "peak_mb",
    "agrees_with_truth",
    "crashed",
)


def show(console: Console, results: dict[str, Any]) -> None:
    for group in dict.fromkeys(row["workload"]["group"] for row in results["rows"]):
        console.print(rows_table(group, [row for row in results["rows"] if row["workload"]["group"] == group]))
    if results.get("growth"):
        console.print(growth_table(results["growth"]))
    if results.get("startup"):
        console.print(startup_table(results["startup"]))
    console.print(targets_table(results["targets"]))


def rows_table(group: str, rows: list[dict[str, Any]]) -> Table:
    """One line for each contender of each row."""
    table = Table(
        title=f"{group}: time of a call",
        caption="Medians of interleaved repeats, with quartiles. Ratio: how many times as long as ours. First: with "
        "compilation. Temporaries: as XLA plans them. Peak: of the process, beyond what it held before.",
    )
    for title in ("", "contender", "ms", "ratio", "first, s", "temp., MB", "peak, MB", "notes"):
        table.add_column(title, justify="left" if title in ("", "contender", "notes") else "right", no_wrap=bool(title))
    table.columns[-1].no_wrap = False
    for row in rows:
        title = row["workload"]["title"]
        for cells in [*map(_cells, row["best"]), *([name, *[""] * 5, why] for name, why in row["left_out"].items())]:
            table.add_row(title, *cells)
            title = ""
        table.add_section()
    return table


def _cells(one: dict[str, Any]) -> list[str]:
    name = one["contender"] + (f", {one['variant']}" if one["variant"] > 1 else "")
    if "summary" not in one:
        return [name, *[""] * 5, f"crashed: {one['crashed']}"[:100]]
    summary, memory = one["summary"], one["memory"]
    return [
        name,
        f"{_milliseconds(summary['median'])} ({_milliseconds(summary['low'])}–{_milliseconds(summary['high'])})",
        f"{one['ratio']:.2f}" if "ratio" in one else "",
        f"{one['first']:.1f}",
        "" if one["temporary"] is None else f"{one['temporary'] / 1e6:.2f}",
        f"{memory['peak'] - memory['before']:.0f}",
        notes(one),
    ]


def notes(one: dict[str, Any]) -> str:
    """What a reader must know of a result: above all, that it is not the same computation."""
    words = []
    for what, name in (("truth", "log-evidence"), *((name, name) for name in GRADIENTS)):
        check = one.get(what, {})
        if check.get("agrees") is False:
            words.append(f"other {name} ({check['sigmas']:+.0f} standard errors)")
    return ", ".join(words)


def growth_table(growth: dict[str, Any]) -> Table:
    table = Table(title="Growth of an MCFO gradient", caption="The exponent is fitted to the three largest sizes.")
    for title in ("along", "sizes", "ms", "temporaries, MB", "peak of the process, MB", "exponent of time"):
        table.add_column(title, justify="left" if title == "along" else "right")
    for axis, one in growth.items():
        others = ", ".join(f"{name}={size}" for name, size in one["fixed"].items())
        table.add_row(
            f"{SYMBOLS[axis]} ({others})",
            "\n".join(map(str, one["sizes"])),
            "\n".join(_milliseconds(summary["median"]) for summary in one["seconds"]),
            "\n".join(f"{temporary / 1e6:.1f}" for temporary in one["temporary"]),
            "\n".join(f"{peak:.0f}" for peak in one["peak"]),
            f"{one['time_exponent']:.2f}" if "time_exponent" in one else "",
        )
        for size, reason in one["crashed"].items():
            table.add_row("", size, f"crashed: {reason[:60]}")
        table.add_section()
    return table


def startup_table(found: dict[str, Any]) -> Table:
    table = Table(title="Start-up, fresh processes")
    for title in ("", "s", "quartiles, s", "processor, s"):
        table.add_column(title, justify="right" if title else "left")
    for name, one in found.items():
        if "summary" in one:
            summary, processor = one["summary"], one.get("processor")
            spread = f"{summary['low']:.2f} to {summary['high']:.2f}"
            table.add_row(name, f"{summary['median']:.2f}", spread, f"{np.median(processor):.2f}" if processor else "")
        else:
            table.add_row(name, f"crashed: {one.get('crashed', 'nothing measured')}", "", "")
    return table


def targets_table(targets: list[dict[str, Any]]) -> Table:
    table = Table(title="Targets")
    for title in ("", "wanted", "measured", "met"):
        table.add_column(title, justify="right" if title == "wanted" else "left")
    words = {True: "[green]met[/]", False: "[red]not met[/]", None: "–"}
    for one in targets:
        table.add_row(one["demand"], one["wanted"], one["measured"], words[one["met"]])
    return table


def write_csv(path: Path, results: dict[str, Any]) -> None:
    """One line for each contender and variant of each row."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        for row in results["rows"]:
            for one in row["results"]:
                writer.writerow(_line(row["workload"], one))


def _line(workload: dict[str, Any], one: dict[str, Any]) -> dict[str, Any]:
    line = {name: workload[name] for name in ("group", "series", "steps", "particles", "scheme", "objective")}
    line |= {"row": workload["title"], "contender": one["contender"], "variant": one["variant"]}
    if "summary" not in one:
        return line | {"crashed": one["crashed"]}
    summary = one["summary"]
    return line | {
        **{f"{name}_ms": round(1e3 * summary[name], 4) for name in ("median", "low", "high")},
        "repeats": summary["repeats"],
        "ratio_to_ours": round(one["ratio"], 3) if "ratio" in one else "",
        "first_call_s": round(one["first"], 3),
        "temporary_mb": "" if one["temporary"] is None else round(one["temporary"] / 1e6, 3),
        "peak_mb": round(one["memory"]["peak"], 1),
        "agrees_with_truth": one.get("truth", {}).get("agrees", ""),
    }


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.{2 if seconds < 0.01 else 1 if seconds < 1 else 0}f}"
