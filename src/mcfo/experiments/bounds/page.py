"""The report of `mcfo reproduce bounds`: what holds, what does not, and by how much."""

from __future__ import annotations

from pathlib import Path

from mcfo.experiments.bounds.figures import draw_comparison, draw_gap, draw_k_gap, draw_scan
from mcfo.experiments.bounds.findings import failures, findings
from mcfo.experiments.bounds.measurements import Measurements, Preset
from mcfo.experiments.bounds.problems import STEPS
from mcfo.experiments.bounds.tables import exact_table, growing_table, optimal_table, smc_table, variance_table
from mcfo.reports.html import Report


def write_report(out: Path, measured: Measurements, preset: Preset, *, command: str) -> Path:
    """Draws the figures, writes the page and returns its path."""
    figures = out / "figures"
    figures.mkdir(exist_ok=True)
    exact = measured.exact
    largest = preset.exact_particles[-1]
    misses = {name: curve.k_gap(-1).value / curve.limit[-1] - 1 for name, curve in exact.items()}
    worst = max(misses, key=lambda name: abs(misses[name]))
    report = Report(
        "Bounds of the log-evidence: Propositions 1 and 2",
        summary=(
            "A Monte Carlo filtering objective is a lower bound of log p(x_1:T). On a linear Gaussian model, where "
            "log p and the filtering law are known, everything that the paper says about it can be checked. With "
            f"histories from the exact filtering law, K × gap at K = {largest} is within {abs(misses[worst]):.1%} of "
            "its closed form for every proposal. With SMC histories the bound still holds and still closes like 1/K, "
            "with another constant. At the optimal proposal the bound is maximal, but not exact."
        ),
        command=command,
    )
    report.text(
        "Model: z_1 ~ N(0.5, 1), z_t = 0.9 z_t-1 + N(0, 1), x_t = 1.2 z_t + N(0, 1); one simulated series, T = "
        f"{STEPS}, log p(x_1:T) = {measured.problem.log_evidence:.4f}. Proposals: bootstrap, q = p(z_t | z_t-1); "
        "optimal, q = p(z_t | z_t-1, x_t); and wide, the optimal mean with 1.5 times the optimal variance. ± is one "
        "standard error; error bars in figures are two. The gap is log p minus the bound."
    )
    report.heading("Findings")
    for failure in failures(measured):
        report.warning(failure)
    report.findings(findings(measured, preset))

    report.heading("Exact histories: Proposition 1")
    report.text(
        "At each step K histories are drawn independently from the Kalman filter's law of z_t-1, so R_t is a mean of K "
        "independent weights. Then K × gap → Σ_t V[w_t] / (2 p(x_t | x_1:t-1)²), a Gaussian integral. The next term of "
        "the expansion is known as well, and 'predicted' is limit + next / K. Increase: how much the bound grew since "
        "the K before, from the same weights in larger blocks. The limit is a good guide where V[w_t] / p² stays below "
        "about five at every step (second table)."
    )
    report.table(*exact_table(measured), caption="The bound with exact histories.")
    report.table(*variance_table(measured), caption="V[w_t] / p(x_t | x_1:t-1)² of one weight, by step, closed form.")
    report.figure(
        draw_gap(figures / "gap.png", measured),
        "The gap against K. Dashed: the closed-form limit divided by K. For SMC the limit is half the asymptotic "
        "variance of p̂/p.",
        alt="Two log-log panels of the gap against K; all curves fall like 1/K onto their dashed lines.",
    )
    report.figure(
        draw_k_gap(figures / "k_gap.png", measured),
        "K × gap against K. With exact histories it tends to half the sum of the weights' relative variances; with SMC "
        "histories to half the asymptotic variance of p̂/p, which resampling and the smoothing law enter.",
        alt="Two panels of K times the gap against K; the curves level out at dashed horizontal lines.",
    )

    report.heading("SMC histories")
    report.text(
        "The library's filter, resampled before every step. p̂ is unbiased, so the bound holds at every K by Jensen's "
        "inequality. The limit of K × gap for multinomial resampling is "
        "Σ_t V[w_t ψ_t] / (2 p(x_t:T | x_1:t-1)²) with ψ_t = p(x_t+1:T | z_t); for systematic resampling none is "
        "known, and the measured values stand alone. p̂/p must be one on average."
    )
    report.table(*smc_table(measured), caption="The bound with SMC histories, which is FIVO's value.")

    report.heading("The optimal proposal: Proposition 2")
    report.text(
        "The optimal proposal p(z_t | z_t-1, x_t) removes the variance of the weight given the history. What is left "
        "is the weight itself, p(x_t | z_t-1), which varies with the history; only where there is none (t = 1), or "
        "where it does not matter (theta_1 = 0), is the bound exact."
    )
    report.table(*optimal_table(measured, preset), caption="The remaining gap, and where there is none.")
    report.figure(
        draw_scan(figures / "optimal.png", measured, preset),
        "The gap with exact histories for proposals around the optimal one, all on the same random numbers. It is "
        "smallest at the optimal proposal for every K, and not zero.",
        alt="The gap against the shift of the proposal's mean and the factor of its variance: least at the optimum.",
    )

    report.heading("IWAE, FIVO and MCFO")
    report.text(
        "IWAE averages the weights of whole paths; FIVO, whose value is MCFO's with SMC histories, resamples (here "
        "multinomially, before every step); MCFO with exact histories has no error to carry from step to step. Limits "
        "of K × gap: for IWAE half the relative variance of a path's weight, which grows exponentially with T; for the "
        "other two a sum over steps, which grows linearly. Where limit / K is near one or above, K is too small for it "
        "to describe the gap."
    )
    report.figure(
        draw_comparison(figures / "comparison.png", measured, preset),
        f"The gap as K grows (T = {STEPS}) and as T grows (K = {preset.growing_particles}). Gaps that are zero up to "
        "rounding are left out.",
        alt="Four log-log panels of the gap of IWAE, FIVO and MCFO against K and against T.",
    )
    report.table(
        *growing_table(measured, preset),
        caption=f"The gap as T grows, K = {preset.growing_particles}, and limit / K in closed form.",
    )

    report.heading("How it was measured")
    report.text(
        f"Exact histories: {preset.exact_replicates} replicates of {preset.exact_particles[-1]} weights a step, which "
        "serve for every K in disjoint blocks. SMC: "
        + ", ".join(f"{count} runs at K = {size}" for size, count in preset.smc_replicates.items())
        + f". IWAE: {preset.path_replicates} replicates of {preset.exact_particles[-1]} paths. Growing T: "
        f"{preset.growing_replicates} runs on one series of {max(preset.growing_steps)} steps, of which each T takes "
        f"the beginning. Scan: {preset.scan_replicates} replicates. The mean of log p̂ is corrected by the control "
        "variate p̂/p - 1, whose mean is zero, with the least-squares coefficient, unless log p̂ spreads by more than "
        "a nat; with exact histories each step has its own. Everything is in double precision."
    )
    page = out / "report.html"
    report.write(page)
    return page
