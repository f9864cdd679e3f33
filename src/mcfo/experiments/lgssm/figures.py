"""The paper's figures 2, 7, 8 and 9, with the exact optimum in each panel."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")  # pictures in files, also where there is no screen

import matplotlib.pyplot as plt
import numpy as np

from mcfo.experiments.lgssm.methods import METHODS, Preset
from mcfo.experiments.lgssm.problem import PHI, THETA
from mcfo.experiments.lgssm.summary import Learned
from mcfo.inference.evaluation import Evaluation

_COLOURS = {
    "bootstrap": "#8c8c8c",
    "iwae": "#e6550d",
    "aesmc": "#31a354",
    "nasmc": "#756bb1",
    "mcfo-smc": "#08519c",
    "mcfo-dreg": "#d62728",
    "mcfo-fisher": "#17becf",
}
_PIMH_COLOURS = ("#9ecae1", "#c49c00", "#7f3b08", "#40004b")
_BINS = 50
_SYMBOLS = {name: rf"$\{name}$" for name in (*THETA, *PHI)}


def draw_figures(
    folder: Path, learned: list[Learned], optimum: dict[str, float], ideal: Evaluation, size: Preset
) -> dict[str, Path]:
    """Draws all figures, and returns their paths by name."""
    main = 100 if 100 in size.particles else size.particles[-1]
    at_main = [one for one in learned if one.particles == main and one.method in METHODS]
    pictures = {
        "learning": _learning(folder / "learning.png", at_main, ideal, main),
        "parameters": _parameters(folder / "parameters.png", at_main, optimum),
    }
    others = [count for count in size.particles if count != main]
    if others:
        chosen = [one for one in learned if one.method in ("aesmc", "iwae", "nasmc", "mcfo-smc", "mcfo-dreg")]
        pictures["particles"] = _by_particles(folder / "particles.png", chosen, optimum, size)
    pimh = [one for one in learned if one.method.startswith("mcfo-pimh")]
    smc = [one for one in learned if one.method == "mcfo-smc" and one.particles == size.pimh_particles]
    if pimh:
        pictures["pimh"] = _pimh(folder / "pimh.png", [*smc, *pimh], optimum, ideal)
    return pictures


def _color(one: Learned, others: list[Learned]) -> str:
    if one.method in _COLOURS:
        return _COLOURS[one.method]
    pimh = [other.method for other in others if other.method.startswith("mcfo-pimh")]
    return _PIMH_COLOURS[pimh.index(one.method) % len(_PIMH_COLOURS)]


def _lines(
    axis: Any,
    runs: list[Learned],
    metric: str,
    of: Callable[[np.ndarray], np.ndarray] | None = None,
    *,
    logarithmic: bool = False,
) -> None:
    """The mean over the seeds of each method, and around it one standard deviation; on a logarithmic axis the range."""
    for one in runs:
        steps, values = one.curve(metric)
        if not len(steps):
            continue
        steps, values = _binned(steps, values if of is None else of(values))
        color = _color(one, runs)
        mean, spread = values.mean(0), values.std(0)
        above = one.method in ("mcfo-smc", "mcfo-dreg")
        axis.plot(steps, mean, color=color, lw=1.2, label=one.method, zorder=3 if above else 2)
        low, high = (values.min(0), values.max(0)) if logarithmic else (mean - spread, mean + spread)
        axis.fill_between(steps, low, high, color=color, alpha=0.15, lw=0, zorder=1)
    if logarithmic:
        axis.set_yscale("log")


def _binned(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Means over bins of equal width on a logarithmic axis: late steps would otherwise crowd each other."""
    edges = np.geomspace(steps[0], steps[-1], _BINS)
    places = np.digitize(steps, edges)
    kept = np.unique(places)
    means = [np.mean(values[:, places == place], axis=1) for place in kept]
    return np.array([np.mean(steps[places == place]) for place in kept]), np.stack(means, axis=1)


def _exact(axis: Any, value: float, label: str) -> None:
    axis.axhline(value, color="black", lw=1.0, ls="--", label=label, zorder=0)


def _finish(figure: Any, axes: Any, path: Path) -> Path:
    handles: dict[str, Any] = {}
    for axis in np.ravel(axes):
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
        axis.set_xlabel("step", fontsize=9)
        axis.set_xscale("log")  # most of it happens early
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    columns = min(5, len(handles))
    figure.legend(
        handles.values(), handles.keys(), loc="outside upper center", ncols=columns, fontsize=8, frameon=False
    )
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path


def _learning(path: Path, runs: list[Learned], ideal: Evaluation, particles: int) -> Path:
    figure, axes = plt.subplots(2, 2, figsize=(9, 6.2), layout="constrained")
    nll, norms, phi_norms, ess = axes.ravel()
    exact = ideal.exact_nll_per_step
    assert exact is not None
    _lines(nll, runs, "exact_nll_per_step", lambda values: np.maximum(values - exact, 1e-4), logarithmic=True)
    nll.set_title(
        "NLL per step of the learned model on test data,\nexact, above that of the truth", fontsize=9, loc="left"
    )
    _lines(norms, runs, "grad_norm_theta", logarithmic=True)
    norms.set_title("norm of the gradient by theta", fontsize=9, loc="left")
    _lines(phi_norms, runs, "grad_norm_phi", logarithmic=True)
    phi_norms.set_title("norm of the gradient by phi", fontsize=9, loc="left")
    _lines(ess, runs, "test_ess")
    _exact(ess, ideal.ess, "exact optimum")
    ess.set_ylim(0, 1.03 * particles)
    ess.set_title(f"effective sample size of {particles} on test data", fontsize=9, loc="left")
    return _finish(figure, axes, path)


def _parameters(path: Path, runs: list[Learned], optimum: dict[str, float]) -> Path:
    figure, axes = plt.subplots(2, 4, figsize=(11, 5.6), layout="constrained")
    for axis, name in zip(axes.ravel(), (*THETA, *PHI), strict=False):
        _lines(axis, runs, name)
        _exact(axis, optimum[name], "exact optimum")
        axis.set_title(_SYMBOLS[name], fontsize=11, loc="left")
        _zoom(axis, runs, name, optimum[name])
    axes.ravel()[-1].remove()
    return _finish(figure, axes.ravel()[:-1], path)


def _zoom(axis: Any, runs: list[Learned], name: str, target: float) -> None:
    """A window that a single method which runs away does not decide."""
    ends = [abs(float(value) - target) for one in runs for value in one.curve(name)[1][:, :1].ravel()]
    reach = max([*ends, 0.05]) * 1.3
    axis.set_ylim(target - reach, target + reach)


def _by_particles(path: Path, runs: list[Learned], optimum: dict[str, float], size: Preset) -> Path:
    names = ("theta_1", "theta_2", "phi_3", "phi_4")
    figure, axes = plt.subplots(
        len(names), len(size.particles), figsize=(3.6 * len(size.particles), 9), layout="constrained", squeeze=False
    )
    for row, name in zip(axes, names, strict=True):
        for axis, particles in zip(row, size.particles, strict=True):
            chosen = [one for one in runs if one.particles == particles]
            _lines(axis, chosen, name)
            _exact(axis, optimum[name], "exact optimum")
            axis.set_title(f"{_SYMBOLS[name]}, K = {particles}", fontsize=10, loc="left")
            _zoom(axis, chosen, name, optimum[name])
    return _finish(figure, axes, path)


def _pimh(path: Path, runs: list[Learned], optimum: dict[str, float], ideal: Evaluation) -> Path:
    figure, axes = plt.subplots(2, 3, figsize=(10, 5.6), layout="constrained")
    for axis, name in zip(axes.ravel(), (*THETA, "phi_1", "phi_3", "phi_4"), strict=False):
        _lines(axis, runs, name)
        _exact(axis, optimum[name], "exact optimum")
        axis.set_title(_SYMBOLS[name], fontsize=11, loc="left")
        _zoom(axis, runs, name, optimum[name])
    last = axes.ravel()[-1]
    _lines(last, runs, "test_ess")
    _exact(last, ideal.ess, "exact optimum")
    last.set_title("effective sample size on test data", fontsize=9, loc="left")
    return _finish(figure, axes, path)
