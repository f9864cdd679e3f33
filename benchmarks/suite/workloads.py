"""What is measured: rows of the tables, as plain data that a worker in any environment can read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

FILTER, LEARN, PENDULUM, VRNN = "filter", "learn", "pendulum", "vrnn"
SCHEMES = ("systematic", "stratified", "multinomial", "residual")
OBJECTIVES = ("mcfo-smc", "mcfo-pimh", "fivo")
SWEEPS = 5


@dataclass(frozen=True)
class Workload:
    """One row.

    - `group`: the table that it stands in.
    - `family`: what a worker does: filter, learn, pendulum or vrnn.
    - `sweeps`: of PIMH; None for other objectives.
    - `quick`: whether the short suite has it.
    """

    group: str
    family: str
    series: int
    steps: int
    particles: int
    scheme: str = "systematic"
    objective: str | None = None
    sweeps: int | None = None
    quick: bool = True

    @property
    def name(self) -> str:
        """Unique, and fit for a file."""
        sizes = f"B{self.series}-T{self.steps}-K{self.particles}"
        return "-".join(part for part in (self.group, self.objective, self._scheme, sizes) if part)

    @property
    def title(self) -> str:
        """As a table shows it."""
        sizes = [f"T={self.steps}", f"K={self.particles}"]
        if self.series > 1:
            sizes.insert(0, f"B={self.series}")
        return ", ".join([part for part in (self.objective, self._scheme) if part] + sizes)

    @property
    def has_truth(self) -> bool:
        """Whether the Kalman filter knows what comes out."""
        return self.family in (FILTER, LEARN)

    @property
    def is_compared(self) -> bool:
        """Whether others run it too, so that what it computes is checked."""
        return self.has_truth and not self.group.startswith("growth")

    @property
    def averaged(self) -> int:
        """Estimates of the evidence that a series's number is the mean of."""
        return 1 if self.sweeps is None else self.sweeps + 1

    @property
    def _scheme(self) -> str | None:
        return self.scheme if self.group == "schemes" else None

    def as_request(self) -> dict[str, Any]:
        return asdict(self)


def filtering() -> list[Workload]:
    return [
        Workload("filtering", FILTER, 1, 1000, 100),
        Workload("filtering", FILTER, 1, 1000, 10_000),
        Workload("filtering", FILTER, 64, 100, 1000),
    ]


def schemes() -> list[Workload]:
    return [Workload("schemes", FILTER, 1, 1000, 1000, scheme, quick=scheme == "multinomial") for scheme in SCHEMES]


def learning() -> list[Workload]:
    return [
        Workload(
            "learning",
            LEARN,
            series,
            50,
            particles,
            objective=objective,
            sweeps=SWEEPS if objective == "mcfo-pimh" else None,
            quick=series == 10 and (objective != "mcfo-pimh" or particles == 100),
        )
        for series in (10, 100)
        for particles in (10, 100, 1000)
        for objective in OBJECTIVES
    ]


def networks() -> list[Workload]:
    return [
        Workload("networks", PENDULUM, 5, 20, 10, objective="pendulum"),
        Workload("networks", PENDULUM, 5, 20, 100, objective="pendulum", quick=False),
        Workload("networks", VRNN, 4, 200, 10, objective="vrnn", quick=False),
        Workload("networks", VRNN, 16, 200, 10, objective="vrnn", quick=False),
    ]


def growth(axis: str, quick: bool) -> list[Workload]:
    """MCFO gradients that grow along one axis. The three largest accumulate in the scan; smaller ones may not."""
    sizes = {
        "steps": (1000, 3000, 10_000, 30_000, 100_000),
        "particles": (1000, 3000, 10_000, 30_000, 100_000),
        "series": (10, 30, 100, 300, 1000),
    }[axis]
    fixed = {
        "steps": {"series": 4, "particles": 100},
        "particles": {"series": 4, "steps": 50},
        "series": {"steps": 50, "particles": 300},
    }[axis]
    return [
        Workload(f"growth-{axis}", LEARN, objective="mcfo-smc", **{**fixed, axis: size})
        for size in (sizes[2:] if quick else sizes)
    ]


AXES = ("steps", "particles", "series")


def rows(quick: bool) -> list[Workload]:
    """All rows but those of growth."""
    return [one for one in (*filtering(), *schemes(), *learning(), *networks()) if one.quick or not quick]


def together(workloads: Iterable[Workload]) -> list[list[Workload]]:
    """The rows whose repeats are interleaved: learning steps of one size, which are compared with one another."""
    groups: dict[object, list[Workload]] = {}
    for one in workloads:
        key = (one.series, one.particles) if one.group == "learning" else one.name
        groups.setdefault(key, []).append(one)
    return list(groups.values())
