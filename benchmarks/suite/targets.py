"""What must be true of the results, each with its number. Reported, never asserted: machines differ."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from suite import startup, workloads
from suite.contenders import OURS


class Target(NamedTuple):
    """A demand; `met` is None where nothing was measured."""

    demand: str
    wanted: str
    measured: str
    met: bool | None


def targets(results: dict[str, Any]) -> list[Target]:
    """All of them, from what the suite found."""
    rows = {row["workload"]["name"]: row for row in results.get("rows", [])}
    return [
        *_filtering(rows),
        *_learning(rows),
        *_growth(results.get("growth", {})),
        *_startup(results.get("startup", {})),
    ]


def _filtering(rows: dict[str, Any]) -> list[Target]:
    found = []
    for workload, wanted in zip(workloads.filtering(), (1.3, 1.5, 2.0), strict=True):
        ratios = _ratios(rows.get(workload.name))
        demand = f"filtering, {workload.title}: faster than every peer"
        if not ratios:
            found.append(Target(demand, f"≥ {wanted}", "not measured", None))
            continue
        nearest = min(ratios, key=lambda name: ratios[name])
        found.append(Target(demand, f"≥ {wanted}", f"{ratios[nearest]:.2f} ({nearest})", ratios[nearest] >= wanted))
    first = workloads.filtering()[0]
    ratio = _ratios(rows.get(first.name)).get("particles")
    return [*found, _at_least(f"filtering, {first.title}: faster than particles", ratio, 10.0)]


def _learning(rows: dict[str, Any]) -> list[Target]:
    learning = {(one.objective, one.series, one.particles): rows.get(one.name) for one in workloads.learning()}
    found = []
    for particles, wanted in ((10, 25.0), (100, 12.0), (1000, 4.0)):
        ratio = _ratios(learning["mcfo-smc", 10, particles]).get("PyTorch loop")
        demand = f"learning step, B=10, T=50, K={particles}: faster than the PyTorch loop"
        found.append(_at_least(demand, ratio, wanted))
    against = [
        _median(learning["fivo", series_list, particles]) / _median(learning["mcfo-smc", series_list, particles])
        for _, series_list, particles in learning
        if _ == "fivo"
    ]
    against = [one for one in against if np.isfinite(one)]
    least, middle = (min(against), float(np.median(against))) if against else (None, None)
    return [
        *found,
        _at_least("MCFO never slower than our FIVO: the worst row", least, 1.0),
        _at_least("MCFO faster than our FIVO: the median row", middle, 1.1),
    ]


def _growth(growth: dict[str, Any]) -> list[Target]:
    found = []
    for axis, symbol, most in (("steps", "T", 1.05), ("particles", "K", 1.15), ("series", "B", 1.05)):
        found.append(_at_most(f"time grows with {symbol}: exponent", growth.get(axis, {}).get("time_exponent"), most))
    along = growth.get("steps", {})
    peak, slope, kept = (along.get(name) for name in ("peak_ratio", "bytes_a_step", "bytes_of_particles"))
    demand = "memory does not grow with T: the process's peak, as T grows tenfold"
    if peak is None:
        return [*found, Target(demand, "≤ 1.1", "not measured", None)]
    measured = f"{peak:.2f}; {slope:.0f} bytes a step and series, where particles have {kept}"
    return [*found, Target(demand, "≤ 1.1", measured, bool(peak <= 1.1 and slope < kept))]


def _startup(found: dict[str, Any]) -> list[Target]:
    limits = {"import mcfo": 2.0, "import mcfo and use it": 2.0, startup.HELP: 1.0, startup.FIT: 3.0}
    limits |= {startup.STRUCTURAL: 8.0, startup.RESULT: 5.0, startup.FORECAST: 8.0, startup.CALL: 0.5}
    return [
        _at_most(f"{name}, seconds", found.get(name, {}).get("summary", {}).get("median"), most)
        for name, most in limits.items()
    ]


def _ratios(row: dict[str, Any] | None) -> dict[str, float]:
    """How many times slower each peer is; those that crashed, or compute something else, are none."""
    results = [] if row is None else row["best"]
    return {
        one["contender"]: one["ratio"]
        for one in results
        if one["contender"] != OURS and "ratio" in one and one.get("truth", {}).get("agrees") is not False
    }


def _median(row: dict[str, Any] | None) -> float:
    results = [] if row is None else row["best"]
    return next((one["summary"]["median"] for one in results if one["contender"] == OURS and "summary" in one), np.nan)


def _at_least(demand: str, number: float | None, wanted: float) -> Target:
    if number is None:
        return Target(demand, f"≥ {wanted:g}", "not measured", None)
    return Target(demand, f"≥ {wanted:g}", f"{number:.2f}", bool(number >= wanted))


def _at_most(demand: str, number: float | None, most: float) -> Target:
    if number is None:
        return Target(demand, f"≤ {most:g}", "not measured", None)
    return Target(demand, f"≤ {most:g}", f"{number:.2f}", bool(number <= most))
