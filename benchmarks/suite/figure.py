"""The results as one picture: how many times slower the peers are, and how an MCFO gradient grows."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

from suite.contenders import CONTENDERS, OURS
from suite.growth import SYMBOLS

# Okabe and Ito's colors, which readers who see colors differently can tell apart.
COLOURS = dict(
    zip(
        (one.name for one in CONTENDERS),
        ("#000000", "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"),
        strict=True,
    )
)
STYLE = {"font.size": 8, "axes.spines.top": False, "axes.spines.right": False, "legend.frameon": False}


def draw(path: Path, results: dict[str, Any]) -> None:
    """One panel for each part that was measured; no file where none was."""
    growth = results.get("growth", {})
    filtering, learning = _rows(results, "filtering", "schemes"), _rows(results, "learning", "networks")
    panels = [
        *([lambda axes: _bars(axes, filtering, "Filtering")] if filtering else []),
        *([lambda axes: _bars(axes, learning, "Learning step")] if learning else []),
        *([lambda axes: _growth(axes, growth), lambda axes: _memory(axes, growth)] if growth else []),
    ]
    if not panels:
        return
    mpl.use("Agg")
    with mpl.rc_context(STYLE):
        across = min(2, len(panels))
        down = -(-len(panels) // across)
        figure, places = plt.subplots(
            down, across, figsize=(3.6 * across, 3.2 * down), layout="constrained", squeeze=False
        )
        for panel, axes in itertools.zip_longest(panels, places.flat):
            if panel is None:
                axes.set_axis_off()
            else:
                panel(axes)
        figure.savefig(path, dpi=200, metadata={"Software": None})
        plt.close(figure)


def _rows(results: dict[str, Any], *groups: str) -> list[dict[str, Any]]:
    return [row for row in results["rows"] if row["workload"]["group"] in groups]


def _bars(axes: Any, rows: list[dict[str, Any]], title: str) -> None:
    """Ratios to ours; a row without a bar is one where the peer crashed."""
    axes.set_title(title, loc="left", fontweight="bold")
    names = [name for name in COLOURS if name != OURS]
    names = [name for name in names if any(_ratio(row, name) for row in rows)]
    height = 0.8 / max(1, len(names))
    for place, name in enumerate(names):
        ratios = [_ratio(row, name) or np.nan for row in rows]
        offsets = np.arange(len(rows)) - 0.4 + (place + 0.5) * height
        axes.barh(offsets, ratios, height=0.9 * height, color=COLOURS[name], label=name)
    axes.axvline(1.0, color=COLOURS[OURS], linewidth=1)
    axes.set_yticks(range(len(rows)), [row["workload"]["title"] for row in rows], fontsize=6 if len(rows) > 6 else 7)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("time, as a multiple of mcfo's")
    if names:
        # Below, where no bar is.
        axes.legend(fontsize=6.5, ncols=min(3, len(names)), loc="upper center", bbox_to_anchor=(0.35, -0.18))


def _ratio(row: dict[str, Any], name: str) -> float | None:
    return next((one["ratio"] for one in row["best"] if one["contender"] == name and "ratio" in one), None)


def _growth(axes: Any, growth: dict[str, Any]) -> None:
    axes.set_title("Time of an MCFO gradient", loc="left", fontweight="bold")
    for (axis, one), color in zip(growth.items(), ("#0072b2", "#d55e00", "#009e73"), strict=False):
        if not one["sizes"]:
            continue
        middle, low, high = (np.array([s[name] for s in one["seconds"]]) for name in ("median", "low", "high"))
        label = f"{SYMBOLS[axis]}, exponent {one['time_exponent']:.2f}" if "time_exponent" in one else SYMBOLS[axis]
        axes.errorbar(one["sizes"], middle, [middle - low, high - middle], marker="o", ms=3, color=color, label=label)
    _logarithmic(axes, "size", "seconds", growth)


def _memory(axes: Any, growth: dict[str, Any]) -> None:
    axes.set_title("Memory of the same", loc="left", fontweight="bold")
    for (axis, one), color in zip(growth.items(), ("#0072b2", "#d55e00", "#009e73"), strict=False):
        axes.plot(one["sizes"], one["peak"], marker="o", ms=3, color=color, label=SYMBOLS[axis])
    _logarithmic(axes, "size", "peak of the process, MB", growth)
    axes.set_yscale("linear")
    axes.set_ylim(0, 1.1 * max((peak for one in growth.values() for peak in one["peak"]), default=1.0))


def _logarithmic(axes: Any, across: str, up: str, growth: dict[str, Any]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    if growth:
        axes.legend(fontsize=6.5)
