"""The paper's figures 2, 7, 8 and 9, with the exact optimum in each panel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mcfo.experiments.lgssm_problem import PHI, THETA
from mcfo.experiments.runs import Run, seed_lines
from mcfo.inference.evaluation import Evaluation
from mcfo.reports.figures import Chart, Figure, Line, draw_charts

_BINS = 50
_BY_PARTICLES = ("aesmc", "iwae", "nasmc", "mcfo-smc", "mcfo-dreg")
_LEAST_GAP = 1e-4
"""The least NLL above the exact one that is drawn, on a logarithmic axis."""


def draw_figures(
    folder: Path, runs: list[Run], optimum: dict[str, float], ideal: Evaluation, size: Any
) -> list[Figure]:
    """Draws all figures; that of several K and that of PIMH where there are such runs."""
    main = [run for run in runs if run.particles == size.main and not run.method.startswith("mcfo-pimh")]
    figures = [
        Figure(
            draw_charts(folder / "learning.png", _learning(main, ideal, size.main), columns=2, width=9.0, height=2.9),
            f"The paper's figure 2: learning with K = {size.main}. Lines: mean over the seeds; bands: their range. "
            "Steps are averaged over bins.",
        ),
        Figure(
            draw_charts(folder / "parameters.png", _parameters(main, (*THETA, *PHI), optimum), columns=4),
            "The paper's figure 7: theta and phi during the same runs. Dashed: the exact optimum.",
        ),
    ]
    if len(size.particles) > 1:
        charts = []
        for count in size.particles:
            chosen = [run for run in runs if run.particles == count and run.method in _BY_PARTICLES]
            charts += _parameters(chosen, (*THETA, "phi_3", "phi_4"), optimum, f", K = {count}")
        path = draw_charts(folder / "particles.png", charts, columns=4)
        figures.append(Figure(path, "The paper's figure 8: the same for each number of particles."))
    pimh = [run for run in runs if run.method.startswith("mcfo-pimh")]
    if pimh:
        smc = [run for run in runs if (run.method, run.particles) == ("mcfo-smc", size.pimh_particles)]
        charts = _parameters([*smc, *pimh], (*THETA, "phi_1", "phi_3", "phi_4"), optimum)
        caption = f"The paper's figure 9: MCFO-SMC and MCFO-PIMH, K = {size.pimh_particles}, by the number of sweeps."
        figures.append(Figure(draw_charts(folder / "pimh.png", charts, columns=3), caption))
    return figures


def _lines(runs: Sequence[Run], metric: str, above: float | None = None) -> list[Line]:
    """The curves of all methods; where `above` is given, how far they lie above it."""

    def binned(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Means over bins of equal width on a logarithmic axis: late steps would otherwise crowd each other."""
        shown = values if above is None else np.maximum(values - above, _LEAST_GAP)
        bins = np.digitize(steps, np.geomspace(steps[0], steps[-1], _BINS))
        means = [np.mean(shown[:, bins == index], axis=1) for index in np.unique(bins)]
        return np.array([np.mean(steps[bins == index]) for index in np.unique(bins)]), np.stack(means, axis=1)

    return seed_lines(runs, metric, binned)


def _learning(runs: list[Run], ideal: Evaluation, particles: int) -> list[Chart]:
    assert ideal.ess is not None  # it was evaluated by particles
    gap = _lines(runs, "exact_nll_per_step", ideal.exact_nll_per_step)
    return [
        Chart("exact NLL per step on test data, above that of the truth", gap, log="xy"),
        Chart("norm of the gradient by theta", _lines(runs, "grad_norm_theta"), log="xy"),
        Chart("norm of the gradient by phi", _lines(runs, "grad_norm_phi"), log="xy"),
        Chart(
            f"effective sample size of {particles} on test data", _lines(runs, "validation_ess"), log="x",
            levels={"exact optimum": ideal.ess}, y_range=(0, 1.03 * particles),
        ),
    ]  # fmt: skip


def _parameters(runs: list[Run], names: tuple[str, ...], optimum: dict[str, float], label: str = "") -> list[Chart]:
    """A panel for each parameter, in a window that no method which runs away decides."""
    charts = []
    for name in names:
        best = optimum[name]
        starts = [abs(float(values[0]) - best) for run in runs if len(values := run.curve(name)[1])]
        reach = 1.3 * max([*starts, 0.05])
        window = best - reach, best + reach
        options = {"levels": {"exact optimum": best}, "log": "x", "y_range": window, "formula": True}
        charts.append(Chart(rf"$\{name}${label}", _lines(runs, name), **options))
    return charts
