"""Studies of conditional SMC and of coupled chains, into results/verify. Run: python benchmarks/unbiased.py [STUDY]

`invariance`: long chains of conditional SMC against the exact smoothing distribution, with wrong schemes as controls.
`means` and `score`: unbiased estimates against exact ones, with the filter's own as controls. `meetings`: when coupled
chains meet. `climbing`: the paper's learning experiment by score climbing, beside Fisher's identity.
A row that results/verify has already is not computed again. `--small` is a version for tests.
"""

import argparse
import csv
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import mcfo
from mcfo.experiments.lgssm_problem import FIXED, Preset, build_problem, parameters
from mcfo.kalman import log_evidence
from mcfo.models import LinearGaussian
from mcfo.proposals import AffineGaussian, Bootstrap
from mcfo.resampling import Multinomial, Resampling, Residual, Stratified, Systematic
from mcfo.smc.weights import normalize

Row = dict[str, Any]
FOLDER = Path(__file__).parent.parent / "results" / "verify"
SCHEMES = (Multinomial(), Stratified(), Systematic(), Residual())


class Unconditional(Resampling):
    """Wrong: the others are drawn as if no particle were kept, which has the same index at every step."""

    scheme: Resampling

    def __call__(self, log_weights, *, key):
        return self.scheme(log_weights, key=key)

    def numbers(self, particles, dtype, *, key):
        return self.scheme.numbers(particles, dtype, key=key)

    def conditional(self, log_weights, numbers, parent, uniforms):
        return self.scheme.ancestors(log_weights, numbers).at[0].set(parent), jnp.zeros((), jnp.int32)


class WithoutTheKept(Resampling):
    """Wrong: the others never descend from the kept particle."""

    def __call__(self, log_weights, *, key):
        return Multinomial()(log_weights, key=key)

    def numbers(self, particles, dtype, *, key):
        return Multinomial().numbers(particles, dtype, key=key)

    def conditional(self, log_weights, numbers, parent, uniforms):
        return Multinomial().conditional(normalize(log_weights.at[parent].set(-jnp.inf))[0], numbers, parent, uniforms)


def joint_law(model: LinearGaussian, series: mcfo.Series) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of z_1:T of a scalar model given x_1:T, by dense linear algebra."""
    form, first = model.linear_form(None), model.initial_form(None)
    a, q, c, r = (
        float(jnp.squeeze(one))
        for one in (form.transition_matrix, form.transition_covariance, form.emission_matrix, form.emission_covariance)
    )
    values = series.values()[:, 0]
    steps = len(values)
    difference = np.eye(steps) - a * np.eye(steps, k=-1)
    noise = np.linalg.inv(np.diag([float(first.covariance[0, 0]), *[q] * (steps - 1)]))
    source = np.array([float(first.mean[0]), *[0.0] * (steps - 1)])
    covariance = np.linalg.inv(difference.T @ noise @ difference + np.eye(steps) * c**2 / r)
    return covariance @ (difference.T @ noise @ source + c * values / r), covariance


def simulated(model: LinearGaussian, steps: int, seed: int) -> mcfo.Series:
    return mcfo.Series.from_values(mcfo.simulate(model, steps, key=jax.random.key(seed))[1])


def gap(samples: Any, expected: Any) -> np.ndarray:
    """Distances of the mean of independent samples, in standard errors."""
    samples = np.asarray(samples)
    return np.abs(samples.mean(axis=0) - expected) / (samples.std(axis=0, ddof=1) / len(samples) ** 0.5)


def invariance(small: bool) -> Iterator[tuple[Row, Callable[[], Row]]]:
    """Means, variances and lag-one covariances over long chains; each chain's averages are one sample, so that
    autocorrelation is counted."""
    steps, chains, sweeps = (4, 200, 50) if small else (10, 1000, 2000)
    model = LinearGaussian.scalar(0.9, 1.2)
    series = simulated(model, steps, 3)
    mean, covariance = joint_law(model, series)
    expected = np.concatenate([np.zeros(steps), np.diag(covariance), np.diag(covariance, 1)])

    @eqx.filter_jit
    def averages(sampler: mcfo.ConditionalSMC, key: Any) -> Any:
        def chain(key: Any) -> Any:
            begin, key = jax.random.split(key)
            paths, _ = sampler.trajectories(model, Bootstrap(), series, 1, burn_in=20, key=begin)

            def iterate(path: Any, key: Any) -> Any:
                path = sampler(model, Bootstrap(), series, path, key=key).trajectory
                centered = path.latents[:, 0] - mean
                return path, jnp.concatenate([centered, centered**2, centered[1:] * centered[:-1]])

            first = jax.tree.map(lambda array: array[0], paths)
            return jnp.mean(jax.lax.scan(iterate, first, jax.random.split(key, sweeps))[1], axis=0)

        return jax.lax.map(chain, jax.random.split(key, chains), batch_size=chains)

    def measured(sampler: mcfo.ConditionalSMC) -> Row:
        gaps = gap(averages(sampler, jax.random.key(1)), expected)
        return {"quantities": len(gaps), "largest_gap": round(float(gaps.max()), 2)}

    def row(scheme: Resampling, name: str, particles: int, sampling: Any) -> tuple[Row, Callable[[], Row]]:
        sampler = mcfo.ConditionalSMC(particles, scheme, sampling=sampling)
        what = {"scheme": name, "particles": particles, "sampling": sampling}
        return what | {"steps": steps, "chains": chains, "sweeps": sweeps}, lambda: measured(sampler)

    for scheme in SCHEMES:
        for particles in (2,) if small else (2, 5):
            yield row(scheme, type(scheme).__name__, particles, "ancestors")
    for scheme in SCHEMES[1:]:
        yield row(Unconditional(scheme), f"unconditional {type(scheme).__name__}", 2, "none")
    yield row(WithoutTheKept(), "Multinomial without the kept", 2, "none")


def chains_of(method: str, particles: int, **lengths: int) -> mcfo.CoupledChains:
    sampler = mcfo.SMC(particles) if method == "pimh" else mcfo.ConditionalSMC(particles)
    return mcfo.CoupledChains(sampler, **lengths)


def met(result: Any) -> Row:
    times = result.meeting_times
    return {
        "median_meeting": float(np.median(times)),
        "meeting_99": float(np.quantile(times, 0.99, method="higher")),
        "unmet": result.unmet,
        "filters": round(float(result.sweeps.mean()), 1),
    }


def means(small: bool) -> Iterator[tuple[Row, Callable[[], Row]]]:
    """Smoothed means at a K where the genealogy of the plain filter is far off."""
    steps, replicates = (6, 400) if small else (50, 20_000)
    model = LinearGaussian.scalar(0.9, 1.2)
    series, proposal = simulated(model, steps, 3), AffineGaussian.optimal(model)
    exact = np.asarray(mcfo.kalman_smoother(model, series).mean)

    def estimated(method: str, particles: int) -> Row:
        chains = chains_of(method, particles, burn_in=0, sweeps=5)
        result = mcfo.unbiased_smoothing(model, proposal, series, chains=chains, replicates=replicates, seed=4)
        return {"largest_gap": round(float(gap(result.replicates, exact).max()), 2), **met(result)}

    @eqx.filter_jit
    def genealogies(particles: int) -> Any:
        def one(key: Any) -> Any:
            trace = mcfo.SMC(particles)(model, proposal, series, key=key, history=True)
            return mcfo.smc.genealogy(trace).mean()

        return jax.lax.map(one, jax.random.split(jax.random.key(5), replicates), batch_size=256)

    def control(particles: int) -> Row:
        return {"largest_gap": round(float(gap(genealogies(particles), exact).max()), 2)}

    for method, particles in (("pimh", 10), ("conditional", 5)):
        common = {"steps": steps, "particles": particles, "replicates": replicates}
        yield {"method": method, **common}, lambda method=method, particles=particles: estimated(method, particles)
        yield {"method": "genealogy", **common}, lambda particles=particles: control(particles)


def score(small: bool) -> Iterator[tuple[Row, Callable[[], Row]]]:
    """The score at (0.8, 1.08) of data from (0.9, 1.2), R = 1."""
    steps, replicates = (6, 200) if small else (50, 1000)
    model = LinearGaussian.scalar(0.8, 1.08)
    series, proposal = simulated(LinearGaussian.scalar(0.9, 1.2), steps, 7), AffineGaussian.optimal(model)

    def both(gradient: Any) -> np.ndarray:
        arrays = gradient.transition_matrix, gradient.emission_matrix
        return np.stack([np.asarray(array)[..., 0, 0] for array in arrays], axis=-1)

    exact = both(eqx.filter_jit(eqx.filter_grad(log_evidence))(model, series))

    def told(samples: np.ndarray) -> Row:
        error = samples.std(axis=0, ddof=1) / len(samples) ** 0.5
        numbers = {
            "exact": exact,
            "estimate": samples.mean(axis=0),
            "standard_error": error,
            "gap": gap(samples, exact),
        }
        return {f"{name}_{i + 1}": round(float(value[i]), 3) for name, value in numbers.items() for i in (0, 1)}

    def estimated(method: str, particles: int, lengths: dict[str, int], count: int) -> Row:
        chains = chains_of(method, particles, **lengths)
        result = mcfo.unbiased_smoothing(
            model, proposal, series, chains=chains, statistic="score", replicates=count, seed=6
        )
        return told(both(result.replicates)) | met(result)

    def control() -> Row:
        objective = mcfo.objectives.mcfo(1000)

        @jax.jit
        def one(key: Any) -> Any:
            return eqx.filter_grad(lambda model: -objective.loss(model, proposal, series, key=key)[0])(model)

        return told(both(jax.lax.map(one, jax.random.split(jax.random.key(8), 50 if small else 200), batch_size=10)))

    for method, particles, lengths, count in (
        ("conditional", 20, {"burn_in": 5, "sweeps": 30}, replicates),
        ("pimh", 50, {"burn_in": 5, "sweeps": 50}, replicates * 4),
    ):
        what = {"method": method, "steps": steps, "particles": particles, "replicates": count}
        yield what, lambda *one, m=method, p=particles, le=lengths, c=count: estimated(m, p, le, c)
    yield {"method": "filter-score", "steps": steps, "particles": 1000, "replicates": 50 if small else 200}, control


def meetings(small: bool) -> Iterator[tuple[Row, Callable[[], Row]]]:
    """Meeting times, with K that grows with T so that log p̂ has a variance near one (PIMH)."""
    model = LinearGaussian.scalar(0.9, 1.2)
    proposal = AffineGaussian.optimal(model)
    replicates = 100 if small else 1000

    def measured(method: str, particles: int, steps: int) -> Row:
        series = simulated(model, steps, 3)
        keys = jax.random.split(jax.random.key(2), replicates)
        spread = eqx.filter_jit(
            lambda keys: jax.lax.map(
                lambda key: mcfo.SMC(particles)(model, proposal, series, key=key).log_evidence, keys, batch_size=16
            )
        )(keys)
        chains = chains_of(method, particles, burn_in=0, sweeps=1, limit=1000)
        result = mcfo.unbiased_smoothing(model, proposal, series, chains=chains, replicates=replicates, seed=9)
        return {"variance_log_evidence": round(float(np.var(spread)), 2), **met(result)}

    sizes = ((6, 5, 5),) if small else ((50, 19, 20), (200, 76, 40), (800, 304, 80))
    for steps, of_pimh, of_conditional in sizes:
        for method, particles in (("pimh", of_pimh), ("conditional", of_conditional)):
            what = {"method": method, "steps": steps, "particles": particles, "replicates": replicates}
            yield what, lambda m=method, p=particles, s=steps: measured(m, p, s)


def climbing(small: bool) -> Iterator[tuple[Row, Callable[[], Row]]]:
    """The paper's learning experiment: averaged parameters at the end, and the exact NLL per step above that of the
    true ones, on held-out series."""
    size = Preset(series=20, test_series=10, steps=20, watched=5) if small else Preset()
    problem = build_problem(size, 0)

    @eqx.filter_jit
    def nll(model: Any) -> Any:
        return -jnp.mean(jax.vmap(lambda one: log_evidence(model, one))(problem.test)) / size.length

    def learned(objective: Any) -> Row:
        fitted = mcfo.fit(
            *(problem.model, problem.proposal, problem.train),
            objective=objective,
            steps=size.steps,
            batch=size.batch,
            learning_rate=size.learning_rate,
            fixed=FIXED,
            seeds=size.seeds,
            select="average",
            log_every=size.log_every,
            devices=1,
        )
        ends = [parameters(seed.model, seed.proposal) for seed in fitted.seeds]
        above = [float(nll(seed.model) - nll(problem.truth)) for seed in fitted.seeds]
        found = {name: round(float(np.mean([end[name] for end in ends])), 4) for name in ("theta_1", "theta_2")}
        spread = {f"{name}_spread": round(float(np.std([end[name] for end in ends])), 4) for name in found}
        return {**found, **spread, "nll_above_truth": f"{np.mean(above):.2e}", "training": round(fitted.seconds, 1)}

    settings: tuple[tuple[int, Row], ...] = (
        (10, {"theta": "score-climbing", "phi": "score-climbing"}),
        (10, {"theta": "score-climbing", "phi": "dreg"}),
        (100, {"theta": "fisher", "phi": "dreg"}),
        (10, {"theta": "fisher", "phi": "dreg"}),
    )
    for particles, rules in settings:
        what = {**rules, "particles": particles, "series": size.series, "updates": size.steps, "seeds": len(size.seeds)}
        yield what, lambda k=particles, r=rules: learned(mcfo.objectives.mcfo(k, **r))


STUDIES = {study.__name__: study for study in (invariance, means, score, meetings, climbing)}


def run(name: str, folder: Path, *, small: bool = False) -> list[Row]:
    """All rows of a study; those that the folder has are read."""
    path = folder / f"{name}.csv"
    rows = list(csv.DictReader(path.open())) if path.exists() else []
    for what, measure in STUDIES[name](small):
        wanted = {key: str(value) for key, value in what.items()}
        if any(wanted.items() <= row.items() for row in rows):
            continue
        started = time.perf_counter()
        row = {**what, **measure(), "seconds": round(time.perf_counter() - started, 1)}
        print(name, row, flush=True)
        rows.append({key: str(value) for key, value in row.items()})
        header = list(dict.fromkeys(key for row in rows for key in row))
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, header, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    return rows


def main() -> None:
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", nargs="*", choices=[*STUDIES, []])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--out", type=Path, default=FOLDER)
    options = parser.parse_args()
    for name in options.study or STUDIES:
        run(name, options.out, small=options.small)


if __name__ == "__main__":
    sys.exit(main())
