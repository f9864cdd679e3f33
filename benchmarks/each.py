"""Many series, each with parameters of its own, beside one fit after the other.

python benchmarks/each.py                        # AR(1) plus noise, exact: mcfo fit_each and a loop over statsmodels
python benchmarks/each.py --particles            # stochastic volatility, K = 100: fit_each and mcfo fit one by one
python benchmarks/each.py --panel panel.parquet  # write a panel for `mcfo fit linear-gaussian --data ... --each`
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

STEPS = 100
WORST = 0.05
"""Nats by which a maximum may be below that of statsmodels."""


class Watch:
    """Measures time and CPU time, of this process and of those that it has waited for."""

    def __init__(self):
        self.began = time.perf_counter(), _cpu()

    def each(self, count: int) -> Times:
        return Times((time.perf_counter() - self.began[0]) / count, (_cpu() - self.began[1]) / count)


class Times(NamedTuple):
    """Seconds, which are those of an idle machine only on an idle machine, and seconds of CPU."""

    seconds: float
    cpu: float

    def __str__(self) -> str:
        return f"{1e3 * self.seconds:.2f} ms ({1e3 * self.cpu:.2f} of CPU)"

    def ratio(self, other: Times) -> str:
        return f"{self.seconds / other.seconds:.1f} times as long ({self.cpu / other.cpu:.1f} times the CPU)"


def _cpu() -> float:
    both = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(one.ru_utime + one.ru_stime for one in both)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--series", type=int)
    parser.add_argument("--compared", type=int, help="series that are also learned one by one")
    parser.add_argument("--particles", action="store_true")
    parser.add_argument("--steps", type=int, default=2000, help="updates by particles")
    parser.add_argument("--panel", type=Path, help="write the panel into this Parquet file, and nothing else")
    options = parser.parse_args()
    if options.panel is not None:
        write_panel(options.panel, autoregressions(options.series or 100_000))
    elif options.particles:
        by_particles(options.series or 1000, options.compared or 2, options.steps)
    else:
        exactly(options.series or 5000, options.compared or 200)


def autoregressions(count: int) -> np.ndarray:
    """AR(1) plus noise around a mean, parameters of its own for each series, (series, steps)."""
    random = np.random.default_rng(0)
    persistence, mean = random.uniform(0.3, 0.95, count), random.normal(0, 3, count)
    scale, noise = np.exp(random.normal(0, 0.35, (2, count)))
    state = np.zeros((count, STEPS))
    state[:, 0] = random.normal(size=count) * scale / np.sqrt(1 - persistence**2)
    for step in range(1, STEPS):
        state[:, step] = persistence * state[:, step - 1] + scale * random.normal(size=count)
    return mean[:, None] + state + noise[:, None] * random.normal(size=(count, STEPS))


def volatilities(count: int) -> np.ndarray:
    """Stochastic volatility, (series, steps)."""
    random = np.random.default_rng(1)
    persistence, scale = random.uniform(0.8, 0.98, count), random.uniform(0.15, 0.5, count)
    state = random.normal(size=count) * scale / np.sqrt(1 - persistence**2)
    values = np.zeros((count, STEPS))
    for step in range(STEPS):
        state = persistence * state + scale * random.normal(size=count) if step else state
        values[:, step] = np.exp(state / 2) * random.normal(size=count)
    return values


def write_panel(path: Path, values: np.ndarray) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    count, steps = values.shape
    names = np.char.add("s", np.arange(count).astype(str))
    columns = {"series": np.repeat(names, steps), "time": np.tile(np.arange(steps), count), "value": values.ravel()}
    pq.write_table(pa.table(columns), path)


def exactly(count: int, compared: int) -> None:
    import mcfo

    mcfo.use_every_core()
    values = autoregressions(count)
    panel = panel_of(values)
    chunk, later = min(2000, count // 2), []

    def listen(done: int, total: int) -> None:
        # The first chunk compiles, which a large panel does not notice.
        if not later:
            later.append((Watch(), done))

    fitted = mcfo.fit_each("linear-gaussian", panel, steps=500, chunk=chunk, listener=listen)
    watch, before = later[0]
    ours = watch.each(count - before)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"fit_each: {count} series, {ours} each, {memory:.0f} MiB at most, {len(fitted.not_converged)} not converged, "
        f"{fitted.seconds:.0f} s with compiling"
    )
    print(f"extrapolated to 100 000 series: {ours.seconds * 1e5 / 60:.1f} minutes ({ours.cpu * 1e5 / 60:.1f} of CPU)")
    watch, gaps = Watch(), []
    for index in range(compared):
        one = fitted.dataset.isel(series=index)
        gaps.append(float(one["log_likelihood"]) - statsmodels_maximum(values[index], one))
    theirs, gaps = watch.each(compared), np.array(gaps)
    print(f"statsmodels: {compared} series, {theirs} each: {theirs.ratio(ours)}")
    # It has one start, and may end at a lower maximum than another one leads to.
    higher = [index for index in range(compared) if gaps[index] > WORST]
    for index in higher:
        one = fitted.dataset.isel(series=index)
        gaps[index] = float(one["log_likelihood"]) - statsmodels_maximum(values[index], one, from_learned=True)
    print(
        f"maxima: {np.sum(np.abs(gaps) < WORST)} of {compared} within {WORST} nats of statsmodels', {len(higher)} of "
        f"them only where it starts at what fit_each found; from {gaps.min():.4f} to {gaps.max():.4f}"
    )


def statsmodels_maximum(values: np.ndarray, learned, *, from_learned: bool = False) -> float:
    """The largest log-likelihood that statsmodels finds for the same model: initial state and loading as given."""
    from statsmodels.tsa.statespace.mlemodel import MLEModel

    mean, variance = float(values.mean()), float(values.var())
    initial = learned["model.initial_mean"].values, np.exp(2 * learned["model.initial_noise.log_diagonal"].values)

    class NoisyAutoregression(MLEModel):
        param_names = ("persistence", "offset", "scale", "noise")
        start_params = np.array([0.9, 0.1 * mean, np.log(0.095 * variance) / 2, np.log(0.5 * variance) / 2])

        def __init__(self, endog):
            super().__init__(endog, k_states=1, k_posdef=1)
            self["design"], self["selection"] = np.eye(1), np.eye(1)
            self.initialize_known(initial[0], initial[1].reshape(1, 1))

        def update(self, params, **kwargs):
            params = super().update(params, **kwargs)
            self["transition"] = params[0].reshape(1, 1)
            self["state_intercept"] = params[1].reshape(1)
            self["state_cov"] = np.exp(2 * params[2]).reshape(1, 1)
            self["obs_cov"] = np.exp(2 * params[3]).reshape(1, 1)

    names = "transition_matrix", "transition_offset", "transition_noise.log_diagonal", "emission_noise.log_diagonal"
    start = np.concatenate([learned[f"model.{name}"].values.ravel() for name in names]) if from_learned else None
    return float(NoisyAutoregression(values).fit(start, disp=False, maxiter=200, cov_type="none").llf)


def by_particles(count: int, compared: int, steps: int) -> None:
    import mcfo

    mcfo.use_every_core()
    values = volatilities(count)
    watch = Watch()
    fitted = mcfo.fit_each("stochastic-volatility", panel_of(values), steps=steps)
    ours = watch.each(count)
    print(f"fit_each: {count} series, {ours} each, {len(fitted.not_converged)} not converged")
    watch = Watch()
    with tempfile.TemporaryDirectory() as folder:
        for index in range(compared):
            data, out = Path(folder) / f"{index}.csv", Path(folder) / str(index)
            data.write_text("value\n" + "\n".join(map(repr, values[index].tolist())) + "\n")
            words = [sys.executable, "-m", "mcfo", "fit", "stochastic-volatility", "--data", data, "--out", out]
            words += ["--no-checks", "--steps", steps]
            subprocess.run([*map(str, words)], check=True, capture_output=True)
    theirs = watch.each(compared)
    print(f"mcfo fit: {compared} series, {theirs} each: {theirs.ratio(ours)}")


def panel_of(values: np.ndarray):
    """The series of an array."""
    from mcfo.data.panels import Panel

    count, steps = values.shape
    names = [f"s{index}" for index in range(count)]
    return Panel(names, ["value"], values.reshape(-1, 1), None, np.arange(count + 1) * steps, {})


if __name__ == "__main__":
    main()
