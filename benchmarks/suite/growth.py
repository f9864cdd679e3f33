"""How time and memory of an MCFO gradient grow with the length, the particles and the series."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from suite import statistics
from suite.contenders import OURS
from suite.measuring import Effort, Entry, measure
from suite.pool import Pool
from suite.workloads import AXES, growth

SYMBOLS = {"steps": "T", "particles": "K", "series": "B"}


def grow(quick: bool, effort: Effort, tell: Callable[[str], None]) -> dict[str, Any]:
    """A process of its own for every size, so that each has its own peak; repeats are interleaved over the sizes."""
    found = {}
    for axis in AXES:
        entries = [Entry(workload, OURS, 1) for workload in growth(axis, quick)]
        with Pool(reuse=False) as pool:
            pool.expect(entries)
            pool.wait()
            results = measure(entries, effort, start=pool.take, finish=pool.give_back, tell=tell, preparing=2)
        found[axis] = curve(axis, [getattr(entry.workload, axis) for entry in entries], results)
        workload = entries[0].workload
        fixed = {SYMBOLS[other]: getattr(workload, other) for other in AXES if other != axis}
        found[axis] |= {"fixed": fixed}
        if axis == "steps" and "time_exponent" in found[axis]:
            found[axis] |= along_steps(found[axis], workload.series, workload.particles)
    return found


def curve(axis: str, sizes: list[int], results: list[dict[str, Any]]) -> dict[str, Any]:
    """Times and memory by size, and the exponent of the times over the upper part."""
    measured = [(size, one) for size, one in zip(sizes, results, strict=True) if "summary" in one]
    content: dict[str, Any] = {
        "axis": axis,
        "sizes": [size for size, _ in measured],
        "seconds": [one["summary"] for _, one in measured],
        "temporary": [one["temporary"] for _, one in measured],
        "peak": [one["memory"]["peak"] for _, one in measured],
        "crashed": {str(size): one["crashed"] for size, one in zip(sizes, results, strict=True) if "crashed" in one},
    }
    if len(measured) > 1:
        medians = [one["summary"]["median"] for _, one in measured]
        content["time_exponent"] = statistics.exponent(content["sizes"], medians)
    return content


def along_steps(content: dict[str, Any], series_list: int, particles: int) -> dict[str, Any]:
    """Whether memory stays: the peak at the largest T over that at the third largest, and what a step adds.

    The observations, keys and records of each step have to be somewhere; the particles have not.
    """
    return {
        "peak_ratio": content["peak"][-1] / content["peak"][-3:][0],
        "bytes_a_step": statistics.slope(content["sizes"][-3:], content["temporary"][-3:]) / series_list,
        "bytes_of_particles": 4 * particles,
    }
