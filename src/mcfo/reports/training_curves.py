"""Figures of how learning went: each seed a thin line, their mean a bold one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import MaxNLocator, PercentFormatter

from mcfo.data.run_record import Curve, RunRecord
from mcfo.files import nested
from mcfo.reports.figures import BLUE, GRAY, INCHES, ORANGE, save_figure, set_title, styled
from mcfo.reports.formatting import counted, shortened, significant

_PANELS = 12
"""Watched quantities that are drawn."""


class Figure(NamedTuple):
    """A figure's file and what it shows."""

    path: Path
    caption: str
    alt: str


@styled
def draw_curves(folder: Path, run: RunRecord) -> list[Figure]:
    """Every figure for which the run has numbers, in the order of the report."""
    draws = (_draw_bound, _draw_sample_size, _draw_gradient_norms, _draw_skipped, _draw_watched)
    return [figure for draw in draws if (figure := draw(folder, run)) is not None]


def _draw_bound(folder: Path, run: RunRecord) -> Figure | None:
    learning = {seed: (steps, -values) for seed, (steps, values) in run.curve("log_evidence_per_step").items()}
    validation = run.curve("validation_nll_per_step")
    if not learning and not validation:
        return None
    figure, axis = _axes("nats per step")
    by_particles = nested(run.config, "objective", "name") != "exact"
    _draw(axis, learning, BLUE, "minus the bound, batches" if by_particles else "exact NLL, best start")
    _draw(axis, validation, ORANGE, "NLL, validation", marker="o")
    exact = [
        value
        for result in run.results
        if (value := result.value("exact_nll_per_step")) is not None and result.evaluation.get("exact") is not True
    ]
    if exact:
        axis.axhline(np.mean(exact), color=GRAY, lw=1.1, ls="--", label="exact NLL of the learned model")
    cut = _cut_start(axis, [learning, validation], exact)
    caption = "Minus the bound per step on the batches of the learning data"
    if not by_particles:
        caption = "The exact NLL per step on the learning data, of the best of the starts"
    caption += ", and the NLL per step on the validation data" if validation else ""
    caption += "; lower is better."
    if exact:
        caption += " Dashed: the exact NLL of the learned parameters, mean over the seeds."
    if cut:
        caption += " The first values lie above the figure."
    return Figure(
        _save(figure, folder / "bound.png"), caption, f"Minus the bound per step against the step. {_ends(learning)}"
    )


def _draw_sample_size(folder: Path, run: RunRecord) -> Figure | None:
    learning = _divided(run.curve("ess"), run.particles)
    validation = _divided(run.curve("validation_ess"), run.evaluation_particles)
    if not learning and not validation:
        return None
    figure, axis = _axes("ESS / K")
    _draw(axis, learning, BLUE, "batches")
    _draw(axis, validation, ORANGE, "validation", marker="o")
    highest = max(np.nanmax(values) for curve in (learning, validation) for _, values in curve.values())
    axis.set_ylim(0, max(1.0, float(highest)) * 1.02)
    axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    return Figure(
        _save(figure, folder / "ess.png"),
        f"Effective sample size as a share of the particles (K = {run.particles}), mean over the steps of the series. "
        "The better the proposal fits the model, the higher it is.",
        f"Effective sample size over K against the step. {_ends(learning)}",
    )


def _draw_gradient_norms(folder: Path, run: RunRecord) -> Figure | None:
    theta, phi = _positive(run.curve("grad_norm_theta")), _positive(run.curve("grad_norm_phi"))
    # An exact search ends where the gradient vanishes; the page says how near it came.
    if (not theta and not phi) or nested(run.config, "objective", "name") == "exact":
        return None
    figure, axis = _axes("norm of the gradient")
    axis.set_yscale("log")
    _draw(axis, theta, BLUE, "model")
    _draw(axis, phi, ORANGE, "proposal")
    return Figure(
        _save(figure, folder / "gradients.png"),
        "Norm of the gradient with respect to the parameters of the model (theta) and of the proposal (phi), before "
        "clipping, on a logarithmic scale. Noise holds it above zero at the optimum; a steady rise often means a "
        "learning rate that is too large.",
        f"Norms of the gradients against the step. Model: {_ends(theta)}",
    )


def _draw_skipped(folder: Path, run: RunRecord) -> Figure | None:
    skipped = run.curve("skipped")
    if not any((values > 0).any() for _, values in skipped.values()):
        return None
    figure, axis = _axes("updates skipped", height=2.0)
    _draw(axis, skipped, ORANGE)
    axis.set_ylim(bottom=0)
    axis.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    return Figure(
        _save(figure, folder / "skipped.png"),
        "Updates skipped so far because the bound, a gradient or the new parameters were not finite.",
        f"Skipped updates against the step. {_ends(skipped)}",
    )


def _draw_watched(folder: Path, run: RunRecord) -> Figure | None:
    names = run.watched
    shown = names[:_PANELS]
    if not shown:
        return None
    columns = min(2, len(shown))
    rows = -(-len(shown) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(INCHES, 0.5 + 1.7 * rows), sharex=True, squeeze=False)
    for axis, name in zip(axes.flat, shown, strict=False):
        _draw(axis, run.curve("watched", name), BLUE)
        set_title(axis, shortened("".join(letter if letter.isprintable() else " " for letter in name), 28))
    for axis in axes.flat[len(shown) :]:
        axis.axis("off")
    for axis in axes.flat[max(0, len(shown) - columns) : len(shown)]:
        axis.set_xlabel("step")
        axis.tick_params(labelbottom=True)
    more = f" {len(names) - len(shown)} more are in metrics.jsonl." if len(names) > len(shown) else ""
    return Figure(
        _save(figure, folder / "watched.png"),
        f"Watched quantities during learning.{more}",
        f"{counted(len(shown), 'watched quantity', 'watched quantities')} against the step: "
        f"{', '.join(shortened(name, 40) for name in shown)}.",
    )


def _axes(label: str, height: float = 2.5) -> tuple[Any, Any]:
    figure, axis = plt.subplots(figsize=(INCHES, height))
    axis.set(xlabel="step", ylabel=label)
    axis.grid(axis="y", color="#e4e4e4", lw=0.7)
    axis.set_axisbelow(True)
    return figure, axis


def _draw(axis: Any, curve: Curve, color: str, label: str | None = None, *, marker: str | None = None) -> None:
    """A line for each seed, and the mean where every seed has a value."""
    alone = len(curve) == 1
    for steps, values in curve.values():
        finite = np.isfinite(values)
        mark = marker or ("o" if finite.sum() < 3 else None)
        # Gaps are joined where evaluations are rarer than lines, and stay gaps where a value is missing.
        if marker:
            steps, values = steps[finite], values[finite]
        style = {"lw": 1.8, "ms": 4} if alone else {"lw": 0.8, "ms": 2.5, "alpha": 0.45}
        axis.plot(steps, values, color=color, marker=mark, mew=0, label=label if alone else None, **style)
    if len(curve) > 1:
        steps, values = _mean(curve)
        mark = "o" if marker or len(steps) < 3 else None
        axis.plot(steps, values, color=color, lw=2.0, marker=mark, ms=4, mew=0, label=label)
    axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def _mean(curve: Curve) -> tuple[np.ndarray, np.ndarray]:
    """The mean over the seeds at the steps where all have a value: otherwise it would jump as seeds come and go."""
    by_seed = [
        dict(zip(steps[np.isfinite(values)], values[np.isfinite(values)], strict=True))
        for steps, values in curve.values()
    ]
    common = sorted(set.intersection(*map(set, by_seed)))
    return np.array(common), np.array([np.mean([values[step] for values in by_seed]) for step in common])


def _cut_start(axis: Any, curves: list[Curve], others: list[float]) -> bool:
    """Cuts off a descent so steep that the rest, and other values, would look flat; returns whether it did."""
    everything = [(steps, values) for curve in curves for steps, values in curve.values()]
    last = max(steps[-1] for steps, _ in everything)
    later = np.concatenate([others, *(values[steps > 0.2 * last] for steps, values in everything)])
    whole = np.concatenate([others, *(values for _, values in everything)])
    later, whole = later[np.isfinite(later)], whole[np.isfinite(whole)]
    if later.size < 10 or not whole.max() - later.max() > 5 * np.ptp(later) > 0:
        return False
    axis.set_ylim(whole.min() - 0.1 * np.ptp(later), later.max() + 0.6 * np.ptp(later))
    return True


def _divided(curve: Curve, particles: int | None) -> Curve:
    return {seed: (steps, values / particles) for seed, (steps, values) in curve.items()} if particles else {}


def _positive(curve: Curve) -> Curve:
    """The part that a logarithmic scale can show."""
    shown = {seed: (steps, np.where(values > 0, values, np.nan)) for seed, (steps, values) in curve.items()}
    return {seed: (steps, values) for seed, (steps, values) in shown.items() if np.isfinite(values).any()}


def _ends(curve: Curve) -> str:
    """First and last value, for those who cannot see the figure."""
    if not curve:
        return "No values."
    _, values = _mean(curve) if len(curve) > 1 and len(_mean(curve)[0]) else next(iter(curve.values()))
    values = values[np.isfinite(values)]
    return f"It starts at {significant(float(values[0]), 3)} and ends at {significant(float(values[-1]), 3)}."


def _save(figure: Any, path: Path) -> Path:
    for axis in figure.axes:
        axis.set_xlim(left=0)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(loc="best", handlelength=1.6)
    return save_figure(figure, path)
