"""The demonstration behind `mcfo demo`: a series with gaps, three proposals, and the exact answer beside them."""

from __future__ import annotations

import time
from pathlib import Path

import equinox as eqx
import jax
import matplotlib

matplotlib.use("Agg")  # a picture in a file, also where there is no screen

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from mcfo.exact.kalman import Gaussians, kalman_filter, kalman_smoother
from mcfo.models.base import simulate
from mcfo.models.linear_gaussian import LinearGaussian
from mcfo.proposals.base import Bootstrap, Proposal
from mcfo.proposals.gaussian import LocallyOptimal
from mcfo.sequences import Sequence
from mcfo.smc.diagnostics import describe
from mcfo.smc.filter import SMC
from mcfo.smc.pimh import PIMH
from mcfo.smc.smoothing import backward_simulation
from mcfo.smc.trace import Trace

_RUNS = 20


def run(out: Path, *, steps: int, particles: int, seed: int) -> Path:
    """Runs the demonstration, prints a table and returns the picture's path."""
    console = Console()
    begun = time.perf_counter()
    model = LinearGaussian.scalar(0.9, 1.2, emission_variance=0.1)
    latents, sequence = _series(model, steps, seed)
    filtered, smoothed = kalman_filter(model, sequence), kalman_smoother(model, sequence)
    console.print(
        f"A linear Gaussian series of {steps} steps with {int((~sequence.observed).sum())} gaps, "  # pyright: ignore[reportOptionalOperand]
        f"{particles} particles, {_RUNS} runs of each filter (about half a minute, most of it compiling)."
    )

    proposals = {
        "bootstrap": Bootstrap(),
        "locally optimal": LocallyOptimal(model),
    }
    sampler = SMC(particles)
    key = jax.random.key(seed)
    table = Table(
        title=f"The log-evidence log p(x) is exactly {float(filtered.log_evidence):.3f}",
        caption=f"estimate and spread: mean and standard deviation over {_RUNS} runs. ESS: effective sample size. "
        "error: mean distance of the filtered mean from the exact one, first run.",
    )
    for title in ("proposal", "estimate", "spread", "ESS", "error"):
        table.add_column(title, justify="left" if title == "proposal" else "right")
    traces: dict[str, Trace] = {}
    for name, proposal in track(list(proposals.items()), description="Filtering", console=console, transient=True):
        keys = jax.random.split(key, _RUNS)
        runs = _repeat(sampler, model, proposal, sequence, keys)
        traces[name] = jax.tree.map(lambda array: array[0], runs)
        error = jnp.abs(traces[name].require_history().particles.mean() - filtered.filtered.mean)
        table.add_row(
            name,
            f"{float(runs.log_evidence.mean()):.3f}",
            f"{float(runs.log_evidence.std()):.3f}",
            f"{float(runs.record.ess.mean()):.0f}",
            f"{float(error.mean()):.4f}",
        )
    console.print(table)

    best = traces["locally optimal"]
    paths = backward_simulation(model, best, sequence, 300, key=key)
    error = float(jnp.abs(paths.mean() - smoothed.mean).mean())
    console.print(f"Smoothing by backward simulation: mean error {error:.4f} against the exact smoother.")
    chain = PIMH(SMC(20), 20)(model, proposals["locally optimal"], sequence, key=key)
    console.print(f"PIMH, 20 sweeps of 20 particles: acceptance rate {float(chain.acceptance_rate):.2f}.")
    console.print(f"The first run with the locally optimal proposal, which the picture shows: {describe(best)}")

    picture = _draw(out / "demo.png", latents, sequence, filtered.filtered, smoothed, best, paths)
    console.print(f"Picture: {picture}   ({time.perf_counter() - begun:.0f} s)")
    return picture


@eqx.filter_jit
def _repeat(sampler: SMC, model: LinearGaussian, proposal: Proposal, sequence: Sequence, keys: jax.Array) -> Trace:
    return jax.vmap(lambda key: sampler(model, proposal, sequence, key=key, history=True))(keys)


def _series(model: LinearGaussian, steps: int, seed: int) -> tuple[np.ndarray, Sequence]:
    """A simulated series with a tenth of its values and one longer stretch missing."""
    latents, observations = simulate(model, steps, key=jax.random.key(seed + 1))
    values = np.array(observations, float)
    values[np.random.default_rng(seed).random(steps) < 0.1] = np.nan
    values[steps // 2 : steps // 2 + max(2, steps // 12)] = np.nan
    return np.asarray(latents)[:, 0], Sequence.from_values(values)


def _draw(
    path: Path,
    latents: np.ndarray,
    sequence: Sequence,
    filtered: Gaussians,
    smoothed: Gaussians,
    trace: Trace,
    paths,
) -> Path:
    times = np.arange(1, len(latents) + 1)
    figure, (top, middle, bottom) = plt.subplots(
        3, 1, figsize=(9, 7.5), sharex=True, height_ratios=[3, 3, 1.4], layout="constrained"
    )
    particles = trace.require_history().particles
    seen = np.where(sequence.mask(), sequence.observations, np.nan)[:, 0] / 1.2
    for axis, title, law, estimate in (
        (top, "Filter: what is known at each step", filtered, particles),
        (middle, "Smoother: what is known in the end", smoothed, paths),
    ):
        mean, deviation = np.asarray(law.mean)[:, 0], np.sqrt(np.asarray(law.variance())[:, 0])
        axis.fill_between(
            times, mean - 2 * deviation, mean + 2 * deviation, color="#9ecae1", lw=0, label="exact, ±2 sd"
        )
        axis.plot(times, np.asarray(estimate.mean())[:, 0], color="#08519c", lw=1.4, label="particles, mean")
        spread = 2 * np.sqrt(np.asarray(estimate.variance())[:, 0])
        for side in (-spread, spread):
            line = np.asarray(estimate.mean())[:, 0] + side
            axis.plot(
                times,
                line,
                color="#08519c",
                lw=0.8,
                ls=":",
                label="particles, ±2 sd" if side is spread else None,
            )
        axis.plot(times, latents, color="#d94801", lw=0, marker=".", ms=4, label="true latent state")
        axis.plot(times, seen, color="0.35", lw=0, marker="x", ms=3, mew=0.7, label="observation / 1.2")
        axis.set_title(title, loc="left", fontsize=11)
        axis.set_ylabel("latent state")
    bottom.plot(times, trace.record.ess, color="#08519c", lw=1.2)
    bottom.axhline(trace.particle_count / 2, color="0.5", lw=0.8, ls="--")
    bottom.set_ylim(0, trace.state.log_weights.shape[0] * 1.05)
    bottom.set_title("Effective sample size (dashed: below it, particles are resampled)", loc="left", fontsize=11)
    bottom.set_xlabel("step")
    missing = ~np.asarray(sequence.observed)[:, 0]
    for axis in (top, middle, bottom):
        axis.spines[["top", "right"]].set_visible(False)
        for place, start in enumerate(times[missing]):
            label = None if place else "no observation"
            axis.axvspan(start - 0.5, start + 0.5, color="0.92", lw=0, zorder=0, label=label)
    handles, labels = top.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", fontsize=8, ncols=6, frameon=False)
    figure.savefig(path, dpi=150)
    plt.close(figure)
    return path
