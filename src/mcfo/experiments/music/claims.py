"""What the paper says of polyphonic music, and what came out, each with its numbers."""

from __future__ import annotations

import math

from mcfo.experiments.music.summary import Outcomes
from mcfo.experiments.outcome import clearly

PAPER = {
    ("mcfo-smc", 10): {"nottingham": 2.23, "jsb": 3.87, "musedata": 3.79, "piano-midi": 6.24},
    ("mcfo-smc", 20): {"nottingham": 2.14, "jsb": 3.69, "musedata": 3.65, "piano-midi": 6.11},
    ("mcfo-pimh", 10): {"nottingham": 2.12, "jsb": 3.63, "musedata": 3.59, "piano-midi": 6.08},
    ("mcfo-pimh", 20): {"nottingham": 2.06, "jsb": 3.54, "musedata": 3.48, "piano-midi": 6.03},
    ("fivo", 10): {"nottingham": 2.60, "jsb": 3.90, "musedata": 5.85, "piano-midi": 6.37},
    ("iwae", 10): {"nottingham": 2.50, "jsb": 5.43, "musedata": 6.28, "piano-midi": 6.54},
}
"""NLL per step in the paper's table 3; FIVO and IWAE as its authors trained them."""


def claims(outcomes: Outcomes, baselines: dict[str, dict[str, float]]) -> list[str]:
    """One sentence or two for each question and data set."""
    found = []
    for data in outcomes.data:
        places = [place[1:] for place in outcomes.places if place[0] == data]
        for method, particles in places:
            if method != "mcfo-smc" and ("mcfo-smc", particles) in places:
                found.append(_against(outcomes, data, method, particles))
        for method in dict.fromkeys(method for method, _ in places):
            sizes = sorted(particles for other, particles in places if other == method)
            if len(sizes) > 1:
                found.append(_larger(outcomes, data, method, sizes))
        found.append(_best(outcomes, data, places, baselines[data]))
    return found


def _against(outcomes: Outcomes, data: str, method: str, particles: int) -> str:
    ours, theirs = (outcomes.of(data, one, particles, "test_nll") for one in ("mcfo-smc", method))
    ess = [outcomes.of(data, one, particles, "test_ess").mean for one in ("mcfo-smc", method)]
    gap = theirs.mean - ours.mean
    which = "lower" if gap > 0 else "higher"
    paper = [PAPER.get((one, particles), {}).get(data) for one in ("mcfo-smc", method)]
    said = f" In the paper {paper[0]:.2f} and {paper[1]:.2f}." if None not in paper else ""
    return (
        f"{data}, K = {particles}: the test NLL of mcfo-smc is {ours.words(3)}, of {method} {theirs.words(3)}, so that "
        f"mcfo-smc's is {which} by {abs(gap):.3f}{clearly(ours, theirs)}; ESS {ess[0]:.0f} and {ess[1]:.0f}.{said}"
    )


def _larger(outcomes: Outcomes, data: str, method: str, sizes: list[int]) -> str:
    first, last = (outcomes.of(data, method, size, "test_nll") for size in (sizes[0], sizes[-1]))
    return (
        f"{data}, a larger K while learning, {method}: the test NLL goes from {first.words(3)} at K = {sizes[0]} to "
        f"{last.words(3)} at K = {sizes[-1]}{clearly(first, last)}."
    )


def _best(outcomes: Outcomes, data: str, places: list[tuple[str, int]], baselines: dict[str, float]) -> str:
    means = {place: outcomes.of(data, *place, "test_nll").mean for place in places}
    best = min(means, key=means.__getitem__)
    few, train = (outcomes.of(data, *best, metric).mean for metric in ("test_nll_few", "train_nll"))
    without = " and ".join(f"{value:.2f} ({name})" for name, value in baselines.items())
    paper = min((table[data] for table in PAPER.values() if data in table), default=math.nan)
    return (
        f"{data}: the best test NLL is {means[best]:.3f}, of {best[0]} with K = {best[1]}; evaluated with as few "
        f"particles as it learned with, {few:.3f}. On pieces that it learned from it has {train:.3f}: a gap of "
        f"{means[best] - train:.2f} to what it has by heart. Without latents {without}. The paper's best is "
        f"{paper:.2f}, {means[best] - paper:.2f} lower."
    )
