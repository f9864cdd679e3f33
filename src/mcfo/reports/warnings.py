"""What a reader must know before believing a number of a run: each warning with its likely cause and a remedy."""

from __future__ import annotations

from mcfo.data.run_record import RunRecord, SeedRecord, text, whole
from mcfo.files import nested
from mcfo.reports.formatting import counted, fixed, percent, seeds_named, shortened

LOW_SAMPLE_SIZE = 0.05
"""ESS over K below which a filter's estimates rest on a few particles."""
LARGE_SPREAD = (0.05, 0.02)
"""Between the seeds' NLL per step: nats (a likelihood 5% higher at each step) and share of the NLL; both must be
exceeded, because noise grows with the dimension as the NLL does."""


def run_warnings(run: RunRecord) -> list[str]:
    """The warnings, the gravest first."""
    checks = (
        _not_ended(run),
        _collapsed(run.results),
        _without_result(run),
        _skipped(run),
        _low_sample_size(run),
        _spread(run.results),
    )
    stored = nested(run.ended, "warnings")
    others = [shortened(line, 1000) for line in stored if text(line)] if isinstance(stored, list) else []
    return [warning for warning in checks if warning is not None] + others


def _not_ended(run: RunRecord) -> str | None:
    if run.ended is not None:
        return None
    of = "" if run.planned is None else f" of {run.planned}"
    stands = f"it is at step {run.step}{of}" if run.lines else "nothing was recorded yet"
    how = "command and --resume" if text(run.config.get("command")) else "call and resume=True"
    below = " The numbers below are preliminary, from the batches of learning." if run.lines else ""
    return f"This run has not ended: {stands}. Resume it with the same {how}.{below}"


def _collapsed(results: list[SeedRecord]) -> str | None:
    counts = {result.seed: whole(result.value("collapsed")) or 0 for result in results}
    seeds = [seed for seed, count in counts.items() if count > 0]
    if not seeds:
        return None
    series = whole(next(result.value("series") for result in results if result.seed == seeds[0]))
    of = "" if series is None else f" of {series}"
    return (
        f"The filter collapsed in up to {max(counts.values())}{of} series at the evaluation ({seeds_named(seeds)}): at "
        "some step no particle explained the observation, so the likelihood is zero there, and the NLL is infinite or "
        "leaves those series out. Look for outliers in the data, use more particles, or a model with heavier tails or "
        "more noise."
    )


def _without_result(run: RunRecord) -> str | None:
    seeds = [result.seed for result in run.results if result.value("nll_per_step") is None]
    if run.ended is not None and not run.results:
        return "results.json holds no result of any seed. Run again with --resume to write it anew."
    if not seeds:
        return None
    return (
        f"There is no finite NLL for {seeds_named(seeds)}. Do not use these parameters; run again with a lower "
        "learning rate or other starting values."
    )


def _skipped(run: RunRecord) -> str | None:
    counts = {seed: count for seed, count in run.skipped.items() if count > 0}
    if not counts:
        return None
    total, taken = sum(counts.values()), run.step * len(run.skipped)
    share = f", {percent(total / taken)} of all steps" if taken else ""
    return (
        f"{counted(total, 'update was', 'updates were')} skipped{share} ({seeds_named(list(counts))}), because the "
        "bound, a gradient or the new parameters were not finite; the parameters stayed as they were. Likely causes: a "
        "learning rate that is too large, a filter that collapsed on an outlier, or a variance that went to zero. "
        "Remedies: a lower learning rate, clipping (--clip), more particles, and a look at the data for outliers."
    )


def _low_sample_size(run: RunRecord) -> str | None:
    if run.ended is not None:
        shares = {result.seed: _share(result.value("ess"), result.value("particles")) for result in run.results}
    else:
        shares = {seed: _share(run.last(seed, "ess"), run.particles) for seed in run.lines}
    low = {seed: share for seed, share in shares.items() if share is not None and share < LOW_SAMPLE_SIZE}
    if not low:
        return None
    return (
        f"The mean ESS is only {percent(min(low.values()))} of the particles ({seeds_named(list(low))}; below "
        f"{LOW_SAMPLE_SIZE:.0%} is low). Bound and gradients then rest on a few particles: they are noisy, and the "
        "bound is loose. Use more particles, or a learned proposal that looks at the observation."
    )


def _spread(results: list[SeedRecord]) -> str | None:
    values = {result.seed: value for result in results if (value := result.value("nll_per_step")) is not None}
    if len(values) < 2:
        return None
    low, high = min(values.values()), max(values.values())
    nats, share = LARGE_SPREAD
    if high - low <= max(nats, share * abs(sum(values.values()) / len(values))):
        return None
    worst = [seed for seed, value in values.items() if value == high]
    return (
        f"The seeds differ much: their NLL per step goes from {fixed(low, 4)} to {fixed(high, 4)} "
        f"({seeds_named(worst)}). Learning has not converged, or ended in different optima. Take more steps, a lower "
        "learning rate or more particles, and do not report one seed alone."
    )


def _share(size: float | None, particles: float | int | None) -> float | None:
    return size / particles if size is not None and particles else None
