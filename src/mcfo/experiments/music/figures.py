"""The pictures of the music experiment: learning, and what generalizes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from mcfo.experiments.music.summary import Outcomes

_COLOURS = {
    "fivo": "#d55e00",
    "iwae": "#e69f00",
    "nasmc": "#999999",
    "mcfo-smc": "#0072b2",
    "mcfo-pimh": "#56b4e9",
    "mcfo-dreg": "#009e73",
}
_PANELS = {
    "log_evidence_per_step": "training: minus the bound",
    "validation_nll_per_step": "validation: NLL",
    "validation_ess": "validation: ESS",
}


def draw_curves(path: Path, outcomes: Outcomes, baselines: dict[str, dict[str, float]]) -> Path:
    """Learning, a row for each data set and K; a ring marks what is kept of a run."""
    rows = list(dict.fromkeys((data, particles) for data, _, particles in outcomes.places))
    figure, axes = plt.subplots(
        len(rows), len(_PANELS), figsize=(10, 2.9 * len(rows) + 0.5), layout="constrained", squeeze=False
    )
    handles: dict[str, Any] = {}
    for row, (data, particles) in zip(axes, rows, strict=True):
        for axis, (metric, title) in zip(row, _PANELS.items(), strict=True):
            for one, method, count in outcomes.places:
                if (one, count) == (data, particles):
                    _curves(axis, outcomes, (data, method, particles), metric)
            if metric != "validation_ess":
                level = baselines[data]["each key a Markov chain"]
                axis.axhline(level, color="black", lw=0.9, ls=":", label="each key a Markov chain", zorder=0)
            axis.set_title(f"{data}, K = {particles}, {title}", fontsize=8.5, loc="left")
            axis.spines[["top", "right"]].set_visible(False)
            axis.tick_params(labelsize=8)
            axis.set_xlabel("update", fontsize=9)
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
    figure.legend(
        handles.values(), handles.keys(), loc="outside upper center", ncols=len(handles), fontsize=8, frameon=False
    )
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


def _curves(axis: Any, outcomes: Outcomes, place: tuple[str, str, int], metric: str) -> None:
    color = _COLOURS[place[1]]
    for number, one in enumerate(outcomes.runs(*place)):
        steps, values = one.curve(metric)
        values = -values if metric == "log_evidence_per_step" else values
        axis.plot(steps, values, color=color, lw=1.1, alpha=0.9, label=place[1] if number == 0 else None)
        if metric == "validation_nll_per_step":
            best = int(np.argmin(np.abs(steps - one.best_step)))
            axis.plot(steps[best], values[best], "o", ms=5, mfc="white", mec=color, mew=1.3)
