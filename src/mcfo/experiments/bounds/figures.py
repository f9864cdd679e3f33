"""The figures of `mcfo reproduce bounds`."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # pictures in files, also where there is no screen

import matplotlib.pyplot as plt
import numpy as np

from mcfo.experiments.bounds.exact_histories import ROUNDING
from mcfo.experiments.bounds.measurements import Curve, Measurements, Preset
from mcfo.experiments.bounds.problems import STEPS

PROPOSALS = {"bootstrap": "bootstrap", "wide": "optimal mean, variance × 1.5", "optimal": "optimal"}
METHODS = {"iwae": "IWAE", "fivo": "FIVO = MCFO, SMC histories", "mcfo-exact": "MCFO, exact histories"}
_COLOURS = {"bootstrap": "#d94801", "wide": "#6a51a3", "optimal": "#08519c"}
_METHOD_COLOURS = {"iwae": "#d94801", "fivo": "#238b45", "mcfo-exact": "#08519c"}


def draw_gap(path: Path, measured: Measurements) -> Path:
    """log p - bound against K, with the closed form limit / K."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), sharex=True, sharey=True, layout="constrained")
    for axis, title, curves in (
        (axes[0], "Exact histories", measured.exact),
        (axes[1], "SMC histories, multinomial", measured.smc),
    ):
        for name, curve in curves.items():
            _plot(axis, curve.particles, curve, color=_COLOURS[name], label=PROPOSALS[name])
            grid = np.geomspace(curve.particles[0], curve.particles[-1], 50)
            axis.plot(grid, curve.limit[0] / grid, color=_COLOURS[name], lw=0.9, ls="--")
        _logarithmic(axis, title, "number of particles K")
    axes[0].plot([], [], color="0.4", lw=0.9, ls="--", label="closed form: limit / K")
    axes[0].set_ylabel("gap: log p(x) − bound, nats")
    return _finish(figure, axes[0], path, 4)


def draw_k_gap(path: Path, measured: Measurements) -> Path:
    """K x gap against K, with its closed-form limit."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.6), sharex=True, sharey=True, layout="constrained")
    for name, curve in measured.exact.items():
        color = _COLOURS[name]
        _plot(axes[0], curve.particles, curve, color=color, label=PROPOSALS[name], by_particles=True)
        axes[0].axhline(curve.limit[0], color=color, lw=0.9, ls="--")
        grid = np.geomspace(10, curve.particles[-1], 50)
        axes[0].plot(grid, curve.limit[0] + measured.second_orders[name] / grid, color=color, lw=0.9, ls=":")
    for name, curve in measured.smc.items():
        color, systematic = _COLOURS[name], measured.systematic[name]
        _plot(axes[1], curve.particles, curve, color=color, by_particles=True)
        _plot(axes[1], systematic.particles, systematic, color=color, by_particles=True, marker="s", hollow=True)
        axes[1].axhline(curve.limit[0], color=color, lw=0.9, ls="--")
    for style, label in (("--", "closed-form limit"), (":", "limit + next order / K")):
        axes[0].plot([], [], color="0.4", lw=0.9, ls=style, label=label)
    axes[0].plot([], [], color="0.4", lw=1.2, marker="s", ms=4, mfc="white", label="systematic resampling")
    _logarithmic(axes[0], "Exact histories", "number of particles K")
    _logarithmic(axes[1], "SMC histories", "number of particles K")
    axes[0].set_ylabel("K × gap")
    return _finish(figure, axes[0], path, 3)


def draw_scan(path: Path, measured: Measurements, preset: Preset) -> Path:
    """The gap with exact histories as the proposal moves away from the optimal one."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 4.2), sharey=True, layout="constrained")
    shades = plt.get_cmap("viridis")(np.linspace(0.15, 0.8, len(preset.scan_particles)))
    for axis, kind, title, label, best in (
        (axes[0], "shift", "Mean of the proposal", "shift, in its standard deviations", 0.0),
        (axes[1], "variance", "Variance of the proposal", "variance / optimal variance", 1.0),
    ):
        scanned = [one for one in measured.scan if one.kind == kind]
        amounts = [one.amount for one in scanned]
        for shade, size in zip(shades, preset.scan_particles, strict=True):
            gaps = [one.gap[size] for one in scanned]
            axis.errorbar(
                amounts,
                [gap.value for gap in gaps],
                [2 * gap.stderr for gap in gaps],
                color=shade,
                marker="o",
                ms=4,
                lw=1.2,
                label=f"K = {size}",
            )
        largest = preset.scan_particles[-1]
        axis.plot(
            amounts,
            [one.limit / largest for one in scanned],
            color="0.3",
            lw=1.0,
            ls="--",
            label=f"closed-form limit / {largest}",
        )
        axis.axvline(best, color="0.5", lw=0.9, ls=":", label="optimal proposal")
        axis.set_yscale("log")
        _plain(axis, title, label)
    axes[0].set_xticks([-1, -0.5, 0, 0.5, 1])
    axes[0].set_ylabel("gap: log p(x) − bound, nats")
    return _finish(figure, axes[0], path, 5)


def draw_comparison(path: Path, measured: Measurements, preset: Preset) -> Path:
    """IWAE, FIVO and MCFO as K grows and as T grows, for the bootstrap and the optimal proposal."""
    figure, axes = plt.subplots(2, 2, figsize=(9, 7.2), sharex="col", layout="constrained")
    for row, name in zip(axes, ("bootstrap", "optimal"), strict=True):
        by_particles = {"iwae": measured.paths, "fivo": measured.smc, "mcfo-exact": measured.exact}
        for method, color in _METHOD_COLOURS.items():
            curve = by_particles[method][name]
            _plot(row[0], curve.particles, curve, color=color, label=METHODS[method])
            _plot(row[1], list(preset.growing_steps), measured.growing[name][method], color=color)
        proposal = f"{PROPOSALS[name].capitalize()} proposal"
        _logarithmic(row[0], f"{proposal}, T = {STEPS}", "number of particles K" if name == "optimal" else "")
        _logarithmic(row[1], f"{proposal}, K = {preset.growing_particles}", "steps T" if name == "optimal" else "")
        row[0].set_ylabel("gap: log p(x) − bound, nats")
    return _finish(figure, axes[0, 0], path, 3)


def _plot(
    axis,
    places: list[int],
    curve: Curve,
    *,
    color: str,
    label: str | None = None,
    by_particles: bool = False,
    marker: str = "o",
    hollow: bool = False,
) -> None:
    # Zero has no place on a logarithmic axis.
    shown = [index for index, gap in enumerate(curve.gap) if gap.value > ROUNDING]
    estimates = [curve.k_gap(index) if by_particles else curve.gap[index] for index in shown]
    axis.errorbar(
        [places[index] for index in shown],
        [estimate.value for estimate in estimates],
        # On a logarithmic axis a bar that reaches below zero has no end.
        [[min(2 * one.stderr, 0.99 * one.value) for one in estimates], [2 * one.stderr for one in estimates]],
        color=color,
        marker=marker,
        mfc="white" if hollow else color,
        ms=4,
        lw=1.2,
        label=label,
    )


def _logarithmic(axis, title: str, label: str) -> None:
    axis.set_xscale("log")
    axis.set_yscale("log")
    _plain(axis, title, label)


def _plain(axis, title: str, label: str) -> None:
    axis.set_title(title, loc="left", fontsize=11)
    axis.set_xlabel(label)
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(True, which="major", color="0.92", lw=0.7)
    axis.set_axisbelow(True)


def _finish(figure, axis, path: Path, columns: int) -> Path:
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", fontsize=9, ncols=columns, frameon=False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path
