"""Figures of how learning went: each seed a thin line, their mean a bold one."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mcfo.data.run_record import Curve, RunRecord
from mcfo.files import nested
from mcfo.reports.figures import BLUE, INCHES, ORANGE, Chart, Figure, Line, draw_charts
from mcfo.reports.formatting import shortened

_PANELS = 12
"""Watched quantities that are drawn."""


def draw_curves(folder: Path, run: RunRecord) -> list[Figure]:
    """Every figure for which the run has numbers, in the order of the report."""
    figures = []
    for name, draw in (("bound", _bound), ("ess", _sample_size), ("gradients", _gradient_norms), ("skipped", _skipped)):
        chart, caption = draw(run)
        if chart.lines:
            path = folder / f"{name}.png"
            figures.append(draw_charts(path, [chart], caption, columns=1, width=INCHES, height=2.2))
    names = run.watched
    if names:
        charts = [Chart(_printable(name), _lines(run.curve("watched", name), BLUE)) for name in names[:_PANELS]]
        more = f" {len(names) - len(charts)} more are in metrics.jsonl." if len(names) > len(charts) else ""
        shape = {"columns": min(2, len(charts)), "width": INCHES, "height": 1.9}
        caption = f"Watched quantities during learning.{more}"
        figures.append(draw_charts(folder / "watched.png", charts, caption, **shape))
    return figures


def _bound(run: RunRecord) -> tuple[Chart, str]:
    learning = {seed: (steps, -values) for seed, (steps, values) in run.curve("log_evidence_per_step").items()}
    validation = run.curve("validation_nll_per_step")
    known = _is_exact(run)
    exact = [value for result in run.results if (value := result.value("exact_nll_per_step")) is not None]
    exact = [] if known else exact
    lines = _lines(learning, BLUE, "exact NLL, best start" if known else "minus the bound, batches") + _lines(
        validation, ORANGE, "NLL, validation", dots=True
    )
    levels = {"exact NLL of the learned model": float(np.mean(exact))} if exact else {}
    window = _without_descent([*learning.values(), *validation.values()], exact)
    held_out = ", and the NLL per step on the validation data" if validation else ""
    caption = "The exact NLL per step on the learning data, of the best of the starts"
    caption = caption if known else "Minus the bound per step on the batches of the learning data"
    caption += f"{held_out}; lower is better."
    caption += " Dashed: the exact NLL of the learned parameters, mean over the seeds." if exact else ""
    caption += " The first values lie above the figure." if window else ""
    return Chart("nats per step", lines, levels=levels, y_range=window), caption


def _is_exact(run: RunRecord) -> bool:
    """Whether the run maximized an exact likelihood."""
    return nested(run.config, "objective", "name") == "exact"


def _sample_size(run: RunRecord) -> tuple[Chart, str]:
    learning = _percent(run.curve("ess"), run.particles)
    validation = _percent(run.curve("validation_ess"), run.evaluation_particles)
    highest = max((np.nanmax(values) for _, values in [*learning.values(), *validation.values()]), default=100.0)
    lines = _lines(learning, BLUE, "batches") + _lines(validation, ORANGE, "validation", dots=True)
    caption = (
        f"Effective sample size as a share of the particles (K = {run.particles}), mean over the steps of the series. "
        "The better the proposal fits the model, the higher it is."
    )
    return Chart("ESS, % of K", lines, y_range=(0.0, 1.02 * max(100.0, float(highest)))), caption


def _gradient_norms(run: RunRecord) -> tuple[Chart, str]:
    theta, phi = _positive(run.curve("grad_norm_theta")), _positive(run.curve("grad_norm_phi"))
    caption = (
        "Norm of the gradient with respect to the parameters of the model (theta) and of the proposal (phi), before "
        "clipping, on a logarithmic scale. Noise holds it above zero at the optimum; a steady rise often means a "
        "learning rate that is too large."
    )
    # An exact search ends where the gradient vanishes; the page says how near it came.
    lines = [] if _is_exact(run) else _lines(theta, BLUE, "model") + _lines(phi, ORANGE, "proposal")
    return Chart("norm of the gradient", lines, log="y"), caption


def _skipped(run: RunRecord) -> tuple[Chart, str]:
    skipped = run.curve("skipped")
    some = any((values > 0).any() for _, values in skipped.values())
    caption = "Updates skipped so far because the bound, a gradient or the new parameters were not finite."
    return Chart("updates skipped", _lines(skipped, ORANGE) if some else []), caption


def _lines(curve: Curve, color: str, label: str | None = None, *, dots: bool = False) -> list[Line]:
    """A line for each seed, and the mean where every seed has a value."""
    alone, lines = len(curve) == 1, []
    for steps, values in curve.values():
        finite = np.isfinite(values)
        # Gaps are joined where evaluations are rarer than lines, and stay gaps where a value is missing.
        shown = finite if dots else np.full(len(values), True)
        look = {"lw": 1.8, "ms": 4, "label": label} if alone else {"lw": 0.8, "ms": 2.5, "alpha": 0.45}
        marker = {"marker": "o", "mew": 0} if dots or finite.sum() < 3 else {}
        lines.append(Line(steps[shown], values[shown], color, look=look | marker))
    if len(curve) > 1:
        steps, values = _mean(curve)
        marker = {"marker": "o", "ms": 4, "mew": 0} if dots or len(steps) < 3 else {}
        lines.append(Line(steps, values, color, look={"lw": 2.0, "label": label} | marker))
    return lines


def _mean(curve: Curve) -> tuple[np.ndarray, np.ndarray]:
    """The mean over the seeds at the steps where all have a value: otherwise it would jump as seeds come and go."""
    by_seed = [
        dict(zip(steps[np.isfinite(values)], values[np.isfinite(values)], strict=True))
        for steps, values in curve.values()
    ]
    common = sorted(set.intersection(*map(set, by_seed)))
    return np.array(common), np.array([np.mean([values[step] for values in by_seed]) for step in common])


def _without_descent(curves: list[tuple[np.ndarray, np.ndarray]], others: list[float]) -> tuple[float, float] | None:
    """The window without a descent so steep that the rest, and other values, would look flat; None if there is none."""
    last = max((steps[-1] for steps, _ in curves), default=0.0)
    later = np.concatenate([others, *(values[steps > 0.2 * last] for steps, values in curves)])
    whole = np.concatenate([others, *(values for _, values in curves)])
    later, whole = later[np.isfinite(later)], whole[np.isfinite(whole)]
    if later.size < 10 or not whole.max() - later.max() > 5 * np.ptp(later) > 0:
        return None
    return float(whole.min() - 0.1 * np.ptp(later)), float(later.max() + 0.6 * np.ptp(later))


def _percent(curve: Curve, particles: int | None) -> Curve:
    return {seed: (steps, 100 * values / particles) for seed, (steps, values) in curve.items()} if particles else {}


def _positive(curve: Curve) -> Curve:
    """The part that a logarithmic scale can show."""
    shown = {seed: (steps, np.where(values > 0, values, np.nan)) for seed, (steps, values) in curve.items()}
    return {seed: (steps, values) for seed, (steps, values) in shown.items() if np.isfinite(values).any()}


def _printable(name: str) -> str:
    return shortened("".join(letter if letter.isprintable() else " " for letter in name), 28)
