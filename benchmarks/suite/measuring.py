"""One row: all its contenders side by side, one repeat of each after the other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suite import statistics
from suite.contenders import OURS
from suite.workers import Crashed, Worker
from suite.workloads import Workload

sys.path.append(str(Path(__file__).parents[1] / "peers"))


@dataclass(frozen=True)
class Effort:
    """How much time a row may take.

    - `repeats`: timed calls of each contender.
    - `seconds`: that one contender may spend on them; beyond, it has fewer, but at least `least`.
    - `patience`: seconds that one answer may take.
    - `checking`: seconds for calls before the timed ones, by which it is checked what is computed.
    """

    repeats: int
    seconds: float
    least: int
    patience: float
    checking: float = 8.0


QUICK = Effort(repeats=7, seconds=2.0, least=2, patience=90.0, checking=3.0)
FULL = Effort(repeats=31, seconds=60.0, least=5, patience=1800.0)
BURST = 0.08
"""Seconds for which a contender with short calls goes on before the next one has its turn. The first calls after
another process had the machine find its caches cold, which a loop of learning steps does only once."""
GRADIENTS = ("model gradient", "proposal gradient")
"""What learning steps also answer: one number of each side, to be compared in the mean."""


@dataclass(frozen=True)
class Entry:
    """A contender, with so many threads or devices, on a workload."""

    workload: Workload
    contender: str
    variant: int


Start = Callable[[Entry], Worker]
"""Gives the worker of an entry, started or used before."""

Finish = Callable[[Entry, Worker], None]
"""Takes a worker back that is in order."""


def measure(
    entries: Sequence[Entry],
    effort: Effort,
    *,
    start: Start,
    finish: Finish,
    tell: Callable[[str], None],
    preparing: int = 1,
) -> list[dict[str, Any]]:
    """What came out of each entry, in their order. One that crashes says why, and the others go on.

    **Arguments:**

    - `preparing`: how many prepare side by side; with more than one, the seconds of first calls say little.
    """
    found: list[dict[str, Any]] = [
        {"workload": entry.workload.name, "contender": entry.contender, "variant": entry.variant, "seconds": []}
        | {"values": []}
        for entry in entries
    ]
    workers: list[Worker | None] = [None] * len(entries)

    def prepare(place: int) -> None:
        entry = entries[place]
        tell(f"{entry.contender} prepares")
        try:
            workers[place] = worker = start(entry)
            answer = worker.ask(effort.patience, prepare=entry.workload.as_request())
        except Exception as error:  # whatever it is, the table says so
            found[place]["crashed"] = str(error) or type(error).__name__
            return
        found[place] |= {"first": answer["first"], "temporary": answer["temporary"], "versions": worker.versions}
        found[place]["values"] += answer["values"]

    try:
        with ThreadPoolExecutor(preparing) as threads:
            list(threads.map(prepare, range(len(entries))))
        _interleave(entries, workers, found, effort, tell)
        for worker, result in zip(workers, found, strict=True):
            if worker is None or "crashed" in result:
                continue
            try:
                result["memory"] = worker.ask(memory=True)
                result["summary"] = statistics.summary(result["seconds"])
            except Crashed as error:
                result["crashed"] = str(error)
    finally:
        for entry, worker, result in zip(entries, workers, found, strict=True):
            if worker is not None and "summary" in result:
                finish(entry, worker)
            elif worker is not None:
                worker.close()
    return found


def _interleave(
    entries: Sequence[Entry],
    workers: Sequence[Worker | None],
    found: Sequence[dict[str, Any]],
    effort: Effort,
    tell: Callable[[str], None],
) -> None:
    """Round after round, each contender once; short calls several times, and the median of those is one repeat."""
    for repeat in range(effort.repeats + 1):
        for entry, worker, result in zip(entries, workers, found, strict=True):
            if worker is None or "crashed" in result or _has_enough(result["seconds"], effort):
                continue
            tell(f"{entry.contender}, repeat {repeat}")
            calls = _burst(result) if repeat else _calls_to_check(entry.workload, result, effort)
            try:
                answer = worker.ask(effort.patience, run=calls, seed=1 + len(result["values"]))
            except Crashed as error:
                result["crashed"] = str(error)
                continue
            result["values"] += answer["values"]
            if repeat:  # the first one warms up, and says how long a call takes
                result["seconds"].append(float(statistics.summary(answer["seconds"])["median"]))
            else:
                result["warm"] = min(answer["seconds"])


def _calls_to_check(workload: Workload, result: dict[str, Any], effort: Effort) -> int:
    """A dozen where that takes no more than seconds, for the check of what is computed; the first took a bit more."""
    return max(1, min(12, int(effort.checking / result["first"]))) if workload.is_compared else 1


def _burst(result: dict[str, Any]) -> int:
    return max(1, min(200, int(BURST / result["warm"]))) if "warm" in result else 1


def _has_enough(seconds: Sequence[float], effort: Effort) -> bool:
    return len(seconds) >= effort.least and sum(seconds) > effort.seconds


def judge(workload: Workload, found: Sequence[dict[str, Any]]) -> None:
    """Adds to each result whether it computes what ours and the Kalman filter do."""
    if not workload.has_truth:
        return
    from serving import exact_log_evidence, observations

    exact = exact_log_evidence(observations(workload.series, workload.steps))
    sound = [one for one in found if "crashed" not in one]
    evidences = {id(one): [value["log_evidence"] for value in one["values"]] for one in sound}
    of_one = statistics.spread(list(evidences.values()))
    ours = next((one for one in sound if one["contender"] == OURS), None)
    for one in sound:
        one["truth"] = statistics.truth_gap(evidences[id(one)], exact, of_one, workload.averaged)
        for what in GRADIENTS:
            theirs = [value[what] for value in one["values"] if what in value]
            if theirs and ours is not None and one is not ours:
                one[what] = statistics.mean_gap([value[what] for value in ours["values"]], theirs)


def best(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One result for each contender: its fastest variant; where all crashed, the first."""
    chosen: dict[str, dict[str, Any]] = {}
    for one in found:
        before = chosen.get(one["contender"])
        if before is None or _seconds(one) < _seconds(before):
            chosen[one["contender"]] = one
    ours = chosen.get(OURS)
    for one in chosen.values():
        if ours is not None and "summary" in one and "summary" in ours:
            one["ratio"] = one["summary"]["median"] / ours["summary"]["median"]
    return list(chosen.values())


def _seconds(result: dict[str, Any]) -> float:
    return result["summary"]["median"] if "summary" in result else float("inf")
