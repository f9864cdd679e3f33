"""The tables of the report of `mcfo reproduce bounds`: a header and rows of text each."""

from __future__ import annotations

import numpy as np

from mcfo.experiments.bounds.exact_histories import ROUNDING, Estimate
from mcfo.experiments.bounds.figures import METHODS
from mcfo.experiments.bounds.measurements import Measurements, Preset
from mcfo.experiments.bounds.problems import STEPS


def exact_table(measured: Measurements) -> tuple[list[str], list[list[str]]]:
    """The bound with exact histories at every K."""
    header = ["proposal", "K", "bound", "gap", "K × gap", "predicted", "limit", "increase"]
    rows = []
    for name, curve in measured.exact.items():
        for place, size in enumerate(curve.particles):
            gap, increase = curve.gap[place], curve.increase[place]
            rows.append(
                [
                    name,
                    str(size),
                    f"{measured.problem.log_evidence - gap.value:.5f}",
                    f"{gap.value:.4g}",
                    with_error(curve.k_gap(place)),
                    f"{curve.limit[place] + measured.second_orders[name] / size:.4f}" if size >= 10 else "",
                    f"{curve.limit[place]:.4f}",
                    "" if increase is None else short(increase),
                ]
            )
    return header, rows


def variance_table(measured: Measurements) -> tuple[list[str], list[list[str]]]:
    """The relative variance of one weight at each step."""
    header = ["proposal", *(f"t = {step}" for step in range(1, STEPS + 1)), "half the sum"]
    rows = [
        [name, *(f"{value:.3f}" for value in abs(values)), f"{values.sum() / 2:.4f}"]
        for name, values in measured.step_variances.items()
    ]
    return header, rows


def smc_table(measured: Measurements) -> tuple[list[str], list[list[str]]]:
    """The bound with SMC histories at every K."""
    header = ["resampling", "proposal", "K", "bound", "gap", "K × gap", "limit", "limit, exact", "mean of p̂/p"]
    rows = []
    for scheme, curves in (("multinomial", measured.smc), ("systematic", measured.systematic)):
        for name, curve in curves.items():
            for place, size in enumerate(curve.particles):
                rows.append(
                    [
                        scheme,
                        name,
                        str(size),
                        f"{measured.problem.log_evidence - curve.gap[place].value:.5f}",
                        f"{curve.gap[place].value:.4g}",
                        with_error(curve.k_gap(place)),
                        f"{curve.limit[place]:.4f}" if np.isfinite(curve.limit[place]) else "",
                        f"{measured.exact[name].limit[0]:.4f}",
                        with_error(curve.ratio[place]),
                    ]
                )
    return header, rows


def optimal_table(measured: Measurements, preset: Preset) -> tuple[list[str], list[list[str]]]:
    """The gap that is left at the optimal proposal."""
    optimal, smc = measured.exact["optimal"], measured.smc["optimal"]
    largest = max(measured.largest_gap_first_step, measured.largest_gap_no_memory)
    closed = measured.step_variances["optimal"][1:].sum() / 2
    rows = [
        [f"exact histories, T = {STEPS}", str(size), with_error(optimal.k_gap(place)), f"{closed:.4f}"]
        for place, size in enumerate(optimal.particles)
    ]
    rows += [
        [f"SMC, multinomial, T = {STEPS}", str(size), with_error(smc.k_gap(place)), f"{smc.limit[place]:.4f}"]
        for place, size in enumerate(smc.particles)
    ]
    sizes = f"1 to {preset.scan_particles[-1]}"
    smc_size = str(next(size for size in preset.smc_replicates if size > 1))
    for label, particles, value in (
        ("exact histories, T = 1", sizes, measured.largest_gap_first_step),
        (f"exact histories, theta_1 = 0, T = {STEPS}, a step", sizes, measured.largest_gap_no_memory),
        ("SMC, multinomial, T = 1", smc_size, measured.largest_gap_first_step_smc),
        (f"SMC, multinomial, theta_1 = 0, T = {STEPS}", smc_size, measured.largest_gap_no_memory_smc),
    ):
        rows.append([label, particles, f"<{max(value, largest):.0e} in every replicate", "0"])
    return ["optimal proposal", "K", "K × gap", "closed form"], rows


def growing_table(measured: Measurements, preset: Preset) -> tuple[list[str], list[list[str]]]:
    """The gaps as T grows."""
    header = ["proposal", "T", "IWAE", "limit / K", "FIVO", "limit / K", "MCFO, exact", "limit / K"]
    rows = []
    for name, curves in measured.growing.items():
        for place, steps in enumerate(preset.growing_steps):
            row = [name, str(steps)]
            for method in METHODS:
                limit = abs(curves[method].limit[place]) / preset.growing_particles
                row += [short(curves[method].gap[place]), "0" if limit < ROUNDING else f"{limit:.3g}"]
            rows.append(row)
    return header, rows


def with_error(estimate: Estimate) -> str:
    """A number with as many digits as its standard error allows (two of the error's)."""
    if not estimate.stderr > 0:
        return f"{estimate.value:.4f}"
    digits = max(0, 1 - int(np.floor(np.log10(estimate.stderr))))
    return f"{estimate.value:.{digits}f} ± {estimate.stderr:.{digits}f}"


def short(gap: Estimate) -> str:
    """A gap in a narrow column."""
    return "0" if abs(gap.value) < ROUNDING else f"{gap.value:.3g} ± {gap.stderr:.1g}"
