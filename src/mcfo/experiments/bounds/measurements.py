"""What `mcfo reproduce bounds` measures: bounds of log p(x_1:T) as K, T and the proposal change."""

from __future__ import annotations

from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from rich.progress import Progress

from mcfo.experiments.bounds.exact_histories import Blocks, Estimate, controlled_mean, exact_history_blocks, mean
from mcfo.experiments.bounds.problems import Problem, moved
from mcfo.experiments.bounds.sampling import Sampled, path_blocks
from mcfo.experiments.bounds.weight_moments import (
    path_relative_variances,
    relative_variances,
    second_order,
    smc_relative_variance,
)
from mcfo.objectives.named import fivo, mcfo
from mcfo.proposals.gaussian import AffineGaussian
from mcfo.smc.filter import SMC, sis
from mcfo.smc.resampling import Always, Multinomial, Resampling, Systematic
from mcfo.types import Key


@dataclass(frozen=True)
class Preset:
    """How much is measured.

    - `exact_particles`: the K of exact histories and of IWAE, each a divisor of the next; they share their weights.
    - `exact_replicates`, `path_replicates`: independent sets of the largest K weights, of exact histories and of paths.
    - `smc_replicates`: runs of SMC for each K.
    - `scan_particles`, `scan_replicates`: for the scan of proposals around the optimal one.
    - `growing_steps`, `growing_particles`, `growing_replicates`: the T at which bounds are compared, at one K.
    """

    exact_particles: tuple[int, ...]
    exact_replicates: int
    path_replicates: int
    smc_replicates: dict[int, int]
    scan_particles: tuple[int, ...]
    scan_replicates: int
    growing_steps: tuple[int, ...]
    growing_particles: int
    growing_replicates: int


@dataclass(frozen=True)
class Curve:
    """A bound as K grows, or as T does.

    - `gap`: log p - E log p̂.
    - `ratio`: the mean of p̂ / p, or of R_t / p over all steps with exact histories: one, up to its standard error.
    - `deviation`: the standard deviation of one log p̂.
    - `increase`: how much the bound grew since the K before, paired; None where the K do not share their weights.
    - `limit`: of K x gap, in closed form; NaN where none is known.
    """

    particles: list[int]
    gap: list[Estimate]
    ratio: list[Estimate]
    deviation: list[float]
    limit: list[float]
    increase: list[Estimate | None]

    def k_gap(self, place: int) -> Estimate:
        """K x gap."""
        return Estimate(*(self.particles[place] * part for part in self.gap[place]))


@dataclass(frozen=True)
class ScannedProposal:
    """A proposal near the optimal one.

    - `gap`: by K, of the bound with exact histories.
    - `loss`: by K, how far its bound lies below that of the optimal proposal, paired on the same random numbers.
    - `limit`: of K x gap, in closed form.
    """

    kind: str
    amount: float
    gap: dict[int, Estimate]
    loss: dict[int, Estimate]
    limit: float


@dataclass(frozen=True)
class Measurements:
    """All that was measured. Curves go by the name of the proposal, then of the method where there are several."""

    problem: Problem
    step_variances: dict[str, np.ndarray]
    second_orders: dict[str, float]
    exact: dict[str, Curve]
    smc: dict[str, Curve]
    systematic: dict[str, Curve]
    paths: dict[str, Curve]
    growing: dict[str, dict[str, Curve]]
    scan: list[ScannedProposal]
    largest_gap_first_step: float
    largest_gap_no_memory: float
    largest_gap_first_step_smc: float
    largest_gap_no_memory_smc: float
    largest_difference_fivo: float


def measure(problem: Problem, preset: Preset, progress: Progress, *, key: Key) -> Measurements:
    """Draws everything, with a progress bar for each part."""
    model, series, proposals = problem.model, problem.series, problem.proposals
    of_exact, of_smc, of_paths, of_growing, of_scan, of_values = jax.random.split(key, 6)
    sampled = Sampled(progress)
    exact = {}
    for name, proposal in proposals.items():
        limit = float(relative_variances(model, proposal, series).sum() / 2)
        blocks = sampled.blocks(
            exact_history_blocks,
            problem,
            proposal,
            series,
            preset.exact_particles,
            preset.exact_replicates,
            key=of_exact,
            name=f"exact histories, {name}",
        )
        exact[name] = _curve_of_blocks(preset.exact_particles, blocks, limit)
    smc = {
        scheme: {
            name: _smc_curve(sampled, problem, proposal, resampling, preset.smc_replicates, key=of_smc, name=name)
            for name, proposal in proposals.items()
        }
        for scheme, resampling in (("multinomial", Multinomial()), ("systematic", Systematic()))
    }
    paths = {}
    for name, proposal in proposals.items():
        limit = float(path_relative_variances(model, proposal, series)[-1] / 2)
        blocks = sampled.blocks(
            path_blocks,
            problem,
            proposal,
            series,
            preset.exact_particles,
            preset.path_replicates,
            key=of_paths,
            name=f"IWAE, {name}",
        )
        paths[name] = _curve_of_blocks(preset.exact_particles, blocks, limit)
    scan, first_step = _scan(problem, preset, sampled, key=of_scan)
    no_memory = eqx.tree_at(lambda m: m.transition_matrix, model, jnp.zeros_like(model.transition_matrix))
    forgetful = Problem.of(no_memory, problem.long, {"optimal": AffineGaussian.optimal(no_memory)})
    flat = sampled.blocks(
        exact_history_blocks,
        forgetful,
        forgetful.proposals["optimal"],
        series,
        preset.scan_particles,
        preset.scan_replicates,
        key=of_scan,
        name="theta_1 = 0",
    )
    particles, replicates = next((size, count) for size, count in preset.smc_replicates.items() if size > 1)
    exact_smc, flat_smc = (
        sampled.smc(
            SMC(particles, Multinomial(), Always()),
            each,
            each.proposals["optimal"],
            series,
            replicates,
            key=of_smc,
            name=f"SMC where the optimal proposal is exact, {particles} particles",
        )
        for each in (problem, forgetful)
    )
    return Measurements(
        problem=problem,
        step_variances={name: relative_variances(model, q, series) for name, q in proposals.items()},
        second_orders={name: second_order(model, q, series) for name, q in proposals.items()},
        exact=exact,
        smc=smc["multinomial"],
        systematic=smc["systematic"],
        paths=paths,
        growing={
            name: _growing(problem, proposals[name], preset, sampled, key=of_growing, name=name)
            for name in ("bootstrap", "optimal")
        },
        scan=scan,
        largest_gap_first_step=first_step,
        largest_gap_no_memory=float(np.sqrt(flat.square).max()),
        largest_gap_first_step_smc=float(np.abs(exact_smc[:, 0]).max()),
        largest_gap_no_memory_smc=float(np.abs(flat_smc[:, -1]).max()),
        largest_difference_fivo=_difference_of_values(problem, particles, key=of_values),
    )


def _curve_of_blocks(sizes: tuple[int, ...], blocks: Blocks, limit: float) -> Curve:
    """From blocks of one estimate a step, or of one estimate a path."""
    log_ratio, excess, square = (part.reshape(*part.shape[:2], -1) for part in blocks)
    deviations = np.sqrt(np.sum(square.mean(0) - log_ratio.mean(0) ** 2, axis=-1))
    totals = log_ratio.sum(-1)
    return Curve(
        particles=list(sizes),
        gap=[controlled_mean(-log_ratio[:, place], excess[:, place]) for place in range(len(sizes))],
        ratio=[mean(1 + excess[:, place].mean(-1)) for place in range(len(sizes))],
        deviation=[float(deviation) for deviation in deviations],
        limit=[limit] * len(sizes),
        increase=[None, *(mean(totals[:, place] - totals[:, place - 1]) for place in range(1, len(sizes)))],
    )


def _smc_curve(
    sampled: Sampled,
    problem: Problem,
    proposal: AffineGaussian,
    resampling: Resampling,
    replicates: dict[int, int],
    *,
    key,
    name,
) -> Curve:
    """The bound of SMC that resamples before every step."""
    multinomial = isinstance(resampling, Multinomial)
    limit = smc_relative_variance(problem.model, proposal, problem.series) / 2 if multinomial else np.nan
    scheme = type(resampling).__name__.lower()
    samples = [
        sampled.smc(
            SMC(particles, resampling, Always()),
            problem,
            proposal,
            problem.series,
            count,
            key=key,
            name=f"SMC, {scheme}, {particles} particles, {name}",
        )[:, -1]
        for particles, count in replicates.items()
    ]
    return _curve_of_samples(list(replicates), samples, [limit] * len(samples))


def _curve_of_samples(particles: list[int], samples: list[np.ndarray], limits: list[float]) -> Curve:
    """From independent values of log p̂ / p for each K, or each T."""
    return Curve(
        particles=particles,
        gap=[controlled_mean(-values, np.expm1(values)) for values in samples],
        ratio=[mean(np.exp(values)) for values in samples],
        deviation=[float(values.std(ddof=1)) for values in samples],
        limit=limits,
        increase=[None] * len(samples),
    )


def _growing(
    problem: Problem, proposal: AffineGaussian, preset: Preset, sampled: Sampled, *, key: Key, name: str
) -> dict[str, Curve]:
    """IWAE, FIVO and MCFO at one K as T grows, one point for each T of the preset."""
    particles, replicates, times = preset.growing_particles, preset.growing_replicates, preset.growing_steps
    model, long = problem.model, problem.long
    of_paths, of_smc, of_exact = jax.random.split(key, 3)
    curves = {}
    for method, sampler, of_method in (
        ("iwae", sis(particles), of_paths),
        ("fivo", SMC(particles, Multinomial(), Always()), of_smc),
    ):
        samples = sampled.smc(
            sampler, problem, proposal, long, replicates, key=of_method, name=f"growing T, {method}, {name}"
        )
        variances = (
            path_relative_variances(model, proposal, long)[np.array(times) - 1]
            if method == "iwae"
            else np.array([smc_relative_variance(model, proposal, long, time) for time in times])
        )
        curves[method] = _curve_of_samples(
            [particles] * len(times), [samples[:, time - 1] for time in times], [float(v) / 2 for v in variances]
        )
    blocks = sampled.blocks(
        exact_history_blocks,
        problem,
        proposal,
        long,
        (particles,),
        replicates,
        key=of_exact,
        name=f"growing T, exact histories, {name}",
    )
    log_ratio, excess = blocks.log_ratio[:, 0], blocks.excess[:, 0]
    limits = np.cumsum(relative_variances(model, proposal, long)) / 2
    curves["mcfo-exact"] = Curve(
        particles=[particles] * len(times),
        gap=[controlled_mean(-log_ratio[:, :time], excess[:, :time]) for time in times],
        ratio=[mean(1 + excess[:, :time].mean(-1)) for time in times],
        deviation=[float(log_ratio[:, :time].sum(-1).std(ddof=1)) for time in times],
        limit=[float(limits[time - 1]) for time in times],
        increase=[None] * len(times),
    )
    return curves


SHIFTS = (-1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0)
VARIANCES = (0.55, 0.7, 0.85, 1.0, 1.2, 1.5, 2.0, 2.5, 3.0)


def _scan(problem: Problem, preset: Preset, sampled: Sampled, *, key: Key) -> tuple[list[ScannedProposal], float]:
    """Proposals around the optimal one, and the largest |log R_1 - log p(x_1)| at the optimal one."""
    optimal, sizes = problem.proposals["optimal"], preset.scan_particles

    def blocks_of(proposal: AffineGaussian, name: str) -> Blocks:
        return sampled.blocks(
            exact_history_blocks,
            problem,
            proposal,
            problem.series,
            sizes,
            preset.scan_replicates,
            key=key,
            name=f"exact histories, {name}",
        )

    best = blocks_of(optimal, "optimal")
    scanned = []
    for kind, amounts in (("shift", SHIFTS), ("variance", VARIANCES)):
        for amount in amounts:
            proposal = moved(optimal, **{kind: amount})
            blocks = blocks_of(proposal, f"{kind} {amount:g}")
            gap, loss = {}, {}
            for place, size in enumerate(sizes):
                below = (best.log_ratio - blocks.log_ratio)[:, place]
                control = (best.excess - blocks.excess)[:, place]
                gap[size] = controlled_mean(-blocks.log_ratio[:, place], blocks.excess[:, place])
                loss[size] = controlled_mean(below, control)
            limit = float(relative_variances(problem.model, proposal, problem.series).sum() / 2)
            scanned.append(ScannedProposal(kind, amount, gap, loss, limit))
    return scanned, float(np.sqrt(best.square[..., 0]).max())


def _difference_of_values(problem: Problem, particles: int, *, key: Key) -> float:
    """max |MCFO - FIVO| of the objectives' values over some keys, with the same sampler: zero."""
    proposal, series = problem.proposals["bootstrap"], problem.series
    objectives = (
        mcfo(particles, resampling=Multinomial()),
        fivo(particles, resampling=Multinomial(), criterion=Always()),
    )

    def difference(key: Key) -> float:
        ours, theirs = (float(each.loss(problem.model, proposal, series, key=key)[0]) for each in objectives)
        return abs(ours - theirs)

    return max(difference(one) for one in jax.random.split(key, 8))
