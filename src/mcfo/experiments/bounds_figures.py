"""The figures of `mcfo reproduce bounds`: gaps as K, T and the proposal change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mcfo.experiments.bounds_sampling import GROWING, METHODS, SCAN, STEPS, Point
from mcfo.experiments.runs import COLORS
from mcfo.reports.figures import Chart, Figure, Line, draw_charts

_COLORS = COLORS | {"bootstrap": "#d94801", "wide": "#6a51a3", "optimal": "#08519c"}
_LEAST = 1e-9
"""A smaller gap is zero, which has no place on a logarithmic axis."""
_K = "number of particles K"


def draw_figures(folder: Path, outcomes: Any) -> list[Figure]:
    """All figures of the outcomes of a study, in the order of the page."""
    both = {"sharex": True, "sharey": True}
    figures = {
        "gap": (
            _by_particles(outcomes, scaled=False),
            both,
            "The gap, log p(x) − bound, against K. Dashed: limit / K.",
        ),
        "k_gap": (
            _by_particles(outcomes, scaled=True),
            both,
            "K × gap against K. Dashed: its limit; dotted: limit + next order / K; squares: systematic resampling.",
        ),
        "optimal": (
            _scan(outcomes),
            {"sharey": True},
            "The gap with exact histories for proposals around the optimal one, all on the same random numbers: least "
            "at the optimal one for every K, and not zero. Dashed: the limit / K at the largest K.",
        ),
        "comparison": (
            _comparison(outcomes),
            {"sharex": "col"},
            f"IWAE, FIVO and MCFO as K grows (T = {STEPS}) and as T grows (K = {outcomes.size.growing_particles}).",
        ),
    }
    return [
        Figure(draw_charts(folder / f"{name}.png", charts, columns=2, width=9.0, height=3.6, **shared), caption)
        for name, (charts, shared, caption) in figures.items()
    ]


def _by_particles(outcomes: Any, *, scaled: bool) -> list[Chart]:
    charts = []
    for setting, method in (("exact-histories", "mcfo-exact"), ("smc-histories", "mcfo-smc")):
        lines = []
        for name in outcomes.problem.proposals:
            curve, color = outcomes.curves[setting, f"{method}/{name}"], _COLORS[name]
            counts = np.array([point.particles for point in curve])
            lines.append(_errorbars(counts, curve, color, scaled=scaled, label=name))
            lines.append(Line(counts, curve[0].limit * (1 / counts) ** (not scaled), color, look={"ls": "--"}))
            if scaled and method == "mcfo-exact":
                many = counts[counts >= 10]
                lines.append(Line(many, curve[0].limit + outcomes.second[name] / many, color, look={"ls": ":"}))
            if scaled and method == "mcfo-smc":
                other = outcomes.curves[setting, f"mcfo-smc-systematic/{name}"]
                lines.append(_errorbars(counts, other, color, scaled=True, marker="s", mfc="white"))
        charts.append(Chart(setting.replace("-", " "), lines, _K, log="xy"))
    return charts


def _scan(outcomes: Any) -> list[Chart]:
    largest, charts = outcomes.size.scan_particles[-1], []
    for (kind, amounts), unit in zip(SCAN.items(), ("standard deviations", "times the optimal one"), strict=True):
        lines = []
        for count, color in zip(outcomes.size.scan_particles, _COLORS.values(), strict=False):
            values, errors = zip(*(outcomes.gaps[kind, amount, count] for amount in amounts), strict=True)
            look = {"marker": "o", "ms": 4, "label": f"K = {count}"}
            lines.append(Line(amounts, values, color, bars=2 * np.array(errors), look=look))
        limits = [outcomes.limits[kind, amount] / largest for amount in amounts]
        lines.append(Line(amounts, limits, "0.3", look={"ls": "--", "label": f"limit / {largest}"}))
        charts.append(Chart(f"{kind} of the proposal", lines, unit, log="y"))
    return charts


def _comparison(outcomes: Any) -> list[Chart]:
    charts = []
    for name in GROWING:
        for setting, x_label in (("growing-k", _K), ("growing-t", "steps T")):
            lines = []
            for method in METHODS:
                curve = outcomes.curves[setting, f"{method}/{name}"]
                places = outcomes.size.growing_steps if x_label != _K else [point.particles for point in curve]
                lines.append(_errorbars(places, curve, _COLORS[method], label=method))
            charts.append(Chart(f"gap, {name} proposal", lines, x_label, log="xy"))
    return charts


def _errorbars(places: Any, curve: list[Point], color: str, *, scaled: bool = False, **look: Any) -> Line:
    shown = [(at, p.k_gap if scaled else p.gap) for at, p in zip(places, curve, strict=True) if p.gap.value > _LEAST]
    # On a logarithmic axis a bar that reaches below zero has no end.
    bars = [[min(2 * one.stderr, 0.99 * one.value) for _, one in shown], [2 * one.stderr for _, one in shown]]
    values = [one.value for _, one in shown]
    return Line([at for at, _ in shown], values, color, bars=bars, look={"marker": "o", "ms": 4, **look})
