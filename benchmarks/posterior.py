"""PMMH on stochastic volatility, here and by particles: do the posteriors agree, and what does an effective draw cost?

    python benchmarks/posterior.py --iterations 20000

The returns of the pound against the dollar (1997 and 1998, 751 days) with the same priors, the bootstrap proposal and
the same number of particles. Each side's own adaptation of its random walk; the warm-up counts as time. Prints a table,
and ends with code 1 if a mean differs by more than four standard errors, or an effective draw costs the peer less than
ten times as much.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from numpyro.diagnostics import effective_sample_size
from suite.environments import PEERS, python_of

from mcfo import Series, sample_posterior
from mcfo.models import StochasticVolatility
from mcfo.proposals import Bootstrap

PRIORS = {"level": "normal:0,2", "persistence": "beta:9,1", "scale": "gamma:2,4"}
NAMES = {"level": "mu", "persistence": "rho", "scale": "sigma"}
FACTOR = 10.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=20_000, help="of the peer, the first fifth left out")
    parser.add_argument("--draws", type=int, default=2000, help="of each of our chains")
    parser.add_argument("--chains", type=int, default=16)
    parser.add_argument("--particles", type=int, default=None, help="by default as many as we choose")
    arguments = parser.parse_args()
    python = python_of("particles")
    with tempfile.TemporaryDirectory() as name:
        data, draws = Path(name) / "data.npz", Path(name) / "draws.npz"
        script = [str(python), str(PEERS / "particles_posterior.py")]
        subprocess.run([*script, str(data)], check=True)
        returns = np.load(data)["returns"]
        ours, seconds, particles = _ours(returns, arguments)
        subprocess.run([*script, str(data), str(draws), str(particles), str(arguments.iterations)], check=True)
        found = np.load(draws)
        theirs = {name: found[other][len(found[other]) // 5 :][None] for name, other in NAMES.items()}
        return _compare(ours, seconds, theirs, float(found["seconds"]), particles)


def _ours(returns: np.ndarray, arguments: argparse.Namespace) -> tuple[dict[str, np.ndarray], float, int]:
    model = StochasticVolatility(level=-1.0, persistence=0.95, scale=0.2)
    begin = time.perf_counter()
    posterior = sample_posterior(
        (model, Bootstrap()),
        [Series.from_values(returns)],
        priors=PRIORS,
        chains=arguments.chains,
        draws=arguments.draws,
        particles=arguments.particles,
    )
    seconds = time.perf_counter() - begin
    arrays = posterior.arrays()
    values = {name: arrays[f"log_variance.{name}"][..., 0] for name in NAMES}
    return values, seconds, posterior.about["particles"]


def _compare(ours: dict, seconds: float, theirs: dict, peer_seconds: float, particles: int) -> int:
    print(f"{particles} particles; {seconds:.0f} s here, {peer_seconds:.0f} s by particles")
    costs, apart = [], 0.0
    for name in NAMES:
        sizes = [float(effective_sample_size(one[name])) for one in (ours, theirs)]
        means, deviations = ([float(f(one[name])) for one in (ours, theirs)] for f in (np.mean, np.std))
        error = np.sqrt(sum(s**2 / n for s, n in zip(deviations, sizes, strict=True)))
        distance = abs(means[0] - means[1]) / error
        costs.append((seconds / sizes[0], peer_seconds / sizes[1]))
        apart = max(apart, distance)
        print(
            f"{name:12s} mean {means[0]:8.4f} {means[1]:8.4f} ({distance:.1f} standard errors)  sd {deviations[0]:.4f} "
            f"{deviations[1]:.4f}  ESS {sizes[0]:.0f} {sizes[1]:.0f}"
        )
    here, there = (max(cost[side] for cost in costs) for side in (0, 1))
    print(f"seconds for an effective draw: {here:.4f} here, {there:.4f} by particles, {there / here:.1f} times as long")
    return int(apart > 4 or there < FACTOR * here)


if __name__ == "__main__":
    sys.exit(main())
