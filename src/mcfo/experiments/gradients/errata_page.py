"""The paper's errata as findings and tables."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from mcfo.experiments.gradients.jobs import PIMH_PARTICLES, Preset
from mcfo.experiments.gradients.problems import SETTINGS
from mcfo.experiments.gradients.samples import PARAMETERS, PHI, SWEEPS, THETA
from mcfo.experiments.gradients.summary import Summary
from mcfo.experiments.gradients.words import number, theta_exact, theta_mean, worst_gap
from mcfo.reports.html import Report

Analytic = dict[str, dict[str, Float[np.ndarray, "2"]]]
"""For each setting the exact score, and the recursion in the paper's appendix as printed and corrected."""


def errata_findings(summary: Summary, errata: Summary, analytic: Analytic, size: Preset) -> list[str]:
    largest = max(size.particles)
    items = [
        f"Theta at the optimal proposal (erratum 1). The paper says that MCFO and AESMC come close to the exact score "
        f"and that IWAE deviates. Setting r1, K = {largest}: exact {theta_exact(summary, 'r1', 'iwae', largest)}, IWAE "
        f"{theta_mean(summary, 'r1', 'iwae', largest)}, MCFO {theta_mean(summary, 'r1', 'mcfo-smc', largest)}, AESMC "
        f"{theta_mean(summary, 'r1', 'aesmc', largest)}; the largest gaps are "
        f"{worst_gap(summary, 'r1', 'iwae', THETA)} for IWAE, "
        f"{worst_gap(summary, 'r1', 'mcfo-smc', THETA)} for MCFO and "
        f"{worst_gap(summary, 'r1', 'aesmc', THETA)} for AESMC. MCFO averages the score of each step over the "
        "filtering law, where Fisher's identity wants the smoothing law."
    ]
    for particles in size.long_particles:
        items.append(
            f"The same at theta = (0.8, 1.08) with data from (0.9, 1.2), R = 1, T = 50, K = {particles}, "
            f"{size.long_replicates} replicates: exact {theta_exact(errata, 'long', 'mcfo-smc', particles)}, filter "
            f"score {theta_mean(errata, 'long', 'mcfo-smc', particles)} (largest gap "
            f"{worst_gap(errata, 'long', 'mcfo-smc', THETA, particles)}), Fisher "
            f"{theta_mean(errata, 'long', 'mcfo-fisher', particles)} (largest gap "
            f"{worst_gap(errata, 'long', 'mcfo-fisher', THETA, particles)})."
        )
    printed = max(float(abs(values["printed"] - values["exact"]).max()) for values in analytic.values())
    corrected = max(float(abs(values["corrected"] - values["exact"]).max()) for values in analytic.values())
    items.append(
        f"The printed analytic gradient (erratum 2): as printed it is up to {number(printed)} away from automatic "
        f"differentiation of the Kalman filter, corrected (-v_t ∇v_t / S_t for -v_t / S_t, and ∇P_t⁻ for 2 ∇P_t⁻) up "
        f"to {corrected:.1e}."
    )
    gaps = {
        name: worst_gap(errata, "small", name, PARAMETERS, 2)
        for name in ("fivo-full", "next-increment", "fivo-truncated")
    }
    items.append(
        "The resampling term of Table 1 (erratum 4) multiplies each ancestor's score by the next increment alone. "
        f"Three steps, two particles, {size.small_replicates} replicates, against the derivative of the expected bound "
        "(all ancestors enumerated, noise by Gauss-Hermite quadrature): largest gap with the reward to go "
        f"{gaps['fivo-full']}, with the next increment alone {gaps['next-increment']}, without the term "
        f"{gaps['fivo-truncated']}."
    )
    items.append(_dreg_sentence(summary, errata, size))
    fresh, reused = (worst_gap(errata, "r1", f"{name}-noise", PHI, PIMH_PARTICLES) for name in ("fresh", "reused"))
    items.append(
        f"MCFO-PIMH chooses a sweep by its noise. At the optimum (r1, K = {PIMH_PARTICLES}, {SWEEPS} sweeps, "
        f"{size.pimh_replicates} replicates) the phi gradient with fresh noise is off by at most {fresh}, with the "
        f"accepted sweep's own noise by {reused}."
    )
    return items


def _dreg_sentence(summary: Summary, errata: Summary, size: Preset) -> str:
    largest = max(size.particles)
    ratio = max(
        summary.at(setting, "mcfo-dreg", largest, name).std / summary.at(setting, "mcfo-smc", largest, name).std
        for setting in SETTINGS
        for name in PHI
    )
    sentence = (
        f"DReG for phi: at the optimal proposal its spread is at most {ratio:.1e} of the reparameterized rule's "
        f"(all settings, K = {largest})."
    )
    counts = [particles for particles in size.particles if particles > 1]
    if not counts:
        return sentence
    shares = []
    for particles in counts:
        of_dreg = [
            errata.at("displaced", "dreg", particles, name).std
            / errata.at("displaced", "reparameterized", particles, name).std
            for name in PHI
        ]
        shares.append(f"{min(of_dreg):.2g} to {max(of_dreg):.2g} at K = {particles}")
    particles = counts[min(1, len(counts) - 1)]
    dreg = worst_gap(errata, "displaced", "dreg minus reparameterized", PHI, particles)
    sticking = worst_gap(errata, "displaced", "sticking-the-landing minus reparameterized", PHI, particles)
    return (
        f"{sentence} With the proposal's mean displaced by half of its standard deviation the spread is "
        f"{', '.join(shares)} of the reparameterized rule's; the means differ by at most {dreg} at K = {particles} "
        f"(the same quantity is estimated), where sticking the landing differs by {sticking}."
    )


def errata_tables(report: Report, errata: Summary, analytic: Analytic) -> None:
    rows = []
    for setting, values in analytic.items():
        for place, parameter in enumerate(THETA):
            cells = [values[name][place] for name in ("exact", "corrected", "printed")]
            rows.append([setting, parameter, *(f"{cell:.6f}" for cell in cells)])
    report.table(
        ["setting", "parameter", "automatic differentiation", "corrected", "as printed"],
        rows,
        caption="The analytic gradient of the paper's appendix. Setting long: theta = (0.8, 1.08), data from "
        "(0.9, 1.2), R = 1, T = 50.",
    )
    rows, marked = [], set()
    for method, title in (
        ("fivo-full", "reward to go"),
        ("next-increment", "next increment (Table 1)"),
        ("fivo-truncated", "no resampling term"),
    ):
        for parameter in PARAMETERS:
            found = errata.at("small", method, 2, parameter)
            if found.biased:
                marked.add((len(rows), 4))
            rows.append([title, parameter, f"{found.exact:.4f}", f"{found.mean:.4f}", f"{found.sigmas:.1f}"])
    report.table(
        ["resampling term", "parameter", "exact", "mean", "gap in s.e."],
        rows,
        caption="The derivative of the expected FIVO bound at T = 3, K = 2, and three estimators of it.",
        marked=marked,
    )
