"""A one-sentence summary of a run, and its likely trouble."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from mcfo.smc.trace import Record, Trace

_FEW = 0.02
"""A step is degenerate if its effective sample size is below this share of the particles, or below 1.5."""


def describe(trace: Any) -> str:
    """Return one sentence: healthy, degenerate or collapsed, at which step, and the likely cause with its remedy.

    Steps are counted from 1. For a batch (a trace with one more axis in front), the sentence describes the first series
    in trouble.
    """
    if not isinstance(trace, Trace):
        raise TypeError(f"describe() reads a Trace, but got {type(trace).__name__}. For a PIMH chain use chain.trace.")
    runs = _runs(trace)
    if trace.record.log_evidence.ndim == 1:
        return _describe_one(runs[0])
    troubled = [run for run in runs if _first_trouble(run) is not None]
    if not troubled:
        ess = np.concatenate([run.record.ess for run in runs])
        return (
            f"All {len(runs)} series went well: the effective sample size lies between {ess.min():.1f} and "
            f"{ess.max():.1f} of {trace.particle_count} particles."
        )
    return (
        f"{len(troubled)} of {len(runs)} series are in trouble, the first is number {troubled[0].series_id}: "
        f"{_describe_one(troubled[0])}"
    )


def require_finite(trace: Trace) -> Trace:
    """Return the trace if its evidence is finite; otherwise raise an error with the sentence of `describe`."""
    if not np.isfinite(np.asarray(trace.log_evidence)).all():
        raise FloatingPointError(describe(trace))
    return trace


class _Run(NamedTuple):
    """The record of one series as numpy arrays, without padding."""

    record: Record
    particles: int
    series_id: int


def _runs(trace: Trace) -> list[_Run]:
    record = jax.tree.map(lambda array: np.atleast_2d(np.asarray(array)), trace.record)
    count, steps = record.log_evidence.shape
    lengths = np.full(count, steps) if trace.length is None else np.atleast_1d(np.asarray(trace.length))
    ids = np.atleast_1d(np.asarray(trace.series_id))
    return [
        _Run(jax.tree.map(lambda array, i=i: array[i, : lengths[i]], record), trace.particle_count, int(ids[i]))
        for i in range(count)
    ]


def _describe_one(run: _Run) -> str:
    record, particles, _ = run
    if not len(record.ess):
        return "The series has no steps: its log-evidence is 0."
    step = _first_trouble(run)
    if step is None:
        return (
            f"{particles} particles over {len(record.ess)} steps went well: "
            f"log-evidence {record.log_evidence.sum():.4g}, effective sample size between {record.ess.min():.1f} and "
            f"{record.ess.max():.1f} (mean {record.ess.mean():.1f}), resampled {int(record.resampled.sum())} times."
        )
    where = f"step {step + 1} of {len(record.ess)}"
    increment = float(record.log_evidence[step])
    if np.isnan(increment):
        return (
            f"NaN at {where}: a log-density of the model or the proposal is not a number. Look for a scale that is "
            "negative or NaN, a logarithm of a negative number, or parameters that an optimizer has ruined."
        )
    if increment == np.inf:
        return (
            f"Infinite weight at {where}: a density of the model is infinite. Look for a scale that has shrunk to zero "
            "and bound it from below."
        )
    if increment == -np.inf:
        return f"Collapsed at {where}: all {particles} particles have weight zero. {_why_collapsed(record, step)}"
    return (
        f"Degenerate at {where}: the effective sample size is {record.ess[step]:.1f} of {particles} particles. "
        f"{_why_degenerate(record, step)}"
    )


def _why_collapsed(record: Record, step: int) -> str:
    if step and record.ess[step - 1] < 2.0:
        return (
            f"They had degenerated before (effective sample size {record.ess[step - 1]:.1f} at step {step}): "
            "use more particles, resample earlier, or a proposal that sees the observation."
        )
    return (
        "The observation is impossible, or too far from everything that was proposed: check its value and the "
        "emission's support and scale, use a proposal that sees the observation, or more particles."
    )


def _why_degenerate(record: Record, step: int) -> str:
    if not record.resampled.any() and step:
        return (
            "Nothing was ever resampled, so the weights spread with every step: resample when the effective sample "
            "size falls below half of the particles, criterion=ESSBelow(0.5), or use more of them."
        )
    before = float(np.median(record.ess))
    if record.ess[step] < 0.2 * before:
        return (
            f"The median over all steps is {before:.1f}, so this observation stands out: an outlier, or a jump that "
            "the transition does not allow for."
        )
    return (
        "It is low throughout: the proposal misses where the observations point. Learn the proposal, widen it, or use "
        "more particles."
    )


def _first_trouble(run: _Run) -> int | None:
    """Return the first step whose evidence is not finite; otherwise the step of lowest ESS if it is degenerate."""
    record, particles, _ = run
    if not len(record.ess):
        return None
    broken = np.flatnonzero(~np.isfinite(record.log_evidence))
    if len(broken):
        return int(broken[0])
    worst = int(np.argmin(record.ess))
    return worst if particles > 1 and record.ess[worst] < max(1.5, _FEW * particles) else None
