"""The report of the learning experiment, and its table in the terminal."""

from __future__ import annotations

import math
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from mcfo.experiments.lgssm.claims import arrived, claims
from mcfo.experiments.lgssm.methods import Preset
from mcfo.experiments.lgssm.problem import PHI, START, THETA, TRUTH
from mcfo.experiments.lgssm.summary import LEVELS, Learned
from mcfo.inference.evaluation import Evaluation
from mcfo.reports.html import Report


def write_report(
    path: Path,
    learned: list[Learned],
    optimum: dict[str, float],
    ideal: Evaluation,
    pictures: dict[str, Path],
    *,
    size: Preset,
    command: str,
    elapsed: float,
) -> Path:
    """Writes the page and returns its path."""
    particles = 100 if 100 in size.particles else size.particles[-1]
    report = Report(
        "Learning linear Gaussian models",
        summary=(
            f"A scalar model z_t = θ_1 z_t-1 + N(0, 1), x_t = θ_2 z_t + N(0, 0.01) with θ = {TRUTH} is learned from "
            f"{size.series} series of {size.length} steps, together with its affine proposal, by "
            f"{len({one.method for one in learned})} methods and {len(size.seeds)} seeds each. The exact optimum is "
            "known, "
            f"so every curve has its end beside it. It took {elapsed / 60:.1f} minutes."
        ),
        command=command,
    )
    skipped = {one.method: sum(one.skipped) for one in learned if any(one.skipped)}
    if skipped:
        report.warning(
            "Updates that were not finite were skipped: "
            + ", ".join(f"{method} {count}" for method, count in skipped.items())
            + f" of {size.steps * len(size.seeds)}."
        )
    collapsed = [one.method for one in learned if any(each.collapsed for each in one.evaluations)]
    if collapsed:
        report.warning(f"The filter collapsed on test series with what was learned by {', '.join(collapsed)}.")
    report.heading("What came out")
    report.findings(claims(learned, optimum, ideal, particles))
    report.heading("Where each method ends")
    outcomes, parameters = tables(learned, optimum, ideal)
    report.table(
        *outcomes[:2],
        caption=(
            "ESS: mean over all test series of the proposal with the averaged parameters, with "
            f"{size.evaluation_particles} particles, resampled before every step. Exact NLL: of the learned model "
            "on the "
            "test series, by the Kalman filter. Steps to: until the ESS, followed while learning, reaches that "
            "share of "
            "K. Arrived: every seed within 0.02 of theta, phi_3 and phi_4, 0.01 of the NLL, and 95 % of K. Bold: the "
            "nearest to the exact optimum, which is the last row."
        ),
        marked=outcomes[2],
    )
    report.table(
        *parameters[:2],
        caption="Parameters averaged over the last tenth of the steps: mean over the seeds ± standard deviation.",
        marked=parameters[2],
    )
    report.heading("Curves")
    captions = {
        "learning": (
            f"The paper's figure 2: learning with K = {particles}. Lines: mean over the seeds; bands: one standard "
            "deviation, on logarithmic axes the range. Late steps are averaged over bins."
        ),
        "parameters": "The paper's figure 7: theta and phi during the same runs. Dashed: the exact optimum.",
        "particles": "The paper's figure 8: the same for each number of particles.",
        "pimh": f"The paper's figure 9: MCFO-SMC and MCFO-PIMH, K = {size.pimh_particles}, by the number of sweeps.",
    }
    for name, picture in pictures.items():
        report.figure(picture, captions[name], alt=captions[name])
    report.heading("How it was run")
    report.text(
        f"The paper leaves T, the batch size and the start open. Here, for all methods alike: T = {size.length}, "
        "batches of "
        f"{size.batch} of {size.series} series, {size.steps} steps of Adam with a constant rate of "
        f"{size.learning_rate}, "
        f"start at θ = {START} and at a proposal that takes the observation for the latent (φ_1 = φ_4 = 1, the "
        "others 0). "
        "Learned are θ_1, θ_2 and φ_1 to φ_5; the variances of model and proposal are fixed, those of the proposal "
        "at their "
        f"optimum. Runs are followed on the first {size.watched} of {size.test_series} test series and evaluated on "
        "all. "
        "float32."
    )
    report.write(path)
    return path


_Table = tuple[list[str], list[list[str]], frozenset[tuple[int, int]]]
"""Header, rows, and the cells nearest to the exact optimum."""


def tables(learned: list[Learned], optimum: dict[str, float], ideal: Evaluation) -> tuple[_Table, _Table]:
    """How each method ends, and with which parameters."""
    exact = {**optimum, "ess": ideal.ess, "exact_nll_per_step": ideal.exact_nll_per_step or math.nan}
    header = ["method", "K", "ESS", "exact NLL", *(f"steps to {share:.0%}" for share in LEVELS), "arrived", "seconds"]
    rows = [
        [
            one.method,
            str(one.particles),
            f"{one.mean('ess'):.2f}",
            f"{one.mean('exact_nll_per_step'):.4f}",
            *(_steps(one.steps_to(share)) for share in LEVELS),
            _verdict(one, optimum, ideal),
            f"{one.seconds:.0f}",
        ]
        for one in learned
    ]
    rows.append(["exact", str(ideal.particles), f"{ideal.ess:.2f}", f"{exact['exact_nll_per_step']:.4f}", *["–"] * 4])
    outcomes = (header, rows, _nearest(learned, ("ess", "exact_nll_per_step"), exact))
    names = (*THETA, *PHI)
    cells = []
    for one in learned:
        spread = {row.metric: row.std for row in one.summary()}
        found = [f"{one.mean(name):.3f} ± {spread[name]:.3f}" if name in spread else "–" for name in names]
        cells.append([one.method, str(one.particles), *found])
    cells.append(["exact", "", *(f"{optimum[name]:.3f}" for name in names)])
    return outcomes, (["method", "K", *names], cells, _nearest(learned, names, exact))


def _nearest(learned: list[Learned], metrics: tuple[str, ...], exact: dict[str, float]) -> frozenset[tuple[int, int]]:
    marked = set()
    for column, metric in enumerate(metrics, 2):
        gaps = {
            place: abs(one.mean(metric) - exact[metric]) for place, one in enumerate(learned) if metric in one.finals()
        }
        marked.add((min(gaps, key=gaps.__getitem__), column))
    return frozenset(marked)


def print_table(console: Console, learned: list[Learned], optimum: dict[str, float], ideal: Evaluation) -> None:
    """The same, shorter, in the terminal."""
    names = ("theta_1", "theta_2", "phi_4")
    several = len({one.particles for one in learned}) > 1
    found = Table(
        title="Where each method ends",
        box=SIMPLE_HEAD,
        caption="Parameters averaged over the last tenth, mean over the seeds. NLL: exact, of the learned model on "
        "test data. 95 %, 99 %: steps until the ESS reaches that share of K.",
    )
    for title in ("method", *names, "ESS", "NLL", "95 %", "99 %"):
        found.add_column(title, justify="left" if title == "method" else "right", no_wrap=True)
    for one in learned:
        values = one.finals()
        found.add_row(
            f"{one.method} {one.particles}" if several else one.method,
            *(f"{one.mean(name):.3f}" if name in values else "–" for name in names),
            f"{one.mean('ess'):.1f}",
            f"{one.mean('exact_nll_per_step'):.4f}",
            *(_steps(one.steps_to(share)) for share in LEVELS),
        )
    best = [f"{optimum[name]:.3f}" for name in names]
    found.add_row("exact", *best, f"{ideal.ess:.1f}", f"{ideal.exact_nll_per_step:.4f}", "", "")
    console.print(found)


def _verdict(one: Learned, optimum: dict[str, float], ideal: Evaluation) -> str:
    if "phi_3" not in one.finals():
        return "–"
    return "yes" if arrived(one, optimum, ideal) else "no"


def _steps(steps: float) -> str:
    return "never" if math.isinf(steps) else f"{steps:.0f}"
