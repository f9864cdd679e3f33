"""The figures of `mcfo reproduce bounds`: gaps as K, T and the proposal change."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from mcfo.experiments.bounds_points import Point
from mcfo.experiments.bounds_sampling import STEPS, Problem
from mcfo.experiments.figures import COLORS, legend, panels, save, title
from mcfo.experiments.outcomes import Estimate
from mcfo.experiments.study import Figure

SCAN = {
    "shift": (-1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0),
    "variance": (0.55, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 2.5, 3.0),
}
"""Proposals around the optimal one: its mean in standard deviations, and its variance by a factor."""
GROWING = ("bootstrap", "optimal")
METHODS = ("iwae", "fivo", "mcfo-exact")
_COLORS = COLORS | {"bootstrap": "#d94801", "wide": "#6a51a3", "optimal": "#08519c"}
_LEAST = 1e-9
"""A smaller gap is zero, which has no place on a logarithmic axis."""


@runtime_checkable
class Curves(Protocol):
    """The part of the outcomes that figures show: points by setting and `method/proposal`, next orders of K x gap by
    proposal, and the scan around the optimal proposal."""

    problem: Problem
    size: Any
    curves: dict[tuple[str, str], list[Point]]
    second: dict[str, float]
    gaps: dict[tuple[str, float, int], Estimate]
    limits: dict[tuple[str, float], float]


def draw_figures(folder: Path, outcomes: Curves) -> list[Figure]:
    """All figures, in the order of the page."""
    figures = {
        "gap": (_by_particles(outcomes, scaled=False), "The gap, log p(x) − bound, against K. Dashed: limit / K."),
        "k_gap": (
            _by_particles(outcomes, scaled=True),
            "K × gap against K. Dashed: its limit; dotted: limit + next order / K; squares: systematic resampling.",
        ),
        "optimal": (
            _scan(outcomes),
            "The gap with exact histories for proposals around the optimal one, all on the same random numbers: least "
            "at the optimal one for every K, and not zero. Dashed: the limit / K at the largest K.",
        ),
        "comparison": (
            _comparison(outcomes),
            f"IWAE, FIVO and MCFO as K grows (T = {STEPS}) and as T grows (K = {outcomes.size.growing_particles}).",
        ),
    }
    return [Figure(save(figure, folder / f"{name}.png"), caption) for name, (figure, caption) in figures.items()]


def _by_particles(outcomes: Curves, *, scaled: bool) -> Any:
    figure, axes = panels(1, 2, width=9.0, height=4.0, sharex=True, sharey=True)
    for axis, setting, method in zip(
        axes[0], ("exact-histories", "smc-histories"), ("mcfo-exact", "mcfo-smc"), strict=True
    ):
        for name in outcomes.problem.proposals:
            curve, color = outcomes.curves[setting, f"{method}/{name}"], _COLORS[name]
            counts = np.array([point.particles for point in curve])
            _errorbars(axis, counts, curve, color, scaled=scaled, label=name)
            axis.plot(counts, curve[0].limit * (1 / counts) ** (not scaled), color=color, lw=0.9, ls="--")
            if scaled and method == "mcfo-exact":
                many = counts[counts >= 10]
                axis.plot(many, curve[0].limit + outcomes.second[name] / many, color=color, lw=0.9, ls=":")
            if scaled and method == "mcfo-smc":
                other = outcomes.curves[setting, f"mcfo-smc-systematic/{name}"]
                _errorbars(axis, counts, other, color, scaled=True, marker="s", mfc="white")
        _logarithmic(axis, setting.replace("-", " "), "number of particles K")
    legend(figure, axes)
    return figure


def _scan(outcomes: Curves) -> Any:
    figure, axes = panels(1, 2, width=9.0, height=4.0, sharey=True)
    largest = outcomes.size.scan_particles[-1]
    for axis, (kind, amounts) in zip(axes[0], SCAN.items(), strict=True):
        for count in outcomes.size.scan_particles:
            values, errors = zip(*(outcomes.gaps[kind, amount, count] for amount in amounts), strict=True)
            axis.errorbar(amounts, values, 2 * np.array(errors), marker="o", ms=4, lw=1.2, label=f"K = {count}")
        limits = [outcomes.limits[kind, amount] / largest for amount in amounts]
        axis.plot(amounts, limits, color="0.3", lw=1.0, ls="--", label=f"limit / {largest}")
        axis.set_yscale("log")
        title(axis, f"{kind} of the proposal", x="standard deviations" if kind == "shift" else "times the optimal one")
    legend(figure, axes)
    return figure


def _comparison(outcomes: Curves) -> Any:
    figure, axes = panels(2, 2, width=9.0, height=3.4, sharex="col")
    for row, name in zip(axes, GROWING, strict=True):
        for method in METHODS:
            by_k, by_t = (outcomes.curves[setting, f"{method}/{name}"] for setting in ("growing-k", "growing-t"))
            _errorbars(row[0], [point.particles for point in by_k], by_k, _COLORS[method], label=method)
            _errorbars(row[1], outcomes.size.growing_steps, by_t, _COLORS[method])
        _logarithmic(row[0], f"gap, {name} proposal", "number of particles K")
        _logarithmic(row[1], f"gap, {name} proposal", "steps T")
    legend(figure, axes)
    return figure


def _errorbars(
    axis: Any,
    places: Any,
    curve: list[Point],
    color: str,
    *,
    scaled: bool = False,
    **options: Any,
) -> None:
    shown = [(at, p.k_gap if scaled else p.gap) for at, p in zip(places, curve, strict=True) if p.gap.value > _LEAST]
    # On a logarithmic axis a bar that reaches below zero has no end.
    bars = [[min(2 * one.stderr, 0.99 * one.value) for _, one in shown], [2 * one.stderr for _, one in shown]]
    about = {"marker": "o", "ms": 4, "lw": 1.2, **options}
    axis.errorbar([at for at, _ in shown], [one.value for _, one in shown], bars, color=color, **about)


def _logarithmic(axis: Any, text: str, x: str) -> None:
    axis.set_xscale("log")
    axis.set_yscale("log")
    title(axis, text, x=x)
