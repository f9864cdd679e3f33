"""Updates a second on one device and on one for each core, interleaved in one run.

python benchmarks/training.py
"""

from __future__ import annotations

import time

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

import mcfo
from mcfo.learning.devices import cores
from mcfo.learning.parameters import Modules
from mcfo.learning.trainer import Trainer

REPEATS = 15
WORKLOADS = {
    "the demo: B=10, T=10, K=100, 3 seeds": {"batch": 10, "steps": 10, "particles": 100, "seeds": 3},
    "B=10, T=50, K=100": {"batch": 10, "steps": 50, "particles": 100, "seeds": 1},
    "B=16, T=200, K=100": {"batch": 16, "steps": 200, "particles": 100, "seeds": 1},
    "B=10, T=50, K=1000": {"batch": 10, "steps": 50, "particles": 1000, "seeds": 1},
}


def main() -> None:
    mcfo.use_every_core()
    console = Console()
    table = Table(
        title=f"Milliseconds an update (median and range of {REPEATS}), linear Gaussian model, MCFO with DReG"
    )
    for title in ("workload", "1 device", f"{cores()} devices", "times faster"):
        table.add_column(title, justify="left" if title == "workload" else "right")
    for name, sizes in WORKLOADS.items():
        with console.status(name):
            found = _measure(**sizes)
        one, all_cores = found[1], found[cores()]
        table.add_row(name, _words(one), _words(all_cores), f"{np.median(one) / np.median(all_cores):.2f}")
    console.print(table)


def _measure(*, batch: int, steps: int, particles: int, seeds: int) -> dict[int, np.ndarray]:
    truth = mcfo.models.LinearGaussian.scalar(0.9, 1.2, emission_variance=0.01)
    series = [
        mcfo.Series.from_values(mcfo.simulate(truth, steps, key=jax.random.key(n))[1], series_id=n) for n in range(40)
    ]
    data = mcfo.stack(series)
    updates = max(1, 200_000 // (batch * steps * particles * seeds))
    trainers = {}
    for devices in {1, cores()}:
        settings = mcfo.Settings(
            steps=10**6, batch=batch, seeds=tuple(range(seeds)), log_every=updates, devices=devices
        )
        modules = Modules(truth, mcfo.proposals.AffineGaussian.optimal(truth))
        trainer = Trainer(mcfo.objectives.mcfo(particles, phi="dreg"), modules, data, None, settings)
        state, _ = trainer.advance(trainer.start())
        trainers[devices] = [trainer, state]
    times = {devices: [] for devices in trainers}
    for _ in range(REPEATS):
        for devices, pair in trainers.items():
            begun = time.perf_counter()
            pair[1], _ = pair[0].advance(pair[1])
            times[devices].append((time.perf_counter() - begun) / updates)
    return {devices: np.array(values) for devices, values in times.items()}


def _words(times: np.ndarray) -> str:
    low, middle, high = (1000 * value for value in np.percentile(times, [0, 50, 100]))
    return f"{middle:.2f} ({low:.2f}–{high:.2f})"


if __name__ == "__main__":
    main()
