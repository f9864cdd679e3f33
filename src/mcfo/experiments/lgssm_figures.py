"""The paper's figures 2, 7, 8 and 9, with the exact optimum in each panel."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mcfo.experiments.figures import band, legend, level, panels, save, title
from mcfo.experiments.lgssm_problem import PHI, THETA
from mcfo.experiments.runs import Run, seed_curves
from mcfo.experiments.study import Figure
from mcfo.inference.evaluation import Evaluation

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
            _learning(folder / "learning.png", main, ideal, size.main),
            f"The paper's figure 2: learning with K = {size.main}. Lines: mean over the seeds; bands: their range. "
            "Steps are averaged over bins.",
        ),
        Figure(
            _parameters(folder / "parameters.png", {"": main}, (*THETA, *PHI), optimum, columns=4),
            "The paper's figure 7: theta and phi during the same runs. Dashed: the exact optimum.",
        ),
    ]
    if len(size.particles) > 1:
        groups = {
            f", K = {count}": [run for run in runs if run.particles == count and run.method in _BY_PARTICLES]
            for count in size.particles
        }
        path = _parameters(folder / "particles.png", groups, (*THETA, "phi_3", "phi_4"), optimum, columns=4)
        figures.append(Figure(path, "The paper's figure 8: the same for each number of particles."))
    pimh = [run for run in runs if run.method.startswith("mcfo-pimh")]
    if pimh:
        smc = [run for run in runs if (run.method, run.particles) == ("mcfo-smc", size.pimh_particles)]
        path = _parameters(folder / "pimh.png", {"": [*smc, *pimh]}, (*THETA, "phi_1", "phi_3", "phi_4"), optimum)
        caption = f"The paper's figure 9: MCFO-SMC and MCFO-PIMH, K = {size.pimh_particles}, by the number of sweeps."
        figures.append(Figure(path, caption))
    return figures


def _groups(runs: Sequence[Run]) -> list[list[Run]]:
    return [[run for run in runs if run.cell == cell] for cell in dict.fromkeys(run.cell for run in runs)]


def _lines(axis: Any, runs: Sequence[Run], metric: str, *, above: float | None = None) -> None:
    """The curves of all methods; on a logarithmic axis, how far they lie above a value."""
    for group in _groups(runs):
        steps, values = seed_curves(group, metric)
        if len(steps):
            shown = values if above is None else np.maximum(values - above, _LEAST_GAP)
            band(axis, *_binned(steps, shown), group[0].method)
    axis.set_xscale("log")  # most of it happens early


def _binned(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means over bins of equal width on a logarithmic axis: late steps would otherwise crowd each other."""
    bins = np.digitize(steps, np.geomspace(steps[0], steps[-1], _BINS))
    means = [np.mean(values[:, bins == index], axis=1) for index in np.unique(bins)]
    return np.array([np.mean(steps[bins == index]) for index in np.unique(bins)]), np.stack(means, axis=1)


def _learning(path: Path, runs: list[Run], ideal: Evaluation, particles: int) -> Path:
    figure, axes = panels(2, 2, width=9.0)
    nll, norms, phi_norms, ess = axes.ravel()
    _lines(nll, runs, "exact_nll_per_step", above=ideal.exact_nll_per_step)
    title(nll, "exact NLL per step on test data, above that of the truth")
    _lines(norms, runs, "grad_norm_theta")
    title(norms, "norm of the gradient by theta")
    _lines(phi_norms, runs, "grad_norm_phi")
    title(phi_norms, "norm of the gradient by phi")
    for axis in (nll, norms, phi_norms):
        axis.set_yscale("log")
    _lines(ess, runs, "validation_ess")
    assert ideal.ess is not None  # it was evaluated by particles
    level(ess, ideal.ess, "exact optimum")
    ess.set_ylim(0, 1.03 * particles)
    title(ess, f"effective sample size of {particles} on test data")
    legend(figure, axes)
    return save(figure, path)


def _parameters(
    path: Path, groups: dict[str, list[Run]], names: tuple[str, ...], optimum: dict[str, float], *, columns: int = 3
) -> Path:
    """A panel for each parameter of each group of runs, in a window that no method which runs away decides."""
    wanted = [(label, runs, name) for label, runs in groups.items() for name in names]
    figure, axes = panels(-(-len(wanted) // columns), columns, height=2.6)
    for axis, (label, runs, name) in zip(axes.ravel(), wanted, strict=False):
        _lines(axis, runs, name)
        level(axis, optimum[name], "exact optimum")
        starts = [abs(float(values[0]) - optimum[name]) for run in runs if len(values := run.curve(name)[1])]
        reach = 1.3 * max([*starts, 0.05])
        axis.set_ylim(optimum[name] - reach, optimum[name] + reach)
        title(axis, rf"$\{name}${label}", size=11.0)
    for axis in axes.ravel()[len(wanted) :]:
        axis.remove()
    legend(figure, axes.ravel()[: len(wanted)])
    return save(figure, path)
