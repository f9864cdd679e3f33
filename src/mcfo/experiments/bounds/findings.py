"""What the numbers say about Propositions 1 and 2, and what should hold and does not."""

from __future__ import annotations

import numpy as np

from mcfo.experiments.bounds.exact_histories import Estimate
from mcfo.experiments.bounds.figures import METHODS, PROPOSALS
from mcfo.experiments.bounds.measurements import Curve, Measurements, Preset
from mcfo.experiments.bounds.problems import STEPS
from mcfo.experiments.bounds.tables import with_error

SIGMAS = 4.0
"""Standard errors that a statement must hold by."""

TOLERANCE = 0.05
"""How near K x gap must come to its limit at the largest K."""


def findings(measured: Measurements, preset: Preset) -> list[str]:
    """What the paper says, and what these numbers say to it."""
    exact, smc, systematic = measured.exact, measured.smc, measured.systematic
    largest = preset.exact_particles[-1]
    optimal = exact["optimal"]
    variances = measured.step_variances["optimal"]
    below = min(_sigmas(gap) for curve in exact.values() for gap in curve.gap)
    growth = min(_sigmas(step) for curve in exact.values() for step in curve.increase if step is not None)
    smc_below = min(_sigmas(gap) for curves in (smc, systematic) for curve in curves.values() for gap in curve.gap)
    smc_ratio = max(_bias_sigmas(curve) for curves in (smc, systematic) for curve in curves.values())
    decreases = [
        _sigmas(Estimate(before.value - after.value, np.hypot(before.stderr, after.stderr)))
        for curves in (smc, systematic)
        for curve in curves.values()
        for before, after in zip(curve.gap, curve.gap[1:], strict=False)
    ]
    scan_best = min(
        (one.loss[size].value / one.loss[size].stderr, one.kind, one.amount, size)
        for one in measured.scan
        for size in one.loss
        if one.loss[size].stderr > 0
    )
    size = smc["optimal"].particles[-1]
    last = preset.growing_steps[-1]
    return [
        f"Bound (1a) and monotone in K (1b), exact histories: every gap is positive, by {below:.0f} standard errors or "
        f"more, and from each K to the next the bound grows, by {growth:.0f} standard errors or more (paired).",
        f"Consistency (1c) and rate (1d), exact histories: K × gap at K = {largest} against its closed-form limit is "
        + "; ".join(
            f"{with_error(curve.k_gap(-1))} against {curve.limit[-1]:.4f} ({PROPOSALS[name]})"
            for name, curve in exact.items()
        )
        + ".",
        f"Erratum, constant of 1d: it is V[w_t] / (2 p²) with the variance of one weight, as in the paper's main text. "
        f"The appendix prints (log p)² in the place of p², which would give {_appendix_limit(measured, 'optimal'):.4f} "
        f"for the optimal proposal, and {_appendix_limit(measured, 'bootstrap'):.4f} for bootstrap, where "
        f"{optimal.limit[-1]:.4f} and {exact['bootstrap'].limit[-1]:.4f} come out. Nor is it the variance of the mean "
        f"of K weights, which would give {optimal.limit[-1] / largest:.2g} at K = {largest}.",
        f"Erratum, Proposition 1 with SMC histories: the bound holds at every K (gaps positive by {smc_below:.0f} "
        f"standard errors or more; p̂/p averages to one within {smc_ratio:.1f} of them wherever log p̂ spreads by "
        f"less than a nat), and it closes like 1/K, but with another constant: K × gap at K = {size} is "
        + "; ".join(
            f"{with_error(smc[name].k_gap(-1))} ({PROPOSALS[name]}: half the asymptotic variance of p̂/p is "
            f"{smc[name].limit[-1]:.4f}, the constant of exact histories {exact[name].limit[-1]:.4f})"
            for name in smc
        )
        + ". Monotonicity is not guaranteed there; on this series "
        + (
            f"the bound grew at every increase of K measured, by {min(decreases):.0f} standard errors or more."
            if min(decreases) > 0
            else f"the bound fell at least once, by {-min(decreases):.1f} standard errors."
        ),
        f"Systematic resampling in the place of multinomial: K × gap at K = {size} is "
        + "; ".join(
            f"{with_error(systematic[name].k_gap(-1))}, which is "
            f"{systematic[name].gap[-1].value / smc[name].gap[-1].value:.0%} of the other ({PROPOSALS[name]})"
            for name in systematic
        )
        + ".",
        "Erratum, Proposition 2: at the optimal proposal the bound is maximal (of all proposals scanned the nearest to "
        f"it in value, {scan_best[1]} {scan_best[2]:g} at K = {scan_best[3]}, lies {scan_best[0]:.0f} standard errors "
        f"below it, paired), but not exact: K × gap at K = {largest} is {with_error(optimal.k_gap(-1))}, and its "
        f"closed form Σ_t>1 V[p(x_t | z_t-1)] / (2 p(x_t | x_1:t-1)²) is {variances[1:].sum() / 2:.4f}.",
        f"It is exact where the history does not matter: |log R - log p| is at most "
        f"{max(measured.largest_gap_first_step, measured.largest_gap_first_step_smc):.1g} at T = 1, and "
        f"{max(measured.largest_gap_no_memory, measured.largest_gap_no_memory_smc):.1g} at theta_1 = 0, T = {STEPS}, "
        "with exact histories and with SMC.",
        f"MCFO with SMC histories and FIVO have the same value on the same key: the largest difference over eight "
        f"keys is {measured.largest_difference_fivo:.1g}.",
        f"As T grows at K = {preset.growing_particles}: "
        + "; ".join(
            f"with the {name} proposal the gap at T = {last} is "
            + ", ".join(f"{curves[method].gap[-1].value:.3g} ({METHODS[method]})" for method in METHODS)
            for name, curves in measured.growing.items()
        )
        + f" nats. {_crossing(measured, preset)}",
    ]


def _crossing(measured: Measurements, preset: Preset) -> str:
    """Whether resampling pays at every T."""
    curves = measured.growing["optimal"]
    better = [
        steps
        for steps, paths, smc in zip(preset.growing_steps, curves["iwae"].limit, curves["fivo"].limit, strict=True)
        if 0 < paths < smc
    ]
    if not better:
        return "By the closed forms FIVO is tighter than IWAE at every T measured, with the optimal proposal too."
    return (
        "Resampling is not free: with the optimal proposal the closed forms say that IWAE is tighter than FIVO "
        f"(multinomial, at every step) at T = {', '.join(str(steps) for steps in better)}, and looser at the other "
        f"T > 1 measured; at T = {STEPS} K × gap tends to {measured.paths['optimal'].limit[-1]:.3f} against "
        f"{measured.smc['optimal'].limit[-1]:.3f}."
    )


def failures(measured: Measurements) -> list[str]:
    """What should hold by the mathematics and does not in these numbers."""
    failures = []
    for name, curve in measured.exact.items():
        if any(_sigmas(step) < SIGMAS for step in curve.increase if step is not None):
            failures.append(f"Exact histories, {PROPOSALS[name]}: the bound does not grow clearly at every K.")
        if abs(curve.k_gap(-1).value / curve.limit[-1] - 1) > TOLERANCE:
            failures.append(f"Exact histories, {PROPOSALS[name]}: K × gap is not within {TOLERANCE:.0%} of its limit.")
    for label, curves in (
        ("Exact histories", measured.exact),
        ("SMC, multinomial", measured.smc),
        ("SMC, systematic", measured.systematic),
    ):
        for name, curve in curves.items():
            if any(_sigmas(gap) < SIGMAS for gap in curve.gap):
                failures.append(f"{label}, {PROPOSALS[name]}: the bound is not clearly below log p at every K.")
            if _bias_sigmas(curve) > SIGMAS:
                failures.append(f"{label}, {PROPOSALS[name]}: the estimate of p is not unbiased.")
    for one in measured.scan:
        if any(loss.value < -SIGMAS * loss.stderr for loss in one.loss.values()):
            failures.append(f"The proposal with {one.kind} {one.amount:g} has a higher bound than the optimal one.")
    return failures


def _appendix_limit(measured: Measurements, name: str) -> float:
    """Σ_t V[w_t] / (2 (log p(x_t | x_1:t-1))²), as the appendix has it."""
    log_evidences = measured.problem.log_evidences[:STEPS]
    return float(np.sum(measured.step_variances[name] * np.exp(2 * log_evidences) / (2 * log_evidences**2)))


def _sigmas(estimate: Estimate) -> float:
    return estimate.value / estimate.stderr


def _bias_sigmas(curve: Curve) -> float:
    """The largest distance of the mean of p̂ / p from one, in standard errors, at the K where those mean something:
    where log p̂ spreads by more than a nat, p̂ / p owes its mean to values that no sample shows."""
    return max(
        (
            abs(ratio.value - 1) / ratio.stderr
            for ratio, deviation in zip(curve.ratio, curve.deviation, strict=True)
            if deviation < 1
        ),
        default=0.0,
    )
