"""The training step of the pendulum's deep model against its bare matrix multiplications.

    python benchmarks/pendulum.py

Five videos of twenty frames. Times are medians of interleaved repeats in one run; ratios are what counts, because
machines are noisy. Bare: the decoder's multiplications forwards and backwards with nothing else, in steps of all
particles as a filter must do them, and all at once as no filter can. `make bench` has PyTorch's loop beside it.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import mcfo
from mcfo.catalogue.registry import build
from mcfo.inference.evaluation import evaluation_sampler, series_scores
from mcfo.objectives import Accumulated

SERIES, STEPS, PIXELS = 5, 20, 1024
DECODER = (3, 16, 64, 512, 2048, PIXELS)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9, help="interleaved repeats")
    arguments = parser.parse_args()
    console = Console()
    for particles in (10, 100):
        times(console, particles, arguments.repeats)
    draws(console)
    memory(console)


def batch(steps: int = STEPS) -> mcfo.Series:
    values = np.random.default_rng(0).random((SERIES, steps, PIXELS)) < 0.05
    return mcfo.stack([mcfo.Series.from_values(one.astype(np.int32), series_id=n) for n, one in enumerate(values)])


def networks() -> tuple[mcfo.Model, mcfo.Proposal]:
    start = build("deep", [jax.tree.map(lambda array: array[0], batch())], {"emission": "bernoulli"})
    return start.model, start.proposal


@eqx.filter_jit
def gradient(objective: mcfo.Objective, both: tuple, data: mcfo.Series, key: jax.Array):
    return eqx.filter_value_and_grad(lambda both: objective.loss(*both, data, key=key)[0])(both)


def bare(rows: int, steps: int) -> Callable[[int], object]:
    """The decoder's multiplications for so many rows, so many times: forwards, by the input and by the weights."""
    keys = jax.random.split(jax.random.key(0), len(DECODER))
    weights = [
        jax.random.normal(key, (before, after)) / np.sqrt(before)
        for key, (before, after) in zip(keys[1:], itertools.pairwise(DECODER), strict=True)
    ]
    inputs = jax.random.normal(keys[0], (steps, rows, DECODER[0]))

    @jax.jit
    def run(weights, inputs):
        def body(total, values):
            passed = [values]
            for weight in weights:
                passed.append(passed[-1] @ weight)
            back, gradients = passed[-1], []
            for weight, values in zip(weights[::-1], passed[-2::-1], strict=True):
                gradients.append(values.T @ back)
                back = back @ weight.T
            return jax.tree.map(jnp.add, total, gradients[::-1]), None

        return jax.lax.scan(body, jax.tree.map(jnp.zeros_like, weights), inputs)[0]

    return lambda repeat: run(weights, inputs)


def times(console: Console, particles: int, repeats: int) -> None:
    both, data = networks(), batch()
    few = mcfo.objectives.mcfo(particles, proposal_particles=10, theta="filter-score-draws-4")
    objectives = {
        "MCFO": mcfo.objectives.mcfo(particles),
        "MCFO, accumulated": mcfo.objectives.mcfo(particles, backward=Accumulated(1)),
        "MCFO, DReG": mcfo.objectives.mcfo(particles, phi="dreg"),
        "MCFO, DReG, fixed lag": mcfo.objectives.mcfo(particles, theta="fisher-lag-2", phi="dreg"),
        "NASMC": mcfo.objectives.nasmc(particles),
        "MCFO, 10 for phi": mcfo.objectives.mcfo(particles, proposal_particles=10),
        "the same, theta through 4": few,
        "AESMC": mcfo.objectives.aesmc(particles),
    }
    cases: dict[str, Callable[[int], object]] = {
        name: (lambda repeat, one=one: gradient(one, both, data, jax.random.key(repeat)))
        for name, one in objectives.items()
    }
    rows = SERIES * particles
    cases["bare, in steps"] = bare(rows, STEPS)
    cases["bare, all at once"] = bare(rows * STEPS, 1)
    spent: dict[str, list[float]] = {name: [] for name in cases}
    for repeat in range(repeats + 1):
        for name, case in cases.items():
            begun = time.perf_counter()
            jax.block_until_ready(case(repeat))
            if repeat:  # the first one compiles
                spent[name].append(time.perf_counter() - begun)
    medians = {name: float(np.median(values)) for name, values in spent.items()}
    table = Table(
        title=f"A training step, {SERIES} videos, {STEPS} frames, K = {particles}",
        caption="median of interleaved runs; speed as a share of the bare multiplications",
    )
    for title in ("", "ms", "middle half, ms", "of bare, in steps", "of bare, all at once"):
        table.add_column(title, justify="right" if title else "left")
    for name, median in medians.items():
        low, high = np.percentile(spent[name], [25, 75]) * 1e3
        shares = [f"{medians[f'bare, {how}'] / median:.0%}" for how in ("in steps", "all at once")]
        table.add_row(name, f"{median * 1e3:.0f}", f"{low:.0f} to {high:.0f}", *shares)
    console.print(table)
    saved = medians["MCFO, 10 for phi"] / medians["the same, theta through 4"]
    console.print(f"theta through 4 of {particles} particles: {saved:.2f} times faster than through all")


def draws(console: Console, keys: int = 32) -> None:
    """The variance that drawing a few particles adds, as a share of the gradient's own, over random numbers."""
    both, data = networks(), batch()

    def norms(objective: mcfo.Objective) -> tuple[float, float]:
        samples = [
            jax.flatten_util.ravel_pytree(gradient(objective, both, data, jax.random.key(key))[1][0])[0]
            for key in range(keys)
        ]
        stacked = np.stack([np.asarray(one) for one in samples])
        return float(stacked.var(axis=0, ddof=1).sum()), float(np.linalg.norm(stacked.mean(axis=0)))

    whole, norm = norms(mcfo.objectives.mcfo(100, proposal_particles=10))
    console.print(f"Gradient of theta, K = 100: norm {norm:.3g}, deviation {np.sqrt(whole):.3g} over {keys} keys")
    for count in (1, 4, 16):
        objective = mcfo.objectives.mcfo(100, proposal_particles=10, theta=f"filter-score-draws-{count}")
        few, _ = norms(objective)
        console.print(f"  through {count:>2}: variance {few / whole:.2f} times that through all")


def memory(console: Console) -> None:
    """What the compiled gradient needs besides its arguments, as T grows."""
    both = networks()
    for particles in (10, 100):
        needed = []
        for steps in (20, 80):
            data = batch(steps)
            lowered = gradient.lower(mcfo.objectives.mcfo(particles), both, data, jax.random.key(0))
            needed.append(lowered.compile().compiled.memory_analysis().temp_size_in_bytes / 1e6)
        console.print(f"K = {particles}: temporaries {needed[0]:.0f} MB at T = 20, {needed[1]:.0f} MB at T = 80")
    videos = mcfo.stack([jax.tree.map(lambda array: array[0], batch())] * 500)
    sampler = evaluation_sampler(1000)
    lowered = eqx.filter_jit(series_scores).lower(sampler, *both, videos, key=jax.random.key(0), predict=True)
    analysis = lowered.compile().compiled.memory_analysis()
    total = analysis.temp_size_in_bytes + analysis.argument_size_in_bytes + analysis.output_size_in_bytes
    console.print(f"Evaluation of 500 videos with 1000 particles: {total / 2**20:.0f} MiB, data and networks included")


if __name__ == "__main__":
    main()
