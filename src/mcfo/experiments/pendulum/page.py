"""The report of the pendulum experiment, and its table in the terminal."""

from __future__ import annotations

from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from mcfo.experiments.pendulum.claims import claims
from mcfo.experiments.pendulum.methods import FIRST_RATE, PAPER_STEPS, PROPOSAL_PARTICLES, SWEEPS, Preset
from mcfo.experiments.pendulum.summary import EVALUATED, Outcomes
from mcfo.reports.html import Report

_TITLES = {
    "prediction": "prediction error",
    "prediction_by_mean": "by predictive mean",
    "nll": "NLL of a video",
    "ess_at_test": "ESS",
}
_PAPER = {
    ("aesmc", 10): ("65.53", "160.0"),
    ("mcfo-smc", 10): ("47.54", "181.0"),
    ("mcfo-pimh", 10): ("42.14", "195.6"),
    ("aesmc", 20): ("51.13", "122.5"),
    ("mcfo-smc", 20): ("37.18", "173.0"),
    ("mcfo-pimh", 20): ("33.82", "163.0"),
    ("aesmc", 50): ("50.84", "112.5"),
    ("mcfo-smc", 50): ("34.06", "139.2"),
    ("mcfo-pimh", 50): ("37.01", "168.8"),
    ("aesmc", 100): ("37.87", "81.9"),
    ("mcfo-smc", 100): ("36.17", "130.1"),
    ("mcfo-pimh", 100): ("33.71", "104.5"),
    ("aesmc", 200): ("37.65", "80.6"),
    ("mcfo-smc", 200): ("34.24", "129.0"),
    ("mcfo-pimh", 200): ("33.80", "129.9"),
    ("aesmc", 500): ("36.93", "78.5"),
    ("mcfo-smc", 500): ("34.21", "128.8"),
    ("mcfo-pimh", 500): ("33.74", "130.0"),
    ("aesmc", 1000): ("36.73", "79.9"),
    ("mcfo-smc", 1000): ("34.18", "127.0"),
    ("mcfo-pimh", 1000): ("33.62", "125.1"),
}
"""Prediction error and ESS in the paper's tables 2 and 5."""


def write_report(
    path: Path,
    outcomes: Outcomes,
    baselines: dict[str, float],
    pictures: dict[str, Path],
    *,
    size: Preset,
    command: str,
    elapsed: float,
) -> Path:
    """Writes the page and returns its path."""
    report = Report(
        "Pendulum videos: a deep state-space model from pixels",
        summary=(
            f"Videos of a swinging pendulum, {size.length} binary frames of 32 x 32 pixels, are learned by a model "
            f"with {size.latent} latent dimensions{f', {size.traces} traces of these,' if size.traces else ''} and "
            f"networks for transition, emission and proposal, by {len(size.methods)} methods, "
            f"K = {', '.join(map(str, size.particles))} and "
            f"{len(size.seeds)} seed{'s' if len(size.seeds) > 1 else ''}. It took {elapsed / 60:.0f} minutes."
        ),
        command=command,
    )
    skipped = {
        f"{one.method} K={one.particles} seed {one.seed}": one.skipped for one in outcomes.learned if one.skipped
    }
    if skipped:
        report.warning(
            "Updates that were not finite were skipped: "
            + ", ".join(f"{name} {count}" for name, count in skipped.items())
            + f" of {size.steps}."
        )
    report.heading("What came out")
    report.findings(claims(outcomes, baselines))
    report.heading("Where each method ends")
    header, rows, marked = table(outcomes, baselines)
    report.table(
        header,
        rows,
        caption=(
            f"Mean ± standard deviation over the last {size.last:.0%} of learning and all seeds, on "
            f"{size.evaluated} of {size.test_series} test videos, evenly spread over them, by SMC with "
            f"{size.evaluation_particles} particles. "
            "Prediction error: the sum over t = 2..T of the L2 norm between the gray frame and the picture at the "
            "predicted mean latent, as in the paper; by predictive mean: the same of the mean over predicted latents. "
            "Motion: the share of the rod's motion until the next frame that the last models' predictive means "
            "foresee, one for whoever knows the speed and zero for a picture that stays. "
            "Bold: the best of each K. In the paper: tables 2 and 5, whose crop, contrast and first state are unknown, "
            "so that its numbers have another scale."
        ),
        marked=marked,
    )
    report.heading("Pictures")
    shown = "K = {}, seed {}".format(*size.shown)
    captions = {
        "curves": "The paper's figure 3, left and middle: test videos while learning. Bands: range over the seeds.",
        "frames": (
            "The paper's figures 3, right, and 10: gray frames, what was observed of them, and for each method the "
            f"one-step prediction and its absolute difference, {shown}."
        ),
        "latents": (
            "The paper's figure 11: latents of the test videos, filtered and one step ahead, colored by the true "
            f"angle, {shown}."
        ),
    }
    for name, picture in pictures.items():
        report.figure(picture, captions[name], alt=captions[name])
    report.heading("How it was run")
    report.text(
        f"{size.series} videos to learn from, in batches of {size.batch}; view: center crop with half extent 1.1, rod "
        f"at full contrast. {size.steps} iterations of Adam; the learning rate falls from {FIRST_RATE:g} to "
        f"{size.last_rate:g} in them ({size.schedule}), by the paper's schedule to 1e-4 in about {PAPER_STEPS}. The "
        "rate of a layer with n inputs is √(2/n) of that. Networks as in the paper, with ReLU and He's weights; the "
        "emission's bias begins at the log-odds of the mean picture, the transition near the identity, the proposal at "
        "the principal components of the pictures, so that different angles have different latents from the start; the "
        f"latent has {size.latent} dimensions (in the paper three). {_traces(size)}MCFO: {PROPOSAL_PARTICLES} "
        f"particles for phi; PIMH with {SWEEPS} sweeps; AESMC, NASMC and DReG: K for both. Baselines: "
        "the mean gray picture of the training videos; the binary frame before, which is what a model sees; "
        "persistence, the gray frame before, which no model sees; and, of whoever knows the simulator and its true "
        "state, the picture at the expected angle and the mean picture over the angle's noise. float32."
    )
    report.write(path)
    return path


def _traces(size: Preset) -> str:
    if not size.traces:
        return ""
    return (
        f"Beside it there are {size.traces} traces, running means that no network moves and the emission does not "
        "read, so that a state tells of more than one picture. "
    )


def table(
    outcomes: Outcomes, baselines: dict[str, float]
) -> tuple[list[str], list[list[str]], frozenset[tuple[int, int]]]:
    """Header, rows, and the best cells of each K."""
    header = ["method", "K", *(_TITLES[metric] for metric in EVALUATED), "motion", "in the paper", "minutes"]
    rows = []
    for method, particles in outcomes.places:
        cells = [method, str(particles)]
        for metric in EVALUATED:
            cells.append(outcomes.of(method, particles, metric).words())
        cells.append(outcomes.motion(method, particles).words())
        minutes = [one.seconds / 60 for one in outcomes.runs(method, particles)]
        paper = _PAPER.get((method, particles))
        rows.append([*cells, f"{paper[0]}, ESS {paper[1]}" if paper else "–", f"{sum(minutes) / len(minutes):.1f}"])
    marked = set()
    for particles in {count for _, count in outcomes.places}:
        places = [place for place, (_, count) in enumerate(outcomes.places) if count == particles]
        for column, metric in enumerate(EVALUATED, 2):
            means = {place: outcomes.of(*outcomes.places[place], metric).mean for place in places}
            best = max if metric == "ess_at_test" else min
            marked.add((best(means, key=means.__getitem__), column))
    for name, value in baselines.items():
        rows.append([name, "", f"{value:.2f}", *["–"] * (len(header) - 3)])
    return header, rows, frozenset(marked)


def print_table(console: Console, outcomes: Outcomes, baselines: dict[str, float]) -> None:
    """The same in the terminal, without the paper's."""
    header, rows, _ = table(outcomes, baselines)
    shown = Table(box=SIMPLE_HEAD)
    for name in header[:-2]:
        shown.add_column(name, justify="left" if name == "method" else "right")
    for row in rows:
        shown.add_row(*row[:-2])
    console.print(shown)
