"""The page about gradients: which estimators are biased, for what, by how much; and the paper's errata in numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mcfo.experiments.gradient_figures import Picture
from mcfo.experiments.gradient_samples import METHODS, PARAMETERS, PHI, SWEEPS, THETA, Seconds
from mcfo.experiments.gradient_summary import ROUNDING, SIGMAS, Estimate, Summary
from mcfo.experiments.report import Report

_TITLES = {
    "r1": "Setting r1: theta = (0.9, 10), R = 1, at the optimum",
    "r0.01": "Setting r0.01: theta = (0.9, 10), R = 0.01, precise observations",
    "off-optimum": "Setting off-optimum: theta = (0.6, 8) on the data of r1",
}
Analytic = dict[str, dict[str, Any]]


def write_report(
    path: Path,
    summary: Summary,
    errata: Summary,
    analytic: Analytic,
    pictures: list[Picture],
    *,
    size: Any,
    command: str,
    seconds: Seconds,
    elapsed: float,
) -> Path:
    """Puts the page together and writes it."""
    report = Report(
        "Gradient estimates on a linear Gaussian model",
        summary=(
            f"Every objective's gradient was estimated {size.replicates} times on one simulated sequence of "
            f"{size.steps} steps, for {_numbers(size.particles)} particles, and compared with the exact one: for theta "
            "the score of log p(x), from the Kalman filter by automatic differentiation; for phi zero, because phi is "
            "the locally optimal proposal, which maximises the bound of each step. " + _summary_sentence(summary)
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
        "exact value because it estimates something else: the tables say what. The sequence is one draw, so the "
        "numbers belong to it; all methods saw the same one, with the same random numbers."
    )
    if size.costly_particles < max(size.particles):
        report.warning(
            f"The full FIVO gradient and MCFO-PIMH were run with up to {size.costly_particles} particles only: one "
            f"searches its ancestors by bisection, the other runs {SWEEPS + 1} filters and keeps their histories."
        )
    for setting, title in _TITLES.items():
        _verdicts(report, summary, setting, title)
    report.heading("The paper's errata, in numbers")
    report.findings(_errata(summary, errata, analytic, size))
    _errata_tables(report, errata, analytic)
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


def _largest(summary: Summary, setting: str, method: str) -> int:
    return summary.particles(setting, method, THETA[0])[-1]


def _number(value: float, digits: int = 3) -> str:
    """Fixed digits for numbers of ordinary size; zero up to rounding is 0."""
    if abs(value) < ROUNDING:
        return "0"
    if abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.{digits}f}" if abs(value) >= 10**-digits else f"{value:.1e}"


def _gap(found: Estimate) -> str:
    return f"{_number(found.bias)} ({found.sigmas:.1f} s.e.)"


def _pair(summary: Summary, setting: str, method: str, particles: int) -> str:
    """Mean of the theta gradient."""
    values = [summary.at(setting, method, particles, name).mean for name in THETA]
    return f"({', '.join(_number(value) for value in values)})"


def _exact_pair(summary: Summary, setting: str, method: str, particles: int) -> str:
    values = [summary.at(setting, method, particles, name).exact for name in THETA]
    return f"({', '.join(_number(value) for value in values)})"


def _worst(summary: Summary, setting: str, method: str, parameters: tuple[str, ...], particles: int | None = None):
    particles = particles or _largest(summary, setting, method)
    parameter = summary.worst(setting, method, particles, parameters)
    assert parameter is not None
    return parameter, summary.at(setting, method, particles, parameter)


def _biased(summary: Summary, setting: str, parameters: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The methods whose bias is seen for some of the parameters at their largest K, and the others."""
    seen, unseen = [], []
    for method in METHODS:
        particles = _largest(summary, setting, method)
        if summary.worst(setting, method, particles, parameters) is not None:
            (seen if _worst(summary, setting, method, parameters)[1].biased else unseen).append(method)
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
            gaps = []
            for method in seen:
                parameter, found = _worst(summary, setting, method, parameters)
                gaps.append(f"{method} {parameter} {_gap(found)}, {summary.verdict(setting, method, parameter)}")
            findings.append(
                f"{setting}, {side}. Away from the exact value: {'; '.join(gaps) or 'none'}. "
                f"No bias seen: {', '.join(unseen) or 'none'}."
            )
    return findings


def _verdicts(report: Report, summary: Summary, setting: str, title: str) -> None:
    for side, parameters in (("theta", THETA), ("phi", PHI)):
        rows, marked = [], set()
        for method, about in METHODS.items():
            particles = _largest(summary, setting, method)
            if summary.worst(setting, method, particles, parameters) is None:
                continue
            parameter, found = _worst(summary, setting, method, parameters)
            count = sum(summary.at(setting, method, particles, name).biased for name in parameters)
            if found.biased:
                marked.add((len(rows), 7))
            rows.append(
                [
                    method,
                    about.theta_estimand if side == "theta" else about.phi_estimand,
                    str(particles),
                    parameter,
                    _number(found.bias),
                    f"{found.sigmas:.1f}",
                    f"{count} of {len(parameters)}",
                    summary.verdict(setting, method, parameter),
                ]
            )
        report.table(
            ["method", "estimates", "K", "worst", "bias", "in s.e.", "beyond the rule", "verdict"],
            rows,
            caption=f"{title}. {side}: the parameter farthest from its exact value, at each method's largest K.",
            marked=marked,
        )


def _slopes(report: Report, summary: Summary, setting: str) -> None:
    rows = []
    for method in METHODS:
        slopes = []
        for parameter in PARAMETERS:
            known = summary.has(setting, method, _largest(summary, setting, method), parameter)
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
    particles = _largest(summary, setting, first)
    exact = [summary.at(setting, first, particles, name).exact for name in PARAMETERS]
    rows.append(["exact", "", *(_number(value, 2) for value in exact)])
    for particles in sorted({count for method in METHODS for count in summary.particles(setting, method, THETA[0])}):
        for method in METHODS:
            cells = []
            for place, parameter in enumerate(PARAMETERS):
                if not summary.has(setting, method, particles, parameter):
                    cells.append("")
                    continue
                found = summary.at(setting, method, particles, parameter)
                cells.append(f"{_number(found.mean, 2)} ± {_number(found.std, 2)}")
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


def _errata(summary: Summary, errata: Summary, analytic: Analytic, size: Any) -> list[str]:
    largest = max(size.particles)
    items = [
        f"Theta at the optimal proposal (erratum 1). The paper says that MCFO and AESMC come close to the exact score "
        f"and that IWAE deviates. Setting r1, K = {largest}: exact {_exact_pair(summary, 'r1', 'iwae', largest)}, IWAE "
        f"{_pair(summary, 'r1', 'iwae', largest)}, MCFO {_pair(summary, 'r1', 'mcfo-smc', largest)}, AESMC "
        f"{_pair(summary, 'r1', 'aesmc', largest)}; the largest gaps are {_worst_gap(summary, 'r1', 'iwae', THETA)} for "
        f"IWAE, {_worst_gap(summary, 'r1', 'mcfo-smc', THETA)} for MCFO and "
        f"{_worst_gap(summary, 'r1', 'aesmc', THETA)} for AESMC. MCFO averages the score of each step over the "
        "filtering law, where Fisher's identity wants the smoothing law."
    ]
    for particles in size.long_particles:
        items.append(
            f"The same at theta = (0.8, 1.08) with data from (0.9, 1.2), R = 1, T = 50, K = {particles}, "
            f"{size.long_replicates} replicates: exact {_exact_pair(errata, 'long', 'mcfo-smc', particles)}, filter "
            f"score {_pair(errata, 'long', 'mcfo-smc', particles)} (largest gap "
            f"{_worst_gap(errata, 'long', 'mcfo-smc', THETA, particles)}), Fisher "
            f"{_pair(errata, 'long', 'mcfo-fisher', particles)} (largest gap "
            f"{_worst_gap(errata, 'long', 'mcfo-fisher', THETA, particles)})."
        )
    printed = max(float(abs(values["printed"] - values["exact"]).max()) for values in analytic.values())
    corrected = max(float(abs(values["corrected"] - values["exact"]).max()) for values in analytic.values())
    items.append(
        f"The printed analytic gradient (erratum 2): as printed it is up to {_number(printed)} away from automatic "
        f"differentiation of the Kalman filter, corrected (-v_t ∇v_t / S_t for -v_t / S_t, and ∇P_t⁻ for 2 ∇P_t⁻) up "
        f"to {corrected:.1e}."
    )
    gaps = {
        name: _worst_gap(errata, "small", name, PARAMETERS, 2)
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
    fresh, reused = (_worst_gap(errata, "r1", f"{name}-noise", PHI, 5) for name in ("fresh", "reused"))
    items.append(
        f"MCFO-PIMH chooses a sweep by its noise. At the optimum (r1, K = 5, {SWEEPS} sweeps, {size.pimh_replicates} "
        f"replicates) the phi gradient with fresh noise is off by at most {fresh}, with the accepted sweep's own noise "
        f"by {reused}."
    )
    return items


def _worst_gap(
    summary: Summary, setting: str, method: str, parameters: tuple[str, ...], particles: int | None = None
) -> str:
    parameter, found = _worst(summary, setting, method, parameters, particles)
    return f"{_gap(found)} on {parameter}"


def _dreg_sentence(summary: Summary, errata: Summary, size: Any) -> str:
    largest = max(size.particles)
    ratio = max(
        summary.at(setting, "mcfo-dreg", largest, name).std / summary.at(setting, "mcfo-smc", largest, name).std
        for setting in _TITLES
        for name in PHI
    )
    sentence = (
        f"DReG for phi: at the optimal proposal its spread is at most {ratio:.1e} of the reparameterised rule's "
        f"(all settings, K = {largest})."
    )
    counts = [particles for particles in size.particles if particles > 1]
    if not counts:
        return sentence
    shares = []
    for particles in counts:
        of_dreg = [
            errata.at("displaced", "dreg", particles, name).std
            / errata.at("displaced", "reparameterised", particles, name).std
            for name in PHI
        ]
        shares.append(f"{min(of_dreg):.2f} to {max(of_dreg):.2f} at K = {particles}")
    particles = counts[min(1, len(counts) - 1)]
    dreg = _worst_gap(errata, "displaced", "dreg minus reparameterised", PHI, particles)
    sticking = _worst_gap(errata, "displaced", "sticking-the-landing minus reparameterised", PHI, particles)
    return (
        f"{sentence} With the proposal's mean displaced by half of its standard deviation the spread is "
        f"{', '.join(shares)} of the reparameterised rule's; the means differ by at most {dreg} at K = {particles} "
        f"(the same quantity is estimated), where sticking the landing differs by {sticking}."
    )


def _errata_tables(report: Report, errata: Summary, analytic: Analytic) -> None:
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
