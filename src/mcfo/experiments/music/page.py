"""The report of the music experiment, and its table in the terminal."""

from __future__ import annotations

from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from mcfo.experiments.music.claims import PAPER, claims
from mcfo.experiments.music.methods import SWEEPS, Preset
from mcfo.experiments.music.summary import Outcomes
from mcfo.reports.html import Report

_COLUMNS = {
    "test_nll": "test NLL",
    "valid_nll": "validation",
    "train_nll": "training",
    "test_nll_few": "test, K",
    "test_ess": "ESS",
    "best_step": "best step",
    "minutes": "minutes",
}
_DIGITS = {"test_ess": 1, "best_step": 0, "minutes": 1}


def write_report(
    path: Path,
    outcomes: Outcomes,
    baselines: dict[str, dict[str, float]],
    pictures: dict[str, Path],
    *,
    size: Preset,
    command: str,
    elapsed: float,
) -> Path:
    """Writes the page and returns its path."""
    report = Report(
        "Polyphonic music: variational recurrent networks",
        summary=(
            f"Piano-rolls of {', '.join(outcomes.data)} are learned by a VRNN (LSTM, latents and networks of 64 "
            f"units), by {len(size.methods)} method{'s' if len(size.methods) > 1 else ''}, K = "
            f"{', '.join(map(str, size.particles))}, {len(size.seeds)} seed{'s' if len(size.seeds) > 1 else ''}. "
            f"It took {elapsed / 60:.0f} minutes."
        ),
        command=command,
    )
    skipped = {one.job.name: one.skipped for one in outcomes.learned if one.skipped}
    if skipped:
        report.warning(
            "Updates that were not finite were skipped: "
            + ", ".join(f"{name} {count}" for name, count in skipped.items())
            + "."
        )
    report.heading("What came out")
    report.findings(claims(outcomes, baselines))
    report.heading("The paper's table 3")
    header, rows, marked = table(outcomes, baselines)
    report.table(
        header,
        rows,
        caption=(
            f"NLL per step. Test: by SMC with {size.test_particles} particles, {size.test_runs} evaluations of each "
            "run, mean ± standard deviation over them and the seeds, of the parameters with the lowest NLL on the "
            "validation split; test, K: with the particles of learning; training: pieces that were learned from. ESS: "
            f"of {size.test_particles}, on the test split. Bold: the best of each data set."
        ),
        marked=marked,
    )
    report.heading("Pictures")
    caption = (
        "Learning. Rings: what is kept of each run, by the validation split. Where the left panel falls on while the "
        "middle one rises, pieces are learned by heart."
    )
    for picture in pictures.values():
        report.figure(picture, caption, alt=caption)
    report.heading("How it was run")
    for name, course in size.courses:
        window = "" if course.window is None else f" Gradients go back {course.window} steps at most."
        keys = f", in all keys up to {course.transposed} semitones up and down" if course.transposed else ""
        decay = f" Weights decay by {course.decay:g} times the rate." if course.decay else ""
        report.text(
            f"{name}: {course.steps} updates of Adam with {course.batch} pieces each{keys}; the rate falls from "
            f"{course.rate:g} to zero by a cosine, {course.evaluations} evaluations on the way.{decay}{window}"
        )
    report.text(
        "All methods start from the same networks: emission at the note frequencies of the training split, a proposal "
        "that corrects the prior's mean, deviations by softplus with 0.25 added before it, inputs centered. MCFO-PIMH: "
        f"{SWEEPS} sweeps. Validation: {size.validation_particles} particles. Baselines have "
        "no latents: each key as often as in the training split; each key given whether it sounded a step before. "
        "float32."
    )
    report.write(path)
    return path


def table(
    outcomes: Outcomes, baselines: dict[str, dict[str, float]]
) -> tuple[list[str], list[list[str]], frozenset[tuple[int, int]]]:
    """Header, rows, and the best cells of each data set."""
    rows, marked = [], set()
    for data in outcomes.data:
        places = [place for place in outcomes.places if place[0] == data]
        means = {place: outcomes.of(*place, "test_nll").mean for place in places}
        marked.add((len(rows) + places.index(min(means, key=means.__getitem__)), 3))
        for place in places:
            cells = [outcomes.of(*place, metric).words(_DIGITS.get(metric, 3)) for metric in _COLUMNS]
            paper = PAPER.get(place[1:], {}).get(data)
            rows.append([data, place[1], str(place[2]), *cells, "–" if paper is None else f"{paper:.2f}"])
        for name, value in baselines[data].items():
            rows.append([data, name, "", f"{value:.3f}", *["–"] * len(_COLUMNS)])
    return ["data", "method", "K", *_COLUMNS.values(), "in the paper"], rows, frozenset(marked)


def print_table(console: Console, outcomes: Outcomes, baselines: dict[str, dict[str, float]]) -> None:
    """The same, shorter, in the terminal."""
    header, rows, _ = table(outcomes, {data: {} for data in outcomes.data})
    shown = [place for place, name in enumerate(header) if name not in ("best step", "test, K")]
    without = "; ".join(
        f"{data}: " + ", ".join(f"{value:.2f} by {name}" for name, value in found.items())
        for data, found in baselines.items()
    )
    found = Table(box=SIMPLE_HEAD, padding=(0, 0), caption=f"NLL per step. Without latents, {without}.")
    for place in shown:
        left = place < 2
        found.add_column(header[place], justify="left" if left else "right", no_wrap=left)
    for row in rows:
        found.add_row(*(row[place] for place in shown))
    console.print(found)
