"""The page about gradients: which estimators are biased, for what, by how much; and the paper's errata in numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mcfo.experiments.gradients.errata_page import Analytic, errata_findings, errata_tables
from mcfo.experiments.gradients.figures import Picture
from mcfo.experiments.gradients.jobs import Preset
from mcfo.experiments.gradients.samples import METHODS, PARAMETERS, PHI, SWEEPS, THETA, Seconds
from mcfo.experiments.gradients.summary import ROUNDING, SIGMAS, Summary
from mcfo.experiments.gradients.words import gap, largest_count, number, worst
from mcfo.reports.html import Report

_TITLES = {
    "r1": "Setting r1: theta = (0.9, 10), R = 1, at the optimum",
    "r0.01": "Setting r0.01: theta = (0.9, 10), R = 0.01, precise observations",
    "off-optimum": "Setting off-optimum: theta = (0.6, 8) on the data of r1",
}


def write_report(
    path: Path,
    summary: Summary,
    errata: Summary,
    analytic: Analytic,
    pictures: list[Picture],
    *,
    size: Preset,
    command: str,
    seconds: Seconds,
    elapsed: float,
) -> Path:
    """Puts the page together and writes it."""
    report = Report(
        "Gradient estimates on a linear Gaussian model",
        summary=(
            f"Every objective's gradient was estimated {size.replicates} times on one simulated series of "
            f"{size.steps} steps, for {_numbers(size.particles)} particles, and compared with the exact one: for theta "
            "the score of log p(x), from the Kalman filter by automatic differentiation; for phi zero, because phi is "
            "the locally optimal proposal, which maximizes the bound of each step. " + _summary_sentence(summary)
        ),
        command=command,
    )
    report.heading("What is biased, for what, by how much")
    report.findings(_findings(summary))
    report.text(
        f"The rule: a bias is seen where the mean of the {size.replicates} estimates is more than {SIGMAS:g} of its "
        "standard errors away from the exact value at the largest K that the method was run with (a right estimator is "
        f"accused once in about 16000 comparisons); gaps below {ROUNDING:g} are rounding. It shrinks if the gap at "
        "the largest K is less than half of that at the K before, where a bias was seen too. A method may miss the "
        "exact value because it estimates something else: the tables say what. The series is one draw, so the "
        "numbers belong to it; all methods saw the same one, with the same random numbers: so rws has the theta "
        "gradient of iwae, and at the optimal proposal, where the weight does not depend on the latent, the phi "
        "gradient of mcfo-smc is minus that of nasmc."
    )
    if size.costly_particles < max(size.particles):
        report.warning(
            f"The full FIVO gradient and MCFO-PIMH were run with up to {size.costly_particles} particles only: one "
            f"searches its ancestors by bisection, the other runs {SWEEPS + 1} filters and keeps their histories."
        )
    for setting, title in _TITLES.items():
        _verdicts(report, summary, setting, title)
    report.heading("The paper's errata, in numbers")
    report.findings(errata_findings(summary, errata, analytic, size))
    errata_tables(report, errata, analytic)
    for setting, title in _TITLES.items():
        report.heading(title)
        for picture in pictures:
            if picture.setting == setting:
                report.figure(picture.path, picture.caption, alt=picture.alt)
        _slopes(report, summary, setting)
        _means(report, summary, setting)
    report.heading("How it was computed")
    report.text(
        f"In float64. Compiling took {seconds.compiling:.0f} s and sampling {seconds.running:.0f} s, summed over two "
        f"threads; {elapsed:.0f} s in all for this run. Numbers in full precision with their standard errors are in "
        "results.csv, those of the errata in errata.csv, and what determines the run in config.json."
    )
    report.write(path)
    return path


def _numbers(values: Any) -> str:
    *first, last = [str(value) for value in values]
    return f"{', '.join(first)} and {last}" if first else last


def _biased(summary: Summary, setting: str, parameters: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The methods whose bias is seen for some of the parameters at their largest K, and the others."""
    seen, unseen = [], []
    for method in METHODS:
        particles = largest_count(summary, setting, method)
        if summary.worst(setting, method, particles, parameters) is not None:
            (seen if worst(summary, setting, method, parameters)[1].biased else unseen).append(method)
    return seen, unseen


def _summary_sentence(summary: Summary) -> str:
    parts = []
    for side, parameters in (("theta", THETA), ("phi", PHI)):
        seen, unseen = _biased(summary, "r1", parameters)
        parts.append(
            f"At the optimum with R = 1 the {side} gradient misses that value beyond chance for "
            f"{', '.join(seen) or 'no method'}, and not for {', '.join(unseen) or 'any'}."
        )
    return " ".join(parts)


def _findings(summary: Summary) -> list[str]:
    findings = []
    for setting in _TITLES:
        for side, parameters in (("theta", THETA), ("phi", PHI)):
            seen, unseen = _biased(summary, setting, parameters)
            # Methods with the same rule and the same random numbers have the same gap to the last digit.
            methods_by_gap: dict[str, list[str]] = {}
            for method in seen:
                parameter, found = worst(summary, setting, method, parameters)
                text = f"{parameter} by {gap(found)}: {summary.verdict(setting, method, parameter)}"
                methods_by_gap.setdefault(text, []).append(method)
            gaps = [f"{', '.join(methods)} on {text}" for text, methods in methods_by_gap.items()]
            findings.append(
                f"{setting}, {side}. Away from the exact value: {'; '.join(gaps) or 'none'}. "
                f"No bias seen: {', '.join(unseen) or 'none'}."
            )
    findings.append(_spread_finding(summary))
    return findings


def _spread_finding(summary: Summary) -> str:
    slopes = [summary.slope(setting, "mcfo-smc", name) for setting in _TITLES for name in PHI]
    particles = largest_count(summary, "r1", "fivo-full")
    ratios = [
        summary.at("r1", "fivo-full", particles, name).std / summary.at("r1", "aesmc", particles, name).std
        for name in PARAMETERS
    ]
    growth = [summary.slope("r1", "fivo-full", name) for name in PARAMETERS]
    return (
        f"Spread. MCFO's phi gradient falls as K to the power {min(slopes):.2f} to {max(slopes):.2f} (all settings and "
        "parameters). The full FIVO gradient is unbiased for its own bound but says little: in r1 with "
        f"{particles} particles its standard deviation is {min(ratios):.0f} to {max(ratios):.0f} times that of aesmc, "
        f"and goes as K to the power {min(growth):.2f} to {max(growth):.2f}, so no bias seen means little there."
    )


def _verdicts(report: Report, summary: Summary, setting: str, title: str) -> None:
    for side, parameters in (("theta", THETA), ("phi", PHI)):
        rows, marked = [], set()
        for method, about in METHODS.items():
            particles = largest_count(summary, setting, method)
            if summary.worst(setting, method, particles, parameters) is None:
                continue
            parameter, found = worst(summary, setting, method, parameters)
            if found.biased:
                marked.add((len(rows), 5))
            rows.append(
                [
                    method,
                    str(particles),
                    parameter,
                    number(found.bias),
                    f"{found.sigmas:.1f}",
                    summary.verdict(setting, method, parameter),
                    about.theta_estimand if side == "theta" else about.phi_estimand,
                ]
            )
        report.table(
            ["method", "K", "worst", "bias", "in s.e.", "verdict", "estimates"],
            rows,
            caption=f"{title}. {side}: the parameter farthest from its exact value, at each method's largest K.",
            marked=marked,
        )


def _slopes(report: Report, summary: Summary, setting: str) -> None:
    rows = []
    for method in METHODS:
        slopes = []
        for parameter in PARAMETERS:
            known = summary.has(setting, method, largest_count(summary, setting, method), parameter)
            slope = summary.slope(setting, method, parameter) if known else None
            slopes.append("none" if slope is None else "zero spread" if slope != slope else f"{slope:.2f}")
        if METHODS[method].only is None:
            rows.append([method, *slopes])
    report.table(
        ["method", *PARAMETERS],
        rows,
        caption=f"Setting {setting}: the exponent of K in the standard deviation, by least squares over K >= 10; "
        "-0.50 is the rate of independent averages.",
    )


def _means(report: Report, summary: Summary, setting: str) -> None:
    rows, marked = [], set()
    first = next(iter(METHODS))
    particles = largest_count(summary, setting, first)
    exact = [summary.at(setting, first, particles, name).exact for name in PARAMETERS]
    rows.append(["exact", "", *(number(value, 2) for value in exact)])
    for particles in sorted({count for method in METHODS for count in summary.particles(setting, method, THETA[0])}):
        for method in METHODS:
            cells = []
            for place, parameter in enumerate(PARAMETERS):
                if not summary.has(setting, method, particles, parameter):
                    cells.append("")
                    continue
                found = summary.at(setting, method, particles, parameter)
                cells.append(f"{number(found.mean, 2)} ± {number(found.std, 2)}")
                if found.biased:
                    marked.add((len(rows), place + 2))
            if any(cells):
                rows.append([method, str(particles), *cells])
    report.table(
        ["method", "K", *PARAMETERS],
        rows,
        caption=f"Setting {setting}: mean ± standard deviation of the gradient estimates, as in the paper's Table 4. "
        f"Bold: the mean is more than {SIGMAS:g} standard errors from the exact value.",
        marked=marked,
    )
